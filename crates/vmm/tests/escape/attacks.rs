//! What is tried.

/// A wall that the warden builds, and not the monitor itself.
pub(crate) const MEMORY: &str = "limit of memory";
/// The other wall of the warden.
pub(crate) const THREADS: &str = "limit of threads";

/// An attack, and what stops it.
#[derive(Debug)]
pub(crate) struct Attack {
    /// What it is after.
    pub(crate) name: &'static str,
    /// Which of the attacker's it is.
    pub(crate) what: &'static str,
    /// What that takes; words in braces are the stage's to fill in.
    pub(crate) argument: &'static str,
    /// Without exactly these it succeeds.
    pub(crate) without: &'static [&'static str],
    /// What it meets when all walls stand.
    pub(crate) contained: &'static str,
}

const fn attack(
    name: &'static str,
    what: &'static str,
    argument: &'static str,
    without: &'static [&'static str],
    contained: &'static str,
) -> Attack {
    Attack { name, what, argument, without, contained }
}

/// All attacks, in order.
pub(crate) const ALL: &[Attack] = &[
    attack("reading a file of the host", "open", "/etc/passwd", &["empty root"], "ENOENT"),
    attack("listing the host's root", "list", "", &["empty root"], "empty"),
    attack(
        "reading a file that is root's alone",
        "open",
        "{secret}",
        &["empty root", "uid and capabilities"],
        "ENOENT",
    ),
    attack("a socket", "socket", "", &["filter"], "ENOSYS"),
    attack(
        "connecting to a service of the host",
        "connect",
        "{port}",
        &["network namespace", "Landlock", "filter"],
        "ENOSYS",
    ),
    attack(
        "connecting to an abstract socket of the host",
        "abstract",
        "{name}",
        &["network namespace", "Landlock", "filter"],
        "ENOSYS",
    ),
    attack("forking", "fork", "", &["filter"], "ENOSYS"),
    attack("executing a program from memory", "execute", "", &["filter"], "ENOSYS"),
    attack("tracing", "trace", "", &["filter"], "ENOSYS"),
    attack("process_vm_readv", "read memory", "", &["filter"], "ENOSYS"),
    attack("a new user namespace", "namespace", "", &["filter"], "ENOSYS"),
    attack("watching files", "notify", "", &["filter"], "ENOSYS"),
    attack("becoming dumpable again", "dump", "", &["filter"], "ENOSYS"),
    attack("having pages merged with others'", "merge", "", &["filter"], "EINVAL"),
    attack("a request of KVM's that is not listed", "kvm", "", &["filter"], "ENOSYS"),
    attack("a request of another driver's", "ioctl", "", &["filter"], "ENOSYS"),
    attack(
        "a signal to another monitor",
        "signal",
        "{victim}",
        &["user namespace", "uid and capabilities", "Landlock"],
        "EPERM",
    ),
    attack(
        "mapping the page at address 0",
        "low page",
        "",
        &["user namespace", "uid and capabilities"],
        "EPERM",
    ),
    attack(
        "shared memory of the host's",
        "segment",
        "{key}",
        &["IPC namespace", "filter"],
        "ENOSYS",
    ),
    attack("the host's name", "host name", "", &["UTS namespace", "filter"], "ENOSYS"),
    attack("256 MiB of memory", "memory", "268435456", &[MEMORY], "killed: OutOfMemory"),
    attack("40 threads", "threads", "40", &[THREADS], "EAGAIN"),
];
