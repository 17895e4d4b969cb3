//! A clone, as the engine's instance.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sandbox::{Death, Instance, Pending, ProviderError, Sandbox, SandboxId};

use super::family::{Family, Stage, State};
use crate::message::Order;

/// A clone of a reference machine. Dropping it closes its channel, and the monitor then drops the
/// machine.
#[derive(Debug)]
pub(super) struct MachineInstance {
    id: SandboxId,
    family: Arc<Family>,
    state: Arc<State>,
    channel: Option<OwnedFd>,
}

impl MachineInstance {
    pub(super) fn new(
        id: SandboxId,
        family: Arc<Family>,
        state: Arc<State>,
        channel: OwnedFd,
    ) -> Self {
        Self { id, family, state, channel: Some(channel) }
    }
}

impl Drop for MachineInstance {
    fn drop(&mut self) {
        self.family.forget(self.id.0);
    }
}

impl Sandbox for MachineInstance {
    fn id(&self) -> SandboxId {
        self.id
    }

    /// Pages that it does not share with the reference machine, as the monitor told last.
    fn memory(&self) -> io::Result<u64> {
        Ok(self.state.bytes())
    }

    fn alive(&self) -> bool {
        self.state.stage() == Stage::Lives && self.family.alive()
    }
}

impl Instance for MachineInstance {
    fn connect(&mut self) -> io::Result<OwnedFd> {
        let channel = self.channel.take().ok_or(io::ErrorKind::NotConnected)?;
        rustix::io::ioctl_fionbio(&channel, true)?;
        Ok(channel)
    }

    /// A machine that waits for its channel does not run; one that runs on is held.
    fn pause(&self) -> io::Result<()> {
        self.family.tell(&Order::Rest { number: self.id.0 })
    }

    fn resume(&self) -> io::Result<()> {
        self.family.tell(&Order::Go { number: self.id.0 })
    }

    /// Output of a guest that has ended: while it runs, it sends its output itself.
    fn untold(&self) -> Pending<'_, Vec<u8>> {
        Box::pin(async { Ok(self.state.last_words().as_bytes().to_vec()) })
    }

    fn autopsy(&self) -> Pending<'_, Death> {
        Box::pin(async move {
            match self.state.beyond(&[Stage::Ordered, Stage::Lives]).await {
                Stage::Ended(death) => Ok(death),
                Stage::Lost => Ok(self.family.monitor.inspect().await?.0),
                Stage::Refused(reason, _) => Err(ProviderError::Refused(reason)),
                Stage::Ordered | Stage::Lives => Ok(Death::Unknown),
            }
        })
    }
}
