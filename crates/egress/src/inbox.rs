//! The socket that orders come in by.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::scm;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::yield_now;

use crate::control::Order;

/// See the module's own words.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Of packets, which this type does not mind: nothing is read by it.
    socket: UnixStream,
}

impl Inbox {
    /// Takes over the connected socket. Inside a Tokio runtime.
    ///
    /// # Errors
    /// As `fcntl(2)` and `epoll_ctl(2)`.
    pub(crate) fn new(control: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(control);
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UnixStream::from_std(socket)? })
    }

    /// The next order with what comes along, read into `packet`; none when the worker is gone.
    ///
    /// # Errors
    /// When it brings what is no order.
    pub(crate) async fn next(
        &self,
        packet: &mut [u8],
    ) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
        let receive = || scm::receive(self.socket.as_fd(), packet, false);
        let received = match self.socket.async_io(Interest::READABLE, receive).await {
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => return Ok(None),
            other => other?,
        };
        if received.length == 0 {
            return Ok(None);
        }
        let order = serde_json::from_slice(&packet[..received.length])?;
        Ok(Some((order, received.fds?)))
    }

    /// Returns when whatever had come before has been obeyed. The worker tells us that a sandbox is gone before it has its
    /// processes killed: who sees the end of a connection, and then asks here, knows by what it has ended.
    pub(crate) async fn settled(&self) {
        while self.unread() {
            yield_now().await;
        }
    }

    fn unread(&self) -> bool {
        let mut one = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Once the worker is gone, everything ends: nobody need wait for that.
        poll(&mut one, Some(&at_once)).is_ok() && one[0].revents() == PollFlags::IN
    }
}
