//! Taking sandboxes apart, one piece at a time.
//!
//! ```text
//!   release: thaw, kill ─► dying ─► dead? ─► (a zygote) children gone? ─► scratch empty? ─► cgroups back to the zygote, or
//!                            ▲         │ no         │ no: the last child       │ no        removed ─► ids back
//!                            │         │            │ brings it back           │
//!                            └─────────┴────────────┴──────────────────────────┘
//! ```
//! A zygote's scratch is emptied after its children's end: they may have mapped files of it.

use std::os::fd::AsFd;
use std::time::Instant;

use sys::process::PidFd;

use crate::cgroup::{Group, HeldMemory};
use crate::defence::Defence;
use crate::isolation::CgroupSource;
use crate::limits::Cpu;
use crate::rootfs::empty::empty;
use crate::sandbox::examine::runs;
use crate::sandbox::record::{Kind, Sandbox};
use crate::state::Warden;
use crate::uids::Allotment;

/// Maximum number of idle cgroups that a zygote keeps for its next slots, and the warden for
/// instances that no zygote forked.
const IDLE_GROUPS: usize = 64;
/// The same after a second without a request.
const KEPT_GROUPS: usize = 8;

/// Memory that a dead slot may hold without a second look: the kernel subtracts it later.
const UNCHECKED_MEMORY: HeldMemory = HeldMemory { memory: 64 << 10, kernel: 256 << 10 };
/// Maximum that a zygote may hold of all its dead slots together. The kernel's part includes caches
/// that it made for a handler, which outlive the handler.
const MAX_HELD: HeldMemory = HeldMemory { memory: 32 << 20, kernel: 256 << 20 };

impl Warden {
    /// Removes a sandbox from the worker's sight and begins to kill it.
    pub(crate) fn release(&mut self, name: u64) {
        let Some(sandbox) = self.sandboxes.get_mut(&name) else {
            return;
        };
        if sandbox.dying {
            return;
        }
        sandbox.dying = true;
        // A frozen process would not die (version 1); the death of an instance's pid 1 ends all of
        // its namespace.
        self.cgroups.thaw(&sandbox.group);
        if let Some(process) = &sandbox.process {
            let _ = process.kill();
        }
        // Other processes in a slot's cgroup are its zygote's, and must be seen alive: see
        // `end_intruder`.
        let ends_alone = matches!(sandbox.kind, Kind::Instance)
            && sandbox.process.is_some()
            && self.host.isolation.has(Defence::PidNamespace);
        if sandbox.zygote.is_none() || !ends_alone {
            for group in sandbox.groups() {
                self.cgroups.kill(group);
            }
        }
        self.dying.push_back(name);
    }

    /// Takes one dying sandbox apart as far as possible. Returns whether it is gone.
    pub(crate) fn reap_one(&mut self) -> bool {
        let Some(name) = self.dying.pop_front() else {
            return false;
        };
        let gone = self.reap(name);
        if !gone {
            self.dying.push_back(name);
        }
        gone
    }

    fn reap(&mut self, name: u64) -> bool {
        let Some(sandbox) = self.sandboxes.get_mut(&name) else {
            return true;
        };
        if sandbox.process.as_ref().is_some_and(PidFd::alive) {
            return false;
        }
        if sandbox.child {
            if let Some(pid) = sandbox.process.as_ref().and_then(PidFd::child_number) {
                // SAFETY: a child of this process that has ended; no status is asked for.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
            }
            sandbox.child = false;
        }
        if sandbox.as_zygote().is_some_and(|zygote| zygote.children > 0) {
            // Its last child brings it back here. Processes in its own cgroups end now: it may have
            // kept descriptors of cgroups that were given back, and put processes there.
            let mut quiet = true;
            for group in sandbox.groups().filter(|group| !self.cgroups.empty(group)) {
                self.cgroups.kill(group);
                quiet = false;
            }
            return quiet;
        }
        // Before its cgroup is examined: the content of its scratch is charged there.
        if !self.empty_scratch(name) {
            return false;
        }
        let Some(sandbox) = self.sandboxes.get_mut(&name) else {
            return true;
        };
        let (group, parent, limits) = (sandbox.group.clone(), sandbox.zygote, sandbox.limits);
        let instance = matches!(sandbox.kind, Kind::Instance);
        let landed = sandbox.process.is_some();
        let idle = match sandbox.as_zygote_mut() {
            Some(zygote) => std::mem::take(&mut zygote.idle_groups),
            None => Vec::new(),
        };
        let mut stay = Vec::new();
        for group in idle {
            if !self.cgroups.remove(&group) {
                self.cgroups.kill(&group);
                stay.push(group);
            }
        }
        if !stay.is_empty() {
            if let Some(zygote) = self.sandboxes.get_mut(&name).and_then(Sandbox::as_zygote_mut) {
                zygote.idle_groups = stay;
            }
            return false;
        }
        let kept = instance && self.keep_group(parent, &group, limits.cpu);
        if !kept && landed && instance {
            self.end_intruder(parent, &group);
        }
        if !kept && !self.end_hoarder(name, parent, &group) {
            return false;
        }
        if !kept && !self.cgroups.remove(&group) {
            // A process in it still dies; a slot's process may not even be known.
            self.cgroups.kill(&group);
            return false;
        }
        if let Some(sandbox) = self.sandboxes.remove(&name) {
            if let (Some(inside), Some(deaths)) = (sandbox.inside, self.namespaces.deaths()) {
                deaths.forget(inside, name);
            }
            self.give_back(sandbox.allotment, parent);
        }
        if let Some(parent) = parent {
            self.child_gone(parent);
        }
        true
    }

    /// Empties a dead sandbox's scratch, and closes its root and its standard error; false where it
    /// must be tried again. No process ever had a descriptor of a root that no zygote was to fork
    /// into.
    fn empty_scratch(&mut self, name: u64) -> bool {
        let Some(sandbox) = self.sandboxes.get_mut(&name) else {
            return true;
        };
        if let (Some(zygote), Some(root)) = (sandbox.zygote, &sandbox.root)
            && self.host.isolation.has(Defence::OwnScratch)
            && !empty(root.as_fd())
        {
            if !sandbox.scratch.is_held(Instant::now()) {
                return false;
            }
            // Files without a name, or new ones again and again: the zygote is not honest, and all
            // it holds goes with it.
            self.release(zygote);
        }
        if let Some(sandbox) = self.sandboxes.get_mut(&name) {
            sandbox.root = None;
            sandbox.stderr = None;
        }
        true
    }

    /// Ends a zygote that has another process in a dead slot's cgroup: with that slot's limit, and
    /// the next one's, it would take as much as there are slots. Processes that the slot's own
    /// process had forked ended with it.
    fn end_intruder(&mut self, zygote: Option<u64>, group: &Group) {
        let Some(zygote) = zygote else { return };
        let alone = self.host.isolation.has(Defence::PidNamespace);
        if alone && self.cgroups.pids(group).into_iter().any(runs) {
            self.release(zygote);
        }
    }

    /// Ends a zygote that holds much memory of its dead slots: shared mappings, descriptors, or the
    /// content of sockets and pipes. No other process can hold it, and nothing bounds it once the
    /// slot's cgroup is gone. False where it must be tried again.
    fn end_hoarder(&mut self, name: u64, zygote: Option<u64>, group: &Group) -> bool {
        let Some(zygote) = zygote else { return true };
        if !self.host.isolation.has(Defence::OwnScratch) || !self.cgroups.empty(group) {
            return true;
        }
        let held = self.cgroups.held(group);
        let Some(sandbox) = self.sandboxes.get_mut(&name) else { return true };
        if sandbox.counted {
            return true;
        }
        // The kernel may not have subtracted the latest yet.
        let seen = held.memory > UNCHECKED_MEMORY.memory || held.kernel > UNCHECKED_MEMORY.kernel;
        if seen && !sandbox.held.is_held(Instant::now()) {
            return false;
        }
        sandbox.counted = true;
        let own = self.sandboxes.get_mut(&zygote).and_then(Sandbox::as_zygote_mut);
        let all = own.map_or(HeldMemory::default(), |own| {
            own.held.memory = own.held.memory.saturating_add(held.memory);
            own.held.kernel = own.held.kernel.saturating_add(held.kernel);
            own.held
        });
        if all.memory > MAX_HELD.memory || all.kernel > MAX_HELD.kernel {
            self.release(zygote);
        }
        true
    }

    /// Gives ids back to their block: no process may hold them any more.
    pub(crate) fn give_back(&mut self, allotment: Allotment, zygote: Option<u64>) {
        let parent = zygote.and_then(|name| self.sandboxes.get_mut(&name));
        let block = parent.and_then(Sandbox::as_zygote_mut).map(|zygote| &mut zygote.ids);
        match (allotment, block) {
            (Allotment::Block(first), _) => self.uids.return_block(first),
            (Allotment::Single(id), _) => self.uids.return_one(id),
            (Allotment::One(offset), Some(block)) => block.return_one(offset),
            (Allotment::Share(offset), Some(block)) => block.return_share(offset),
            (Allotment::One(_) | Allotment::Share(_), None) => {}
        }
    }

    fn child_gone(&mut self, parent: u64) {
        let Some(zygote) = self.sandboxes.get_mut(&parent) else {
            return;
        };
        let dying = zygote.dying;
        if let Some(own) = zygote.as_zygote_mut() {
            own.children = own.children.saturating_sub(1);
            if dying && own.children == 0 && !self.dying.contains(&parent) {
                self.dying.push_back(parent);
            }
        }
    }

    /// Gives back half of the idle cgroups beyond a few. A burst has left them, and each takes some
    /// descriptors and kernel memory. Called after a second without a request.
    pub(crate) fn release_idle_groups(&mut self) {
        let zygotes = self.sandboxes.values_mut().filter_map(Sandbox::as_zygote_mut);
        let pools = zygotes.map(|zygote| &mut zygote.idle_groups);
        for pool in pools.chain(std::iter::once(&mut self.idle_groups)) {
            for _ in 0..pool.len().saturating_sub(KEPT_GROUPS).div_ceil(2) {
                let Some(group) = pool.pop() else { break };
                // Its zygote has put a process there: then it goes with the zygote.
                if !self.cgroups.remove(&group) {
                    pool.insert(0, group);
                }
            }
        }
    }

    /// Keeps an instance's cgroup for the next one of the same zygote, or for the next that no
    /// zygote forks, if all of its hierarchies can be reused.
    fn keep_group(&mut self, zygote: Option<u64>, group: &Group, cpu: Cpu) -> bool {
        if self.host.isolation.cgroups == CgroupSource::Fresh || !self.cgroups.reusable(group) {
            return false;
        }
        // Here and not at the next start: a sandbox without such a limit must not pay for it.
        if cpu != Cpu::UNLIMITED && self.cgroups.unlimit_cpu(group).is_err() {
            return false;
        }
        let idle = match zygote {
            None => Some(&mut self.idle_groups),
            Some(name) => self
                .sandboxes
                .get_mut(&name)
                .filter(|zygote| !zygote.dying)
                .and_then(Sandbox::as_zygote_mut)
                .map(|zygote| &mut zygote.idle_groups),
        };
        match idle {
            Some(idle) if idle.len() < IDLE_GROUPS => {
                idle.push(group.clone());
                true
            }
            _ => false,
        }
    }
}

impl Drop for Warden {
    /// Kills all at once, without waiting for each.
    fn drop(&mut self) {
        self.namespaces.end();
        self.cgroups.clear();
    }
}
