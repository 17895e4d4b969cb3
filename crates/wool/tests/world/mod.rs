//! A worker on fake sandboxes, and a client for it.
//!
//! A function's source is its behaviour: one `key = value` a line, `module` as [`sandbox::fake`] has it. `until = PATH.x` is
//! made once that file is there, or nobody waits for it any more; then and before there are `PATH.ended` and `PATH.begun`.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::Handler;
use function::{Convention, Manifest, VersionRecord, WholeName};
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Method, StatusCode};
use layers::Patience;
use platform::access::Secret;
use platform::deploy::progress::Progress;
use platform::deploy::workshop::{
    Admitted, Bundle, Files, KeptLayer, Made, MakeError, Opened, SettingsFrom, Workshop,
};
use sandbox::fake::FakeProvider;
use sandbox::{Kind, Limits, Network, PythonSpec, Reset};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wool::client::Client;
use wool::config::Config;
use wool::worker::Worker;
use wool::worker::wiring::Parts;

pub struct World {
    pub provider: FakeProvider,
    pub tcp: Client,
    pub unix: Client,
    pub url: String,
    pub stop: CancellationToken,
    pub state: TempDir,
    serving: JoinHandle<anyhow::Result<()>>,
}

pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub fn config(state: &Path) -> Config {
    Config { listen: ([127, 0, 0, 1], 0).into(), state: state.to_owned(), ..Config::default() }
}

pub async fn bind(config: Config, provider: FakeProvider) -> anyhow::Result<Worker> {
    Worker::bind(config, async |_, _| {
        Ok(Parts {
            provider: Arc::new(provider),
            workshop: Arc::new(Words),
            builds: None,
            warden: None,
            unenforced: Vec::new(),
        })
    })
    .await
}

impl World {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(tempfile::tempdir().unwrap(), change).await
    }

    pub async fn on(state: TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let provider = FakeProvider::default();
        let mut config = config(state.path());
        change(&mut config);
        let worker = bind(config, provider.clone()).await.unwrap();
        let (url, stop) = (worker.url().to_owned(), worker.stopper());
        let (tcp, unix) = (Client::at(&url).unwrap(), Client::of(state.path()));
        let serving = tokio::spawn(worker.serve());
        while !unix.healthy().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Self { provider, tcp, unix, url, stop, state, serving }
    }

    /// A token, made through the Unix socket.
    pub async fn token(&self, request: serde_json::Value) -> Secret {
        let body = request.to_string().into();
        let response = self.unix.ask(Method::POST, "/v1/tokens", &[], body).await.unwrap();
        let made = self.unix.body(response).await.unwrap();
        let made: serde_json::Value = serde_json::from_slice(&made).unwrap();
        Secret::read(made["token"].as_str().unwrap()).unwrap()
    }

    /// A request on TCP with a token.
    pub async fn send_as(
        &self,
        token: &Secret,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Reply {
        let client = self.tcp.clone().with_token(Some(token.clone()));
        exchange(&client, method, path, body).await
    }

    /// Stops the worker and gives its state back.
    pub async fn stop(self) -> TempDir {
        self.stop.cancel();
        self.serving.await.unwrap().unwrap();
        self.state
    }

    /// A request without a token: what takes none goes over TCP, and everything else through the Unix socket.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let control = path.starts_with("/v1") || path == "/metrics";
        let client = if control { &self.unix } else { &self.tcp };
        let response = client.send(method, path, headers, body.into()).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        Reply { status, headers, body: client.body(response).await.unwrap() }
    }

    pub async fn deploy(&self, name: &str, behaviour: &str) -> Reply {
        let python = [(hyper::header::CONTENT_TYPE, "text/x-python")];
        self.send(Method::PUT, &format!("/v1/functions/{name}"), &python, behaviour.to_owned())
            .await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], "").await
    }

    pub async fn run(&self, name: &str, body: &str) -> Reply {
        self.send(Method::POST, &format!("/run/{name}"), &[], body.to_owned()).await
    }
}

/// A request and its reply.
pub async fn exchange(
    client: &Client,
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
) -> Reply {
    let response = client.send(method, path, &[], body.into()).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Reply { status, headers, body: client.body(response).await.unwrap() }
}

impl Reply {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn error(&self) -> String {
        self.json()["error"]["type"].as_str().unwrap().to_owned()
    }
}

/// Makes handlers of words instead of layers: fake sandboxes need no files.
#[derive(Debug)]
struct Words;

impl Workshop for Words {
    fn admit(
        &self,
        name: &WholeName,
        bundle: Bundle,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Admitted, MakeError> {
        progress.step("reading words");
        let mut words = String::new();
        let Files::Sent { mut file, .. } = bundle.files else { panic!("it reads words") };
        file.read_to_string(&mut words).unwrap();
        let word = |key: &str| {
            words
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))
                .map(str::to_owned)
        };
        if let Some(path) = word("until") {
            let path = Path::new(&path);
            std::fs::write(path.with_extension("begun"), "").unwrap();
            while !path.exists() && patience.over().is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::fs::write(path.with_extension("ended"), "").unwrap();
        }
        if let Some(message) = word("refuse") {
            return Err(MakeError::Function { step: "manifest", message });
        }
        let SettingsFrom::Files(over) = bundle.settings else { panic!("it reads words") };
        let manifest = Manifest {
            kind: over.kind.unwrap_or_default(),
            reset: over.reset.unwrap_or_default(),
            ..manifest(word)
        };
        let record = VersionRecord {
            tenant: name.tenant().to_owned(),
            name: name.name().to_owned(),
            python: "3.11".to_owned(),
            bundle: blake3::hash(words.as_bytes()).into(),
            manifest,
            lock: None,
        };
        Ok(Admitted { record, warnings: word("warn").into_iter().collect(), opened: None })
    }

    fn materialise(
        &self,
        record: &VersionRecord,
        _: Option<Opened>,
        _: &Arc<Patience>,
        _: &dyn Progress,
    ) -> Result<Made, MakeError> {
        Ok(Made { handler: handler(record), warnings: Vec::new() })
    }

    fn keep_layer(&self, _: File) -> Result<KeptLayer, MakeError> {
        Err(MakeError::Function { step: "layer", message: "it makes none".to_owned() })
    }
}

/// Settings that are words.
pub fn manifest(word: impl Fn(&str) -> Option<String>) -> Manifest {
    let number = |key: &str, usual: u64| word(key).map_or(usual, |text| text.parse().unwrap());
    Manifest {
        module: word("module").unwrap_or_else(|| "echo".to_owned()),
        function: "handler".to_owned(),
        convention: Convention::Lambda,
        requirements: Vec::new(),
        requires_python: None,
        python: None,
        kind: Kind::Container,
        reset: Reset::Never,
        limits: Limits::default(),
        network: Network::None,
        egress: Vec::new(),
        timeout: Duration::from_millis(number("timeout", 30_000)),
        concurrency: u32::try_from(number("concurrency", 64)).unwrap(),
        environment: word("version").map(|text| ("VERSION".to_owned(), text)).into_iter().collect(),
        sets: Vec::new(),
        import_cache: true,
        binary: word("binary").is_some(),
        declared: false,
        bundled: false,
        told: None,
        layers: Vec::new(),
        lambda: None,
    }
}

/// A handler of a record, on layers that are nowhere.
pub fn handler(record: &VersionRecord) -> Handler {
    let manifest = record.manifest.clone();
    Handler {
        id: record.id(),
        name: record.name.clone(),
        tenant: record.tenant.clone(),
        kind: manifest.kind,
        reset: manifest.reset,
        python: PythonSpec {
            base: "base/1".parse().unwrap(),
            guest: "guest/1".parse().unwrap(),
            interpreter: "/usr/bin/python3".to_owned(),
        },
        packages: None,
        distributions: Arc::from([]),
        imports: Vec::new(),
        code: "code/1".parse().unwrap(),
        opt: None,
        module: manifest.module,
        function: manifest.function,
        convention: manifest.convention,
        binary: manifest.binary,
        environment: manifest.environment,
        sets: Vec::new(),
        import_cache: true,
        own: Vec::new(),
        clashes: Vec::new(),
        entries: None,
        limits: manifest.limits,
        network: manifest.network,
        egress: manifest.egress.into(),
        timeout: manifest.timeout,
        concurrency: manifest.concurrency,
        lambda: None,
    }
}
