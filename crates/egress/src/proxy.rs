//! The proxy's own loop: orders in, guests served.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use sys::scm;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Semaphore, mpsc};

use crate::control::{MAX_PACKET, Order, Plan};
use crate::guest::{Bounds, Guest};

/// Connections of all sandboxes at once: each takes two descriptors and two buffers.
const CONNECTIONS: usize = 4096;

/// Serves until the control socket closes.
///
/// # Errors
/// When the runtime does not start, or the control socket brings what is no order.
pub fn serve(control: OwnedFd) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (orders, mut received) = mpsc::channel(64);
    // A thread of its own: it waits for packets with descriptors, in the way of everybody else who does here.
    let reader = std::thread::spawn(move || read(&control, &orders));
    runtime.block_on(async {
        let (mut bounds, mut guests) = (Arc::new(Bounds::default()), HashMap::new());
        let most = Arc::new(Semaphore::new(CONNECTIONS));
        while let Some((order, fds)) = received.recv().await {
            match order {
                Order::Bound { rules, isolation } => bounds = Arc::new(Bounds { rules, isolation }),
                Order::Open { sandbox, destinations } => {
                    let names = Plan::of(&destinations).names;
                    let (names, listeners) = sockets(names, fds)?;
                    let (bounds, most) = (Arc::clone(&bounds), Arc::clone(&most));
                    let guest = Guest::serve(sandbox, destinations, bounds, most, names, listeners);
                    guests.insert(sandbox, guest);
                }
                Order::Pause { sandbox } => guests.get(&sandbox).into_iter().for_each(Guest::pause),
                Order::Resume { sandbox } => {
                    guests.get(&sandbox).into_iter().for_each(Guest::resume);
                }
                Order::Close { sandbox } => drop(guests.remove(&sandbox)),
            }
        }
        Ok::<_, io::Error>(())
    })?;
    // Whoever resolves a name need not be waited for.
    runtime.shutdown_background();
    reader.join().unwrap_or_else(|_| Err(io::Error::other("the reader broke off")))
}

/// Reads orders until the worker is gone.
fn read(control: &OwnedFd, orders: &mpsc::Sender<(Order, Vec<OwnedFd>)>) -> io::Result<()> {
    let mut packet = vec![0; MAX_PACKET];
    loop {
        let received = match scm::receive(control.as_fd(), &mut packet, true) {
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => return Ok(()),
            other => other?,
        };
        if received.length == 0 {
            return Ok(());
        }
        let order = serde_json::from_slice(&packet[..received.length])?;
        if orders.blocking_send((order, received.fds?)).is_err() {
            return Ok(());
        }
    }
}

/// The socket for names first, where there is one.
fn sockets(names: bool, fds: Vec<OwnedFd>) -> io::Result<(Option<UdpSocket>, Vec<TcpListener>)> {
    let mut fds = fds.into_iter();
    let names = match names.then(|| fds.next()).flatten() {
        Some(fd) => Some(UdpSocket::from_std(fd.into())?),
        None => None,
    };
    let listeners = fds.map(|fd| TcpListener::from_std(fd.into())).collect::<Result<_, _>>()?;
    Ok((names, listeners))
}
