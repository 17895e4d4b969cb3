//! A sandbox's name in the warden, and the files of its cgroup that the worker reads and writes
//! itself.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use sandbox::{Death, ProviderError, SandboxId};
use sys::process::PidFd;
use warden::protocol::{Answer, Command, Files, Layout};

use crate::client::{Client, unexpected};

/// Bytes of a sandbox's output that an error quotes.
const LAST_WORDS: usize = 4 << 10;

/// How long to wait for a cause of death, which is known an instant after the death. The waits
/// double: 255 ms in all.
const UNTOLD: Duration = Duration::from_millis(256);

/// A sandbox's name in the warden, with the worker's files of its cgroup. Dropping it asks the
/// warden to destroy the sandbox, if there is one.
#[derive(Debug)]
pub struct Handle {
    pub(crate) client: Arc<Client>,
    pub(crate) id: SandboxId,
    output: Option<File>,
    freezer: Option<File>,
    memory: Option<File>,
}

impl Handle {
    /// The handle of a sandbox that is about to be requested from the warden.
    #[must_use]
    pub fn new(client: Arc<Client>, id: SandboxId) -> Self {
        Self { client, id, output: None, freezer: None, memory: None }
    }

    /// The sandbox's number, which the warden knows it by.
    #[must_use]
    pub fn id(&self) -> SandboxId {
        self.id
    }

    /// The connection to the warden that has this sandbox.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Takes over the files that the warden has sent, in the order of [`Files`].
    pub fn take_files(&mut self, files: Files, fds: impl IntoIterator<Item = OwnedFd>) {
        let mut fds = fds.into_iter().map(File::from);
        if files.output {
            self.output =
                fds.next().filter(|output| rustix::io::ioctl_fionbio(output, true).is_ok());
        }
        if files.freezer {
            self.freezer = fds.next();
        }
        if files.memory {
            self.memory = fds.next();
        }
    }

    /// The reading end of an instance's output, once. [`Handle::autopsy`] then quotes no output.
    pub(crate) fn take_output(&mut self) -> Option<OwnedFd> {
        self.output.take().map(OwnedFd::from)
    }

    /// Bytes in use, kernel memory included.
    ///
    /// # Errors
    /// `Unsupported` where the host does not count them; as `read(2)`.
    pub fn memory(&self) -> io::Result<u64> {
        let file = self.memory.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut text = [0; 32];
        let length = file.read_at(&mut text, 0)?;
        let number = std::str::from_utf8(&text[..length]).ok().and_then(|t| t.trim().parse().ok());
        number.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Freezes or thaws the sandbox. Does nothing where the host has no freezer: an idle sandbox
    /// then goes on running, and `wool doctor` reports it.
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

    /// The cause of death, as far as the warden can tell, and the output in its pipe, if it has
    /// one.
    pub(crate) async fn inspect(&self) -> Result<(Death, String), ProviderError> {
        let mut words = String::new();
        let mut wait = Duration::from_millis(1);
        loop {
            let (answer, _) = self.client.call(self.question(), &[]).await?;
            let Answer::Died { untold, out_of_memory, exited, signal, stderr } = answer else {
                return Err(unexpected());
            };
            words += &stderr;
            let death = match (out_of_memory, exited, signal) {
                (true, _, _) => Death::OutOfMemory,
                (false, Some(status), _) => Death::Exited(status),
                (false, None, Some(number)) => Death::Signal(number),
                (false, None, None) if untold && wait < UNTOLD => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                    continue;
                }
                (false, None, None) => Death::Unknown,
            };
            return Ok((death, words));
        }
    }

    /// Waits for the end of a process that has closed its channel. That takes an instant, or longer
    /// on a machine under load.
    pub(crate) async fn ended(&self, process: &PidFd) {
        for _ in 0..1000 {
            if !process.alive() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The first bytes of an instance's output, unless [`Handle::take_output`] has been called.
    fn last_words(&self) -> String {
        let mut words = [0; LAST_WORDS];
        let read = self.output.as_ref().map(|mut output| output.read(&mut words).unwrap_or(0));
        String::from_utf8_lossy(&words[..read.unwrap_or(0)]).into_owned()
    }

    fn question(&self) -> Command {
        Command::Inspect { sandbox: self.id.0 }
    }

    /// The cause of death of the first process, and the start of its output, at most 4 KiB. Called
    /// when that process has closed its channel.
    ///
    /// # Errors
    /// When the warden is gone.
    pub async fn autopsy(&self, process: &PidFd) -> Result<(Death, String), ProviderError> {
        self.ended(process).await;
        let (death, mut words) = self.inspect().await?;
        if words.is_empty() {
            words = self.last_words();
        }
        Ok((death, words))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.client.tell(Command::Release { sandbox: self.id.0 });
    }
}
