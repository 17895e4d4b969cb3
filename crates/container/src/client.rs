//! The worker's side of the warden's socket.
//!
//! Each caller sends its command at once; one task reads the answers and wakes the callers. The
//! answer for a caller that was cancelled is dropped, with its descriptors.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox::ProviderError;
use sys::scm::{self, TruncatedPacket};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use warden::isolation::Isolation;
use warden::protocol::{Answer, Command, Host, MAX_PACKET, Numbered, VERSION};

use crate::watch::watch;

type Answered = (Answer, Vec<OwnedFd>);

/// An answer, with the descriptors of its packet.
type IncomingAnswer = (Answer, Result<Vec<OwnedFd>, TruncatedPacket>);

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    answers: HashMap<u64, oneshot::Sender<IncomingAnswer>>,
    /// Packets that the socket had no room for, in order.
    unsent: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    closed: bool,
}

/// A connection to the warden. Dropping the last one ends the warden and with it every sandbox.
#[derive(Debug)]
pub struct Client {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Mutex<Waiting>>,
    reader: tokio::task::JoinHandle<()>,
    host: Host,
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    // A panic leaves the map whole: every change is one insertion or removal.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Takes over a connected SEQPACKET socket and greets the warden. Inside a Tokio runtime.
    ///
    /// # Errors
    /// When the warden does not answer or is of another build.
    pub async fn new(socket: OwnedFd) -> Result<Self, ProviderError> {
        let socket = watch(socket).map_err(ProviderError::step("watch the warden"))?;
        let socket = Arc::new(socket);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let reader = tokio::spawn(read_answers(Arc::clone(&socket), Arc::clone(&waiting)));
        let host = Host {
            version: 0,
            cgroups: warden::protocol::Layout::None,
            late_mounts: false,
            proc: false,
            isolation: Isolation::default(),
            scopes: false,
            cpu: false,
            sandboxes: 0,
        };
        let mut client = Self { socket, waiting, reader, host };
        match client.call(Command::Hello { version: VERSION }, &[]).await? {
            (Answer::Host(host), _) => client.host = host,
            _ => return Err(unexpected()),
        }
        Ok(client)
    }

    /// What sandboxes can have on this host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Whether the warden still listens.
    #[must_use]
    pub fn alive(&self) -> bool {
        !lock(&self.waiting).closed
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// [`ProviderError::WardenGone`], or the warden's error about a failed step.
    pub async fn call(
        &self,
        command: Command,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Answered, ProviderError> {
        let (answer, answered) = oneshot::channel();
        self.send(command, fds, Some(answer))?;
        match answered.await.map_err(|_| ProviderError::WardenGone)? {
            (Answer::Failed { step, errno }, _) => Err(refusal(step, errno)),
            (answer, Ok(fds)) => Ok((answer, fds)),
            // The warden writes no more than fits. So it is this process that may open no more
            // files.
            (_, Err(TruncatedPacket)) => {
                Err(refusal("receive descriptors".to_owned(), libc::EMFILE))
            }
        }
    }

    /// Sends a command whose answer does not matter. Any thread, does not block.
    pub fn tell(&self, command: Command) {
        // A warden that is gone has released everything by itself.
        let _ = self.send(command, &[], None);
    }

    fn send(
        &self,
        body: Command,
        fds: &[BorrowedFd<'_>],
        answer: Option<oneshot::Sender<IncomingAnswer>>,
    ) -> Result<(), ProviderError> {
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return Err(ProviderError::WardenGone);
        }
        waiting.next += 1;
        let number = waiting.next;
        let packet = serde_json::to_vec(&Numbered { number, body })
            .map_err(ProviderError::step("write a command"))?;
        if let Some(answer) = answer {
            waiting.answers.insert(number, answer);
        }
        if waiting.unsent.is_empty() {
            match send_now(self.socket.as_fd(), &packet, fds) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    waiting.closed = true;
                    waiting.answers.clear();
                    return Err(ProviderError::WardenGone);
                }
            }
        }
        let owned = fds.iter().map(|fd| fd.try_clone_to_owned()).collect::<io::Result<Vec<_>>>();
        waiting.unsent.push_back((packet, owned.map_err(ProviderError::step("hold descriptors"))?));
        drop(waiting);
        let (socket, waiting) = (Arc::clone(&self.socket), Arc::clone(&self.waiting));
        tokio::spawn(async move { send_rest(&socket, &waiting).await });
        Ok(())
    }
}

impl Client {
    /// Closes the connection to the warden, even if this client is shared. Pending calls fail with
    /// [`ProviderError::WardenGone`].
    pub fn close(&self) {
        // A task that waits to send also holds the socket. Left open with unread answers, the
        // socket would block the warden.
        let _ = rustix::net::shutdown(self.socket.as_fd(), rustix::net::Shutdown::Both);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reader.abort();
        self.close();
    }
}

fn send_now(socket: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    scm::send(socket, packet, fds, false).map(drop)
}

async fn send_rest(socket: &AsyncFd<OwnedFd>, waiting: &Mutex<Waiting>) {
    loop {
        let Ok(mut guard) = socket.writable().await else {
            return;
        };
        let mut waiting = lock(waiting);
        let Some((packet, fds)) = waiting.unsent.front() else {
            return;
        };
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        match send_now(socket.as_fd(), packet, &borrowed) {
            Ok(()) => drop(waiting.unsent.pop_front()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
            Err(_) => {
                waiting.closed = true;
                waiting.answers.clear();
                return;
            }
        }
    }
}

async fn read_answers(socket: Arc<AsyncFd<OwnedFd>>, waiting: Arc<Mutex<Waiting>>) {
    let mut packet = vec![0; MAX_PACKET];
    loop {
        let received = socket
            .async_io(Interest::READABLE, |fd| scm::receive(fd.as_fd(), &mut packet, false))
            .await;
        let received = match received {
            Ok(received) if received.length > 0 => received,
            _ => break,
        };
        let Ok(answer) = serde_json::from_slice::<Numbered<Answer>>(&packet[..received.length])
        else {
            break;
        };
        let caller = lock(&waiting).answers.remove(&answer.number);
        match (caller, answer.body) {
            (Some(caller), body) => drop(caller.send((body, received.fds))),
            (None, Answer::Failed { step, errno }) => {
                tracing::warn!(step, errno, "the warden could not carry out a command");
            }
            (None, _) => {}
        }
    }
    let mut waiting = lock(&waiting);
    waiting.closed = true;
    waiting.answers.clear();
}

fn refusal(step: String, errno: i32) -> ProviderError {
    let source = io::Error::from_raw_os_error(errno);
    match errno {
        libc::EAGAIN | libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE => {
            ProviderError::Exhausted { what: format!("something it needs to {step}: {source}") }
        }
        libc::ESRCH => ProviderError::Killed { reason: step },
        0 => ProviderError::Refused(step),
        _ => ProviderError::Refused(format!("{step}: {source}")),
    }
}

/// The error for an answer of another kind than the command calls for.
#[must_use]
pub fn unexpected() -> ProviderError {
    ProviderError::Refused("the warden's answer does not fit the command".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use warden::protocol::Layout;

    use super::*;

    const HOST: Host = Host {
        version: VERSION,
        cgroups: Layout::None,
        late_mounts: false,
        proc: false,
        isolation: Isolation::LEAN,
        scopes: false,
        cpu: false,
        sandboxes: 1,
    };

    /// Answers one command after the other, as the warden does, until its client goes.
    fn answer(socket: &OwnedFd) -> io::Result<()> {
        let mut packet = vec![0; MAX_PACKET];
        loop {
            let received = scm::receive(socket.as_fd(), &mut packet, true)?;
            if received.length == 0 {
                return Ok(());
            }
            let command: Numbered<Command> = serde_json::from_slice(&packet[..received.length])?;
            let body = match command.body {
                Command::Hello { .. } => Answer::Host(HOST),
                _ => Answer::Done,
            };
            let answer = serde_json::to_vec(&Numbered { number: command.number, body })?;
            scm::send(socket.as_fd(), &answer, &[], true)?;
        }
    }

    #[tokio::test]
    async fn a_client_that_goes_in_the_middle_does_not_block_its_warden() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let warden = tokio::task::spawn_blocking(move || answer(&theirs));
        let client = Client::new(ours).await.unwrap();
        // No answer is read meanwhile: the tests' runtime has one thread.
        for sandbox in 0..5000 {
            client.tell(Command::Release { sandbox });
        }
        assert!(!lock(&client.waiting).unsent.is_empty());
        drop(client);
        let ended = tokio::time::timeout(Duration::from_secs(20), warden).await;
        drop(ended.expect("the warden ends"));
    }
}
