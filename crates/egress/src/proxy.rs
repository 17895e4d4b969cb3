//! The proxy's own loop: orders in, guests served.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::net::{TcpListener, UdpSocket};

use crate::control::{MAX_PACKET, Order, Plan};
use crate::guest::Guest;
use crate::inbox::Inbox;
use crate::outside::{LOOKUPS, Outside};
use crate::policy::{Bounds, Means};
use crate::shares::Owner;

/// Serves until the control socket closes.
///
/// # Errors
/// When the runtime does not start, or the control socket brings what is no order.
pub fn serve(control: OwnedFd) -> io::Result<()> {
    // Nothing else blocks: a lookup that has its share finds a thread.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(LOOKUPS)
        .build()?;
    let served = runtime.block_on(obey(control));
    // Whoever resolves a name need not be waited for.
    runtime.shutdown_background();
    served
}

async fn obey(control: OwnedFd) -> io::Result<()> {
    let orders = Arc::new(Inbox::new(control)?);
    let bounds = Arc::new(Bounds::default());
    let mut means = Means { bounds, outside: Outside::of_host(), orders: Arc::clone(&orders) };
    let (mut guests, mut packet) = (HashMap::new(), vec![0; MAX_PACKET]);
    while let Some((order, fds)) = orders.next(&mut packet).await? {
        match order {
            Order::Bound { rules, isolation } => {
                means.bounds = Arc::new(Bounds { rules, isolation });
            }
            Order::Open { sandbox, owner, destinations } => {
                let names = Plan::of(&destinations).names;
                let (names, listeners) = sockets(names, fds)?;
                let (owner, means) = (Owner::new(&owner), means.clone());
                let guest = Guest::serve(sandbox, owner, destinations, means, names, listeners);
                guests.insert(sandbox, guest);
            }
            Order::Pause { sandbox } => guests.get(&sandbox).into_iter().for_each(Guest::pause),
            Order::Resume { sandbox } => guests.get(&sandbox).into_iter().for_each(Guest::resume),
            Order::Close { sandbox } => drop(guests.remove(&sandbox)),
        }
    }
    Ok(())
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
