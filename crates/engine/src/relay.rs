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
}

impl Relay {
    pub(crate) fn new(
        sink: Arc<dyn LogSink>,
        handler: Arc<Handler>,
        invocation: InvocationId,
        limit: usize,
    ) -> Self {
        Self { sink, handler, invocation, left: limit, dropped: 0 }
    }

    /// Passes on what the guest says was written during `claim`.
    pub(crate) fn pass(&mut self, claim: String, stream: LogStream, text: Vec<u8>) {
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
