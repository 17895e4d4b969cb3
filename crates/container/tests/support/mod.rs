//! A real warden on a real base, for tests that run as root.

#![allow(dead_code, reason = "every test binary uses a part of it")]

pub(crate) mod attack;
pub(crate) mod host;
pub(crate) mod services;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bundle::code;
use container::{
    Client, ContainerOptions, Containers, Isolation, NATIVE, RootMount, WardenOptions,
    WardenProcess, launch,
};
use egress::Rules;
use layers::{Silent, Store, base, guest, python};
use sandbox::wire::{Convention, Decoder, Lambda, Load, Reply, Request};
use sandbox::{
    CpuBounds, Instance, InstanceSpec, Kind, Layer, Limits, Network, PythonSpec, Reset, ZygoteSpec,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// Whether the machine can run these tests. A skip is printed, and is a failure where
/// `LAMBSWOOL_REQUIRE` names root.
pub(crate) fn can_run() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    skips::skip("root", "the warden is started without sudo here");
    false
}

/// A timeout for something that takes at most that many seconds here. `LAMBSWOOL_SLOW` multiplies
/// it, for a slower machine (an emulated one).
pub(crate) fn patience(seconds: u64) -> Duration {
    let slow = std::env::var("LAMBSWOOL_SLOW").ok().and_then(|slow| slow.parse().ok()).unwrap_or(1);
    Duration::from_secs(seconds * slow)
}

/// A base is made once for all tests.
pub(crate) fn store() -> (Store, base::Base, PythonSpec) {
    static MADE: OnceLock<(base::Base, PythonSpec)> = OnceLock::new();
    let state = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("layers-for-tests");
    let store = Store::open(&state).unwrap();
    let (base, python) = MADE.get_or_init(|| {
        let base = base::default_or_build(&store, &python::PythonRequest::any(), &Silent).unwrap();
        let files = [sandbox::guest::FILES, NATIVE].concat();
        let guest = guest::install(&store, &base, &files).unwrap();
        (base.clone(), base.python(guest))
    });
    (store, base.clone(), python.clone())
}

pub(crate) const NONE: ContainerOptions =
    ContainerOptions { slots: 0, spares: 0, cpu: CpuBounds::NONE };

/// An empty state directory. A warden's things are named by its inode, so the directory may be
/// removed only when the warden is gone: a later run of the tests removes it.
fn new_state() -> PathBuf {
    static SWEPT: OnceLock<()> = OnceLock::new();
    let parent = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("states");
    std::fs::create_dir_all(&parent).unwrap();
    SWEPT.get_or_init(|| {
        for entry in std::fs::read_dir(&parent).unwrap().flatten() {
            let age = entry.metadata().and_then(|m| m.modified()).map(|at| at.elapsed());
            if age.is_ok_and(|age| age.is_ok_and(|age| age > Duration::from_secs(600))) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    });
    tempfile::Builder::new().prefix("state-").tempdir_in(parent).unwrap().keep()
}

/// A state directory on which a warden can be started.
pub(crate) fn empty_state() -> PathBuf {
    let state = new_state();
    std::fs::create_dir(state.join("run")).unwrap();
    let (from, layers) = (store().0.layers(), state.join("layers"));
    std::fs::create_dir(&layers).unwrap();
    // Links of files: a warden follows no symbolic ones.
    let mut copy = std::process::Command::new("cp");
    copy.args(["--archive", "--link"]).arg(from.join("base")).arg(from.join("guest")).arg(&layers);
    assert!(copy.status().unwrap().success(), "copy the base");
    state
}

/// The warden as it was built with these tests.
pub(crate) fn program() -> PathBuf {
    let built = if cfg!(debug_assertions) { "../debug" } else { "../release" };
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(built).join("wool-warden")
}

/// The default isolation, on a new kernel or as on an old one.
pub(crate) fn rooted(staged: bool) -> Isolation {
    Isolation {
        root: if staged { RootMount::Staged } else { RootMount::Detached },
        ..Isolation::LEAN
    }
}

/// A warden, and what belongs to it.
pub(crate) struct World {
    pub(crate) containers: Containers,
    pub(crate) python: PythonSpec,
    pub(crate) store: Store,
    pub(crate) state: PathBuf,
    base: base::Base,
    warden: tokio::process::Child,
}

impl World {
    /// A world with the default isolation, roots staged or not.
    pub(crate) async fn new(staged: bool, options: ContainerOptions) -> Self {
        Self::isolated(rooted(staged), options).await
    }

    /// A world with a state directory of its own, so that tests run side by side; the base is made
    /// once.
    pub(crate) async fn isolated(isolation: Isolation, options: ContainerOptions) -> Self {
        Self::on(empty_state(), isolation, options).await
    }

    /// A world on an earlier one's state directory.
    pub(crate) async fn on(
        state: PathBuf,
        isolation: Isolation,
        options: ContainerOptions,
    ) -> Self {
        Self::served_by(program(), state, isolation, options).await
    }

    /// A world with rules for outgoing connections.
    pub(crate) async fn bounded(
        isolation: Isolation,
        options: ContainerOptions,
        rules: Rules,
    ) -> Self {
        Self::made(program(), empty_state(), isolation, options, rules).await
    }

    /// The same, on a host that has these files in `/etc`, by their names there: the test may
    /// change them.
    pub(crate) async fn knowing(files: &[(&str, &Path)], rules: Rules) -> Self {
        let state = empty_state();
        let starter = state.join("starter");
        let mount = |(name, file): &(&str, &Path)| {
            format!("mount --bind {} /etc/{name} && ", file.display())
        };
        let mounts: String = files.iter().map(mount).collect();
        // On a mount that is gone with that namespace, as where `/usr` is one.
        let (program, beside) = (program(), state.join("programs"));
        let (name, from) = (program.file_name().unwrap(), program.parent().unwrap());
        std::fs::create_dir(&beside).unwrap();
        let text = format!(
            "#!/bin/sh\nexec unshare --mount sh -c '{mounts}mount --bind {} {} && exec {} \"$@\"' sh \"$@\"\n",
            from.display(),
            beside.display(),
            beside.join(name).display(),
        );
        std::fs::write(&starter, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&starter, mode).unwrap();
        Self::made(starter, state, rooted(false), NONE, rules).await
    }

    /// A world with a warden that is this program, or is started by it.
    pub(crate) async fn served_by(
        program: PathBuf,
        state: PathBuf,
        isolation: Isolation,
        options: ContainerOptions,
    ) -> Self {
        Self::made(program, state, isolation, options, Rules::default()).await
    }

    async fn made(
        program: PathBuf,
        state: PathBuf,
        isolation: Isolation,
        options: ContainerOptions,
        rules: Rules,
    ) -> Self {
        let (_, base, python) = store();
        let store = Store::open(&state).unwrap();
        let options_for = WardenOptions { program, state: state.clone(), isolation, waiting: None };
        let (socket, process) = launch(&options_for).await.unwrap();
        let WardenProcess::Child(warden) = process else { panic!("root needs no sudo") };
        let client = Client::new(socket).await.unwrap();
        let containers = Containers::bounded(client, options, rules);
        Self { containers, python, store, state, base, warden }
    }

    /// The name of the warden's directory in the cgroup hierarchies.
    pub(crate) fn cgroup_name(&self) -> String {
        warden::recover::cgroup_name(&self.state).unwrap()
    }

    /// Its sandboxes' processes, as the host sees them.
    pub(crate) fn processes(&self) -> Vec<host::Process> {
        host::processes(&self.cgroup_name())
    }

    pub(crate) fn warden(&self) -> u32 {
        self.warden.id().unwrap()
    }

    /// Limits the warden's descriptors, if `most` says so; returns the limit before. Retries while
    /// the warden has another user's id, for a namespace that it makes ahead: without
    /// CAP_SYS_RESOURCE only a process of the same user may limit it.
    pub(crate) fn allow_descriptors(&self, most: Option<u64>) -> Option<u64> {
        let warden = self.warden().cast_signed();
        let asked = |new: *const libc::rlimit, usual: *mut libc::rlimit| {
            let begin = std::time::Instant::now();
            // SAFETY: both are null or outlive the call.
            while unsafe { libc::prlimit(warden, libc::RLIMIT_NOFILE, new, usual) } != 0 {
                let error = std::io::Error::last_os_error();
                let moment = begin.elapsed() < patience(5);
                assert!(error.raw_os_error() == Some(libc::EPERM) && moment, "{error}");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        let mut usual = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        asked(std::ptr::null(), &raw mut usual);
        let new = libc::rlimit { rlim_cur: most.unwrap_or(usual.rlim_cur), ..usual };
        asked(&raw const new, std::ptr::null_mut());
        Some(usual.rlim_cur)
    }

    /// Pid 1 of P.
    pub(crate) fn pid_one(&self) -> i32 {
        let mut rest = host::children(self.warden());
        rest.retain(|process| process.inside == 1);
        assert_eq!(rest.len(), 1, "{rest:?}");
        rest[0].pid
    }

    /// The result of listening on an abstract socket and connecting to it. Without Landlock scopes,
    /// before Linux 6.12, there are no such sockets at all.
    pub(crate) fn own_abstract_socket(&self) -> serde_json::Value {
        let result = if self.containers.host().scopes { "OK" } else { "ENOSYS" };
        serde_json::json!([result, result])
    }

    /// The one process that has appeared since `before` was taken.
    pub(crate) fn newcomer(&self, before: &[host::Process]) -> host::Process {
        let mut now = self.processes();
        now.retain(|process| before.iter().all(|known| known.pid != process.pid));
        assert_eq!(now.len(), 1, "{now:?}");
        now.remove(0)
    }

    /// Waits until everything that was dropped is gone.
    pub(crate) async fn settle(&self) {
        let begin = Instant::now();
        while self.containers.count_reaping().await.unwrap() > 0 {
            assert!(begin.elapsed() < patience(10), "{:?}", self.processes());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Kills the warden itself, and first its guardian, where it has one. Returns the state
    /// directory for the next one.
    pub(crate) async fn crash(mut self) -> PathBuf {
        for process in host::children(self.warden()).iter().filter(|process| process.uid == 0) {
            let guardian = rustix::process::Pid::from_raw(process.pid).unwrap();
            rustix::process::kill_process(guardian, rustix::process::Signal::KILL).unwrap();
        }
        self.warden.kill().await.unwrap();
        self.state
    }

    /// Drops the provider and waits for the warden's end, which comes when the last sandbox is
    /// dropped.
    pub(crate) async fn end(self) -> PathBuf {
        let Self { containers, mut warden, state, .. } = self;
        drop(containers);
        let ended = tokio::time::timeout(patience(10), warden.wait()).await;
        assert!(ended.expect("the warden ends with its worker").unwrap().success());
        state
    }

    /// A packages layer of one module.
    pub(crate) fn package(&self, module: &str, source: &str) -> Layer {
        self.packages(&[(module, source)])
    }

    /// A packages layer of these modules, each with its source.
    pub(crate) fn packages(&self, modules: &[(&str, &str)]) -> Layer {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        modules.hash(&mut hasher);
        let layer: Layer = format!("packages/test-{:x}", hasher.finish()).parse().unwrap();
        let dir = self.store.layer_path(&layer);
        if !dir.exists() {
            // Tests run side by side: it appears complete or not at all.
            let parent = dir.parent().unwrap();
            std::fs::create_dir_all(parent).unwrap();
            let made = tempfile::Builder::new().prefix("test-").tempdir_in(parent).unwrap();
            for (module, source) in modules {
                std::fs::write(made.path().join(format!("{module}.py")), source).unwrap();
            }
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(made.path(), mode).unwrap();
            if std::fs::rename(made.path(), &dir).is_ok() {
                let _ = made.keep();
            }
        }
        layer
    }

    pub(crate) fn zygote(&self, imports: &[&str]) -> ZygoteSpec {
        ZygoteSpec {
            kind: Kind::Container,
            python: self.python.clone(),
            packages: None,
            imports: imports.iter().map(ToString::to_string).collect(),
            network: Network::None,
            tenant: "test".into(),
            limits: Limits::default(),
        }
    }

    pub(crate) fn code(&self, source: &str) -> Layer {
        let bundle = code::Bundle::from_py(&self.store, "handler", source.as_bytes()).unwrap();
        bundle.seal(&self.store, &self.base).unwrap()
    }

    pub(crate) fn instance(&self, source: &str) -> InstanceSpec {
        InstanceSpec {
            kind: Kind::Container,
            reset: Reset::Never,
            python: self.python.clone(),
            packages: None,
            code: self.code(source),
            opt: None,
            network: Network::None,
            egress: [].into(),
            owner: "test/handler".into(),
            limits: Limits::default(),
        }
    }
}

/// Calls the handler of an instance once and returns its JSON.
pub(crate) async fn ask(instance: &mut dyn Instance, event: &str) -> serde_json::Value {
    let mut talk = Conversation::load(instance).await;
    talk.ask(event).await
}

/// A conversation with an instance.
pub(crate) struct Conversation {
    stream: UnixStream,
    decoder: Decoder,
    written: Option<pipe::Receiver>,
    /// The output that the guest reported, and the output around it.
    pub(crate) output: String,
}

impl Conversation {
    pub(crate) async fn load(instance: &mut dyn Instance) -> Self {
        Self::load_as(instance, None).await
    }

    /// Of a function that expects AWS's runtime, what it expects of that.
    pub(crate) async fn load_as(instance: &mut dyn Instance, lambda: Option<Lambda>) -> Self {
        let stream = std::os::unix::net::UnixStream::from(instance.connect().unwrap());
        let stream = UnixStream::from_std(stream).unwrap();
        let written = instance.output().map(|pipe| pipe::Receiver::from_owned_fd(pipe).unwrap());
        let decoder = Decoder::new(64 << 20);
        let mut talk = Self { stream, decoder, written, output: String::new() };
        match talk.load_again(lambda).await {
            Some((Reply::Loaded { .. }, _)) => talk,
            other => panic!("not loaded: {other:?}"),
        }
    }

    pub(crate) async fn load_again(&mut self, lambda: Option<Lambda>) -> Option<(Reply, Vec<u8>)> {
        let load = Request::Load(Load {
            module: "handler".into(),
            function: "handler".into(),
            convention: Convention::Lambda,
            name: "test".into(),
            version: "1".into(),
            memory_mb: 512,
            environment: Default::default(),
            binary: false,
            threads: 2,
            observe: false,
            entries: None,
            lambda: lambda.map(Arc::new),
        });
        self.send(&load, b"").await;
        self.reply().await
    }

    pub(crate) async fn send(&mut self, request: &Request, body: &[u8]) {
        let mut bytes = Vec::new();
        request.encode(body, &mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn reply(&mut self) -> Option<(Reply, Vec<u8>)> {
        let (mut bytes, mut around) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        loop {
            while let Some(frame) = self.decoder.next_frame().unwrap() {
                match Reply::decode(frame).unwrap() {
                    (Reply::Log { .. }, body) => self.output += &String::from_utf8_lossy(&body),
                    other => return Some(other),
                }
            }
            let written = async {
                match &mut self.written {
                    Some(pipe) => pipe.read(&mut around).await.unwrap_or(0),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                got = self.stream.read(&mut bytes) => match got.unwrap_or(0) {
                    0 => return None,
                    got => self.decoder.push(&bytes[..got]),
                },
                got = written => match got {
                    0 => self.written = None,
                    got => self.output += &String::from_utf8_lossy(&around[..got]),
                },
            }
        }
    }

    /// Calls the handler and returns its answer.
    pub(crate) async fn ask(&mut self, event: &str) -> serde_json::Value {
        let said = self.call(event).await.expect("the instance died");
        serde_json::from_str(&said.unwrap()).unwrap()
    }

    /// Calls the handler; JSON in and out. None when it died.
    pub(crate) async fn call(&mut self, event: &str) -> Option<Result<String, String>> {
        let invoke = Request::Invoke {
            id: "i".into(),
            remaining_ms: 60_000,
            content_type: "application/json".into(),
            lambda: None,
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
