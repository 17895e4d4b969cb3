//! The attacks, by what they are after.

/// Which function carries it out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    /// One with time enough.
    Patient,
    /// One with a second.
    Brief,
}

impl Function {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Patient => "patient",
            Self::Brief => "brief",
        }
    }
}

/// One attack.
#[derive(Debug)]
pub(crate) struct Attack {
    /// What it is after, or how it goes about it.
    pub(crate) name: &'static str,
    /// The function in `attacks.py`.
    pub(crate) what: &'static str,
    /// Machine code or an address, in hexadecimal digits.
    pub(crate) argument: &'static str,
    pub(crate) function: Function,
    /// What it may meet.
    pub(crate) contained: &'static [&'static str],
    /// A plain process succeeds with it.
    pub(crate) harms_anywhere: bool,
}

const fn host(
    name: &'static str,
    what: &'static str,
    contained: &'static [&'static str],
) -> Attack {
    Attack {
        name,
        what,
        argument: "",
        function: Function::Patient,
        contained,
        harms_anywhere: true,
    }
}

const fn inner(
    name: &'static str,
    what: &'static str,
    contained: &'static [&'static str],
) -> Attack {
    Attack { harms_anywhere: false, ..host(name, what, contained) }
}

const fn brief(
    name: &'static str,
    what: &'static str,
    contained: &'static [&'static str],
) -> Attack {
    Attack { function: Function::Brief, ..inner(name, what, contained) }
}

const fn code(
    name: &'static str,
    code: &'static str,
    contained: &'static [&'static str],
) -> Attack {
    Attack { argument: code, ..inner(name, "execute_code", contained) }
}

const fn at(name: &'static str, what: &'static str, address: &'static str) -> Attack {
    Attack { argument: address, ..inner(name, what, FAULT) }
}

const NOWHERE: &[&str] = &["ENOENT"];
const LACKING: &[&str] = &["ENOSYS"];
const NO_FAMILY: &[&str] = &["EAFNOSUPPORT"];
const FAULT: &[&str] = &["SIGSEGV"];
/// Which exception it is depends on the hypervisor that emulates it, if one does.
const REFUSED: &[&str] = &["SIGSEGV", "SIGILL", "SIGTRAP", "SIGBUS"];

/// All of them.
pub(crate) const ALL: &[Attack] = &[
    host("a file of the host by its path", "path", NOWHERE),
    host("the same by `..`", "dots", NOWHERE),
    host("the same by `..` from a descriptor", "dots_from_a_descriptor", NOWHERE),
    host("the same by a link", "link", NOWHERE),
    inner("the same by /proc/1/root", "root_of_process_one", NOWHERE),
    host("the same by /proc/self/root", "own_root", NOWHERE),
    host("/dev/kvm", "kvm", NOWHERE),
    inner("/dev/mem", "physical_memory", NOWHERE),
    inner("/proc/self/mem", "own_memory", NOWHERE),
    host("other processes in /proc", "processes", &["none", "ENOENT"]),
    inner("descriptors beyond its own", "descriptors", &["none"]),
    host("a port of TCP's", "tcp", &["EACCES"]),
    host("a socket of Unix", "unix", NO_FAMILY),
    host("a pair of datagram sockets", "pair", &["ESOCKTNOSUPPORT"]),
    host("fork", "fork", LACKING),
    host("a shell beside it", "spawn", LACKING),
    host("a shell in its place", "execute", &["ENOSYS", "ENOENT", "EACCES"]),
    host("a signal to the worker", "signal", &["ESRCH", "EPERM"]),
    inner("tracing", "trace", LACKING),
    host("process_vm_readv", "read_process", LACKING),
    host("a user namespace", "namespace", LACKING),
    inner("mounting", "mount", LACKING),
    inner("wild pointers to every call", "wild_pointers", &["answered"]),
    inner("the monitor's memory by a call that reads", "monitors_memory_by_a_call", &["EFAULT"]),
    inner("the monitor's memory by a call that writes", "monitors_memory_by_a_write", &["EFAULT"]),
    at("loading from ring 0's pages", "load", "ffffffff80000000"),
    at("storing to ring 0's pages", "store", "ffffffff80003000"),
    at("loading from the monitor's part of the arena", "load", "80000000"),
    at("storing to the page tables", "store", "80200000"),
    at("storing behind the arena", "store", "80800000"),
    code("its own code is executed", "b82a000000c3", &["got 42"]),
    code("a call from its own page", "b8270000000f05c3", &["its own number"]),
    code(
        "a call with a stack pointer of ring 0's",
        "534889e348bc00500080ffffffffb8270000000f054889dc5bc3",
        &["its own number"],
    ),
    code("jumping into ring 0", "48b800300080ffffffffffe0", FAULT),
    code("returning to ring 0's segment", "6a08680010000048cb", FAULT),
    code("iretq to ring 0", "6a1068001000006a026a08680010000048cf", FAULT),
    code("sysret", "480f07", REFUSED),
    code("loading ring 0's data segment", "66b810008ed8c3", FAULT),
    code("hlt", "f4c3", FAULT),
    code("cli", "fac3", FAULT),
    code("out to the monitor's port", "b000e60ec3", REFUSED),
    code("out to another port", "66baf803eec3", REFUSED),
    code("in", "e460c3", REFUSED),
    code("rights to ports by popf, then out", "68003000009d66baf803eec3", REFUSED),
    code("wrmsr", "b9820000c031c031d20f30c3", FAULT),
    code("rdmsr", "b9820000c00f32c3", FAULT),
    code("reading cr3", "0f20d8c3", FAULT),
    code("writing cr3", "31c00f22d8c3", FAULT),
    code("lgdt", "0f011424c3", FAULT),
    code("lidt", "0f011c24c3", FAULT),
    code("invlpg", "0f013c24c3", FAULT),
    code("swapgs", "0f01f8c3", REFUSED),
    code("int 0x80", "b814000000cd80c3", REFUSED),
    code("int 14", "cd0ec3", REFUSED),
    code("int3", "ccc3", REFUSED),
    code("ud2", "0f0bc3", REFUSED),
    code("single steps", "9c48810c24000100009d90c3", REFUSED),
    code("calling the hypervisor", "0f01c1c3", &["got -1", "SIGSEGV", "SIGILL"]),
    code("calling the hypervisor, AMD's way", "0f01d9c3", &["got -1", "SIGSEGV", "SIGILL"]),
    inner("memory without end", "memory", &["it reached its memory limit"]),
    inner("descriptors without end", "open_files", &["EMFILE"]),
    inner("threads without end", "threads", &["RuntimeError"]),
    inner("scratch without end", "scratch", &["ENOSPC"]),
    inner("names without end", "names", &["ENOSPC"]),
    inner("output without end", "output", &["answered"]),
    brief("computing for ever", "spin", &["504"]),
    brief("sleeping for ever", "sleep", &["504"]),
    brief("waiting for itself", "deadlock", &["SIGABRT"]),
    brief("noise on its channel", "flood", &["502", "504"]),
    brief("closing its channel", "close_channel", &["502", "504"]),
];
