//! Messages between the worker and the warden: one JSON object a packet, descriptors beside it.
//!
//! Every command is answered once, in order, with its own number. A sandbox is named by the
//! worker's number; numbers are never reused.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::isolation::Isolation;
pub use crate::limits::{Cpu, Limits, Network};

/// Length limit of a packet, in bytes.
pub const MAX_PACKET: usize = 32 << 10;

/// Version of this protocol: both sides come from one build and must agree.
pub const VERSION: u32 = 9;

/// Maximum number of layers of one [`Command::Open`].
pub const MAX_OPENED: usize = 8;

/// Maximum number of networks of one [`Command::Reach`].
pub const MAX_NETWORKS: usize = 65;
/// Maximum number of ports of one [`Command::Reach`]. With the socket for names they fit into one
/// packet.
pub const MAX_PORTS: usize = 12;

/// A numbered command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered<T> {
    /// Chosen by the worker; the answer repeats it.
    pub number: u64,
    /// The command or the answer.
    pub body: T,
}

/// The Python of a sandbox. Layers are paths relative to the state directory's `layers/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Python {
    /// The base layer; becomes `/`.
    pub base: String,
    /// The guest's layer; becomes `/opt/lambswool`.
    pub guest: String,
    /// Path of the interpreter inside the base.
    pub interpreter: String,
}

/// A command of the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Command {
    /// The first command. Answered by [`Answer::Host`].
    Hello {
        /// The worker's [`VERSION`].
        version: u32,
    },
    /// Start an interpreter from nothing. Answered by [`Answer::Started`].
    Start {
        /// The sandbox's number.
        sandbox: u64,
        /// Layers and interpreter.
        python: Python,
        /// Packages layer.
        packages: Option<String>,
        /// Code layer of an instance; none makes it a zygote.
        code: Option<String>,
        /// Layer of the function's layers, of an instance.
        opt: Option<String>,
        /// The network of the sandbox.
        network: Network,
        /// Limits of the sandbox.
        limits: Limits,
    },
    /// Start a monitor of micro-VMs, which reaches nothing but its channel. It counts as an
    /// instance with regard to cgroup, death and release. Answered by [`Answer::Started`].
    Monitor {
        /// The monitor's number.
        sandbox: u64,
        /// Limits of the monitor; it has no scratch.
        limits: Limits,
    },
    /// Change the memory limit of a monitor whose number of machines has changed.Answered by
    /// [`Answer::Done`].
    Limit {
        /// The monitor's number.
        sandbox: u64,
        /// The new limit, in bytes.
        memory_bytes: u64,
    },
    /// Open layers for a monitor, each as a detached read-only tree. Answered by [`Answer::Done`]
    /// with a descriptor for each.
    Open {
        /// The layers, at most [`MAX_OPENED`].
        layers: Vec<String>,
    },
    /// Prepare a slot for a fork of `zygote`. Answered by [`Answer::Slot`].
    Prepare {
        /// The number of the slot, and of the sandbox that lands in it.
        sandbox: u64,
        /// The zygote that will fork.
        zygote: u64,
        /// Whether a further zygote is to land in it.
        derive: bool,
        /// Packages layer, for a zygote; an instance's comes with `Place`.
        packages: Option<String>,
        /// Limits of the slot.
        limits: Limits,
    },
    /// Attach an instance's layers and set its limits. Before the fork where [`Answer::Host`] says
    /// `late_mounts` is false (the answer then brings the root), any time before `Load` where it is
    /// true.
    Place {
        /// The slot's number.
        sandbox: u64,
        /// Packages layer.
        packages: Option<String>,
        /// Code layer of the function.
        code: String,
        /// Layer of the function's layers.
        opt: Option<String>,
        /// Limits of the instance.
        limits: Limits,
    },
    /// A process has said READY on the slot's channel; a pidfd of it comes along.Answered by
    /// [`Answer::Done`] when it is the slot's: right kernel uid, in the slot's cgroups, in a PID
    /// namespace of its own where it should be.
    Landed {
        /// The slot's number.
        sandbox: u64,
    },
    /// Make these networks local in an instance's own network, and listen there on these ports, at
    /// any address; also for name lookups, if `names` is set. Once, for an instance that has landed
    /// in [`Network::Egress`]. Answered by [`Answer::Done`] with the socket for names first, if
    /// any, then one for each port.
    Reach {
        /// The instance's number.
        sandbox: u64,
        /// Address and length of the prefix, at most [`MAX_NETWORKS`].
        networks: Vec<(IpAddr, u8)>,
        /// Ports, at most [`MAX_PORTS`].
        ports: Vec<u16>,
        /// Whether the instance may look up names.
        names: bool,
    },
    /// Start the proxy, beside an earlier one if there is one. Answered by [`Answer::Done`] with
    /// the worker's end of its control socket: the proxy ends when that closes.
    Proxy,
    /// Examine what a zygote's imports have left that a fork would share or lose.Answered by
    /// [`Answer::Examined`]. After the zygote has reported its imports and before anything is
    /// forked from it.
    Examine {
        /// The zygote's number.
        sandbox: u64,
    },
    /// Ask for a sandbox's cause of death, and for its output outside the channel.Answered by
    /// [`Answer::Died`], at once; also for a sandbox that lives.
    Inspect {
        /// The sandbox's number.
        sandbox: u64,
    },
    /// Kill the sandbox if it runs, and free all it holds. Answered at once; the work is done when
    /// no command waits.
    Release {
        /// The sandbox's number.
        sandbox: u64,
    },
    /// Ask how many released sandboxes are not yet gone. Answered by [`Answer::Reaping`].
    Reaping,
}

/// An answer of the warden.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Answer {
    /// What sandboxes can have on this host.
    Host(Host),
    /// The process runs. Descriptors: the worker's end of the channel, a pidfd, then as in
    /// [`Files`].
    Started {
        /// Its kernel uid.
        uid: u32,
        /// The further descriptors.
        files: Files,
    },
    /// The slot is ready. Descriptors: those for the zygote (the root where mounts may come late,
    /// the guest's end of the channel, the user namespace, `cgroups` times a `cgroup.procs`, an
    /// instance's end of its output), the worker's end of the channel, then as in [`Files`].
    Slot {
        /// The kernel uid of the process that lands.
        uid: u32,
        /// The same uid in the landing process's namespace.
        inner_uid: u32,
        /// How many `cgroup.procs` descriptors there are.
        cgroups: usize,
        /// Whether the root is among the descriptors.
        root: bool,
        /// Whether the end of an output is among them.
        output: bool,
        /// The further descriptors.
        files: Files,
    },
    /// The command was carried out. After `Place` with early mounts: the root comes along.
    Done,
    /// The kernel's findings about a zygote.
    Examined(ImportRemains),
    /// The cause of death, as far as it can be known.
    Died {
        /// The process has ended, and pid 1 of the sandboxes may still report how: ask again an
        /// instant later.
        untold: bool,
        /// The kernel killed a process in its cgroup for want of memory.
        out_of_memory: bool,
        /// It exited with this status.
        exited: Option<i32>,
        /// This signal ended it.
        signal: Option<i32>,
        /// The output in the pipe that is its standard error, if it has one; cut to 4 KiB.
        stderr: String,
    },
    /// The number of released sandboxes.
    Reaping {
        /// Sandboxes that are not yet gone.
        sandboxes: usize,
    },
    /// The command was not carried out.
    Failed {
        /// The step that failed.
        step: String,
        /// The kernel's errno, 0 where the error was not the kernel's.
        errno: i32,
    },
}

/// What a zygote has beyond one thread, private memory and the four descriptors that it started
/// with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRemains {
    /// Threads beside the main one, and processes beside this one in its cgroup.
    pub tasks: u32,
    /// Open descriptors beyond its own, or that are not what they were.
    pub descriptors: u32,
    /// Mappings that its forks would share, and that are writable or can become so.
    pub shared: u32,
}

/// Which of a sandbox's files come along, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// The reading end of a pipe: an instance's output on descriptors 1 and 2.
    pub output: bool,
    /// The file that pauses and resumes when written to.
    pub freezer: bool,
    /// The file that tells the memory in use.
    pub memory: bool,
}

/// The layout of the host's cgroup hierarchies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One hierarchy per controller, or hybrid with the controllers there.
    V1,
    /// One hierarchy, with the warden's directory at its top.
    V2,
    /// One hierarchy, with the warden's directory below a delegated group.
    V2Delegated,
    /// None: limits of memory and pids are not enforced, nothing is paused.
    None,
}

/// What sandboxes can have on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The warden's [`VERSION`].
    pub version: u32,
    /// The layout of cgroups.
    pub cgroups: Layout,
    /// Mounts can be attached to a root that is in use: Linux ≥ 6.15, or roots in the warden's
    /// mount table.
    pub late_mounts: bool,
    /// Sandboxes see their own processes in `/proc`: Linux ≥ 6.17, or a mount namespace of their
    /// own.
    pub proc: bool,
    /// The isolation recipe. A landing process makes the recipe's namespaces; where the recipe has
    /// no forks, [`Command::Start`] is for instances only.
    pub isolation: Isolation,
    /// Landlock scopes for abstract sockets and signals: Linux ≥ 6.12.
    pub scopes: bool,
    /// Limits of processors are enforced.
    pub cpu: bool,
    /// Sandboxes and slots that the warden can hold at once, by its limit on descriptors.
    pub sandboxes: u64,
}
