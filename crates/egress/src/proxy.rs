//! The proxy's loop: receives orders and serves guests.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::net::{TcpListener, UdpSocket};

use crate::control::{MAX_PACKET, Order, Plan};
use crate::guest::Guest;
use crate::inbox::Inbox;
use crate::outside::{MAX_LOOKUPS, Outside};
use crate::policy::{Bounds, Resources};
use crate::shares::Owner;

/// Serves until the control socket closes.
///
/// # Errors
/// When the runtime does not start, or a packet is no order.
pub fn serve(control: OwnedFd) -> io::Result<()> {
    // Nothing else blocks: a lookup that has its share finds a thread.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_LOOKUPS)
        .build()?;
    let served = runtime.block_on(obey(control));
    // Does not wait for lookups in progress.
    runtime.shutdown_background();
    served
}

async fn obey(control: OwnedFd) -> io::Result<()> {
    let orders = Arc::new(Inbox::new(control)?);
    let bounds = Arc::new(Bounds::default());
    let mut resources =
        Resources { bounds, outside: Outside::of_host(), orders: Arc::clone(&orders) };
    let (mut guests, mut packet) = (HashMap::new(), vec![0; MAX_PACKET]);
    while let Some((order, fds)) = orders.next(&mut packet).await? {
        match order {
            Order::Bound { rules, isolation } => {
                resources.bounds = Arc::new(Bounds { rules, isolation });
            }
            Order::Open { sandbox, owner, destinations } => {
                let names = Plan::of(&destinations).names;
                let (names, listeners) = sockets(names, fds)?;
                let (owner, resources) = (Owner::new(&owner), resources.clone());
                let guest = Guest::serve(sandbox, owner, destinations, resources, names, listeners);
                guests.insert(sandbox, guest);
            }
            Order::Pause { sandbox } => guests.get(&sandbox).into_iter().for_each(Guest::pause),
            Order::Resume { sandbox } => guests.get(&sandbox).into_iter().for_each(Guest::resume),
            Order::Close { sandbox } => drop(guests.remove(&sandbox)),
        }
    }
    Ok(())
}

/// Splits the descriptors of an order. The socket for names comes first, where there is one.
fn sockets(names: bool, fds: Vec<OwnedFd>) -> io::Result<(Option<UdpSocket>, Vec<TcpListener>)> {
    let mut fds = fds.into_iter();
    let names = match names.then(|| fds.next()).flatten() {
        Some(fd) => Some(UdpSocket::from_std(fd.into())?),
        None => None,
    };
    let listeners = fds.map(|fd| TcpListener::from_std(fd.into())).collect::<Result<_, _>>()?;
    Ok((names, listeners))
}
