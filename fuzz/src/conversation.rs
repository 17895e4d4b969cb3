//! A guest that says anything at all, to an engine that has given it a call: the call ends, in one way or another, and
//! nothing is left of it.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::{Call, Engine, EngineConfig, Handler, LogLine, LogSink, VersionId, ZygotePolicy};
use sandbox::wire::Convention;
use sandbox::{
    Death, Instance, InstanceSpec, Kind, Limits, Network, Pending, Provider, ProviderError,
    PythonSpec, Reset, Sandbox, SandboxId, Zygote, ZygoteSpec,
};

/// Fits into the socket's buffer: nobody reads while it is written.
const MOST: usize = 64 << 10;
const REPLY_BYTES: usize = 4096;
const LOG_BYTES: usize = 1024;

pub(crate) fn fuzz(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let guests =
        Arc::new(Guests { said: bytes[..bytes.len().min(MOST)].to_vec(), ..Guests::default() });
    let lines = Arc::new(Lines::default());
    runtime.expect("a runtime can be made").block_on(async {
        let config = EngineConfig {
            zygotes: ZygotePolicy::None,
            reply_bytes: REPLY_BYTES,
            log_bytes: LOG_BYTES,
            ..EngineConfig::default()
        };
        let provider = Arc::clone(&guests) as Arc<dyn Provider>;
        let engine = Engine::new(provider, config, Arc::clone(&lines) as Arc<dyn LogSink>);
        let id = "00000000-0000-4000-8000-000000000000".parse().expect("an invocation's id");
        let body = Bytes::from_static(b"{}");
        let call = Call {
            handler: Arc::new(handler()),
            body,
            content_type: "text/plain".to_owned(),
            id,
            lambda: None,
            tail: false,
            parts: None,
        };
        let served = engine.serve(call).await;
        if let Ok(outcome) = served.result {
            assert!(outcome.body.len() <= REPLY_BYTES);
        }
        engine.stop(Duration::ZERO).await;
    });
    assert_eq!(guests.alive.load(Ordering::SeqCst), 0, "an instance is left");
    // Beside what it wrote, one line that says how much was dropped.
    assert!(lines.0.load(Ordering::SeqCst) <= LOG_BYTES + 200);
}

/// Makes guests that say what they were made to say, and hang up.
#[derive(Debug, Default)]
struct Guests {
    said: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

impl Provider for Guests {
    fn create_zygote(&self, _: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        Box::pin(async { Err(ProviderError::Absent("there are no zygotes".to_owned())) })
    }

    fn create_instance(&self, _: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        Box::pin(async {
            let (ours, mut theirs) =
                UnixStream::pair().map_err(ProviderError::step("socketpair"))?;
            ours.set_nonblocking(true).map_err(ProviderError::step("socketpair"))?;
            theirs.write_all(&self.said).map_err(ProviderError::step("write"))?;
            theirs.shutdown(Shutdown::Write).map_err(ProviderError::step("shutdown"))?;
            self.alive.fetch_add(1, Ordering::SeqCst);
            let (channel, alive) = (Some(ours.into()), Arc::clone(&self.alive));
            Ok(Box::new(Guest { channel, theirs, alive }) as Box<dyn Instance>)
        })
    }

    fn reaping(&self) -> usize {
        0
    }
}

#[derive(Debug)]
struct Guest {
    channel: Option<OwnedFd>,
    /// Open for as long as the guest lives: what the engine writes is never read.
    #[expect(dead_code, reason = "held, not used")]
    theirs: UnixStream,
    alive: Arc<AtomicUsize>,
}

impl Sandbox for Guest {
    fn id(&self) -> SandboxId {
        SandboxId(1)
    }

    fn memory(&self) -> io::Result<u64> {
        Ok(1 << 20)
    }

    fn alive(&self) -> bool {
        true
    }
}

impl Instance for Guest {
    fn connect(&mut self) -> io::Result<OwnedFd> {
        self.channel.take().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn pause(&self) -> io::Result<()> {
        Ok(())
    }

    fn resume(&self) -> io::Result<()> {
        Ok(())
    }

    fn autopsy(&self) -> Pending<'_, Death> {
        Box::pin(std::future::ready(Ok(Death::Exited(0))))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes that the output that was passed on takes in a log.
#[derive(Debug, Default)]
struct Lines(AtomicUsize);

impl LogSink for Lines {
    fn write(&self, line: LogLine) {
        self.0.fetch_add(line.weight(), Ordering::SeqCst);
    }
}

fn handler() -> Handler {
    let layer = |name: &str| name.parse().expect("a plain name");
    Handler {
        lambda: None,
        id: VersionId(Arc::from("fuzzed")),
        name: "fuzzed".to_owned(),
        tenant: function::DEFAULT_TENANT.to_owned(),
        kind: Kind::Container,
        reset: Reset::Never,
        python: PythonSpec {
            base: layer("base/b"),
            guest: layer("guest/g"),
            interpreter: "/usr/bin/python3".to_owned(),
        },
        packages: None,
        distributions: Arc::from([]),
        imports: Vec::new(),
        code: layer("code/c"),
        opt: None,
        module: "main".to_owned(),
        function: "handler".to_owned(),
        convention: Convention::Lambda,
        binary: false,
        environment: BTreeMap::new(),
        sets: Vec::new(),
        import_cache: true,
        own: Vec::new(),
        clashes: Vec::new(),
        entries: None,
        egress: Vec::new().into(),
        limits: Limits::default(),
        network: Network::None,
        timeout: Duration::from_secs(60),
        concurrency: 1,
    }
}
