//! A frozen reference machine, and what its clones share.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use microvm::linux::{Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;

use super::function::{Function, Loading};
use crate::message::Event;

/// Functions whose machines are shared by the clones that live, at most; each takes as much as a reference machine.
const MAX_FUNCTIONS: usize = 16;

/// What clones are made of.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) host: Hypervisor,
    pub(super) template: Template,
    pub(super) scanner: Scanner,
    control: Arc<OwnedFd>,
    /// The least recently used first. A machine goes with the last clone that was made of it, and its secrets with it.
    functions: Mutex<Vec<(Loading, Weak<Function>)>>,
    lacking: Mutex<BTreeSet<u64>>,
}

impl Family {
    pub(super) fn new(
        host: Hypervisor,
        template: Template,
        scanner: Scanner,
        control: Arc<OwnedFd>,
    ) -> Self {
        let (functions, lacking) = (Mutex::default(), Mutex::default());
        Self { host, template, scanner, control, functions, lacking }
    }

    /// Tells the worker. When there is none any more the main thread ends the process.
    pub(super) fn tell(&self, event: &Event) {
        tell(&self.control, event);
    }

    /// Tells the worker of system calls that no guest of the family has tried before and that do not exist.
    pub(super) fn note_lacking(&self, process: &Process) {
        let calls = [process.unknown_calls(), process.optional_calls()];
        if calls.iter().all(|calls| calls.is_empty()) {
            return;
        }
        let mut new = Vec::new();
        {
            let mut known = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
            new.extend(calls.into_iter().flatten().copied().filter(|call| known.insert(*call)));
        }
        // The worker may be slow to listen: no other clone waits for that.
        new.into_iter().for_each(|call| self.tell(&Event::Lacks { call }));
    }

    /// The machine in which this code is loaded already, if there is one.
    pub(super) fn loaded(&self, loading: &Loading) -> Option<Arc<Function>> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.retain(|(_, function)| function.strong_count() > 0);
        let at = functions.iter().position(|(known, _)| known == loading)?;
        let found = functions.remove(at);
        let function = found.1.upgrade();
        functions.push(found);
        function
    }

    /// Offers it to further clones.
    pub(super) fn share(&self, loading: Loading, function: &Arc<Function>) {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.push((loading, Arc::downgrade(function)));
        if functions.len() > MAX_FUNCTIONS {
            functions.remove(0);
        }
    }
}

pub(super) fn tell(control: &OwnedFd, event: &Event) {
    // Plain data: it can be written.
    let packet = serde_json::to_vec(event).unwrap_or_default();
    let _ = sys::scm::send(control.as_fd(), &packet, &[], true);
}
