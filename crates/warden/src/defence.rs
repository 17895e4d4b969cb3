//! Lines of defence, each with a name, so that a test can switch each off by itself.
//!
//! A defence that has never been seen to stop an attack may be none. `tests/escape` attacks with
//! everything in force, and once more with exactly one defence missing: then the attack must
//! succeed. [`Isolation`](crate::isolation::Isolation) switches one off
//! (`lean,unsafe-without=own-uid`), in builds with debug assertions only ([`SWITCHABLE`]). There the
//! warden obeys only a worker that root runs: any other user who may start a warden would become
//! root by it. No setting of a function and no request reaches this.

use std::fmt;

/// Whether this build can switch a defence off. A release cannot: every defence is in force there,
/// and its programs do not contain the names. The profile `ablation` is a release that can.
pub const SWITCHABLE: bool = cfg!(debug_assertions);

/// Declares [`Defence`] from one list: variant, name, consequence of its absence.
macro_rules! defences {
    ($($variant:ident $name:literal $without:literal)*) => {
        /// One line of defence. The text of each variant says what its absence means.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Defence {
            $(#[doc = $without] $variant,)*
        }

        impl Defence {
            /// Every defence, in the order of the tables.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in settings and tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The consequence of its absence.
            #[must_use]
            pub const fn without(self) -> &'static str {
                match self { $(Self::$variant => $without,)* }
            }
        }
    };
}

defences! {
    OwnUid "own-uid" "forks of one zygote share a kernel uid"
    Capabilities "capabilities" "sandboxes keep the capabilities of the process that made them"
    PidNamespace "pid-namespace" "instances live in one PID namespace"
    NetworkNamespace "network-namespace" "sandboxes are in the host's network"
    HiddenSockets "hidden-sockets" "/proc lists the sockets of the network that sandboxes share"
    LoopbackDown "loopback-down" "the loopback device that sandboxes share is up"
    EgressList "egress-list" "a function that may connect to some destinations may connect to any"
    EgressRules "egress-rules" "functions reach private addresses and the host's own services"
    IpcNamespace "ipc-namespace" "sandboxes are in the host's IPC namespace"
    EmptyPlace "empty-place" "sandboxes are in the warden's mount namespace"
    PrivateStages "private-stages" "any process may enter the directory in which bound roots are mounted"
    ProcSubset "proc-subset" "/proc shows more than processes"
    ReadOnlyProc "read-only-proc" "a dumpable process can write to its files in /proc"
    OwnScratch "own-scratch" "all sandboxes share one /tmp and /dev/shm"
    ReadOnlyLayers "read-only-layers" "layers are mounted writable"
    NoDevices "no-devices" "device nodes in layers can be opened"
    LayersBeneath "layers-beneath" "names of layers are resolved through links, and out of their directory"
    CleanEnvironment "clean-environment" "sandboxes get the warden's environment"
    CloseDescriptors "close-descriptors" "forks inherit their zygote's descriptors"
    Undumpable "undumpable" "an instance's memory can be read by programs that it runs"
    LandlockNetwork "landlock-network" "no Landlock rule forbids TCP"
    LandlockScopes "landlock-scopes" "no Landlock scope confines abstract sockets and signals"
    StackedFilter "stacked-filter" "instances may make the system calls of zygotes"
    LimitCore "limit-core" "no limit on core files"
    LimitPriority "limit-priority" "sandboxes have the worker's limits of priority"
    DieFirst "die-first" "when the host is out of memory, it kills the worker as soon as a sandbox"
    LimitFiles "limit-files" "no limit on open files"
    LimitSignals "limit-signals" "no limit on pending signals and timers"
    LimitMemory "limit-memory" "no limit on memory"
    LimitPids "limit-pids" "no limit on processes"
    LimitCpu "limit-cpu" "no limit on processors"
    ProcessorGroup "processor-group" "sandboxes share no cgroup of the cpu controller: a session that one makes weighs as much as all others"
    OwnSession "own-session" "sandboxes are in the warden's session, and share its weight"
    LimitScratchBytes "limit-scratch-bytes" "no limit on bytes of scratch"
    LimitScratchFiles "limit-scratch-files" "no limit on files of scratch"
    CgroupCredentials "cgroup-credentials" "zygotes get cgroup files that root has opened"
    CheckUid "check-uid" "a process that answers in a slot's name may have any uid"
    CheckCgroup "check-cgroup" "a process that answers in a slot's name may have any cgroups"
    CheckNetwork "check-network" "a process that answers in a slot's name may have any network"
    CheckPidNamespace "check-pid-namespace" "a process that answers in a slot's name may have any PID namespace"
    FilterArchitecture "filter-architecture" "calls by another architecture's convention pass"
    FilterNamespaces "filter-namespaces" "namespaces can be made and entered"
    FilterCloneParent "filter-clone-parent" "children can be made for the caller's own parent"
    FilterMounts "filter-mounts" "mounts can be made and changed"
    FilterHandles "filter-handles" "files can be opened by handle"
    FilterTracing "filter-tracing" "processes can be traced and their memory and descriptors taken"
    FilterUring "filter-io-uring" "io_uring can be used"
    FilterAio "filter-aio" "contexts of asynchronous I/O can be made"
    FilterBpf "filter-bpf" "BPF programs and maps can be made"
    FilterPrograms "filter-programs" "sockets can be given programs, and interpreters that no zygote forked can install filters"
    FilterNetworkAdmin "filter-network-admin" "the maker of a network may configure it by netlink, tables and every kind of device"
    FilterPerf "filter-perf" "performance counters can be opened"
    FilterUserfaultfd "filter-userfaultfd" "page faults can be handled in user space"
    FilterKeys "filter-keys" "the kernel's key rings can be used"
    FilterSysv "filter-sysv" "System V IPC can be used"
    FilterQueues "filter-queues" "POSIX message queues can be used"
    FilterNotify "filter-notify" "opens of shared files can be watched"
    FilterPageCache "filter-page-cache" "shared files can be dropped from memory"
    FilterSockets "filter-sockets" "sockets of every family can be made"
    FilterSecretMemory "filter-secret-memory" "memory can be made that the kernel itself cannot read"
    FilterSegments "filter-segments" "segment descriptors can be written"
    FilterPersonality "filter-personality" "execution domains can be changed"
    FilterProcessOptions "filter-process-options" "processes can keep a core's other threads idle, and have their pages merged with others'"
    FilterFileSystems "filter-file-systems" "the file system below the layers reveals its identity, and where files lie"
    FilterMemberships "filter-memberships" "multicast groups can be joined in the network that sandboxes share"
    FilterHost "filter-host" "calls that concern the whole host pass"
}

/// A set of defences: those that are switched off.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Defences(u128);

impl Defences {
    /// The empty set: every defence is in force.
    pub const NONE: Self = Self(0);

    /// This set with one more.
    #[must_use]
    pub const fn and(self, one: Defence) -> Self {
        Self(self.0 | 1 << one as u8)
    }

    /// Whether the set is empty. Always, where none can be switched off.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !SWITCHABLE || self.0 == 0
    }

    /// Whether the set contains a defence. Never, where none can be switched off.
    #[must_use]
    pub const fn has(self, one: Defence) -> bool {
        SWITCHABLE && self.0 & (1 << one as u8) != 0
    }

    /// The defences in the set.
    pub fn iter(self) -> impl Iterator<Item = Defence> {
        Defence::ALL.iter().copied().filter(move |one| self.has(*one))
    }

    /// Parses names with `+` between them; none where a name is unknown.
    pub(crate) fn parse(names: &str) -> Option<Self> {
        names.split('+').filter(|name| !name.is_empty()).try_fold(Self::NONE, |all, name| {
            Some(all.and(Defence::ALL.iter().copied().find(|one| one.name() == name)?))
        })
    }
}

impl FromIterator<Defence> for Defences {
    fn from_iter<T: IntoIterator<Item = Defence>>(all: T) -> Self {
        all.into_iter().fold(Self::NONE, Self::and)
    }
}

impl fmt::Display for Defences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().map(Defence::name).collect::<Vec<_>>().join("+"))
    }
}

impl fmt::Debug for Defences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Defences({self})")
    }
}

// One bit each.
const _: () = assert!(Defence::ALL.len() <= 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn every_defence_is_read_back_by_its_name() {
        for one in Defence::ALL {
            assert_eq!(Defences::parse(one.name()), Some(Defences::NONE.and(*one)));
        }
        let all: Defences = Defence::ALL.iter().copied().collect();
        assert_eq!(Defences::parse(&all.to_string()), Some(all));
        assert_eq!(all.iter().count(), Defence::ALL.len());
        assert_eq!(Defences::parse("own-uid+moat"), None);
    }
}
