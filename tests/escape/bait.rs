//! What the host has to lose: files, services, memory, keys that attacks are after.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egress::Rules;
use sandbox::Destination;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What the file says that nobody in a sandbox may read.
const SECRET: &str = "a secret of the host";

/// Where a second service is.
const ELSEWHERE: &str = "127.0.0.2";

/// See the module's own words. Services end with the test's process.
pub(crate) struct Bait {
    dir: TempDir,
    udp: u16,
    tcp: u16,
    /// Listens at another address, which the operator allows and no function asks for.
    elsewhere: u16,
    name: String,
    segment: Segment,
    _socket: UnixListener,
    _abstract: UnixListener,
}

impl Bait {
    pub(crate) fn new() -> Self {
        join_session_ring();
        allow_much();
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(dir.path().join("canary"), SECRET).unwrap();
        let name = format!("escape-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self {
            _socket: UnixListener::bind(dir.path().join("api.sock")).unwrap(),
            _abstract: UnixListener::bind_addr(&address).unwrap(),
            udp: echo(),
            tcp: greet("127.0.0.1", "the control API"),
            elsewhere: greet(ELSEWHERE, "a service elsewhere"),
            segment: Segment::new(),
            name,
            dir,
        }
    }

    /// The directory that holds the canary.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn canary(&self) -> PathBuf {
        self.dir().join("canary")
    }

    /// Where those may connect to who may connect to something: to a service that the operator does not allow, and to nobody
    /// at the port of one that he does.
    pub(crate) fn destinations(&self) -> Arc<[Destination]> {
        let list = [format!("127.0.0.1:{}", self.tcp), format!("127.0.0.9:{}", self.elsewhere)];
        list.iter().map(|one| one.parse().unwrap()).collect()
    }

    /// What the operator allows all of them.
    pub(crate) fn rules(&self) -> Rules {
        Rules { allow: vec![ELSEWHERE.parse().unwrap()], ..Rules::default() }
    }

    /// What attackers are told: they may know everything.
    pub(crate) fn facts(&self) -> Value {
        json!({
            "canary": self.canary(),
            "handle": handle(&self.canary()),
            "udp": self.udp,
            "tcp": self.tcp,
            "elsewhere": [ELSEWHERE, self.elsewhere],
            "socket": self.dir().join("api.sock"),
            "abstract": self.name,
            "segment": self.segment.key,
            "core": std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(),
            "variable": inherited(),
            "autogroup": std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled")
                .is_ok_and(|enabled| enabled.trim() == "1"),
        })
    }

    /// Has the kernel tell of a device, as when one is plugged in.
    pub(crate) fn poke(&self) {
        let _ = std::fs::write("/sys/devices/virtual/mem/null/uevent", "change");
    }
}

/// A variable of this process, and so of the warden that it starts, that no sandbox has for itself.
fn inherited() -> Option<String> {
    let own = |name: &str| ["PATH", "LANG", "HOME", "TMPDIR", "_"].contains(&name);
    std::env::vars().map(|(name, _)| name).find(|name| !own(name) && !name.ends_with("_THREADS"))
}

/// As a login does (pam_keyinit): whatever is started from here on inherits the ring.
fn join_session_ring() {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a null name makes an anonymous ring.
    unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
}

/// Limits as generous as a worker's may be: what is started from here on inherits them.
fn allow_much() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    for (resource, most) in
        [(Resource::Core, None), (Resource::Rtprio, Some(50)), (Resource::Nice, Some(40))]
    {
        // A machine may have taken the capability for it from everybody: then the attack finds nothing.
        let _ = setrlimit(resource, Rlimit { current: most, maximum: most });
    }
}

fn echo() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(b"a service of the host", from);
        }
    });
    port
}

fn greet(address: &str, words: &'static str) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut caller in listener.incoming().flatten() {
            let _ = caller.write_all(words.as_bytes());
            let _ = caller.read(&mut [0]);
        }
    });
    port
}

/// Kind and bytes of the file's handle.
fn handle(path: &Path) -> Value {
    const ROOM: usize = 128;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // `struct file_handle`: how many bytes there are, their kind, and they.
    let mut handle = [0u32; 2 + ROOM / 4];
    handle[0] = u32::try_from(ROOM).unwrap();
    let mut mount = 0;
    // SAFETY: the buffer has as many bytes as its first word says, and the two words before them.
    let result = unsafe {
        libc::name_to_handle_at(
            libc::AT_FDCWD,
            path.as_ptr(),
            handle.as_mut_ptr().cast(),
            &raw mut mount,
            0,
        )
    };
    if result != 0 {
        return json!([0, ""]);
    }
    let bytes = handle[2..].iter().flat_map(|word| word.to_ne_bytes());
    let hex: String = bytes.take(handle[0] as usize).map(|byte| format!("{byte:02x}")).collect();
    json!([handle[1], hex])
}

/// A piece of System V memory of the host's.
struct Segment {
    key: libc::key_t,
    id: libc::c_int,
}

impl Segment {
    fn new() -> Self {
        let key = 0x4c57_0000 | (std::process::id() & 0xffff).cast_signed();
        // SAFETY: plain numbers.
        let id = unsafe { libc::shmget(key, 64, libc::IPC_CREAT | 0o666) };
        // SAFETY: a new mapping, wherever the kernel likes.
        let at = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        assert!(id >= 0 && at.addr() != usize::MAX, "no System V memory");
        // SAFETY: it has 64 bytes.
        unsafe { std::ptr::copy_nonoverlapping(SECRET.as_ptr(), at.cast(), SECRET.len()) };
        // SAFETY: nobody uses the mapping any more.
        unsafe { libc::shmdt(at) };
        Self { key, id }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: plain numbers; ours.
        unsafe { libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}
