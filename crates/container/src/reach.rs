//! Outgoing connections of an instance: its own network, filled by the warden, and the proxy behind
//! it.
//!
//! ```text
//!   landed ── Reach ─► warden: routes and listening sockets in the instance's network ── sockets ─┐
//!                                                            Open, with the list ◄────────────────┘
//!                                                              ▼ the proxy, started by the warden at the first
//!   pause ── Pause ─►   resume ── Resume ─►   dropped ── Close ─► ┄ then: Release ─► warden
//! ```
//! Orders go one way, in order, without answers; connections that come before the proxy listens
//! wait in the kernel's queue. An order is in the proxy's socket before the handler is told of its
//! next call, and the proxy reads orders before it accepts a connection: so a pause never ends a
//! later connection. When the proxy dies, the instances that it served cannot be used any more, and
//! the next instance starts another proxy.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use egress::Rules;
use egress::control::{Order, Plan};
use sandbox::{InstanceSpec, Network, ProviderError};
use sys::scm;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use warden::protocol::{self, Answer, Command};

use crate::client::{Client, unexpected};
use crate::handle::Handle;
use crate::watch::watch;

/// How long the proxy may leave an order unread; releases wait for it. After that it counts as
/// dead.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);

/// The network in the warden's protocol.
pub(crate) fn network(network: Network) -> protocol::Network {
    match network {
        Network::None => protocol::Network::None,
        // Its own loopback, on which no address is local and no proxy listens.
        Network::Loopback | Network::Egress => protocol::Network::Egress,
        Network::Host => protocol::Network::Host,
    }
}

/// The one proxy of a worker, if it runs.
#[derive(Debug)]
pub(crate) struct Proxy {
    rules: Rules,
    link: Mutex<Option<Arc<Link>>>,
}

impl Proxy {
    /// A proxy that starts when the first instance needs it; `rules` bound every function.
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, link: Mutex::default() }
    }

    /// Sets up an instance's outgoing connections after it has landed; none for other network
    /// classes.
    pub(crate) async fn reach(
        &self,
        handle: &Arc<Handle>,
        spec: &InstanceSpec,
    ) -> Result<Option<Reach>, ProviderError> {
        let (client, sandbox) = (&handle.client, handle.id.0);
        match spec.network {
            Network::None | Network::Host => return Ok(None),
            Network::Loopback => {
                // The warden looks whether the network is the instance's own.
                let (networks, ports) = (Vec::new(), Vec::new());
                let command = Command::Reach { sandbox, networks, ports, names: false };
                let (Answer::Done, _) = client.call(command, &[]).await? else {
                    return Err(unexpected());
                };
                return Ok(None);
            }
            Network::Egress => {}
        }
        let Plan { networks, ports, names } = Plan::of(&spec.egress);
        let command = Command::Reach { sandbox, networks, ports, names };
        let (Answer::Done, sockets) = client.call(command, &[]).await? else {
            return Err(unexpected());
        };
        let link = self.link(client).await?;
        let (owner, destinations) = (spec.owner.to_string(), spec.egress.to_vec());
        link.order(Order::Open { sandbox, owner, destinations }, sockets);
        Ok(Some(Reach { handle: Arc::clone(handle), link }))
    }

    /// The connection to the running proxy; starts one where none runs.
    async fn link(&self, client: &Client) -> Result<Arc<Link>, ProviderError> {
        let mut link = self.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| link.alive()) {
            return Ok(Arc::clone(link));
        }
        let (Answer::Done, mut fds) = client.call(Command::Proxy, &[]).await? else {
            return Err(unexpected());
        };
        let control = fds.pop().ok_or_else(unexpected)?;
        let new = Link::new(control).map_err(ProviderError::step("watch the proxy"))?;
        let isolation = client.host().isolation;
        new.order(Order::Bound { rules: self.rules.clone(), isolation }, Vec::new());
        Ok(Arc::clone(link.insert(Arc::new(new))))
    }
}

/// An order on its way to the proxy.
#[derive(Debug)]
struct QueuedOrder {
    order: Order,
    /// Descriptors that go with the order.
    fds: Vec<OwnedFd>,
    /// The handle of a sandbox that may be destroyed only after this order is sent.
    _after: Option<Arc<Handle>>,
}

/// A connection to a proxy.
#[derive(Debug)]
struct Link {
    control: Arc<AsyncFd<OwnedFd>>,
    /// Orders that found the socket full.
    orders: mpsc::UnboundedSender<QueuedOrder>,
    /// How many of those are not sent yet.
    behind: Arc<std::sync::Mutex<usize>>,
    alive: Arc<AtomicBool>,
}

impl Link {
    fn new(control: OwnedFd) -> io::Result<Self> {
        let control = Arc::new(watch(control)?);
        let (orders, mut given) = mpsc::unbounded_channel::<QueuedOrder>();
        let (behind, alive) = (Arc::default(), Arc::new(AtomicBool::new(true)));
        let link = Self { control, orders, behind, alive };
        let (control, still) = (Arc::clone(&link.control), Arc::clone(&link.alive));
        let behind = Arc::clone(&link.behind);
        tokio::spawn(async move {
            loop {
                let sent = tokio::select! {
                    order = given.recv() => match order {
                        Some(ordered) => {
                            let sent = send(&control, &ordered).await;
                            *behind.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
                            sent
                        }
                        // No sender is left: the connection ends with the socket.
                        None => return,
                    },
                    () = gone(&control) => Err(io::ErrorKind::BrokenPipe.into()),
                };
                if let Err(error) = sent {
                    still.store(false, Ordering::Release);
                    tracing::warn!(%error, "the proxy of functions with a network is gone; the next call starts another");
                    return;
                }
            }
        });
        Ok(link)
    }

    fn alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    fn order(&self, order: Order, fds: Vec<OwnedFd>) {
        self.ordered(QueuedOrder { order, fds, _after: None });
    }

    /// Sends an order at once, unless earlier ones still wait or the socket is full.
    fn ordered(&self, ordered: QueuedOrder) {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        if *behind == 0 && try_send(self.control.as_fd(), &ordered).is_ok() {
            return;
        }
        // Otherwise the proxy is gone, and so are the connections that the order was about.
        if self.orders.send(ordered).is_ok() {
            *behind += 1;
        }
    }
}

async fn send(control: &AsyncFd<OwnedFd>, ordered: &QueuedOrder) -> io::Result<()> {
    let send = |fd: &OwnedFd| try_send(fd.as_fd(), ordered);
    timeout(ORDER_TIMEOUT, control.async_io(Interest::WRITABLE, send)).await?
}

/// Sends without waiting for room.
fn try_send(control: BorrowedFd<'_>, ordered: &QueuedOrder) -> io::Result<()> {
    let packet = serde_json::to_vec(&ordered.order)?;
    let borrowed: Vec<_> = ordered.fds.iter().map(AsFd::as_fd).collect();
    scm::send(control, &packet, &borrowed, false).map(drop)
}

/// Returns when the proxy has ended, which never writes.
async fn gone(control: &AsyncFd<OwnedFd>) {
    let receive = |fd: &OwnedFd| scm::receive(fd.as_fd(), &mut [0; 1], false);
    let _ = control.async_io(Interest::READABLE, receive).await;
}

/// The outgoing connections of one instance. Dropping it closes them at the proxy before the
/// instance is destroyed. Otherwise the proxy would take the end of a killed process for the end of
/// its data, and pass it on.
#[derive(Debug)]
pub(crate) struct Reach {
    handle: Arc<Handle>,
    link: Arc<Link>,
}

impl Reach {
    /// Whether the proxy still serves the instance.
    pub(crate) fn alive(&self) -> bool {
        self.link.alive()
    }

    /// Ends its connections until [`Reach::resume`].
    pub(crate) fn pause(&self) {
        self.link.order(Order::Pause { sandbox: self.handle.id.0 }, Vec::new());
    }

    /// Allows connections again.
    pub(crate) fn resume(&self) {
        self.link.order(Order::Resume { sandbox: self.handle.id.0 }, Vec::new());
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        self.link.ordered(QueuedOrder {
            order: Order::Close { sandbox: self.handle.id.0 },
            fds: Vec::new(),
            _after: Some(Arc::clone(&self.handle)),
        });
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn next(theirs: &OwnedFd) -> io::Result<Order> {
        let mut packet = [0; 1024];
        let received = scm::receive(theirs.as_fd(), &mut packet, false)?;
        Ok(serde_json::from_slice(&packet[..received.length])?)
    }

    #[tokio::test]
    async fn an_order_is_with_the_proxy_once_it_is_given() {
        let (ours, theirs) = pair();
        let link = Link::new(ours).unwrap();
        link.order(Order::Pause { sandbox: 7 }, Vec::new());
        // No other task has run meanwhile.
        assert!(matches!(next(&theirs), Ok(Order::Pause { sandbox: 7 })));
    }

    #[tokio::test]
    async fn orders_that_find_the_socket_full_come_later_and_in_order() {
        let (ours, theirs) = pair();
        let link = Link::new(ours).unwrap();
        for sandbox in 0..10_000 {
            link.order(Order::Pause { sandbox }, Vec::new());
        }
        assert!(*link.behind.lock().unwrap() > 0);
        for expected in 0..10_000 {
            let sandbox = loop {
                match next(&theirs) {
                    Ok(Order::Pause { sandbox }) => break sandbox,
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            assert_eq!(sandbox, expected);
        }
        assert!(link.alive());
    }
}
