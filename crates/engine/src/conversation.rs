//! The messages between the engine and one guest, on the instance's channel.
//!
//! ```text
//!   open ──► Load sent ──loaded──► ready for calls ──Invoke──► … ──done | failed──► ready for calls
//! ```
//!
//! Any other message ends the conversation for good ([`ConversationError`]): the caller destroys the
//! instance. `Load` is sent without waiting for the guest's `ready`, whether that arrives here or
//! was read by the provider.
//!
//! Output that the instance's processes write beside the channel is read meanwhile ([`Drain`]);
//! otherwise they would block.
//!
//! Reading goes on while a request is being written: a guest that fills its channel with output
//! before it reads its call would otherwise deadlock with the engine.

use std::io;
use std::os::fd::OwnedFd;

use sandbox::wire::{Decoder, FrameError, LogStream, MessageError, Reply, Request};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::consume_budget;
use zeroize::Zeroize as _;

use crate::drain::Drain;
use crate::relay::Relay;

const READ: usize = 16 << 10;

/// Output of the guest comes in frames as long as this, whatever a reply may measure.
const LOG_FRAME: usize = 64 << 10;

/// What the guest says of its imports is no longer.
const IMPORTS_FRAME: usize = 1 << 20;

/// A channel and what is under way on it.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: UnixStream,
    output: Drain,
    decoder: Decoder,
    reply_bytes: usize,
    outgoing: Vec<u8>,
    sent: usize,
    /// The first request is still in there: a load, which may carry secrets.
    holds_load: bool,
}

/// Why a conversation ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConversationError {
    /// The guest's end is closed: its process ended.
    Closed,
    /// The guest said what it should not.
    Protocol(String),
    /// Its answer has more bytes than are accepted.
    TooLong {
        /// Its bytes, as they are sent.
        length: usize,
        /// How many are accepted.
        limit: usize,
    },
}

impl Conversation {
    /// Starts with `first`, which is on its way when this returns. `output`: see
    /// [`Instance::output`](sandbox::Instance).
    pub(crate) fn open(
        channel: OwnedFd,
        output: Option<OwnedFd>,
        reply_bytes: usize,
        first: &Request,
    ) -> io::Result<Self> {
        let stream = std::os::unix::net::UnixStream::from(channel);
        // The seam promises it; tokio panics on the contrary, and no sandbox may bring that about.
        stream.set_nonblocking(true)?;
        let mut outgoing = Vec::new();
        first.encode(b"", &mut outgoing).map_err(io::Error::other)?;
        // Before tokio knows the socket: registering it first costs a turn of the event loop. What
        // fails here fails again, and is told, when the reply is awaited.
        let sent = io::Write::write(&mut &stream, &outgoing).unwrap_or(0);
        let holds_load = sent < outgoing.len();
        if !holds_load {
            outgoing.zeroize();
        }
        let stream = UnixStream::from_std(stream);
        let sent = if holds_load { sent } else { 0 };
        let decoder = Decoder::new(reply_bytes.max(LOG_FRAME).max(IMPORTS_FRAME));
        let output = Drain::new(output)?;
        Ok(Self { stream: stream?, output, decoder, reply_bytes, outgoing, sent, holds_load })
    }

    /// Puts a request behind what is on its way already.
    pub(crate) fn send(&mut self, request: &Request, body: &[u8]) -> Result<(), ConversationError> {
        request.encode(body, &mut self.outgoing).map_err(protocol)
    }

    /// Writes what is left to write and reads until something else than output arrives. What is
    /// written around the guest is passed on as written `during` a call.
    pub(crate) async fn reply(
        &mut self,
        relay: &mut Relay,
        during: &str,
    ) -> Result<(Reply, Vec<u8>), ConversationError> {
        let mut buffer = vec![0; READ];
        loop {
            if let Some((reply, body)) = self.decoded(relay).await? {
                if self.sent < self.outgoing.len() && !matches!(reply, Reply::Ready { .. }) {
                    return Err(ConversationError::Protocol(
                        "it answered before it had read its call".to_owned(),
                    ));
                }
                self.output.finish(relay, during);
                return Ok((reply, body));
            }
            self.write()?;
            let unsent = self.sent < self.outgoing.len();
            let interest =
                if unsent { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            tokio::select! {
                biased;
                // First: a guest that never pauses would keep it from being read. It paces itself.
                () = self.output.pass(relay, during) => {}
                ready = self.stream.ready(interest) => {
                    if ready.map_err(|_| ConversationError::Closed)?.is_readable() {
                        self.read(&mut buffer)?;
                    }
                }
            }
        }
    }

    /// Passes on what was written around a guest that says nothing more.
    pub(crate) fn hear_out(&mut self, relay: &mut Relay, during: &str) {
        self.output.finish(relay, during);
    }

    /// Takes what arrived whole, passing output on.
    async fn decoded(
        &mut self,
        relay: &mut Relay,
    ) -> Result<Option<(Reply, Vec<u8>)>, ConversationError> {
        loop {
            // A socket that `try_read` never found empty is ready without taking any of the task's
            // budget (tokio 1.54): a guest that writes faster than we read would keep the thread,
            // and no deadline would be looked at.
            consume_budget().await;
            let frame = self.decoder.next_frame().map_err(|error| match error {
                FrameError::BodyTooLong { length, .. } => too_long(length, self.reply_bytes),
                error => protocol(error.into()),
            })?;
            let Some(frame) = frame else { return Ok(None) };
            if !relay.counts() {
                let words = "it sent more messages than are read for one call";
                return Err(ConversationError::Protocol(words.to_owned()));
            }
            let header_bytes = frame.header.len();
            match Reply::decode(frame).map_err(protocol)? {
                (Reply::Log { id, stream }, text) => relay.pass(id, stream, text, header_bytes),
                (reply, body) => {
                    // What a handler imports is no part of what it answers.
                    let limit = match reply {
                        Reply::Imports {} => IMPORTS_FRAME,
                        _ => self.reply_bytes,
                    };
                    let length = body.len();
                    if length > limit {
                        return Err(too_long(length, limit));
                    }
                    return Ok(Some((reply, body)));
                }
            }
        }
    }

    fn write(&mut self) -> Result<(), ConversationError> {
        while self.sent < self.outgoing.len() {
            match self.stream.try_write(&self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Its end is closed. What it said before that is still to be read, and then the end
                // is seen.
                Err(_) => self.sent = self.outgoing.len(),
            }
        }
        // Give a large body's memory back: an idle instance should weigh little here, too.
        self.overwrite_load();
        self.outgoing = Vec::new();
        self.sent = 0;
        Ok(())
    }

    /// No secret stays in this process's memory once it has been sent.
    fn overwrite_load(&mut self) {
        if std::mem::take(&mut self.holds_load) {
            self.outgoing.zeroize();
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<(), ConversationError> {
        match self.stream.try_read(buffer) {
            Ok(0) => Err(ConversationError::Closed),
            Ok(count) => {
                self.decoder.push(&buffer[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(ConversationError::Closed),
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.overwrite_load();
    }
}

fn too_long(length: usize, limit: usize) -> ConversationError {
    ConversationError::TooLong { length, limit }
}

fn protocol(error: MessageError) -> ConversationError {
    ConversationError::Protocol(error.to_string())
}

/// The error for an unexpected reply.
pub(crate) fn unexpected(reply: &Reply) -> ConversationError {
    let name = match reply {
        Reply::Ready { .. } => "ready",
        Reply::Imports {} => "imports",
        Reply::Loaded { .. } => "loaded",
        Reply::Log { stream: LogStream::Stdout, .. } => "stdout",
        Reply::Log { stream: LogStream::Stderr, .. } => "stderr",
        Reply::Log { stream: LogStream::Worker, .. } => "worker",
        Reply::Part { .. } => "part",
        Reply::Done { .. } => "done",
        Reply::Failed { .. } => "failed",
    };
    ConversationError::Protocol(format!("`{name}` was not expected, or names another invocation"))
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::io::Write as _;
    use std::pin::pin;
    use std::sync::Arc;

    use super::*;
    use crate::handler::tests::handler;
    use crate::output::{LogLine, LogSink};

    #[derive(Debug)]
    struct Nowhere;

    impl LogSink for Nowhere {
        fn write(&self, _: LogLine) {}
    }

    #[tokio::test]
    async fn whoever_sends_many_messages_leaves_others_their_turns() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut talk = Conversation::open(ours.into(), None, 1 << 20, &Request::Wake {}).unwrap();
        let (sink, allowed) = (Arc::new(Nowhere), (1 << 20, u64::MAX));
        let mut relay = Relay::new(sink, Arc::new(handler()), "call".parse().unwrap(), allowed);
        let mut said = Vec::new();
        for _ in 0..1000 {
            let line = Reply::Log { id: String::new(), stream: LogStream::Stdout };
            line.encode(b"", &mut said).unwrap();
        }
        let last = Reply::Loaded { milliseconds: 1.0 };
        last.encode(b"", &mut said).unwrap();
        theirs.write_all(&said).unwrap();
        let (mut reply, mut turns) = (pin!(talk.reply(&mut relay, "")), 0);
        let heard = poll_fn(|context| {
            turns += 1;
            reply.as_mut().poll(context)
        });
        assert_eq!(heard.await, Ok((last, Vec::new())));
        assert!(turns > 5, "all of them in {turns} turns");
    }

    #[derive(Debug, Default)]
    struct Kept(std::sync::Mutex<Vec<(String, Vec<u8>)>>);

    impl LogSink for Kept {
        fn write(&self, line: LogLine) {
            self.0.lock().unwrap().push((line.invocation, line.text.to_vec()));
        }
    }

    #[tokio::test]
    async fn what_was_written_before_an_answer_is_passed_on_with_it() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (output, mut written) = std::io::pipe().unwrap();
        let (sink, allowed) = (Arc::new(Kept::default()), (1 << 20, u64::MAX));
        let open = Conversation::open(ours.into(), Some(output.into()), 1 << 20, &Request::Wake {});
        let mut talk = open.unwrap();
        for call in ["one", "two"] {
            let mut relay =
                Relay::new(sink.clone(), Arc::new(handler()), call.parse().unwrap(), allowed);
            written.write_all(format!("by {call}\nthe rest of {call}").as_bytes()).unwrap();
            let (mut said, answer) = (Vec::new(), Reply::Loaded { milliseconds: 1.0 });
            answer.encode(b"", &mut said).unwrap();
            theirs.write_all(&said).unwrap();
            assert_eq!(talk.reply(&mut relay, call).await, Ok((answer, Vec::new())));
            let heard = std::mem::take(&mut *sink.0.lock().unwrap());
            let of = |text: String| (call.to_owned(), text.into_bytes());
            assert_eq!(heard, [of(format!("by {call}\n")), of(format!("the rest of {call}"))]);
        }
    }
}
