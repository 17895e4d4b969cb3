//! A monitor's process, as the warden knows it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use container::{Client, Containers, in_the_wardens_words};
use sandbox::{Death, Limits, ProviderError, SandboxId};
use sys::process::PidFd;
use warden::protocol::{Answer, Command};

/// A running monitor. Dropping it has the warden destroy it, with all its machines.
#[derive(Debug)]
pub(super) struct Warded {
    name: Name,
    pub(super) process: PidFd,
    memory: Option<File>,
}

/// Its name at the warden's. Dropping it has the warden destroy what has the name, if anything has.
#[derive(Debug)]
struct Name {
    client: Arc<Client>,
    id: SandboxId,
}

impl Warded {
    /// Has the warden start one. Returns the control socket beside.
    pub(super) async fn start(
        containers: &Containers,
        limits: Limits,
    ) -> Result<(Self, OwnedFd), ProviderError> {
        let name = Name { client: containers.client(), id: containers.new_name() };
        let limits = in_the_wardens_words(limits);
        let command = Command::Monitor { sandbox: name.id.0, limits };
        let (Answer::Started { files, .. }, fds) = name.client.call(command, &[]).await? else {
            return Err(unexpected());
        };
        let mut fds = fds.into_iter();
        let (control, process) = fds.next().zip(fds.next()).ok_or_else(unexpected)?;
        let freezer = if files.freezer { fds.next() } else { None };
        drop(freezer);
        let memory = if files.memory { fds.next().map(File::from) } else { None };
        Ok((Self { name, process: PidFd::from(process), memory }, control))
    }

    pub(super) fn id(&self) -> SandboxId {
        self.name.id
    }

    /// Layers as trees that hang nowhere.
    pub(super) async fn open(&self, layers: Vec<String>) -> Result<Vec<OwnedFd>, ProviderError> {
        let count = layers.len();
        match self.name.client.call(Command::Open { layers }, &[]).await? {
            (Answer::Done, fds) if fds.len() == count => Ok(fds),
            _ => Err(unexpected()),
        }
    }

    /// Bytes of all its machines together, the kernel's for it included.
    pub(super) fn memory(&self) -> io::Result<u64> {
        let file = self.memory.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut text = [0; 32];
        let length = file.read_at(&mut text, 0)?;
        let number = std::str::from_utf8(&text[..length]).ok().and_then(|t| t.trim().parse().ok());
        number.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// How it ended, and its last words. When its sockets have closed.
    pub(super) async fn inspect(&self) -> Result<(Death, String), ProviderError> {
        // Its sockets close an instant before it has ended; a longer one on a machine under load.
        for _ in 0..1000 {
            if !self.process.alive() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let command = Command::Inspect { sandbox: self.name.id.0 };
        let (Answer::Died { out_of_memory, exited, signal, stderr }, _) =
            self.name.client.call(command, &[]).await?
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

impl Drop for Name {
    fn drop(&mut self) {
        self.client.tell(Command::Release { sandbox: self.id.0 });
    }
}

fn unexpected() -> ProviderError {
    ProviderError::Refused("the warden's answer does not fit the command".to_owned())
}
