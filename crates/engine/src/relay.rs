//! Passes a handler's output on, and no more of it than one call may write.

use std::sync::Arc;

use bytes::Bytes;
use sandbox::InvocationId;
use sandbox::wire::LogStream;

use crate::call::{Handler, LogLine, LogSink};

/// Longest piece that a sink gets, in bytes.
const PIECE: usize = 64 << 10;

/// The way of one call's output. When it is dropped, however the call ended, it says what did not fit.
#[derive(Debug)]
pub(crate) struct Relay {
    sink: Arc<dyn LogSink>,
    handler: Arc<Handler>,
    invocation: InvocationId,
    left: usize,
    dropped: u64,
    /// Messages that are still read of its guest.
    messages: u64,
}

impl Relay {
    pub(crate) fn new(
        sink: Arc<dyn LogSink>,
        handler: Arc<Handler>,
        invocation: InvocationId,
        (bytes, messages): (usize, u64),
    ) -> Self {
        Self { sink, handler, invocation, left: bytes, dropped: 0, messages }
    }

    /// Counts a message of the guest's. False: it is one more than are read for a call.
    pub(crate) fn counts(&mut self) -> bool {
        let left = self.messages.checked_sub(1);
        self.messages = left.unwrap_or(0);
        left.is_some()
    }

    /// Passes on what the guest says was written during `claim`. The bytes in which it says so count as those of the text:
    /// one piece for every byte would else cost a hundred times what it may.
    pub(crate) fn pass(
        &mut self,
        claim: String,
        stream: LogStream,
        text: Vec<u8>,
        header_bytes: usize,
    ) {
        self.left = self.left.saturating_sub(header_bytes);
        let mut text = Bytes::from(text);
        let fits = text.len().min(self.left);
        self.left -= fits;
        self.dropped += (text.len() - fits) as u64;
        text.truncate(fits);
        // The guest may say what it likes; a name that could break a log line is replaced by the true one.
        let harmless = claim.is_empty() || claim.parse::<InvocationId>().is_ok();
        let invocation = if harmless { claim } else { self.invocation.to_string() };
        while !text.is_empty() {
            let piece = text.split_to(text.len().min(PIECE));
            self.write(invocation.clone(), stream, piece);
        }
    }

    fn write(&self, invocation: String, stream: LogStream, text: Bytes) {
        self.sink.write(LogLine { handler: Arc::clone(&self.handler), invocation, stream, text });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.dropped > 0 {
            let text = format!("lambswool: {} more bytes of output were dropped\n", self.dropped);
            self.write(self.invocation.to_string(), LogStream::Stderr, text.into());
        }
    }
}
