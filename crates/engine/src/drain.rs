//! Reads what an instance's processes write to descriptors 1 and 2, beside its channel.
//!
//! ```text
//!   C libraries, os.write(1, …), subprocesses, /dev/stdout ─► pipe ─► Drain ─► whole lines ─► Relay
//! ```
//!
//! What was written before the guest answered is in the pipe when the answer arrives, so that each
//! call gets its own output. A process that writes faster than the worker reads blocks, as at any
//! pipe. After [`FREELY`] bytes of a call the worker reads slower: a flood costs it little.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use sandbox::wire::LogStream;
use tokio::net::unix::pipe::Receiver;
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep_until};

use crate::output::whole_characters;
use crate::relay::Relay;

/// Bytes read at once: what a pipe holds by default (pipe(7)).
const READ: usize = 64 << 10;

/// Bytes of one call that are read as fast as they come, and the most that are read when it is
/// over: no sandbox's pipe holds more (`fs.pipe-max-size`, proc_sys_fs(5)).
const FREELY: usize = 1 << 20;

/// The time from one read to the next beyond these: 64 MB/s at most.
const BETWEEN: Duration = Duration::from_millis(1);

/// The worker's end of an instance's output.
#[derive(Debug)]
pub(crate) struct Drain {
    /// None in a machine, and after the last writer has closed its end.
    pipe: Option<Receiver>,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// Bytes read during this call.
    read: usize,
    /// When the next read may happen, of a call with more than [`FREELY`]. It is kept because each
    /// message of the guest's drops [`pass`](Drain::pass) and calls it anew.
    next: Instant,
}

impl Drain {
    /// Of an instance's [`output`](sandbox::Instance::output).
    pub(crate) fn new(pipe: Option<OwnedFd>) -> io::Result<Self> {
        let pipe = pipe.map(Receiver::from_owned_fd).transpose()?;
        Ok(Self { pipe, line: Vec::new(), read: 0, next: Instant::now() })
    }

    /// Waits until something is written during a call, and passes it on. May be dropped while it
    /// waits: nothing is lost.
    pub(crate) async fn pass(&mut self, relay: &mut Relay, during: &str) {
        let Some(pipe) = &self.pipe else {
            return std::future::pending().await;
        };
        if self.read >= FREELY {
            sleep_until(self.next).await;
        }
        // What is never found empty is ready without taking any of the task's budget.
        consume_budget().await;
        let ready = pipe.readable().await;
        self.line.reserve(READ);
        let found = ready.and_then(|()| pipe.try_read_buf(&mut self.line));
        self.take(found, relay, during);
        if self.read >= FREELY {
            self.next = Instant::now() + BETWEEN;
        }
    }

    /// Passes on what is there when a call is over, the beginning of a line too.
    pub(crate) fn finish(&mut self, relay: &mut Relay, during: &str) {
        for _ in 0..FREELY / READ {
            // Asks the kernel. The runtime may not know yet that there is something.
            let Some(Ok(pipe)) = self.pipe.as_ref().map(|pipe| pipe.as_fd().try_clone_to_owned())
            else {
                break;
            };
            let found = File::from(pipe).take(READ as u64).read_to_end(&mut self.line);
            let all = !matches!(found, Ok(READ));
            self.take(found, relay, during);
            if all {
                break;
            }
        }
        self.read = 0;
        let rest = std::mem::take(&mut self.line);
        pass(rest, relay, during);
    }

    /// What is in the line beyond its beginning has just been read.
    fn take(&mut self, found: io::Result<usize>, relay: &mut Relay, during: &str) {
        match found {
            Ok(count) if count > 0 => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => self.pipe = None,
        }
        let whole = self.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let long = self.line.len() - whole >= READ;
        let ready = if long { whole_characters(&self.line) } else { whole };
        let rest = self.line.split_off(ready);
        let text = std::mem::replace(&mut self.line, rest);
        self.read += text.len();
        pass(text, relay, during);
    }
}

fn pass(text: Vec<u8>, relay: &mut Relay, during: &str) {
    if !text.is_empty() {
        relay.pass(during.to_owned(), LogStream::Stderr, text, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::io::{PipeWriter, Write as _};
    use std::pin::pin;
    use std::sync::{Arc, Mutex};
    use std::task::Poll;

    use super::*;
    use crate::handler::tests::handler;
    use crate::output::{LogLine, LogSink};

    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<Vec<u8>>>);

    impl LogSink for Kept {
        fn write(&self, line: LogLine) {
            self.0.lock().unwrap().push(line.text.to_vec());
        }
    }

    fn drained() -> (Drain, PipeWriter, Relay, Arc<Kept>) {
        let (output, written) = std::io::pipe().unwrap();
        let (sink, allowed) = (Arc::new(Kept::default()), (64 << 20, u64::MAX));
        let relay = Relay::new(sink.clone(), Arc::new(handler()), "call".parse().unwrap(), allowed);
        (Drain::new(Some(output.into())).unwrap(), written, relay, sink)
    }

    async fn pieces_of(text: Vec<u8>) -> Vec<Vec<u8>> {
        let (mut drain, mut written, mut relay, sink) = drained();
        let expected = text.clone();
        let writer = std::thread::spawn(move || written.write_all(&text).unwrap());
        while drain.pipe.is_some() {
            drain.pass(&mut relay, "call").await;
        }
        writer.join().unwrap();
        drain.finish(&mut relay, "call");
        let pieces = std::mem::take(&mut *sink.0.lock().unwrap());
        assert!(pieces.concat() == expected);
        pieces
    }

    #[tokio::test]
    async fn a_line_longer_than_a_piece_is_cut_between_characters() {
        for character in ["\u{e9}", "\u{4e16}", "\u{1f411}"] {
            for shift in 0..character.len() {
                let text = format!("{}{}\n", "x".repeat(shift), character.repeat(100_000));
                for piece in pieces_of(text.into_bytes()).await {
                    assert!(str::from_utf8(&piece).is_ok(), "{character} shifted by {shift}");
                }
            }
        }
        // What is no UTF-8 is passed on as well.
        for byte in [0x80, 0xc3, 0xf0, 0xff] {
            pieces_of(vec![byte; 300_000]).await;
        }
    }

    #[tokio::test]
    async fn lines_shorter_than_a_piece_are_not_cut() {
        let line = format!("{}\n", "x".repeat(998));
        for piece in pieces_of(line.repeat(3000).into_bytes()).await {
            assert_eq!(piece.len() % line.len(), 0);
        }
    }

    #[tokio::test]
    async fn a_flood_is_read_however_often_the_guest_says_something_meanwhile() {
        let (mut drain, mut written, mut relay, _) = drained();
        let writer = std::thread::spawn(move || written.write_all(&vec![b'\n'; FREELY << 1]));
        let begin = Instant::now();
        while drain.pipe.is_some() {
            assert!(begin.elapsed() < Duration::from_secs(5), "{} bytes were read", drain.read);
            // As where a message arrives each time.
            let mut pass = pin!(drain.pass(&mut relay, "call"));
            poll_fn(|context| Poll::Ready(pass.as_mut().poll(context).is_ready())).await;
            tokio::task::yield_now().await;
        }
        writer.join().unwrap().unwrap();
        assert_eq!(drain.read, FREELY << 1);
        // 1 MiB in reads of 64 KiB, with 1 ms between two of them.
        assert!(begin.elapsed() >= Duration::from_millis(15), "{:?}", begin.elapsed());
    }
}
