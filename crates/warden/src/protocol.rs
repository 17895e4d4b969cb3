//! What the worker and the warden say to each other: one JSON object a packet, descriptors beside it.
//!
//! Every command is answered once, in order, with its own number. A sandbox is named by the worker's number; names
//! are never reused.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::isolation::Isolation;

/// Longest packet either side accepts, in bytes.
pub const MAX_PACKET: usize = 32 << 10;

/// Version of this protocol: both sides come from one build and must agree.
pub const VERSION: u32 = 8;

/// Layers of one [`Command::Open`].
pub const MOST_OPENED: usize = 8;

/// Networks and ports of one [`Command::Reach`].
pub const MOST_NETWORKS: usize = 65;
/// See [`MOST_NETWORKS`]. With the socket for names they fit into one packet.
pub const MOST_PORTS: usize = 12;

/// A numbered command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered<T> {
    /// Chosen by the worker; the answer repeats it.
    pub number: u64,
    /// The command or the answer.
    pub body: T,
}

/// Layers are paths relative to the state directory's `layers/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Python {
    /// Becomes `/`.
    pub base: String,
    /// Becomes `/opt/lambswool`.
    pub guest: String,
    /// The interpreter inside the base.
    pub interpreter: String,
}

/// Limits of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory, scratch included.
    pub memory_bytes: u64,
    /// Bytes of memory that it is told to have: less, where it has asked for scratch beside.
    pub shown_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes of `/tmp`, and again of `/dev/shm`.
    pub scratch_bytes: u64,
    /// Files of `/tmp`, and again of `/dev/shm`.
    pub scratch_inodes: u32,
    /// Its part of the processors.
    #[serde(default)]
    pub cpu: Cpu,
}

/// A part of the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The most, in thousandths of one processor.
    pub quota: Option<u32>,
    /// Its part beside others: 100 is one thread's that has none.
    pub weight: Option<u16>,
}

impl Cpu {
    /// No limit.
    pub const UNLIMITED: Self = Self { quota: None, weight: None };
}

/// Which network a sandbox is in. A zygote's is its forks'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// The place's, which all sandboxes share and in which nothing is.
    #[default]
    None,
    /// An instance's: one of its own, in which there is what [`Command::Reach`] puts there. A zygote's: the place's.
    Egress,
    /// The host's.
    Host,
}

/// From the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Command {
    /// First of all. Answered by [`Answer::Host`].
    Hello {
        /// The worker's [`VERSION`].
        version: u32,
    },
    /// Start an interpreter from nothing. Answered by [`Answer::Started`].
    Start {
        /// Its name.
        sandbox: u64,
        /// What it runs.
        python: Python,
        /// Packages layer.
        packages: Option<String>,
        /// Code layer: an instance's; none makes it a zygote.
        code: Option<String>,
        /// Which network it is in.
        network: Network,
        /// Its limits.
        limits: Limits,
    },
    /// Start a monitor of micro-VMs, whose only way to the outside is its channel. It is an instance as far as its cgroup,
    /// death and release go. Answered by [`Answer::Started`].
    Monitor {
        /// Its name.
        sandbox: u64,
        /// Its limits; it has no scratch.
        limits: Limits,
    },
    /// Set another limit of memory: of a monitor, whose machines are more or fewer now. Answered by [`Answer::Done`].
    Limit {
        /// Its name.
        sandbox: u64,
        /// Bytes.
        memory_bytes: u64,
    },
    /// Open layers for a monitor, each as a read-only tree that hangs nowhere. Answered by [`Answer::Done`] with a
    /// descriptor for each.
    Open {
        /// Which, at most [`MOST_OPENED`].
        layers: Vec<String>,
    },
    /// Prepare a slot for a fork of `zygote`. Answered by [`Answer::Slot`].
    Prepare {
        /// The slot's name, and that of the sandbox that lands in it.
        sandbox: u64,
        /// Who will fork.
        zygote: u64,
        /// Whether a further zygote is to land in it.
        derive: bool,
        /// Packages layer, for a zygote; an instance's comes with `Place`.
        packages: Option<String>,
        /// Its limits.
        limits: Limits,
    },
    /// Attach an instance's layers and set its limits. Before the fork where [`Answer::Host`] says `late_mounts` is
    /// false (the answer then brings the root), any time before `Load` where it is true.
    Place {
        /// Which slot.
        sandbox: u64,
        /// Packages layer.
        packages: Option<String>,
        /// Code layer.
        code: String,
        /// Its limits.
        limits: Limits,
    },
    /// A process has said READY on the slot's channel; a pidfd of it comes along. Answered by [`Answer::Done`] when
    /// it is the slot's: right kernel uid, in the slot's cgroups, in a PID namespace of its own where it should be.
    Landed {
        /// Which slot.
        sandbox: u64,
    },
    /// Make these networks local in an instance's own network, and listen there on these ports, whatever the address that is
    /// connected to; and for questions about names, where it may ask some. Once, of an instance that has landed in
    /// [`Network::Egress`]. Answered by [`Answer::Done`] with the socket for names first, if any, then one for each port.
    Reach {
        /// Which.
        sandbox: u64,
        /// Address and length of the prefix, at most [`MOST_NETWORKS`].
        networks: Vec<(IpAddr, u8)>,
        /// At most [`MOST_PORTS`].
        ports: Vec<u16>,
        /// Whether it may ask for names.
        names: bool,
    },
    /// Start the proxy, beside the one there may be. Answered by [`Answer::Done`] with our end of its control socket: it ends when that closes.
    Proxy,
    /// What have its imports left that a fork would share or lose? Answered by [`Answer::Examined`]. Of a zygote, when it
    /// has said what it imported and before anything is forked from it.
    Examine {
        /// Which.
        sandbox: u64,
    },
    /// Why did it die, and what did it write beside its channel? Answered by [`Answer::Died`], at once; also of one that
    /// lives.
    Inspect {
        /// Which.
        sandbox: u64,
    },
    /// Kill it if it runs, and free all it holds. Answered at once; the work is done when nothing else waits.
    Release {
        /// Which.
        sandbox: u64,
    },
    /// How many released sandboxes are not yet gone? Answered by [`Answer::Reaping`].
    Reaping,
}

/// From the warden.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Answer {
    /// What this host's sandboxes have.
    Host(Host),
    /// It runs. Descriptors: our end of the channel, a pidfd, then as in [`Files`].
    Started {
        /// Its kernel uid.
        uid: u32,
        /// Which further descriptors follow.
        files: Files,
    },
    /// The slot is ready. Descriptors: those for the zygote (the root where mounts may come late, the guest's end of
    /// the channel, the user namespace, `cgroups` times a `cgroup.procs`, an instance's end of its output), our end of the
    /// channel, then as in [`Files`].
    Slot {
        /// The kernel uid that lands.
        uid: u32,
        /// The same as the landing process names it.
        inner_uid: u32,
        /// How many `cgroup.procs` descriptors there are.
        cgroups: usize,
        /// Whether the root is among them.
        root: bool,
        /// Whether the end of an output is.
        output: bool,
        /// Which further descriptors follow.
        files: Files,
    },
    /// Done. After `Place` with early mounts: the root comes along.
    Done,
    /// What the kernel says of a zygote.
    Examined(Left),
    /// How it ended, as far as can be known.
    Died {
        /// It has ended, and pid 1 of the sandboxes may still tell how: ask again an instant later.
        untold: bool,
        /// The kernel killed something in its cgroup for want of memory.
        out_of_memory: bool,
        /// It exited with this status.
        exited: Option<i32>,
        /// This signal ended it.
        signal: Option<i32>,
        /// What has come through the pipe that is its standard error, if it has one; cut to 4 KiB.
        stderr: String,
    },
    /// That many.
    Reaping {
        /// Sandboxes not yet gone.
        sandboxes: usize,
    },
    /// It was not done.
    Failed {
        /// Which step.
        step: String,
        /// The kernel's number, 0 where it was not the kernel.
        errno: i32,
    },
}

/// What a zygote has beyond one thread, private memory and the four descriptors that it started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Threads beside the main one, and processes beside this one in its cgroup.
    pub tasks: u32,
    /// Descriptors that are open beyond its own, or that are not what they were.
    pub descriptors: u32,
    /// Mappings that are shared with whatever it forks, and writable or able to become so.
    pub shared: u32,
}

/// Which of a sandbox's files come along, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Read for what an instance's processes write to descriptors 1 and 2: the end of a pipe.
    pub output: bool,
    /// Written to pause and resume.
    pub freezer: bool,
    /// Read for the memory in use.
    pub memory: bool,
}

/// How processes are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One hierarchy per controller, or hybrid with the controllers there.
    V1,
    /// One hierarchy, at its top.
    V2,
    /// One hierarchy, below a group that was delegated to us.
    V2Delegated,
    /// None: limits of memory and pids are not enforced, nothing is paused.
    None,
}

/// What sandboxes have on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The warden's [`VERSION`].
    pub version: u32,
    /// How processes are grouped.
    pub cgroups: Layout,
    /// Mounts can be attached to a root that is in use: Linux ≥ 6.15, or roots in the warden's mount table.
    pub late_mounts: bool,
    /// Sandboxes see their own processes in `/proc`: Linux ≥ 6.17, or a mount namespace of their own.
    pub proc: bool,
    /// How sandboxes are walled off. Who lands makes its namespaces; where it does not fork, [`Command::Start`] is for
    /// instances only.
    pub isolation: Isolation,
    /// Landlock scopes for abstract sockets and signals: Linux ≥ 6.12.
    pub scopes: bool,
    /// Limits of processors are enforced.
    pub cpu: bool,
    /// Sandboxes and slots that the warden can hold at once, by its descriptors.
    pub sandboxes: u64,
}
