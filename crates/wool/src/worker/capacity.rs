//! How many sandboxes there may be at once on this machine: the least of what each of its means allows.
//!
//! | means | for others | a sandbox takes |
//! | --- | --- | --- |
//! | descriptors of the worker | a quarter, for connections ([`Doors`]) | 8: a prepared slot's; an instance holds six |
//! | sandboxes that the warden can hold | – | 1 |
//! | processes (`kernel.pid_max`, `pids.max`) | a quarter | 4: what a handler starts has its own limit |
//! | user namespaces | – | 1 |
//! | memory | half: files, packages, what handlers take in their calls | 2 MiB: a paused one that imported nothing |
//!
//! Limits of the kernel's keys are no means: sandboxes have no system call that makes one.

use sys::probe::{Host, total_memory};

use crate::config::Config;
use platform::limits::Capacity;

/// Descriptors that the worker needs itself: listeners, the registry, logs, the runtime.
const FOR_ITSELF: u64 = 64;

/// What sandboxes are made of.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Descriptors that the worker may have.
    pub descriptors: u64,
    /// Sandboxes that the warden can hold; none: not known.
    pub warden: Option<u64>,
    /// Processes of all sandboxes together.
    pub processes: u64,
    /// User namespaces.
    pub namespaces: u64,
    /// Bytes of memory of this machine.
    pub memory: u64,
}

impl Means {
    /// Those of this machine and this process.
    #[must_use]
    pub fn of(host: &Host, descriptors: u64, warden: Option<u64>) -> Self {
        Self {
            descriptors,
            warden,
            processes: host.processes,
            namespaces: host.user_namespaces,
            memory: total_memory(),
        }
    }

    /// What they allow.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        let worker = (self.descriptors / 4 * 3).saturating_sub(FOR_ITSELF) / 8;
        let bounds = [
            (worker, "the worker's open files (ulimit -n)"),
            (self.warden.unwrap_or(u64::MAX), "the warden's open files"),
            (self.processes / 4 * 3 / 4, "processes (kernel.pid_max, pids.max)"),
            (self.namespaces, "user namespaces (user.max_user_namespaces)"),
            (self.memory / 2 / (2 << 20), "memory"),
        ];
        let (most, bound_by) = bounds.into_iter().min().unwrap_or((u64::MAX, ""));
        let sandboxes = usize::try_from(most).unwrap_or(usize::MAX).max(1);
        Capacity { sandboxes, bound_by: bound_by.to_owned() }
    }
}

/// What the settings say, or else what the machine allows.
#[must_use]
pub fn chosen(allowed: Capacity, config: &Config) -> Capacity {
    let Some(sandboxes) = config.sandboxes else {
        return allowed;
    };
    if sandboxes > allowed.sandboxes {
        tracing::warn!(
            sandboxes,
            allowed = allowed.sandboxes,
            bound_by = allowed.bound_by,
            "the setting `sandboxes` is more than this machine allows"
        );
    }
    Capacity { sandboxes: sandboxes.max(1), bound_by: "the setting `sandboxes`".to_owned() }
}

/// How many sandboxes a zygote counts as: itself, and the slots and spare forks that it keeps ready.
#[must_use]
pub fn of_a_zygote(config: &Config) -> usize {
    1 + config.internals.slots + config.internals.spares
}

/// Calls that may wait, each with a connection of its own: half of the descriptors that are left to connections, so that
/// there is one for who is told to come back.
#[must_use]
pub fn queue(config: &Config, descriptors: u64) -> usize {
    config.queue.min(usize::try_from(descriptors / 8).unwrap_or(usize::MAX))
}

/// How the quarter of the descriptors that is for connections is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doors {
    /// Connections over TCP, which every user of the machine may make.
    pub tcp: usize,
    /// Connections over the Unix socket: only its owner can take them.
    pub unix: usize,
    /// Connections of each door beyond these, while they are refused or on their way out.
    pub spare: usize,
    /// Bundles that are being deployed, and came over TCP: a file each.
    pub tcp_bundles: usize,
    /// Bundles that are being deployed, and came over the Unix socket.
    pub unix_bundles: usize,
}

/// Each connection takes memory, too: up to 128 KiB.
const MOST_CONNECTIONS: usize = 1 << 15;

impl Doors {
    /// For a worker that may have that many descriptors.
    #[must_use]
    pub fn of(config: &Config, descriptors: u64) -> Self {
        let quarter = usize::try_from(descriptors / 4).unwrap_or(usize::MAX);
        let unix = (quarter / 8).clamp(1, MOST_CONNECTIONS / 8);
        let (spare, bundles) = ((quarter / 16).clamp(1, 16), (quarter / 16).clamp(1, 256));
        let (tcp_bundles, unix_bundles) = (bundles, (bundles / 8).max(1));
        let taken = unix + tcp_bundles + unix_bundles + 2 * spare;
        let fit = quarter.saturating_sub(taken).clamp(1, MOST_CONNECTIONS);
        let tcp = config.internals.connections.map_or(fit, |set| set.clamp(1, fit));
        Self { tcp, unix, spare, tcp_bundles, unix_bundles }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Internals;

    const AMPLE: Means = Means {
        descriptors: 1 << 20,
        warden: Some(16_000),
        processes: 4 << 20,
        namespaces: 100_000,
        memory: 1 << 40,
    };

    #[test]
    fn the_scarcest_of_the_means_decides_and_is_named() {
        for (means, most, name) in [
            (AMPLE, 16_000, "warden"),
            (Means { descriptors: 1024, ..AMPLE }, 88, "ulimit -n"),
            (Means { processes: 32_768, ..AMPLE }, 6144, "pid_max"),
            (Means { namespaces: 10, ..AMPLE }, 10, "max_user_namespaces"),
            (Means { memory: 1 << 30, ..AMPLE }, 256, "memory"),
        ] {
            let capacity = means.capacity();
            assert_eq!(capacity.sandboxes, most, "{capacity:?}");
            assert!(capacity.bound_by.contains(name), "{capacity:?}");
        }
    }

    #[test]
    fn there_is_always_room_for_one() {
        assert_eq!(Means { descriptors: 0, ..AMPLE }.capacity().sandboxes, 1);
        let none = Config { sandboxes: Some(0), ..Config::default() };
        assert_eq!(chosen(AMPLE.capacity(), &none).sandboxes, 1);
    }

    #[test]
    fn what_is_set_counts_and_not_what_was_found() {
        let few = Config { sandboxes: Some(7), ..Config::default() };
        let found = chosen(AMPLE.capacity(), &few);
        assert_eq!((found.sandboxes, found.bound_by.contains("setting")), (7, true));
        assert_eq!(chosen(AMPLE.capacity(), &Config::default()), AMPLE.capacity());
    }

    #[test]
    fn connections_never_take_more_descriptors_than_are_left_to_them() {
        for descriptors in [64, 300, 1024, 4096, 20_000, 1 << 20] {
            for connections in [None, Some(0), Some(10), Some(usize::MAX)] {
                let internals = Internals { connections, ..Internals::default() };
                let config = Config { internals, ..Config::default() };
                let Doors { tcp, unix, spare, tcp_bundles, unix_bundles } =
                    Doors::of(&config, descriptors);
                let bundles = tcp_bundles.min(unix_bundles);
                let taken = tcp + unix + 2 * spare + tcp_bundles + unix_bundles;
                assert!(taken as u64 <= descriptors / 4, "{taken} of {descriptors}");
                assert!(tcp > 0 && unix > 0 && spare > 0 && bundles > 0, "{descriptors}");
            }
        }
        let internals = Internals { connections: Some(7), ..Internals::default() };
        let few = Config { internals, ..Config::default() };
        assert_eq!(Doors::of(&few, 1024).tcp, 7);
    }
}
