//! Passes a handler's output on, and no more of it than one call may write.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use sandbox::InvocationId;
use sandbox::wire::LogStream;

use crate::handler::Handler;
use crate::output::{LogLine, LogSink, first_piece, fitting, in_front, weight};

/// Longest text of a piece that a sink gets, in bytes.
const PIECE: usize = 64 << 10;

/// What a piece takes in a log at most, in bytes: as much again as its text where its lines are
/// short.
const PIECE_IN_LOG: usize = 2 * PIECE;

/// The way of one call's output. When it is dropped, however the call ended, it says what did not
/// fit.
#[derive(Debug)]
pub(crate) struct Relay {
    sink: Arc<dyn LogSink>,
    handler: Arc<Handler>,
    invocation: InvocationId,
    left: usize,
    dropped: u64,
    /// Messages that are still read of its guest.
    messages: u64,
    /// The end of what was passed on, if that is wanted.
    tail: Option<Vec<u8>>,
    /// What stands before anything else that is written: of a call that writes nothing, all is one piece.
    first: String,
}

/// Bytes of a call's output that its caller may get.
const TAIL: usize = 4096;

impl Relay {
    pub(crate) fn new(
        sink: Arc<dyn LogSink>,
        handler: Arc<Handler>,
        invocation: InvocationId,
        (bytes, messages): (usize, u64),
    ) -> Self {
        let (tail, first) = (None, String::new());
        Self { sink, handler, invocation, left: bytes, dropped: 0, messages, tail, first }
    }

    /// The same, which keeps the end of what is passed on.
    pub(crate) fn keeping_tail(mut self, keeps: bool) -> Self {
        self.tail = keeps.then(Vec::new);
        self
    }

    /// The last [`TAIL`] bytes that were passed on; none, if they were not kept.
    pub(crate) fn take_tail(&mut self) -> Vec<u8> {
        self.tail.take().unwrap_or_default()
    }

    /// Writes words of the worker's own before what is written next, and with it.
    pub(crate) fn tell_first(&mut self, text: String) {
        self.first = text;
    }

    /// Writes words of the worker's own, which count for nothing.
    pub(crate) fn tell(&mut self, text: String) {
        let text = std::mem::take(&mut self.first) + &text;
        if let Some(tail) = &mut self.tail
            && tail.last().is_some_and(|byte| *byte != b'\n')
        {
            tail.push(b'\n');
        }
        self.write(self.invocation.to_string(), LogStream::Worker, text.into());
    }

    /// Counts a message of the guest's. False: it is one more than are read for a call.
    pub(crate) fn counts(&mut self) -> bool {
        let left = self.messages.checked_sub(1);
        self.messages = left.unwrap_or(0);
        left.is_some()
    }

    /// Passes on what the guest says was written during `claim`. What stands in front of each line
    /// in the log counts as the text does, and so does the header in which the guest says whose it
    /// is, where that is longer: one piece for every byte, or a newline for every byte, would else
    /// cost a hundred times what it may.
    pub(crate) fn pass(
        &mut self,
        claim: String,
        stream: LogStream,
        text: Vec<u8>,
        header_bytes: usize,
    ) {
        // The guest may say what it likes; a name that could break a log line is replaced by the
        // true one.
        let harmless = claim.is_empty() || claim.parse::<InvocationId>().is_ok();
        let invocation = if harmless { claim } else { self.invocation.to_string() };
        self.left = self.left.saturating_sub(header_bytes.saturating_sub(in_front(&invocation)));
        let mut text = Bytes::from(text);
        while !text.is_empty() {
            let piece = self.next_piece(&mut text, &invocation);
            if piece.is_empty() {
                break;
            }
            self.write(invocation.clone(), stream, piece);
        }
        self.dropped += text.len() as u64;
    }

    /// Takes what fits into one piece, and into what is left to the call; nothing, if nothing does.
    fn next_piece(&mut self, text: &mut Bytes, invocation: &str) -> Bytes {
        let (in_front, most) = (in_front(invocation), &text[..first_piece(text, PIECE)]);
        let piece = text.slice(..fitting(most, in_front, self.left.min(PIECE_IN_LOG)));
        if !piece.is_empty() {
            self.left = self.left.saturating_sub(weight(&piece, in_front));
            text.advance(piece.len());
        }
        piece
    }

    fn write(&mut self, invocation: String, stream: LogStream, text: Bytes) {
        self.write_first();
        if let Some(tail) = &mut self.tail {
            tail.extend_from_slice(&text[text.len().saturating_sub(TAIL)..]);
            tail.drain(..tail.len().saturating_sub(TAIL));
        }
        self.sink.write(LogLine { handler: Arc::clone(&self.handler), invocation, stream, text });
    }

    fn write_first(&mut self) {
        let first = std::mem::take(&mut self.first);
        if !first.is_empty() {
            self.write(self.invocation.to_string(), LogStream::Worker, first.into());
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The call was given up before its end.
        self.write_first();
        if self.dropped > 0 {
            let text = format!("lambswool: {} more bytes of output were dropped\n", self.dropped);
            self.write(self.invocation.to_string(), LogStream::Stderr, text.into());
        }
    }
}
