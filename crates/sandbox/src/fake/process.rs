//! What stands for the process of a fake instance.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::Death;

/// Stands for an instance's process.
#[derive(Debug)]
pub(super) struct Process {
    paused: watch::Sender<bool>,
    /// The cause of death; none while the process runs.
    death: Mutex<Option<Death>>,
    guest: Mutex<Option<AbortHandle>>,
}

impl Process {
    pub(super) fn new() -> Self {
        Self { paused: watch::Sender::new(false), death: Mutex::new(None), guest: Mutex::new(None) }
    }

    /// Names the task that [`Process::kill`] aborts.
    pub(super) fn runs_in(&self, task: AbortHandle) {
        *self.guest.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Pauses or resumes the process. Returns whether it was paused before.
    pub(super) fn set_paused(&self, paused: bool) -> bool {
        self.paused.send_replace(paused)
    }

    pub(super) fn paused(&self) -> bool {
        *self.paused.borrow()
    }

    /// Ends the process from outside.
    pub(super) fn kill(&self) {
        self.end(Death::Signal(9));
        if let Some(guest) = &*self.guest.lock().unwrap_or_else(PoisonError::into_inner) {
            guest.abort();
        }
    }

    /// Notes why the process ended; the first reason stays.
    pub(super) fn end(&self, death: Death) {
        self.death.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(death);
    }

    /// Waits while the process is paused.
    pub(super) async fn runs(&self) {
        let mut paused = self.paused.subscribe();
        // An error would say that the sender is gone, but this process holds it.
        let _ = paused.wait_for(|paused| !paused).await;
    }

    pub(super) fn death(&self) -> Option<Death> {
        *self.death.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
