//! A container: what the worker holds of it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use sandbox::{Death, Instance, Limits, Pending, Processors, ProviderError, Sandbox, SandboxId};
use sys::process::{Ended, PidFd};
use warden::protocol::{self, Answer, Command, Files, Layout};

use crate::client::{Client, unexpected};
use crate::reach::Reach;

/// A sandbox's name at the warden's, and its cgroup's files. Dropping it has the warden destroy the sandbox.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) client: Arc<Client>,
    pub(crate) id: SandboxId,
    freezer: Option<File>,
    memory: Option<File>,
}

impl Handle {
    pub(crate) fn new(client: Arc<Client>, id: SandboxId) -> Self {
        Self { client, id, freezer: None, memory: None }
    }

    pub(crate) fn take_files(&mut self, files: Files, fds: impl IntoIterator<Item = OwnedFd>) {
        let mut fds = fds.into_iter().map(File::from);
        if files.freezer {
            self.freezer = fds.next();
        }
        if files.memory {
            self.memory = fds.next();
        }
    }

    pub(crate) fn memory(&self) -> io::Result<u64> {
        let file = self.memory.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut text = [0; 32];
        let length = file.read_at(&mut text, 0)?;
        let number = std::str::from_utf8(&text[..length]).ok().and_then(|t| t.trim().parse().ok());
        number.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Where the host has no freezer an idle sandbox goes on running, and `wool doctor` says so.
    pub(crate) fn freeze(&self, frozen: bool) -> io::Result<()> {
        let Some(mut file) = self.freezer.as_ref() else {
            return Ok(());
        };
        let word: &[u8] = match (self.client.host().cgroups, frozen) {
            (Layout::V1, true) => b"FROZEN",
            (Layout::V1, false) => b"THAWED",
            (_, true) => b"1",
            (_, false) => b"0",
        };
        file.write_all(word)
    }

    pub(crate) async fn inspect(&self) -> Result<(Death, String), ProviderError> {
        let command = Command::Inspect { sandbox: self.id.0 };
        let (Answer::Died { out_of_memory, exited, signal, stderr }, _) =
            self.client.call(command, &[]).await?
        else {
            return Err(unexpected());
        };
        let death = match (out_of_memory, exited, signal) {
            (true, _, _) => Death::OutOfMemory,
            (false, Some(status), _) => Death::Exited(status),
            (false, None, Some(number)) => Death::Signal(number),
            (false, None, None) => Death::Unknown,
        };
        Ok((death, stderr))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.client.tell(Command::Release { sandbox: self.id.0 });
    }
}

/// Limits in the warden's words.
#[must_use]
pub fn in_the_wardens_words(limits: Limits) -> protocol::Limits {
    let cpu = protocol::Cpu {
        quota: limits.cpu.quota.map(Processors::thousandths),
        weight: limits.cpu.weight,
    };
    protocol::Limits {
        cpu,
        memory_bytes: limits.memory_bytes,
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

    fn autopsy(&self) -> Pending<'_, Death> {
        Box::pin(async move {
            // The channel closes an instant before the process has ended; a longer one on a machine under load.
            for _ in 0..1000 {
                if !self.process.alive() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            let (death, _) = self.handle.inspect().await?;
            Ok(match (death, self.process.ended()) {
                (Death::OutOfMemory, _) => Death::OutOfMemory,
                (_, Some(Ended::Exited(status))) => Death::Exited(status),
                (_, Some(Ended::Signal(number))) => Death::Signal(number),
                (death, None) => death,
            })
        })
    }
}
