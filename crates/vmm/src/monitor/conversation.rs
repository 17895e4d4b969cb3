//! A clone's channel, from the guest's side.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use sandbox::wire::{Frame, MAX_HEADER_BYTES, Reply};

/// The monitor's end of an instance's channel.
#[derive(Clone, Debug)]
pub(super) struct Channel(Arc<OwnedFd>);

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(Arc::new(socket))
    }

    /// The socket, to be watched for the other end's closing.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.0
    }

    /// Waits for bytes to read. 0: the other end is closed.
    pub(super) fn read(&self, buffer: &mut [u8]) -> usize {
        loop {
            match rustix::io::read(&*self.0, &mut *buffer) {
                Err(Errno::INTR) => {}
                other => return other.unwrap_or(0),
            }
        }
    }

    /// Writes all bytes, waiting for room. False: the other end is closed.
    pub(super) fn write(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match send(&*self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Waits until the other end is closed.
    pub(super) fn outlast(&self) {
        let mut buffer = [0; 4096];
        while self.read(&mut buffer) > 0 {}
    }

    /// Shuts the channel down. The other end notices at once, even if another thread holds this
    /// one.
    pub(super) fn close(&self) {
        let _ = shutdown(&*self.0, Shutdown::Both);
    }
}

/// Finds the ends of frames (`sandbox::wire`) in a stream.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    prefix: Vec<u8>,
    left: u64,
}

impl Boundary {
    const PREFIX: usize = 8;

    /// Takes bytes up to the end of a frame; returns how many.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            if self.left > 0 {
                let rest = (bytes.len() - taken) as u64;
                let step = self.left.min(rest);
                self.left -= step;
                taken += usize::try_from(step).unwrap_or(usize::MAX);
                if self.left == 0 {
                    self.prefix.clear();
                    return taken;
                }
                continue;
            }
            self.prefix.push(bytes[taken]);
            taken += 1;
            if self.prefix.len() == Self::PREFIX {
                let length = |at: usize| {
                    let bytes = &self.prefix[at..at + 4];
                    u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
                };
                self.left = length(0) + length(4);
                if self.left == 0 {
                    self.prefix.clear();
                    return taken;
                }
            }
        }
        taken
    }

    /// Whether all frames so far are complete.
    pub(super) fn is_between(&self) -> bool {
        self.prefix.is_empty() && self.left == 0
    }
}

/// Finds the end of the answer to a call among a guest's frames.
#[derive(Debug, Default)]
pub(super) struct Answer {
    boundary: Boundary,
    /// The frame's prefix, and its header as far as it has come.
    beginning: Vec<u8>,
    whole: bool,
}

impl Answer {
    /// Takes bytes up to the end of the answer; returns how many.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && !self.whole {
            let count = self.boundary.take(&bytes[taken..]);
            let room = Boundary::PREFIX + MAX_HEADER_BYTES - self.beginning.len();
            self.beginning.extend(&bytes[taken..taken + count.min(room)]);
            taken += count;
            if self.boundary.is_between() {
                self.whole = is_answer(&self.beginning);
                self.beginning.clear();
            }
        }
        taken
    }

    /// Whether the answer is complete.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }
}

/// Whether a frame that begins like this answers a call.
fn is_answer(beginning: &[u8]) -> bool {
    let Some((prefix, rest)) = beginning.split_first_chunk::<{ Boundary::PREFIX }>() else {
        return false;
    };
    let length = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
    let header = rest.get(..length).map(<[u8]>::to_vec);
    let frame = header.map(|header| Frame { header, body: Vec::new() });
    let reply = frame.and_then(|frame| Reply::decode(frame).ok());
    matches!(reply, Some((Reply::Done { .. } | Reply::Failed { .. }, _)))
}

#[cfg(test)]
mod tests {
    use sandbox::wire::LogStream;

    use super::*;

    #[test]
    fn a_frame_ends_where_it_says_however_it_is_cut() {
        let mut stream = Vec::new();
        let mut ends = Vec::new();
        for (header, body) in [(&b"abc"[..], &b"12345"[..]), (b"", b""), (b"x", b""), (b"", b"yz")]
        {
            Frame::encode(header, body, &mut stream).unwrap();
            ends.push(stream.len());
        }
        for step in 1..stream.len() {
            let (mut boundary, mut at, mut seen) = (Boundary::default(), 0, Vec::new());
            while at < stream.len() {
                at += boundary.take(&stream[at..stream.len().min(at + step)]);
                if boundary.is_between() {
                    seen.push(at);
                }
            }
            assert_eq!(seen, ends, "in pieces of {step}");
        }
    }

    #[test]
    fn nothing_is_of_a_call_behind_its_answer_however_it_is_cut() {
        let id = "one".to_owned();
        let log = Reply::Log { id: id.clone(), stream: LogStream::Stdout };
        let done = Reply::Done { id, content_type: "application/json".to_owned() };
        let mut stream = Vec::new();
        // Text that looks like an answer is not one.
        let mut text = Vec::new();
        done.encode(b"1", &mut text).unwrap();
        log.encode(&text, &mut stream).unwrap();
        Frame::encode(b"no message", b"", &mut stream).unwrap();
        done.encode(b"{\"a\": 1}", &mut stream).unwrap();
        let end = stream.len();
        done.encode(b"another", &mut stream).unwrap();
        for step in 1..stream.len() {
            let (mut answer, mut at) = (Answer::default(), 0);
            for piece in stream.chunks(step) {
                assert!(!answer.is_whole() || at == end, "in pieces of {step}");
                at += answer.take(piece);
            }
            assert!(answer.is_whole());
            assert_eq!(at, end, "in pieces of {step}");
        }
    }
}
