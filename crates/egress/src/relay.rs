//! Copies bytes between two connections, both ways, until both ends have finished or the connection
//! is idle for too long.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::inbox::Inbox;

/// Size of one read in each direction, in bytes.
const CHUNK: usize = 16 << 10;

/// The time of the last byte, in either direction.
struct LastActivity(Mutex<Instant>);

impl LastActivity {
    fn now(&self) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }

    fn ago(&self) -> Duration {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).elapsed()
    }
}

/// Relays until both directions have ended. The end of one peer's data is passed on to the other.
/// The end of the sandbox's data waits until the `orders` that had arrived before it are carried
/// out: a process that is killed closes its socket, too.
///
/// # Errors
/// When either end breaks, or nothing has passed for `idle`. Both connections must then be reset,
/// so that no peer takes half of a message for all of it.
pub(crate) async fn relay(
    inside: &mut TcpStream,
    outside: &mut TcpStream,
    idle: Duration,
    orders: &Inbox,
) -> io::Result<()> {
    let last = LastActivity(Mutex::new(Instant::now()));
    let (from_inside, mut to_inside) = inside.split();
    let (from_outside, mut to_outside) = outside.split();
    let out = async {
        one_way(from_inside, &mut to_outside, &last, idle).await?;
        orders.settled().await;
        to_outside.shutdown().await
    };
    let back = async {
        one_way(from_outside, &mut to_inside, &last, idle).await?;
        to_inside.shutdown().await
    };
    tokio::try_join!(out, back).map(drop)
}

/// Copies one direction to its end.
async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    last: &LastActivity,
    idle: Duration,
) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK];
    loop {
        let got = match timeout(idle, from.read(&mut bytes)).await {
            Ok(got) => got?,
            // The other direction may be active.
            Err(_) if last.ago() < idle => continue,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        last.now();
        if got == 0 {
            return Ok(());
        }
        timeout(idle, to.write_all(&bytes[..got])).await??;
        last.now();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::control::{MAX_PACKET, Order};
    use crate::outside::{end_abruptly, end_in_order};

    const MINUTE: Duration = Duration::from_secs(60);

    /// Both ends of a connection; the second resets it when it is closed.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let theirs = listener.accept().await.unwrap().0;
        end_abruptly(&theirs).unwrap();
        (ours, theirs)
    }

    /// What a service reads until the end of a function's connection. `order`, if there is one, was
    /// sent before that end.
    async fn read_by_a_service(order: Option<Order>) -> io::Result<Vec<u8>> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let orders = Arc::new(Inbox::new(theirs).unwrap());
        let (mut function, mut inside) = connected().await;
        let (mut service, mut outside) = connected().await;
        function.write_all(b"the first half").await.unwrap();
        let mut half = [0; 14];
        let live = CancellationToken::new();
        let (unless, known) = (live.clone(), Arc::clone(&orders));
        let relayed = tokio::spawn(async move {
            tokio::select! {
                biased;
                () = unless.cancelled() => {}
                relayed = relay(&mut inside, &mut outside, MINUTE, &known) => {
                    relayed.unwrap();
                    end_in_order(&outside).unwrap();
                }
            }
        });
        service.read_exact(&mut half).await.unwrap();
        // The kernel closes the sockets of a killed process after the worker has sent the order.
        if let Some(order) = &order {
            let packet = serde_json::to_vec(order).unwrap();
            sys::scm::send(ours.as_fd(), &packet, &[], true).unwrap();
        }
        drop(function);
        if order.is_some() {
            // Long enough for the end to be seen here too: the order is carried out as late as can
            // be.
            tokio::time::sleep(Duration::from_millis(50)).await;
            orders.next(&mut vec![0; MAX_PACKET]).await.unwrap().unwrap();
            live.cancel();
        }
        let mut rest = Vec::new();
        let read = service.read_to_end(&mut rest).await;
        drop(service);
        relayed.await.unwrap();
        read.map(|_| rest)
    }

    #[tokio::test]
    async fn the_end_of_a_destroyed_process_is_not_passed_on_as_the_end_of_its_data() {
        assert_eq!(read_by_a_service(None).await.unwrap(), b"");
        let cut = read_by_a_service(Some(Order::Close { sandbox: 1 })).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::ConnectionReset);
    }
}
