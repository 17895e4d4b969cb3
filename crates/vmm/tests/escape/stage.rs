//! A real warden that starts this program as its monitor, and what the host has to lose.

use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use container::{Client, Handle, Isolation, WardenOptions, WardenProcess, launch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbox::SandboxId;
use sys::process::PidFd;
use warden::protocol::{Answer, Command, Cpu, Layout, Limits};

use crate::attacks::{Attack, MEMORY, THREADS};
use crate::plan::Plan;

/// The plan's file, beside the program.
pub(crate) const PLAN: &str = "plan";

/// Seconds that an attack may take on a slow machine.
const ATTACK_TIMEOUT: i64 = 120;

/// See the module's words.
pub(crate) struct Stage {
    dir: tempfile::TempDir,
    client: Arc<Client>,
    warden: tokio::process::Child,
    next: u64,
    segment: i32,
    port: u16,
    name: String,
    victim: Option<Started>,
    _listeners: (TcpListener, UnixListener),
}

/// A monitor to be attacked.
struct Started {
    // Before the control socket: it is destroyed when this is dropped.
    handle: Handle,
    control: OwnedFd,
    process: OwnedFd,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let dir = tempfile::tempdir_in(tmp).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let warden = tmp.join("../debug/wool-warden");
        assert!(warden.exists(), "cargo build -p warden makes {}", warden.display());
        std::fs::copy(warden, dir.path().join("wool-warden")).unwrap();
        std::fs::copy(std::env::current_exe().unwrap(), dir.path().join("wool-vmm")).unwrap();
        let state = dir.path().join("state");
        for name in ["state", "state/layers"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "root's secret").unwrap();
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let program = dir.path().join("wool-warden");
        let options = WardenOptions { program, state, isolation: Isolation::LEAN, waiting: None };
        let (socket, process) = launch(&options).await.unwrap();
        let WardenProcess::Child(warden) = process else { panic!("root needs no sudo") };
        let client = Arc::new(Client::new(socket).await.unwrap());
        let name = format!("monitor-escape-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listeners =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind_addr(&address).unwrap());
        let port = listeners.0.local_addr().unwrap().port();
        let key = i32::try_from(std::process::id()).unwrap();
        // SAFETY: plain numbers.
        let segment = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | 0o666) };
        assert!(segment >= 0, "{}", std::io::Error::last_os_error());
        let (next, victim) = (1, None);
        let mut stage =
            Self { dir, client, warden, next, segment, port, name, victim, _listeners: listeners };
        let plan = Plan { attack: "wait".into(), argument: String::new(), without: Vec::new() };
        let victim = stage.start(&plan).await;
        assert_eq!(hear(&victim).await, "got patience");
        stage.victim = Some(victim);
        stage
    }

    /// Whether the host has what this wall is made of: cgroups, and Landlock for signals and
    /// sockets (Linux 6.12).
    pub(crate) fn has(&self, wall: &str) -> bool {
        let host = self.client.host();
        match wall {
            "Landlock" => host.scopes,
            MEMORY | THREADS => host.cgroups != Layout::None,
            _ => true,
        }
    }

    /// What an attack meets, or has, where these walls are missing.
    pub(crate) async fn run(&mut self, attack: &Attack, without: &[&str]) -> String {
        let plan = Plan {
            attack: attack.what.to_owned(),
            argument: self.fill(attack.argument),
            without: without.iter().map(|one| (*one).to_owned()).collect(),
        };
        let monitor = self.start(&plan).await;
        hear(&monitor).await
    }

    fn fill(&self, argument: &str) -> String {
        match argument {
            "{secret}" => self.dir.path().join("secret").to_str().unwrap().to_owned(),
            "{port}" => self.port.to_string(),
            "{name}" => self.name.clone(),
            "{key}" => std::process::id().to_string(),
            "{victim}" => inside(&self.victim.as_ref().unwrap().process).to_string(),
            plain => plain.to_owned(),
        }
    }

    async fn start(&mut self, plan: &Plan) -> Started {
        let file: PathBuf = self.dir.path().join(PLAN);
        std::fs::write(file, serde_json::to_vec(plan).unwrap()).unwrap();
        let lacks = |wall: &str| plan.without.iter().any(|one| one == wall);
        let limits = Limits {
            memory_bytes: if lacks(MEMORY) { 1 << 30 } else { 64 << 20 },
            shown_bytes: 64 << 20,
            pids: if lacks(THREADS) { 100 } else { 10 },
            scratch_bytes: 1 << 20,
            scratch_inodes: 16,
            cpu: Cpu::UNLIMITED,
        };
        let sandbox = self.next;
        self.next += 1;
        let handle = Handle::new(Arc::clone(&self.client), SandboxId(sandbox));
        let command = Command::Monitor { sandbox, limits };
        let (Answer::Started { .. }, fds) = self.client.call(command, &[]).await.unwrap() else {
            panic!("a monitor is started")
        };
        let mut fds = fds.into_iter();
        let (control, process) = fds.next().zip(fds.next()).unwrap();
        Started { handle, control, process }
    }

    pub(crate) async fn end(self) {
        let Self { client, mut warden, victim, segment, .. } = self;
        // SAFETY: removes what this program has made.
        unsafe { libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()) };
        drop((victim, client));
        assert!(warden.wait().await.unwrap().success(), "the warden ends well");
    }
}

/// What it says of its attempt, or how it ended.
async fn hear(monitor: &Started) -> String {
    let mut fds = [PollFd::new(&monitor.control, PollFlags::IN)];
    let patience = Timespec { tv_sec: ATTACK_TIMEOUT, tv_nsec: 0 };
    assert!(poll(&mut fds, Some(&patience)).unwrap() > 0, "it neither speaks nor ends");
    let mut said = [0; 200];
    let count = rustix::io::read(&monitor.control, &mut said).unwrap_or(0);
    if count > 0 {
        return String::from_utf8_lossy(&said[..count]).into_owned();
    }
    let process = PidFd::from(monitor.process.as_fd().try_clone_to_owned().unwrap());
    let (death, words) = monitor.handle.autopsy(&process).await.unwrap();
    format!("killed: {death:?}{}{words}", if words.is_empty() { "" } else { ": " })
}

/// A process's number where it lives.
fn inside(process: &OwnedFd) -> u32 {
    let path = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap();
    let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    numbers.split_whitespace().last().unwrap().parse().unwrap()
}
