//! A frozen reference machine, and what its clones share.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use microvm::hypervisor::Hypervisor;
use microvm::linux::Template;
use microvm::scan::Scanner;

use super::pristine::Function;
use crate::message::{Event, Place};

/// Functions whose machines are kept frozen after their code was loaded, at most; each takes as much as a reference
/// machine.
const MOST_FUNCTIONS: usize = 16;

/// What clones are made of.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) host: Hypervisor,
    pub(super) template: Template,
    scanner: Scanner,
    control: Arc<OwnedFd>,
    /// The least recently used first.
    functions: Mutex<Vec<(Loading, Arc<Function>)>>,
    lacking: Mutex<BTreeSet<u64>>,
}

/// Which code, loaded how: equal ones lead to equal machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loading {
    pub(super) layers: Vec<Place>,
    pub(super) message: Vec<u8>,
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

    /// One for a thread's own use.
    pub(super) fn scanner(&self) -> io::Result<Scanner> {
        self.scanner.another()
    }

    /// Tells the worker. When there is none any more the main thread ends the process.
    pub(super) fn tell(&self, event: &Event) {
        tell(&self.control, event);
    }

    /// Tells the worker of system calls that no guest of the family has tried before and that do not exist.
    pub(super) fn note_lacking(&self, calls: &BTreeSet<u64>) {
        let mut known = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        for call in calls.difference(&known.clone()) {
            known.insert(*call);
            self.tell(&Event::Lacks { call: *call });
        }
    }

    /// The machine in which this code is loaded already, if there is one.
    pub(super) fn loaded(&self, loading: &Loading) -> Option<Arc<Function>> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let at = functions.iter().position(|(known, _)| known == loading)?;
        let found = functions.remove(at);
        let function = Arc::clone(&found.1);
        functions.push(found);
        Some(function)
    }

    /// Keeps it for further clones.
    pub(super) fn keep(&self, loading: Loading, function: Arc<Function>) {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.push((loading, function));
        if functions.len() > MOST_FUNCTIONS {
            functions.remove(0);
        }
    }
}

pub(super) fn tell(control: &OwnedFd, event: &Event) {
    // Plain data: it can be written.
    let packet = serde_json::to_vec(event).unwrap_or_default();
    let _ = sys::scm::send(control.as_fd(), &packet, &[], true);
}
