//! Reads what an instance's processes write to descriptors 1 and 2, around its guest.
//!
//! ```text
//!   C libraries, os.write(1, …), subprocesses, /dev/stdout ─► pipe ─► Drain ─► whole lines ─► Relay
//! ```
//!
//! What was written before the guest answered is in the pipe when the answer arrives, so that each call gets its own. A process
//! that writes faster than the worker reads waits, as at any pipe. After [`FREELY`] bytes of a call the worker reads slower: a
//! flood costs it little.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use sandbox::wire::LogStream;
use tokio::net::unix::pipe::Receiver;
use tokio::task::consume_budget;

use crate::relay::Relay;

/// Bytes read at once: what a pipe holds by default (pipe(7)).
const READ: usize = 64 << 10;

/// Bytes of one call that are read as fast as they come, and the most that are read when it is over: no sandbox's pipe holds
/// more (`fs.pipe-max-size`, proc_sys_fs(5)).
const FREELY: usize = 1 << 20;

/// The wait before each read beyond these: 64 MB/s at most.
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
}

impl Drain {
    /// Of an instance's [`output`](sandbox::Instance::output).
    pub(crate) fn new(pipe: Option<OwnedFd>) -> io::Result<Self> {
        let pipe = pipe.map(Receiver::from_owned_fd).transpose()?;
        Ok(Self { pipe, line: Vec::new(), read: 0 })
    }

    /// Waits until something is written during a call, and passes it on. May be dropped while it waits: nothing is lost.
    pub(crate) async fn pass(&mut self, relay: &mut Relay, during: &str) {
        let Some(pipe) = &self.pipe else {
            return std::future::pending().await;
        };
        if self.read >= FREELY {
            tokio::time::sleep(BETWEEN).await;
        }
        // What is never found empty is ready without taking any of the task's budget.
        consume_budget().await;
        let ready = pipe.readable().await;
        self.line.reserve(READ);
        let found = ready.and_then(|()| pipe.try_read_buf(&mut self.line));
        self.take(found, relay, during);
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
        let ready = if self.line.len() - whole >= READ { self.line.len() } else { whole };
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
