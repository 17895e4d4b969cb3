//! A frozen reference machine, and what its clones share.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use microvm::linux::{Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;

use super::function::{Function, LoadKey};
use crate::message::Event;

/// Machines with loaded code that living clones share; each takes as much as a reference machine.
const MAX_FUNCTIONS: usize = 16;

/// The template, and what clones need to run.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) host: Hypervisor,
    pub(super) template: Template,
    pub(super) scanner: Scanner,
    control: Arc<OwnedFd>,
    /// The least recently used first. A machine goes with its last clone, and its secrets with it.
    functions: Mutex<Vec<(LoadKey, Weak<Function>)>>,
    missing_calls: Mutex<BTreeSet<u64>>,
}

impl Family {
    pub(super) fn new(
        host: Hypervisor,
        template: Template,
        scanner: Scanner,
        control: Arc<OwnedFd>,
    ) -> Self {
        let (functions, missing_calls) = (Mutex::default(), Mutex::default());
        Self { host, template, scanner, control, functions, missing_calls }
    }

    /// Tells the worker. Without a worker the main thread ends the process.
    pub(super) fn tell(&self, event: &Event) {
        tell(&self.control, event);
    }

    /// Tells the worker of missing system calls that no guest of the family has tried before.
    pub(super) fn note_missing_calls(&self, process: &Process) {
        let calls = [process.unknown_calls(), process.optional_calls()];
        if calls.iter().all(|calls| calls.is_empty()) {
            return;
        }
        let mut new = Vec::new();
        {
            let mut known = self.missing_calls.lock().unwrap_or_else(PoisonError::into_inner);
            new.extend(calls.into_iter().flatten().copied().filter(|call| known.insert(*call)));
        }
        // Outside the lock: the worker may be slow, and other clones must not wait for it.
        new.into_iter().for_each(|call| self.tell(&Event::Lacks { call }));
    }

    /// The machine in which this code is loaded, if there is one.
    pub(super) fn loaded(&self, loading: &LoadKey) -> Option<Arc<Function>> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.retain(|(_, function)| function.strong_count() > 0);
        let at = functions.iter().position(|(known, _)| known == loading)?;
        let found = functions.remove(at);
        let function = found.1.upgrade();
        functions.push(found);
        function
    }

    /// Offers a machine to further clones.
    pub(super) fn share(&self, loading: LoadKey, function: &Arc<Function>) {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.push((loading, Arc::downgrade(function)));
        if functions.len() > MAX_FUNCTIONS {
            functions.remove(0);
        }
    }
}

pub(super) fn tell(control: &OwnedFd, event: &Event) {
    // Plain data always serialises.
    let packet = serde_json::to_vec(event).unwrap_or_default();
    let _ = sys::scm::send(control.as_fd(), &packet, &[], true);
}
