//! Bytes from one connection to another, both ways, until both ends have said all, or neither says anything for too long.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// What is read at once, in each direction.
const CHUNK: usize = 16 << 10;

/// When something last passed, in either direction.
struct Last(Mutex<Instant>);

impl Last {
    fn now(&self) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }

    fn ago(&self) -> Duration {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).elapsed()
    }
}

/// Relays until both directions have ended. What one end has closed for writing is closed for the other.
///
/// # Errors
/// When either end breaks, or nothing has passed for `idle`: then both are to be reset, so that nobody takes half for all.
pub(crate) async fn relay(
    inside: &mut TcpStream,
    outside: &mut TcpStream,
    idle: Duration,
) -> io::Result<()> {
    let last = Last(Mutex::new(Instant::now()));
    let (from_inside, to_inside) = inside.split();
    let (from_outside, to_outside) = outside.split();
    let out = one_way(from_inside, to_outside, &last, idle);
    let back = one_way(from_outside, to_inside, &last, idle);
    tokio::try_join!(out, back).map(drop)
}

async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    last: &Last,
    idle: Duration,
) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK];
    loop {
        let got = match timeout(idle, from.read(&mut bytes)).await {
            Ok(got) => got?,
            // The other direction may be at work.
            Err(_) if last.ago() < idle => continue,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        last.now();
        if got == 0 {
            return to.shutdown().await;
        }
        timeout(idle, to.write_all(&bytes[..got])).await??;
        last.now();
    }
}
