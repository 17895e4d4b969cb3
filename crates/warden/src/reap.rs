//! The end of sandboxes, a piece at a time.
//!
//! ```text
//!   release: thaw, kill ─► dying ─► dead? ─► (a zygote) children gone? ─► scratch empty? ─► cgroups back to the zygote, or
//!                            ▲         │ no         │ no: the last child       │ no        removed ─► ids back
//!                            │         │            │ brings it back           │
//!                            └─────────┴────────────┴──────────────────────────┘
//! ```
//! A zygote's scratch only after its children: they may have mapped files of it.

use std::os::fd::AsFd;
use std::time::Instant;

use sys::process::PidFd;

use crate::cgroup::{Group, Held};
use crate::defence::Defence;
use crate::empty::empty;
use crate::examine::runs;
use crate::isolation::Supply;
use crate::protocol::Cpu;
use crate::serve::Warden;
use crate::slot::{Kind, Sandbox};
use crate::uids::Allotment;

/// Idle cgroups that a zygote keeps for its next slots, and the warden for what no zygote forks.
const IDLE_GROUPS: usize = 64;
/// And so many when nobody asks for any.
const KEPT_GROUPS: usize = 8;

/// What a dead slot may leave for the kernel to subtract when it has time, before anybody looks twice.
const UNSEEN: Held = Held { memory: 64 << 10, kernel: 256 << 10 };
/// So much of it a zygote may hold, of all its slots together. What the kernel has remembered for a handler is among its own, and goes
/// on when that is dead.
const MOST_HELD: Held = Held { memory: 32 << 20, kernel: 256 << 20 };

impl Warden {
    /// Takes it from the worker's sight and begins to kill it.
    pub(crate) fn release(&mut self, name: u64) {
        let Some(sandbox) = self.sandboxes.get_mut(&name) else {
            return;
        };
        if sandbox.dying {
            return;
        }
        sandbox.dying = true;
        // A frozen process would not die (version 1); an instance's pid 1 takes everything in its namespace along.
        self.cgroups.thaw(&sandbox.group);
        if let Some(process) = &sandbox.process {
            let _ = process.kill();
        }
        // What lives in a slot's cgroup beside that is its zygote's, and must be seen alive: see `hold_intruders_to_account`.
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

    /// Takes apart one dying sandbox, as far as it is dead; whether that was the end of it.
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
                // SAFETY: a child of ours that has ended; no status is asked for.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
            }
            sandbox.child = false;
        }
        if sandbox.as_zygote().is_some_and(|zygote| zygote.children > 0) {
            // Its last child brings it back here. What it has left running in its own cgroups ends now: it may have
            // kept descriptors of cgroups that were given back, and put processes there.
            let mut quiet = true;
            for group in sandbox.groups().filter(|group| !self.cgroups.empty(group)) {
                self.cgroups.kill(group);
                quiet = false;
            }
            return quiet;
        }
        // Before its cgroup is looked at: what is in its scratch is charged there.
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
            self.hold_intruders_to_account(parent, &group);
        }
        if !kept && !self.hold_to_account(name, parent, &group) {
            return false;
        }
        if !kept && !self.cgroups.remove(&group) {
            // Something in it still dies; a slot's process may not even be known.
            self.cgroups.kill(&group);
            return false;
        }
        if let Some(sandbox) = self.sandboxes.remove(&name) {
            if let (Some(inside), Some(deaths)) = (sandbox.inside, self.place.deaths()) {
                deaths.forget(inside, name);
            }
            self.give_back(sandbox.allotment, parent);
        }
        if let Some(parent) = parent {
            self.child_gone(parent);
        }
        true
    }

    /// Takes back what a dead sandbox has written, and lets go of its root and its standard error; false where it is to be tried again. Of what no zygote was
    /// to fork, nobody has ever had a descriptor.
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
            // Files without a name, or others again and again: it is no honest one, and what it holds goes with it.
            self.release(zygote);
        }
        if let Some(sandbox) = self.sandboxes.get_mut(&name) {
            sandbox.root = None;
            sandbox.stderr = None;
        }
        true
    }

    /// Ends a zygote of which something else lives in a dead slot's cgroup: with that slot's limit, and that of the next, it
    /// would take as much as there are slots. Whatever a slot's process had forked itself ended with it.
    fn hold_intruders_to_account(&mut self, zygote: Option<u64>, group: &Group) {
        let Some(zygote) = zygote else { return };
        let alone = self.host.isolation.has(Defence::PidNamespace);
        if alone && self.cgroups.pids(group).into_iter().any(runs) {
            self.release(zygote);
        }
    }

    /// Ends a zygote that holds much of what its dead slots have taken: memory that it has mapped together with who wrote there, or
    /// been handed, and what is in sockets and pipes. Nobody else can have it, and with the slot's cgroup goes the last that
    /// bounds it. False where it is to be looked at again.
    fn hold_to_account(&mut self, name: u64, zygote: Option<u64>, group: &Group) -> bool {
        let Some(zygote) = zygote else { return true };
        if !self.host.isolation.has(Defence::OwnScratch) || !self.cgroups.empty(group) {
            return true;
        }
        let held = self.cgroups.held(group);
        let Some(sandbox) = self.sandboxes.get_mut(&name) else { return true };
        if sandbox.counted {
            return true;
        }
        // What has just gone may not be subtracted yet.
        let seen = held.memory > UNSEEN.memory || held.kernel > UNSEEN.kernel;
        if seen && !sandbox.held.is_held(Instant::now()) {
            return false;
        }
        sandbox.counted = true;
        let own = self.sandboxes.get_mut(&zygote).and_then(Sandbox::as_zygote_mut);
        let all = own.map_or(Held::default(), |own| {
            own.held.memory = own.held.memory.saturating_add(held.memory);
            own.held.kernel = own.held.kernel.saturating_add(held.kernel);
            own.held
        });
        if all.memory > MOST_HELD.memory || all.kernel > MOST_HELD.kernel {
            self.release(zygote);
        }
        true
    }

    /// Gives ids back to whom they came from: nobody may hold them any more.
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

    /// Gives half of the idle cgroups back that are more than a few: a burst has left them, and each is some descriptors here and
    /// memory of the kernel's. After a second in which nobody asked for anything.
    pub(crate) fn thin_out(&mut self) {
        let zygotes = self.sandboxes.values_mut().filter_map(Sandbox::as_zygote_mut);
        let pools = zygotes.map(|zygote| &mut zygote.idle_groups);
        for pool in pools.chain(std::iter::once(&mut self.idle_groups)) {
            for _ in 0..pool.len().saturating_sub(KEPT_GROUPS).div_ceil(2) {
                let Some(group) = pool.pop() else { break };
                // Its zygote has put something there: then it goes with that.
                if !self.cgroups.remove(&group) {
                    pool.insert(0, group);
                }
            }
        }
    }

    /// Keeps an instance's cgroup for the next one of the same zygote, or for the next that no zygote forks, if all of
    /// them may still be used.
    fn keep_group(&mut self, zygote: Option<u64>, group: &Group, cpu: Cpu) -> bool {
        if self.host.isolation.cgroups == Supply::Fresh || !self.cgroups.reusable(group) {
            return false;
        }
        // Here and not at the next start: whoever has no such limit pays for none.
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
    /// All at once, and nobody is waited for in turn.
    fn drop(&mut self) {
        self.place.end();
        self.cgroups.clear();
    }
}
