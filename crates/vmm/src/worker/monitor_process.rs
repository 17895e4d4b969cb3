//! A monitor's process, under the warden.

use std::io;
use std::os::fd::OwnedFd;

use container::{Containers, Handle, unexpected, warden_limits};
use sandbox::{Death, Limits, ProviderError, SandboxId};
use sys::process::PidFd;
use warden::protocol::{Answer, Command, Files};

/// A running monitor. Dropping it has the warden destroy it, with all its machines.
#[derive(Debug)]
pub(super) struct MonitorProcess {
    handle: Handle,
    pub(super) process: PidFd,
}

impl MonitorProcess {
    /// Has the warden start a monitor. Returns its control socket, too.
    pub(super) async fn start(
        containers: &Containers,
        limits: Limits,
    ) -> Result<(Self, OwnedFd), ProviderError> {
        let mut handle = Handle::new(containers.client(), containers.new_name());
        let limits = warden_limits(limits);
        let command = Command::Monitor { sandbox: handle.id().0, limits };
        let (Answer::Started { files, .. }, fds) = handle.client().call(command, &[]).await? else {
            return Err(unexpected());
        };
        let mut fds = fds.into_iter();
        let (control, process) = fds.next().zip(fds.next()).ok_or_else(unexpected)?;
        // It is never frozen: its machines are held one by one.
        if files.freezer {
            drop(fds.next());
        }
        handle.take_files(Files { freezer: false, ..files }, fds);
        Ok((Self { handle, process: PidFd::from(process) }, control))
    }

    pub(super) fn id(&self) -> SandboxId {
        self.handle.id()
    }

    /// Layers as detached mount trees.
    pub(super) async fn open(&self, layers: Vec<String>) -> Result<Vec<OwnedFd>, ProviderError> {
        let count = layers.len();
        match self.handle.client().call(Command::Open { layers }, &[]).await? {
            (Answer::Done, fds) if fds.len() == count => Ok(fds),
            _ => Err(unexpected()),
        }
    }

    /// Bytes of all its machines together, the kernel's for it included.
    pub(super) fn memory(&self) -> io::Result<u64> {
        self.handle.memory()
    }

    /// Has the warden set another memory limit, without waiting.
    pub(super) fn limit(&self, memory_bytes: u64) {
        self.handle.client().tell(Command::Limit { sandbox: self.id().0, memory_bytes });
    }

    /// How it ended, and its last words. To be called when its sockets have closed.
    pub(super) async fn inspect(&self) -> Result<(Death, String), ProviderError> {
        self.handle.autopsy(&self.process).await
    }
}
