//! Closes connections whose clients do not read their answers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes a second below which a client reads too slowly, once it has had its time.
const SLOWEST: u64 = 64 << 10;

/// A stream whose writes fail when, over its whole life, they have waited for the other side longer than `patience` and a
/// second more for each 64 KiB that it took. Only writes count: a stream of logs may be silent for days.
#[derive(Debug)]
pub struct Paced<S> {
    stream: S,
    patience: Duration,
    taken: u64,
    waited: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<S> Paced<S> {
    /// A stream whose reader may pause for `patience`.
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, taken: 0, waited: Duration::ZERO, waiting: None }
    }

    fn pace<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            if let Some((since, _)) = self.waiting.take() {
                self.waited += since.elapsed();
            }
            return outcome;
        }
        let allowed = self.patience + Duration::from_secs(self.taken / SLOWEST);
        let left = allowed.saturating_sub(self.waited);
        let (_, over) = self.waiting.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(sleep_until(now + left)))
        });
        ready!(over.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn count(&mut self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = outcome {
            self.taken += bytes as u64;
        }
        outcome
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        let outcome = self.count(outcome);
        self.pace(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        let outcome = self.count(outcome);
        self.pace(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.pace(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.pace(context, outcome)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::sleep;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Of a clock that only this test has.
    async fn within_a_day<T>(work: impl Future<Output = T>) -> T {
        let day = Duration::from_secs(24 * 3600);
        tokio::time::timeout(day, work).await.expect("it is given up")
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_given_up_and_who_reads_slowly_but_enough_is_not() {
        let (ours, _theirs) = duplex(1 << 10);
        let mut ours = Paced::new(ours, PATIENCE);
        let began = Instant::now();
        let refused = within_a_day(ours.write_all(&[7; 2 << 10])).await.unwrap_err();
        assert_eq!((refused.kind(), began.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
        // A byte now and then is no reading either.
        let (ours, mut theirs) = duplex(1 << 10);
        let mut ours = Paced::new(ours, PATIENCE);
        let dripping = tokio::spawn(async move {
            while theirs.read_u8().await.is_ok() {
                sleep(Duration::from_secs(10)).await;
            }
        });
        assert!(within_a_day(ours.write_all(&[7; 2 << 10])).await.is_err());
        dripping.abort();

        let (ours, mut theirs) = duplex(1 << 20);
        let mut ours = Paced::new(ours, PATIENCE);
        let reader = tokio::spawn(async move {
            let (mut piece, mut all) = (vec![0; 1 << 20], 0);
            loop {
                match theirs.read(&mut piece).await.unwrap() {
                    0 => return all,
                    read => all += read,
                }
                sleep(Duration::from_secs(10)).await;
            }
        });
        // Silence is no fault of the reader.
        sleep(10 * PATIENCE).await;
        ours.write_all(&vec![7; 20 << 20]).await.unwrap();
        drop(ours);
        assert_eq!(reader.await.unwrap(), 20 << 20);
    }
}
