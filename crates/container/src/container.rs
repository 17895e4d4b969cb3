//! A running container, as the worker holds it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sandbox::{Death, Instance, Limits, Pending, Processors, Sandbox, SandboxId};
use sys::process::{PidFd, ProcessEnd};
use warden::protocol;

use crate::handle::Handle;
use crate::reach::Reach;

/// Converts limits to the type of the warden's protocol.
#[must_use]
pub fn warden_limits(limits: Limits) -> protocol::Limits {
    let cpu = protocol::Cpu {
        quota: limits.cpu.quota.map(Processors::thousandths),
        weight: limits.cpu.weight,
    };
    protocol::Limits {
        cpu,
        memory_bytes: limits.charged_bytes(),
        shown_bytes: limits.memory_bytes,
        pids: limits.pids,
        scratch_bytes: limits.scratch_bytes,
        scratch_inodes: limits.scratch_inodes,
    }
}

/// A container that serves one handler.
#[derive(Debug)]
pub(crate) struct ContainerInstance {
    pub(crate) handle: Arc<Handle>,
    pub(crate) channel: Option<OwnedFd>,
    pub(crate) output: Option<OwnedFd>,
    pub(crate) process: PidFd,
    pub(crate) reach: Option<Reach>,
}

impl Sandbox for ContainerInstance {
    fn id(&self) -> SandboxId {
        self.handle.id
    }

    fn memory(&self) -> io::Result<u64> {
        self.handle.memory()
    }

    fn alive(&self) -> bool {
        self.process.alive() && self.reach.as_ref().is_none_or(Reach::alive)
    }
}

impl Instance for ContainerInstance {
    fn connect(&mut self) -> io::Result<OwnedFd> {
        let channel = self.channel.take().ok_or(io::ErrorKind::NotConnected)?;
        rustix::io::ioctl_fionbio(&channel, true)?;
        Ok(channel)
    }

    fn pause(&self) -> io::Result<()> {
        self.handle.freeze(true)?;
        self.reach.iter().for_each(Reach::pause);
        Ok(())
    }

    fn resume(&self) -> io::Result<()> {
        self.reach.iter().for_each(Reach::resume);
        self.handle.freeze(false)
    }

    fn output(&mut self) -> Option<OwnedFd> {
        self.output.take()
    }

    fn autopsy(&self) -> Pending<'_, Death> {
        Box::pin(async move {
            self.handle.ended(&self.process).await;
            let (death, _) = self.handle.inspect().await?;
            Ok(match (death, self.process.ended()) {
                (Death::OutOfMemory, _) => Death::OutOfMemory,
                (_, Some(ProcessEnd::Exited(status))) => Death::Exited(status),
                (_, Some(ProcessEnd::Signal(number))) => Death::Signal(number),
                (death, None) => death,
            })
        })
    }
}
