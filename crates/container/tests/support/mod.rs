//! A real warden on a real base, for tests that run as root.

use std::path::PathBuf;
use std::sync::OnceLock;

use container::{Client, ContainerOptions, Containers, LANDING, LANDING_FILE, WardenOptions, launch};
use layers::{Silent, Store, base, code, guest, python};
use sandbox::wire::{Convention, Decoder, Load, Reply, Request};
use sandbox::{Instance, InstanceSpec, Layer, Limits, Network, PythonSpec, ZygoteSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Whether the machine can run these tests. A skip is printed, and is a failure where `LAMBSWOOL_REQUIRE` names root.
pub fn can_run() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    let required = std::env::var("LAMBSWOOL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == "root"), "these tests need root");
    eprintln!("SKIPPED: needs root");
    false
}

/// A base is made once for all tests.
pub fn store() -> (Store, base::Base, PythonSpec) {
    static MADE: OnceLock<(base::Base, PythonSpec)> = OnceLock::new();
    let state = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("layers-for-tests");
    let store = Store::open(&state).unwrap();
    let (base, python) = MADE.get_or_init(|| {
        let base = base::default_or_build(&store, &python::PythonRequest::any(), &Silent).unwrap();
        let mut files = sandbox::guest::FILES.to_vec();
        files.push((LANDING_FILE, LANDING));
        let guest = guest::install(&store, &base, &files).unwrap();
        (base.clone(), base.python(guest))
    });
    (store, base.clone(), python.clone())
}

pub struct World {
    pub containers: Containers,
    pub python: PythonSpec,
    pub store: Store,
    base: base::Base,
    _warden: tokio::process::Child,
}

impl World {
    pub async fn new(staged: bool, options: ContainerOptions) -> Self {
        let (store, base, python) = store();
        // A state directory of its own, so that tests run side by side; the layers are shared.
        let state = tempfile::Builder::new().prefix("lambswool-test").tempdir().unwrap().keep();
        std::fs::create_dir(state.join("run")).unwrap();
        std::os::unix::fs::symlink(store.layers(), state.join("layers")).unwrap();
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(if cfg!(debug_assertions) { "../debug/wool-warden" } else { "../release/wool-warden" });
        let options_for = WardenOptions { program, state, staged };
        let (socket, warden) = launch(&options_for).await.unwrap();
        let client = Client::new(socket).await.unwrap();
        Self { containers: Containers::new(client, options), python, store, base, _warden: warden }
    }

    pub fn zygote(&self, imports: &[&str]) -> ZygoteSpec {
        ZygoteSpec {
            python: self.python.clone(),
            packages: None,
            imports: imports.iter().map(ToString::to_string).collect(),
            network: Network::None,
            limits: Limits::default(),
        }
    }

    pub fn code(&self, source: &str) -> Layer {
        let bundle = code::Bundle::from_py(&self.store, "handler", source.as_bytes()).unwrap();
        bundle.seal(&self.store, &self.base).unwrap()
    }

    pub fn instance(&self, source: &str) -> InstanceSpec {
        InstanceSpec {
            python: self.python.clone(),
            packages: None,
            code: self.code(source),
            network: Network::None,
            limits: Limits::default(),
        }
    }
}

/// A conversation with an instance.
pub struct Conversation {
    stream: UnixStream,
    decoder: Decoder,
    pub output: String,
}

impl Conversation {
    pub async fn load(instance: &mut dyn Instance) -> Self {
        let stream = std::os::unix::net::UnixStream::from(instance.connect().unwrap());
        let stream = UnixStream::from_std(stream).unwrap();
        let mut talk = Self { stream, decoder: Decoder::new(64 << 20), output: String::new() };
        let load = Request::Load(Load {
            module: "handler".into(),
            function: "handler".into(),
            convention: Convention::Lambda,
            name: "test".into(),
            version: "1".into(),
            memory_mb: 512,
            environment: Default::default(),
            binary: false,
        });
        talk.send(&load, b"").await;
        match talk.reply().await {
            Some((Reply::Loaded { .. }, _)) => talk,
            other => panic!("not loaded: {other:?}"),
        }
    }

    pub async fn send(&mut self, request: &Request, body: &[u8]) {
        let mut bytes = Vec::new();
        request.encode(body, &mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub async fn reply(&mut self) -> Option<(Reply, Vec<u8>)> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            while let Some(frame) = self.decoder.next_frame().unwrap() {
                match Reply::decode(frame).unwrap() {
                    (Reply::Log { .. }, body) => self.output += &String::from_utf8_lossy(&body),
                    other => return Some(other),
                }
            }
            let got = self.stream.read(&mut bytes).await.unwrap_or(0);
            if got == 0 {
                return None;
            }
            self.decoder.push(&bytes[..got]);
        }
    }

    /// Calls the handler; JSON in and out. None when it died.
    pub async fn call(&mut self, event: &str) -> Option<Result<String, String>> {
        let invoke = Request::Invoke {
            id: "i".into(),
            remaining_ms: 60_000,
            content_type: "application/json".into(),
        };
        self.send(&invoke, event.as_bytes()).await;
        match self.reply().await? {
            (Reply::Done { .. }, body) => Some(Ok(String::from_utf8(body).unwrap())),
            (Reply::Failed { failure, .. }, _) => {
                Some(Err(format!("{}: {}", failure.error_type, failure.message)))
            }
            other => panic!("unexpected {other:?}"),
        }
    }
}
