//! Opening a function's log, as doors ask for it.

use std::io;
use std::sync::Arc;

use function::WholeName;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::{Logs, Reader};
use crate::access::{Permit, to};
use crate::functions::Registry;

/// A function's log, opened.
#[derive(Debug)]
pub struct OpenLog {
    /// Reads the lines that are there.
    pub reader: Reader,
    /// Tells when it is removed.
    pub removal: Removal,
}

/// The end of a log that is followed.
#[derive(Debug)]
pub struct Removal {
    name: WholeName,
    removals: Receiver<WholeName>,
    registry: Arc<Registry>,
}

impl Logs {
    /// Opens a function's log, so many entries before its end; none: there is no such function. What a call printed that
    /// has ended is in it.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub async fn open(
        self: &Arc<Self>,
        permit: &Permit<to::ReadLogs>,
        entries: usize,
    ) -> io::Result<Option<OpenLog>> {
        let name = permit.function().clone();
        // Before the function is looked for: no removal comes between.
        let removals = self.removals();
        if self.registry.get(&name).is_none() {
            return Ok(None);
        }
        self.flush().await;
        let (this, whose) = (Arc::clone(self), name.clone());
        let read = tokio::task::spawn_blocking(move || this.read(&whose, entries)).await;
        let reader = read.map_err(io::Error::other)??;
        let removal = Removal { name, removals, registry: Arc::clone(&self.registry) };
        Ok(Some(OpenLog { reader, removal }))
    }
}

impl Removal {
    /// Returns when the function's log was removed with it.
    pub async fn wait(mut self) {
        loop {
            match self.removals.recv().await {
                Ok(removed) if removed == self.name => return,
                Ok(_) => {}
                // Its name may have been among those that were missed.
                Err(RecvError::Lagged(_)) if self.registry.get(&self.name).is_none() => return,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
