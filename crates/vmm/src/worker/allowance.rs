//! The memory limit of a family's cgroup: the sum of what its machines may use.
//!
//! A monitor limits each of its machines by what the machine maps. The cgroup limits the monitor in
//! case its count is wrong: the limit rises with each machine that is ordered, and falls when
//! machines are gone. Each machine's part is ample, so that it meets its own limit first.

use std::collections::HashMap;

use sandbox::Limits;

/// Bytes of the monitor itself, of spares, and of layers' indexes.
const MONITOR: u64 = 256 << 20;
/// Bytes of the monitor's and the kernel's for a machine: untaken output (64 MiB, twice while it
/// grows), pipes, page tables.
const MACHINE: u64 = 192 << 20;
/// Bytes of memory that a machine can have at all.
#[cfg(target_arch = "x86_64")]
const MAX_ALLOWANCE: u64 = microvm::memory::layout::USER_END;
/// Without a monitor there are no machines.
#[cfg(not(target_arch = "x86_64"))]
const MAX_ALLOWANCE: u64 = 0;

/// The limit of one family, and its parts.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Bytes of the reference machine and the monitor.
    base: u64,
    /// Bytes of each machine that was ordered and is not gone, by number.
    machines: HashMap<u64, u64>,
    limit: u64,
}

impl Allowance {
    /// For a family whose reference machine has these limits.
    pub(super) fn new(reference: Limits) -> Self {
        let base = reference.memory_bytes.saturating_add(MONITOR);
        Self { base, machines: HashMap::new(), limit: base }
    }

    /// The cgroup's limit.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Adds a machine that is ordered. Returns the new limit if it changes; `used` tells the
    /// family's memory, and is asked before the limit falls.
    ///
    /// The limit rises by more than is needed, and falls when it is more than twice that: each
    /// change is a command to the warden.
    pub(super) fn add(
        &mut self,
        number: u64,
        bytes: u64,
        used: impl FnOnce() -> u64,
    ) -> Option<u64> {
        self.machines.insert(number, bytes);
        let needed = self.machines.values().fold(self.base, |all, more| all.saturating_add(*more));
        let limit = if needed > self.limit {
            ample(needed)
        } else if needed < self.limit / 2 {
            // Not below the memory in use, which would kill machines.
            ample(needed).max(ample(used())).min(self.limit)
        } else {
            self.limit
        };
        (limit != std::mem::replace(&mut self.limit, limit)).then_some(limit)
    }

    /// Removes a machine whose memory was given back.
    pub(super) fn remove(&mut self, number: u64) {
        self.machines.remove(&number);
    }
}

fn ample(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 4)
}

/// Bytes that a machine may come to use within its limits, beside the `given` bytes that it shares
/// until it writes. A machine that is reset has its template beside it.
pub(super) fn of_machine(limits: Limits, given: u64, reset: bool) -> u64 {
    let own = limits.memory_bytes.min(MAX_ALLOWANCE).saturating_add(limits.scratch_bytes);
    let own = own.saturating_add(given.min(MAX_ALLOWANCE));
    let machines = if reset { 2 } else { 1 };
    own.saturating_mul(machines).saturating_add(MACHINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limits(memory: u64) -> Limits {
        Limits { memory_bytes: memory * MIB, scratch_bytes: 0, ..Limits::default() }
    }

    #[test]
    fn the_limit_is_always_more_than_all_machines_may_have_and_never_far_more() {
        let mut allowance = Allowance::new(limits(1024));
        let base = 1024 * MIB + MONITOR;
        assert_eq!(allowance.limit(), base);
        let machine = of_machine(limits(512), 40 * MIB, false);
        assert!(machine > (512 + 40) * MIB);
        assert_eq!(of_machine(limits(512), 40 * MIB, true), 2 * machine - MACHINE);
        let mut changes = 0;
        for number in 0..100 {
            changes += u32::from(allowance.add(number, machine, || 0).is_some());
            let needed = base + (number + 1) * machine;
            let limit = allowance.limit();
            assert!((needed..=ample(needed)).contains(&limit), "{limit} for {needed}");
        }
        assert!(changes < 30, "{changes} commands for a hundred machines");
        (1..100).for_each(|number| allowance.remove(number));
        assert_eq!(allowance.add(100, machine, || 0), Some(ample(base + 2 * machine)));
        assert_eq!(allowance.add(100, machine, || 0), None, "ordered twice it counts once");
    }

    #[test]
    fn the_limit_does_not_go_below_what_is_used() {
        let mut allowance = Allowance::new(limits(64));
        let machine = of_machine(limits(1024), 0, false);
        for number in 0..10 {
            allowance.add(number, machine, || 0);
        }
        let high = allowance.limit();
        (0..10).for_each(|number| allowance.remove(number));
        // Memory in use is unknown.
        assert_eq!(allowance.add(10, machine, || u64::MAX), None);
        assert_eq!(allowance.limit(), high);
        let used = high / 2;
        assert_eq!(allowance.add(10, machine, || used), Some(ample(used)));
    }
}
