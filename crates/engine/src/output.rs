//! Output of handlers, in pieces, and the bytes that these take in a log.
//!
//! ```text
//!   2026-11-21T21:15:38.123Z 6f9c…-… stdout the text ⏎        one such line for each line of text
//!   └─────────── 33 bytes and the id ───────┘
//! ```
//!
//! An empty line takes all of the prefix: counting only the text would count a seventieth of it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sandbox::wire::LogStream;

use crate::handler::Handler;

/// Bytes in front of a line's text, beside its invocation's id: when it was written, on which
/// stream, and the spaces between.
const IN_FRONT: usize = 33;

/// A byte, or a few, that are no UTF-8 are replaced by a character of so many bytes.
const REPLACED: usize = 3;

/// A piece of a handler's output.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// The handler that wrote it.
    pub handler: Arc<Handler>,
    /// During which invocation; empty while loading.
    pub invocation: String,
    /// The stream that it was written to.
    pub stream: LogStream,
    /// What it wrote: whole lines where possible, at most 64 KiB.
    pub text: Bytes,
}

impl LogLine {
    /// Bytes that it takes in a log: its text, and for each line of it what says whose it is.
    /// Carriage returns that a log leaves out count, too.
    #[must_use]
    pub fn weight(&self) -> usize {
        weight(&self.text, in_front(&self.invocation))
    }
}

/// Where output goes. Must not block: it is called on the call's path.
pub trait LogSink: Send + Sync + fmt::Debug {
    /// Takes one piece; drops it (and counts that) rather than wait.
    fn write(&self, line: LogLine);
}

/// Bytes in front of each line of an invocation.
pub(crate) fn in_front(invocation: &str) -> usize {
    // A dash stands for none.
    IN_FRONT + invocation.len().max(1)
}

/// The length of a text's first piece, at most `most`: it ends behind a line, else between two
/// characters.
pub(crate) fn first_piece(text: &[u8], most: usize) -> usize {
    let Some(begin) = text.get(..most).filter(|_| text.len() > most) else { return text.len() };
    let line = begin.iter().rposition(|byte| *byte == b'\n');
    line.map_or_else(|| whole_characters(begin), |end| end + 1)
}

/// The length of a text without the character at its end, if that is incomplete (RFC 3629, 3).
pub(crate) fn whole_characters(text: &[u8]) -> usize {
    for (missing_from, byte) in (1..4).zip(text.iter().rev()) {
        let needed = match byte {
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => 1,
        };
        return text.len() - if needed > missing_from { missing_from } else { 0 };
    }
    text.len()
}

/// How many bytes of a text's beginning take no more than `room`: whole lines if any fit, else a
/// part of the first.
pub(crate) fn fitting(text: &[u8], in_front: usize, room: usize) -> usize {
    let Some(of_text) = room.checked_sub(in_front + 1) else { return 0 };
    if weight(text, in_front) <= room {
        return text.len();
    }
    let (mut fits, mut left) = (0, room);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(rest) = left.checked_sub(weight(line, in_front)) else { break };
        (fits, left) = (fits + line.len(), rest);
    }
    if fits > 0 {
        return fits;
    }
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match str::from_utf8(line) {
        Ok(line) => line.floor_char_boundary(of_text),
        Err(_) => line.len().min(of_text / REPLACED),
    }
}

/// Bytes that a text takes in a log, with so many in front of each of its lines.
pub(crate) fn weight(text: &[u8], in_front: usize) -> usize {
    // The end of the last line counts whether it is there or not: in the log it is.
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let lines = 1 + text.iter().filter(|byte| **byte == b'\n').count();
    lines * in_front + shown(text) + 1
}

/// Bytes of a text when whatever is no UTF-8 is replaced.
fn shown(text: &[u8]) -> usize {
    if str::from_utf8(text).is_ok() {
        return text.len();
    }
    let chunks = text.utf8_chunks();
    chunks.map(|c| c.valid().len() + if c.invalid().is_empty() { 0 } else { REPLACED }).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_fits_takes_no_more_than_there_is_and_a_byte_more_would_not_fit(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'x'), Just(0xc3), Just(0xa4)], 0..200),
            room in 0usize..3000,
        ) {
            let (mut rest, mut left) = (&text[..], room);
            loop {
                let fits = fitting(rest, 40, left);
                if fits == 0 {
                    break;
                }
                let takes = weight(&rest[..fits], 40);
                prop_assert!(takes <= left, "{} of {}", takes, left);
                (rest, left) = (&rest[fits..], left - takes);
            }
            // A character of two bytes, or a byte that becomes three, may be what is too long.
            prop_assert!(rest.is_empty() || left < 40 + 1 + REPLACED, "{} left for {:?}", left, rest);
        }
    }

    #[test]
    fn every_line_of_a_piece_weighs_what_says_whose_it_is() {
        assert_eq!(weight(b"one\n", 70), 74);
        assert_eq!(weight(b"one", 70), 74);
        assert_eq!(weight(b"one\ntwo", 70), 148);
        assert_eq!(weight(&[b'\n'; 1000], 70), 71_000);
        assert_eq!(weight(b"\xff\xff\n", 70), 77);
    }
}
