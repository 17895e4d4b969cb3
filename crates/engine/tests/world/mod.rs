//! An engine on fake sandboxes, and handlers to call on it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Call, Engine, EngineConfig, Handler, LogLine, LogSink, Packages, SecretStore, Served, VersionId,
};
use sandbox::fake::{Census, FakeProvider, FakeSettings};
use sandbox::wire::Convention;
use sandbox::{InvocationId, Kind, Limits, Network, PythonSpec, Reset};

/// Everything that was logged.
#[derive(Debug, Default)]
pub struct Lines(pub Mutex<Vec<LogLine>>);

impl LogSink for Lines {
    fn write(&self, line: LogLine) {
        self.0.lock().unwrap().push(line);
    }
}

pub struct World {
    pub provider: FakeProvider,
    pub engine: Arc<Engine>,
    pub lines: Arc<Lines>,
}

impl World {
    pub fn new(config: EngineConfig) -> Self {
        Self::with(config, FakeSettings::default())
    }

    pub fn with(config: EngineConfig, settings: FakeSettings) -> Self {
        let provider = FakeProvider::new(settings);
        let lines = Arc::new(Lines::default());
        let engine =
            Engine::new(Arc::new(provider.clone()), config, Arc::clone(&lines) as Arc<dyn LogSink>);
        Self { provider, engine, lines }
    }

    /// An engine whose handlers have secrets.
    pub fn with_secrets(secrets: Arc<dyn SecretStore>) -> Self {
        let (provider, lines) = (FakeProvider::default(), Arc::new(Lines::default()));
        let sink = Arc::clone(&lines) as Arc<dyn LogSink>;
        let (config, packages) = (EngineConfig::default(), Packages::default());
        let engine =
            Engine::with_stores(Arc::new(provider.clone()), config, sink, packages, secrets);
        Self { provider, engine, lines }
    }

    pub async fn call(&self, handler: &Arc<Handler>) -> Served {
        self.engine.serve(call(handler, b"{}")).await
    }

    /// A call in a task of its own.
    pub fn spawn(&self, handler: &Arc<Handler>) -> tokio::task::JoinHandle<Served> {
        let (engine, call) = (Arc::clone(&self.engine), call(handler, b"{}"));
        tokio::spawn(async move { engine.serve(call).await })
    }

    pub fn census(&self) -> Census {
        self.provider.census()
    }

    /// Waits until the census is as wished.
    pub async fn until(&self, what: &str, wish: impl Fn(Census) -> bool) {
        eventually(what, || wish(self.census())).await;
    }
}

/// Waits until something is so, and fails when it is not within a few seconds.
pub async fn eventually(what: &str, wish: impl Fn() -> bool) {
    for _ in 0..1000 {
        if wish() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("this did not come to be: {what}");
}

pub fn call(handler: &Arc<Handler>, body: &[u8]) -> Call {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let id: InvocationId = format!("call-{next}").parse().unwrap();
    let (body, content_type) = (Bytes::copy_from_slice(body), "application/json".to_owned());
    let handler = Arc::clone(handler);
    Call { handler, body, content_type, id, lambda: None, tail: false, parts: None }
}

/// A handler without packages; `module` says what it does (`sandbox::fake::guest`).
pub fn handler(name: &str, module: &str) -> Handler {
    Handler {
        id: VersionId(Arc::from(name)),
        name: name.to_owned(),
        tenant: function::DEFAULT_TENANT.to_owned(),
        kind: Kind::Container,
        reset: Reset::Never,
        python: PythonSpec {
            base: "base/b".parse().unwrap(),
            guest: "guest/g".parse().unwrap(),
            interpreter: "/usr/bin/python3".to_owned(),
        },
        packages: None,
        distributions: Arc::from([]),
        imports: Vec::new(),
        code: format!("code/{name}").parse().unwrap(),
        opt: None,
        module: module.to_owned(),
        function: "handler".to_owned(),
        convention: Convention::Lambda,
        binary: false,
        environment: BTreeMap::new(),
        sets: Vec::new(),
        import_cache: true,
        own: Vec::new(),
        clashes: Vec::new(),
        entries: None,
        limits: Limits::default(),
        network: Network::None,
        egress: [].into(),
        timeout: Duration::from_secs(20),
        concurrency: 100,
        lambda: None,
    }
}

/// A handler that locked `packages` and imports `imports`.
pub fn packaged(name: &str, module: &str, packages: &str, imports: &[&str]) -> Handler {
    let packages = Some(format!("packages/{packages}").parse().unwrap());
    let imports = imports.iter().map(|name| (*name).to_owned()).collect();
    Handler { packages, imports, ..handler(name, module) }
}
