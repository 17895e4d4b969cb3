//! What an instance may reach outside: its own network, filled by the warden, and the proxy that serves it.
//!
//! ```text
//!   landed ── Reach ─► warden: routes and listening sockets in the instance's network ── sockets ─┐
//!                                                            Open, with the list ◄────────────────┘
//!                                                              ▼ the proxy, started by the warden at the first
//!   pause ── Pause ─►   resume ── Resume ─►   dropped ── Close ─► ┄ then: Release ─► warden
//! ```
//! Orders go one way and in order, and nobody waits for them: whoever connects before the proxy listens waits in the kernel's
//! queue. They are in the proxy's socket before the handler is told of its next call, and the proxy looks there before it takes a
//! connection: so a pause never ends what came after it. When the proxy dies, instances that it served are as good as dead, and the next one starts another.

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

/// How long the proxy may leave an order lying: who is to be destroyed waits for it. Then it is as good as dead.
const PATIENCE: Duration = Duration::from_secs(10);

/// As the warden names it.
pub(crate) fn network(network: Network) -> protocol::Network {
    match network {
        Network::None => protocol::Network::None,
        Network::Egress => protocol::Network::Egress,
        Network::Host => protocol::Network::Host,
    }
}

/// The one proxy of a worker, while there is one.
#[derive(Debug)]
pub(crate) struct Proxy {
    rules: Rules,
    link: Mutex<Option<Arc<Link>>>,
}

impl Proxy {
    /// One that is started when somebody needs it; `rules` bound every function.
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, link: Mutex::default() }
    }

    /// Gives an instance that has landed what it may reach; none where it is of another class.
    pub(crate) async fn reach(
        &self,
        handle: &Arc<Handle>,
        spec: &InstanceSpec,
    ) -> Result<Option<Reach>, ProviderError> {
        if spec.network != Network::Egress {
            return Ok(None);
        }
        let Plan { networks, ports, names } = Plan::of(&spec.egress);
        let (client, sandbox) = (&handle.client, handle.id.0);
        let command = Command::Reach { sandbox, networks, ports, names };
        let (Answer::Done, sockets) = client.call(command, &[]).await? else {
            return Err(unexpected());
        };
        let link = self.link(client).await?;
        let (owner, destinations) = (spec.owner.to_string(), spec.egress.to_vec());
        link.order(Order::Open { sandbox, owner, destinations }, sockets);
        Ok(Some(Reach { handle: Arc::clone(handle), link }))
    }

    /// The connection to the proxy that runs; to a new one where none does.
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

/// An order.
#[derive(Debug)]
struct Ordered {
    order: Order,
    /// What comes along.
    fds: Vec<OwnedFd>,
    /// Whoever may be destroyed once it is sent, and no sooner.
    _after: Option<Arc<Handle>>,
}

/// A connection to a proxy.
#[derive(Debug)]
struct Link {
    control: Arc<AsyncFd<OwnedFd>>,
    /// For those that find the socket full.
    orders: mpsc::UnboundedSender<Ordered>,
    /// How many of them are not sent yet.
    behind: Arc<std::sync::Mutex<usize>>,
    alive: Arc<AtomicBool>,
}

impl Link {
    fn new(control: OwnedFd) -> io::Result<Self> {
        let control = Arc::new(watch(control)?);
        let (orders, mut given) = mpsc::unbounded_channel::<Ordered>();
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
                        // Nobody needs it any more: it ends with the socket.
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
        self.ordered(Ordered { order, fds, _after: None });
    }

    /// Sends it at once, unless others wait already, or the proxy has left as many lying as its socket holds.
    fn ordered(&self, ordered: Ordered) {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        if *behind == 0 && try_send(self.control.as_fd(), &ordered).is_ok() {
            return;
        }
        // Gone: then so is whatever the order was about.
        if self.orders.send(ordered).is_ok() {
            *behind += 1;
        }
    }
}

async fn send(control: &AsyncFd<OwnedFd>, ordered: &Ordered) -> io::Result<()> {
    let send = |fd: &OwnedFd| try_send(fd.as_fd(), ordered);
    timeout(PATIENCE, control.async_io(Interest::WRITABLE, send)).await?
}

/// Without waiting for room.
fn try_send(control: BorrowedFd<'_>, ordered: &Ordered) -> io::Result<()> {
    let packet = serde_json::to_vec(&ordered.order)?;
    let borrowed: Vec<_> = ordered.fds.iter().map(AsFd::as_fd).collect();
    scm::send(control, &packet, &borrowed, false).map(drop)
}

/// Returns when the proxy has ended: it says nothing.
async fn gone(control: &AsyncFd<OwnedFd>) {
    let receive = |fd: &OwnedFd| scm::receive(fd.as_fd(), &mut [0; 1], false);
    let _ = control.async_io(Interest::READABLE, receive).await;
}

/// What one instance may reach. Dropping it ends that, and only then is the instance destroyed: else the proxy would take the
/// end of a process that is killed for the end of what it had to say, and pass it on.
#[derive(Debug)]
pub(crate) struct Reach {
    handle: Arc<Handle>,
    link: Arc<Link>,
}

impl Reach {
    /// Whether somebody serves it.
    pub(crate) fn alive(&self) -> bool {
        self.link.alive()
    }

    /// Ends its connections until [`Reach::resume`].
    pub(crate) fn pause(&self) {
        self.link.order(Order::Pause { sandbox: self.handle.id.0 }, Vec::new());
    }

    /// Lets it connect again.
    pub(crate) fn resume(&self) {
        self.link.order(Order::Resume { sandbox: self.handle.id.0 }, Vec::new());
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        self.link.ordered(Ordered {
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
        // Nobody else has run meanwhile.
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
