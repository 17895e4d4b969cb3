//! A monitor that was taken over: it goes to jail as `wool-vmm` does, and then does what it was
//! told to try.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use vmm::monitor::jail;

use crate::plan::Plan;

/// Executed by the warden as root. Ends the process.
pub(crate) fn be(plan: &Path) -> ! {
    let plan: Plan = serde_json::from_slice(&std::fs::read(plan).unwrap()).unwrap();
    let kvm = File::options().read(true).write(true).open("/dev/kvm").unwrap();
    let control = jail::enter_without(&plan.missing()).unwrap();
    let said = match attempt(&plan, &kvm, &control) {
        Ok(evidence) => format!("got {evidence}"),
        Err(error) => name(&error),
    };
    rustix::io::write(&control, said.as_bytes()).unwrap();
    // A victim waits here; all other processes go on.
    let _ = rustix::io::read(&control, &mut [0u8; 1]);
    std::process::exit(0)
}

fn attempt(plan: &Plan, kvm: &File, control: &OwnedFd) -> io::Result<String> {
    let argument = plan.argument.as_str();
    match plan.attack.as_str() {
        "wait" => Ok("patience".to_owned()),
        "open" => open(argument),
        "list" => list(),
        "socket" => Ok(format!("socket {}", call(libc::SYS_socket, [1, 1, 0, 0, 0, 0])?)),
        "connect" => reach(argument),
        "abstract" => reach_abstract(argument),
        "fork" => fork(),
        "execute" => execute(control),
        "trace" => number(libc::SYS_ptrace, [0; 6]),
        "read memory" => read_memory(),
        "namespace" => number(libc::SYS_unshare, [flag(libc::CLONE_NEWUSER), 0, 0, 0, 0, 0]),
        "notify" => number(libc::SYS_inotify_init1, [0; 6]),
        "dump" => number(libc::SYS_prctl, [flag(libc::PR_SET_DUMPABLE), 1, 0, 0, 0, 0]),
        "kvm" => number(libc::SYS_ioctl, [descriptor(kvm), 0xae00, 0, 0, 0, 0]),
        "ioctl" => number(libc::SYS_ioctl, [descriptor(control), 0x5451, 0, 0, 0, 0]),
        "signal" => {
            let victim: usize = argument.parse().map_err(io::Error::other)?;
            call(libc::SYS_tgkill, [victim, victim, 0, 0, 0, 0])?;
            Ok(format!("a signal's way to process {victim}"))
        }
        "low page" => low_page(),
        "merge" => merge(),
        "segment" => {
            let key: usize = argument.parse().map_err(io::Error::other)?;
            Ok(format!("segment {}", call(libc::SYS_shmget, [key, 0, 0, 0, 0, 0])?))
        }
        "host name" => host_name(),
        "memory" => Ok(format!("{} bytes", vec![1u8; argument.parse().unwrap()].len())),
        "threads" => threads(argument.parse().map_err(io::Error::other)?),
        other => Err(io::Error::other(format!("there is no attack {other}"))),
    }
}

fn call(number: i64, of: [usize; 6]) -> io::Result<usize> {
    // SAFETY: whatever a pointer among them points at outlives the call: each caller holds it. What
    // a call does to this process, which is about to end, is of no other process.
    let result = unsafe { libc::syscall(number, of[0], of[1], of[2], of[3], of[4], of[5]) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn number(number: i64, of: [usize; 6]) -> io::Result<String> {
    call(number, of).map(|result| format!("{result} from call {number}"))
}

fn flag(flag: i32) -> usize {
    usize::try_from(flag).unwrap()
}

fn descriptor(of: &impl AsRawFd) -> usize {
    flag(of.as_raw_fd())
}

/// By the one call for it that the filter knows.
fn open(path: &str) -> io::Result<String> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    let file = openat2(CWD, path, OFlags::RDONLY, Mode::empty(), ResolveFlags::empty())?;
    let mut bytes = [0; 20];
    let count = rustix::io::read(&file, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

fn list() -> io::Result<String> {
    use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let root = openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::empty())?;
    let names = Dir::new(root)?.filter_map(Result::ok).map(|it| it.file_name().to_owned());
    let names = names.filter(|name| !matches!(name.to_bytes(), b"." | b".."));
    match names.count() {
        0 => Err(io::Error::other("empty")),
        count => Ok(format!("{count} names")),
    }
}

fn reach(port: &str) -> io::Result<String> {
    use rustix::net::SocketAddrV4;
    let to = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port.parse().unwrap());
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    connect(&socket, &to)?;
    Ok("a connection to the host".to_owned())
}

fn reach_abstract(name: &str) -> io::Result<String> {
    let to = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    connect(&socket, &to)?;
    Ok("a connection to the host".to_owned())
}

fn fork() -> io::Result<String> {
    let child = call(libc::SYS_clone, [flag(libc::SIGCHLD), 0, 0, 0, 0, 0])?;
    if child == 0 {
        let _ = call(libc::SYS_exit_group, [0; 6]);
    }
    Ok(format!("a child, {child}"))
}

/// From memory, since there is no file: a program that says on descriptor 3 that it runs.
fn execute(control: &OwnedFd) -> io::Result<String> {
    assert_eq!(control.as_fd().as_raw_fd(), 3, "where the program speaks");
    let said = b"got a program of its own";
    let file = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::empty())?;
    rustix::io::write(&file, &program(said))?;
    let (path, none) = (c"", [std::ptr::null::<u8>()]);
    let none = none.as_ptr() as usize;
    let of = [descriptor(&file), path.as_ptr() as usize, none, none, flag(libc::AT_EMPTY_PATH), 0];
    number(libc::SYS_execveat, of)
}

/// write(3, said, …); exit(0), with the headers that an ELF file needs (elf(5)).
fn program(said: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let length = u32::try_from(said.len()).unwrap();
    let mut code = vec![0xb8, 1, 0, 0, 0, 0xbf, 3, 0, 0, 0, 0x48, 0x8d, 0x35, 16, 0, 0, 0, 0xba];
    code.extend(length.to_le_bytes());
    code.extend([0x0f, 0x05, 0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    code.extend(said);
    let whole = HEADERS + u64::try_from(code.len()).unwrap();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    file.extend([BASE + HEADERS, 64, 0].into_iter().flat_map(u64::to_le_bytes));
    file.extend(0u32.to_le_bytes());
    file.extend([64, 56, 1, 0, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    file.extend([1, 5].into_iter().flat_map(u32::to_le_bytes));
    file.extend([0, BASE, BASE, whole, whole, 0x1000].into_iter().flat_map(u64::to_le_bytes));
    file.extend(code);
    file
}

fn read_memory() -> io::Result<String> {
    let (from, mut to) = (*b"own memory", [0u8; 10]);
    let theirs = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: 10 };
    let ours = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: 10 };
    let process = usize::try_from(std::process::id()).unwrap();
    let (ours, theirs) = (&raw const ours as usize, &raw const theirs as usize);
    number(libc::SYS_process_vm_readv, [process, ours, 1, theirs, 1, 0])
}

/// Below `vm.mmap_min_addr`, where a null pointer of the kernel's would lead.
fn low_page() -> io::Result<String> {
    let flags = flag(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    let at = call(libc::SYS_mmap, [0, 4096, 3, flags, usize::MAX, 0])?;
    Ok(format!("the page at {at}"))
}

fn merge() -> io::Result<String> {
    let flags = flag(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let at = call(libc::SYS_mmap, [0, 4096, 3, flags, usize::MAX, 0])?;
    number(libc::SYS_madvise, [at, 4096, flag(libc::MADV_MERGEABLE), 0, 0, 0])
}

fn host_name() -> io::Result<String> {
    let mut names = [0u8; 6 * 65];
    call(libc::SYS_uname, [names.as_mut_ptr() as usize, 0, 0, 0, 0, 0])?;
    let name = names[65..130].split(|byte| *byte == 0).next().unwrap_or_default();
    match name {
        b"sandbox" => Err(io::Error::other("the place's")),
        other => Ok(String::from_utf8_lossy(other).into_owned()),
    }
}

fn threads(count: usize) -> io::Result<String> {
    let mut made = Vec::new();
    let (keep, kept) = std::sync::mpsc::channel::<()>();
    let kept = std::sync::Arc::new(std::sync::Mutex::new(kept));
    for _ in 0..count {
        let kept = std::sync::Arc::clone(&kept);
        let wait = move || drop(kept.lock().map(|kept| kept.recv()));
        made.push(std::thread::Builder::new().stack_size(64 << 10).spawn(wait)?);
    }
    drop(keep);
    Ok(format!("{} threads", made.len()))
}

/// The kernel's name for it, where it is the kernel's.
fn name(error: &io::Error) -> String {
    let names = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::EACCES, "EACCES"),
        (libc::EINVAL, "EINVAL"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ESRCH, "ESRCH"),
        (libc::ENETUNREACH, "ENETUNREACH"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
    ];
    let known = names.iter().find(|(number, _)| error.raw_os_error() == Some(*number));
    known.map_or_else(|| error.to_string(), |(_, name)| (*name).to_owned())
}
