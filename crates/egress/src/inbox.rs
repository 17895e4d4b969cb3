//! The socket that delivers the worker's orders.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::scm;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::yield_now;

use crate::control::Order;

/// Receives the worker's orders, in order.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The socket of packets. Only watched by this type, never read as a stream.
    socket: UnixStream,
}

impl Inbox {
    /// Takes over the connected socket. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// As `fcntl(2)` and `epoll_ctl(2)`.
    pub(crate) fn new(control: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(control);
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UnixStream::from_std(socket)? })
    }

    /// Receives the next order and its descriptors, using `packet` as buffer; none when the worker
    /// is gone.
    ///
    /// # Errors
    /// When a packet is no order.
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

    /// Returns when all orders that had arrived before this call are carried out. The worker
    /// announces that a sandbox is gone before it has the processes killed. So after this wait a
    /// connection's task knows whether a close was the function's own or the end of the sandbox.
    pub(crate) async fn settled(&self) {
        while self.unread() {
            yield_now().await;
        }
    }

    fn unread(&self) -> bool {
        let mut one = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Once the worker is gone everything ends: there is no order to wait for.
        poll(&mut one, Some(&at_once)).is_ok() && one[0].revents() == PollFlags::IN
    }
}
