//! Frames: a header and a body with their lengths in front.

use thiserror::Error;

/// Longest header that either side accepts, in bytes.
pub const MAX_HEADER_BYTES: usize = 256 << 10;

const PREFIX: usize = 8;

/// The two lengths at the start of a frame, for readers that stream a body instead of holding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Length of the header, in bytes.
    pub header: usize,
    /// Length of the body, in bytes.
    pub body: usize,
}

impl Prefix {
    /// Length of an encoded prefix, in bytes.
    pub const BYTES: usize = PREFIX;

    /// Decodes the lengths.
    ///
    /// # Errors
    /// When a length exceeds its limit.
    pub fn read(bytes: [u8; PREFIX], body_limit: usize) -> Result<Self, FrameError> {
        let [a, b, c, d, rest @ ..] = bytes;
        let header = u32::from_le_bytes([a, b, c, d]) as usize;
        let body = u32::from_le_bytes(rest) as usize;
        if header > MAX_HEADER_BYTES {
            return Err(FrameError::HeaderTooLong(header));
        }
        if body > body_limit {
            return Err(FrameError::BodyTooLong { length: body, limit: body_limit });
        }
        Ok(Self { header, body })
    }
}

/// One frame, undecoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header: JSON in UTF-8.
    pub header: Vec<u8>,
    /// The body: arbitrary bytes.
    pub body: Vec<u8>,
}

/// Why bytes are no frame. The channel cannot be used any more.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// The header is longer than [`MAX_HEADER_BYTES`].
    #[error("a header of {0} bytes; at most {MAX_HEADER_BYTES} are accepted")]
    HeaderTooLong(usize),
    /// The body is longer than the reader allows.
    #[error("a body of {length} bytes; at most {limit} are accepted")]
    BodyTooLong {
        /// The announced length, in bytes.
        length: usize,
        /// The allowed length, in bytes.
        limit: usize,
    },
}

impl Frame {
    /// Appends the frame's bytes to `out`.
    ///
    /// # Errors
    /// When header or body is longer than its length field can hold.
    pub fn encode(header: &[u8], body: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        if header.len() > MAX_HEADER_BYTES {
            return Err(FrameError::HeaderTooLong(header.len()));
        }
        let too_long = FrameError::BodyTooLong { length: body.len(), limit: u32::MAX as usize };
        let header_length =
            u32::try_from(header.len()).map_err(|_| FrameError::HeaderTooLong(header.len()))?;
        let body_length = u32::try_from(body.len()).map_err(|_| too_long)?;
        out.reserve(PREFIX + header.len() + body.len());
        out.extend_from_slice(&header_length.to_le_bytes());
        out.extend_from_slice(&body_length.to_le_bytes());
        out.extend_from_slice(header);
        out.extend_from_slice(body);
        Ok(())
    }
}

/// Capacity that a decoder keeps between frames, in bytes: each idle instance has a decoder.
const KEPT: usize = 64 << 10;

/// Cuts a stream of bytes into frames. Holds at most one frame and the bytes pushed behind it, and
/// frees the memory of a long frame once that is taken.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were taken already: many short frames in one push must not each
    /// move the rest.
    taken: usize,
    body_limit: usize,
}

impl Decoder {
    /// A decoder that refuses bodies longer than `body_limit` bytes.
    #[must_use]
    pub fn new(body_limit: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, body_limit }
    }

    /// Adds bytes as they arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next whole frame, if there is one.
    ///
    /// # Errors
    /// When a prefix announces too long a frame, before any of it is stored.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.taken..];
        let Some(prefix) = rest.first_chunk() else { return Ok(None) };
        let lengths = Prefix::read(*prefix, self.body_limit)?;
        let (header_end, end) = (PREFIX + lengths.header, PREFIX + lengths.header + lengths.body);
        let (Some(header), Some(body)) = (rest.get(PREFIX..header_end), rest.get(header_end..end))
        else {
            return Ok(None);
        };
        let header = header.to_vec();
        // The bytes behind the frame are copied then. They are few: a long frame is pushed in
        // pieces.
        if end > KEPT && rest.len() - end <= KEPT {
            return Ok(Some(Frame { header, body: self.move_out(header_end, end) }));
        }
        let frame = Frame { header, body: body.to_vec() };
        self.taken += end;
        self.give_back();
        Ok(Some(frame))
    }

    /// Shrinks a grown buffer as soon as its rest fits into [`KEPT`]. Short frames never grow it so
    /// far.
    fn give_back(&mut self) {
        if self.buffer.capacity() > KEPT && self.pending() <= KEPT {
            self.buffer.drain(..self.taken);
            self.buffer.shrink_to(KEPT);
            self.taken = 0;
        }
    }

    /// Turns the buffer into the body of a long frame, from `begin` of the untaken bytes to `end`.
    /// A copy would need the same memory again.
    fn move_out(&mut self, begin: usize, end: usize) -> Vec<u8> {
        let behind = self.buffer.split_off(self.taken + end);
        let mut body = std::mem::replace(&mut self.buffer, behind);
        body.drain(..self.taken + begin);
        // The buffer grew by doubling, and the body may be kept for long.
        body.shrink_to_fit();
        self.taken = 0;
        body
    }

    /// Bytes held that belong to no whole frame yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_survive_any_cutting(
            frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..200)), 1..6),
            step in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for (header, body) in &frames {
                Frame::encode(header, body, &mut bytes).unwrap();
            }
            let mut decoder = Decoder::new(1000);
            let mut seen = Vec::new();
            for piece in bytes.chunks(step) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push((frame.header, frame.body));
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert_eq!(decoder.pending(), 0);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic_or_hoard(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = Decoder::new(64);
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
            prop_assert!(decoder.pending() <= bytes.len());
        }
    }

    #[test]
    fn a_decoder_keeps_no_memory_of_a_long_frame_that_was_taken() {
        for (header, body, behind) in
            [(10, 6 << 20, 0), (10, 6 << 20, 30), (MAX_HEADER_BYTES, 0, 30), (10, KEPT - 18, 0)]
        {
            let (header, body) = (vec![b'h'; header], vec![b'b'; body]);
            let mut bytes = Vec::new();
            Frame::encode(&header, &body, &mut bytes).unwrap();
            Frame::encode(b"next", &vec![b'n'; behind], &mut bytes).unwrap();
            let mut decoder = Decoder::new(8 << 20);
            let mut frames = Vec::new();
            for piece in bytes.chunks(16 << 10) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            let [first, next] = &frames[..] else { panic!("{} frames", frames.len()) };
            assert_eq!((&first.header, &first.body), (&header, &body));
            assert_eq!((&next.header[..], next.body.len()), (&b"next"[..], behind));
            // The capacity of a reply's body is its length.
            assert_eq!(first.body.capacity(), body.len());
            assert!(decoder.buffer.capacity() <= KEPT, "{}", decoder.buffer.capacity());
        }
    }

    #[test]
    fn an_announced_gigabyte_is_refused_before_it_arrives() {
        let mut decoder = Decoder::new(1 << 20);
        decoder.push(&2u32.to_le_bytes());
        decoder.push(&(1u32 << 30).to_le_bytes());
        let refused = decoder.next_frame().unwrap_err();
        assert_eq!(refused, FrameError::BodyTooLong { length: 1 << 30, limit: 1 << 20 });
    }
}
