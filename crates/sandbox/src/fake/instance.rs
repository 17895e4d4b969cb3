//! A fake instance: one end of a socket pair, and a task at the other end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::process::Process;
use super::{Shared, guest};
use crate::{Death, Instance, Pending, ProviderError, Sandbox, SandboxId};

#[derive(Debug)]
pub(super) struct FakeInstance {
    id: SandboxId,
    bytes: Option<u64>,
    channel: Option<OwnedFd>,
    process: Arc<Process>,
    shared: Arc<Shared>,
}

impl FakeInstance {
    /// Makes an instance. `had` are the modules that its zygote had imported.
    pub(super) fn make(
        shared: &Arc<Shared>,
        zygote: Option<SandboxId>,
        had: Vec<String>,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let process = Arc::new(Process::new());
        let channel = tokio::net::UnixStream::from_std(theirs)?;
        let task = tokio::spawn(guest::run(channel, Arc::clone(&process), had));
        process.runs_in(task.abort_handle());

        let id = shared.id();
        let mut state = shared.state();
        state.instances.insert(id, Arc::downgrade(&process));
        state.census.instances += 1;
        match zygote {
            Some(_) => state.census.forked_instances += 1,
            None => state.census.created_instances += 1,
        }
        let bytes = state.settings.instance_bytes;
        Ok(Self { id, bytes, channel: Some(ours.into()), process, shared: Arc::clone(shared) })
    }

    fn turn(&self, paused: bool) {
        let mut state = self.shared.state();
        let before = self.process.set_paused(paused);
        match (before, paused) {
            (false, true) => state.census.paused += 1,
            (true, false) => state.census.paused -= 1,
            _ => state.census.misuses += 1,
        }
    }
}

impl Sandbox for FakeInstance {
    fn id(&self) -> SandboxId {
        self.id
    }

    fn memory(&self) -> io::Result<u64> {
        self.bytes.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn alive(&self) -> bool {
        self.process.death().is_none()
    }
}

impl Instance for FakeInstance {
    fn connect(&mut self) -> io::Result<OwnedFd> {
        self.channel.take().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn pause(&self) -> io::Result<()> {
        self.turn(true);
        Ok(())
    }

    fn resume(&self) -> io::Result<()> {
        self.turn(false);
        Ok(())
    }

    fn untold(&self) -> Pending<'_, Vec<u8>> {
        let (words, takes) = self.shared.state().settings.untold;
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            Ok(words.into())
        })
    }

    fn autopsy(&self) -> Pending<'_, Death> {
        let gone = self.shared.state().gone;
        let death = self.process.death().unwrap_or(Death::Unknown);
        let told = if gone { Err(ProviderError::WardenGone) } else { Ok(death) };
        Box::pin(std::future::ready(told))
    }
}

impl Drop for FakeInstance {
    fn drop(&mut self) {
        self.process.kill();
        let mut state = self.shared.state();
        state.instances.remove(&self.id);
        state.census.instances -= 1;
        if self.process.paused() {
            state.census.paused -= 1;
        }
    }
}
