//! The heads of requests as they were sent.
//!
//! A request with both lengths, `Content-Length` and `Transfer-Encoding`, is read by one of them here and may have been read by
//! the other in front of us (RFC 9112, 6.1 and 6.3: request smuggling). hyper goes by the second, takes the first out of the
//! head, and closes the connection afterwards. So its headers do not tell such a request any more, and its bytes are read along:
//!
//! ```text
//!               ┌────────────────────────────────────────────────────────────────┐
//!               ▼                                                                │
//!   empty lines ─► head ─ no length ───────────────────────────────────────────► │
//!                        ─ Content-Length ────► so many bytes ─────────────────► │
//!                        ─ Transfer-Encoding ─► size ─► so many bytes ─► size …  │
//!                        │                       └ 0 ─► trailer ───────────────► ┘
//!                        └ both, or what is no length ─► lost: nothing is read any more
//! ```
//! Each head that ends is a [`Verdict`]; they wait until hyper brings the request. Where there is none for a request, this reader
//! and hyper disagree about where it begins, and it is refused. Nothing of a connection is kept but one line, cut at
//! [`LINE`], and the verdicts of what hyper has read and not yet answered, which is no more than its buffer holds.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::http::{HeaderMap, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::ApiError;

/// Bytes of a line that are looked at. A length that takes more is none.
const LINE: usize = 256;

/// What the heads of a connection said, of requests that hyper has not brought yet.
#[derive(Clone, Debug, Default)]
pub struct Heads(Arc<Mutex<Reader>>);

/// What a head says of the length of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// At most one length.
    Plain,
    /// Both Content-Length and Transfer-Encoding.
    Twice,
}

impl Heads {
    /// Why the request that has just come is refused, by its headers and its bytes. Called once for each request.
    ///
    /// # Errors
    /// 400 for a request whose length is said twice, 501 for a coding that is none of ours (RFC 9112, 6.1).
    pub fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let verdict = self.lock().heads.pop_front();
        let refused = |status, message| Err(ApiError::new(status, "bad-request", message));
        if verdict.is_none() {
            return refused(
                StatusCode::BAD_REQUEST,
                "where the request begins can be read in two ways",
            );
        }
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter().peekable();
        let coded = codings.peek().is_some();
        if verdict == Some(Verdict::Twice)
            || (coded && headers.contains_key(header::CONTENT_LENGTH))
        {
            return refused(
                StatusCode::BAD_REQUEST,
                "the request has both Content-Length and Transfer-Encoding: send one of them",
            );
        }
        if !coded {
            return Ok(());
        }
        let codings = codings.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let mut chunked = 0;
        // Empty elements of a list say nothing (RFC 9110, 5.6.1).
        for coding in codings.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty()) {
            if !coding.eq_ignore_ascii_case(b"chunked") {
                return refused(
                    StatusCode::NOT_IMPLEMENTED,
                    "the request has a Transfer-Encoding other than chunked: send it without",
                );
            }
            chunked += 1;
        }
        if chunked != 1 {
            return refused(
                StatusCode::BAD_REQUEST,
                "the request has a Transfer-Encoding that is not chunked once",
            );
        }
        Ok(())
    }

    fn note(&self, bytes: &[u8]) {
        self.lock().read(bytes);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Reader> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a connection's bytes as they come.
#[derive(Debug, Default)]
struct Reader {
    at: At,
    /// The line that has begun, without its end, cut at [`LINE`]. Blanks and zeros that pad a
    /// length are left out.
    line: Vec<u8>,
    /// Whether the last byte that was read of it is a carriage return.
    returned: bool,
    heads: VecDeque<Verdict>,
}

/// Where in the stream the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before the first line of a head.
    #[default]
    Between,
    /// In a head, of which these lengths have been read.
    Head { length: Option<u64>, coded: bool },
    /// In a body or a chunk that has so many bytes left.
    Body { left: u64, chunked: bool },
    /// Before the size of a chunk.
    Size,
    /// Behind the last chunk.
    Trailer,
    /// Behind what is no request. hyper refuses it and closes the connection.
    Lost,
}

impl Reader {
    fn read(&mut self, mut bytes: &[u8]) {
        while let Some(first) = bytes.first() {
            match self.at {
                At::Lost => return,
                At::Between if matches!(first, b'\r' | b'\n') => bytes = &bytes[1..],
                At::Between => self.at = At::Head { length: None, coded: false },
                At::Body { left, chunked } => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[taken..];
                    self.at = match (left - taken as u64, chunked) {
                        (0, false) => At::Between,
                        (0, true) => At::Size,
                        (left, chunked) => At::Body { left, chunked },
                    };
                }
                At::Head { .. } | At::Size | At::Trailer => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let piece = &bytes[..end.unwrap_or(bytes.len())];
                    self.add(piece);
                    bytes = &bytes[end.map_or(bytes.len(), |end| end + 1)..];
                    if end.is_some() {
                        let line = std::mem::take(&mut self.line);
                        self.end_line(line.strip_suffix(b"\r").unwrap_or(&line));
                        self.line = line;
                        self.line.clear();
                        self.returned = false;
                    }
                }
            }
        }
    }

    fn add(&mut self, piece: &[u8]) {
        for byte in piece {
            match (self.line.as_slice(), byte) {
                ([.., b' ' | b'\t'], b' ' | b'\t') => {}
                ([b'0'] | [.., b' ' | b'\t' | b':', b'0'], digit) if digit.is_ascii_hexdigit() => {
                    self.line.pop();
                    self.line.push(*digit);
                }
                (line, _) if line.len() >= LINE => break,
                _ => self.line.push(*byte),
            }
        }
        if let Some(last) = piece.last() {
            self.returned = *last == b'\r';
        }
    }

    fn end_line(&mut self, line: &[u8]) {
        self.at = match self.at {
            At::Head { length, coded } if line.is_empty() => {
                let twice = coded && length.is_some();
                self.heads.push_back(if twice { Verdict::Twice } else { Verdict::Plain });
                match (length, coded) {
                    (Some(_), true) => At::Lost,
                    (None, true) => At::Size,
                    (None | Some(0), false) => At::Between,
                    (Some(left), false) => At::Body { left, chunked: false },
                }
            }
            At::Head { length, coded } => match value_of(line, b"content-length") {
                // Said again: hyper refuses a second that differs.
                Some(value) => match number(value, 10) {
                    Some(length) if line.len() < LINE => At::Head { length: Some(length), coded },
                    // With the other length hyper does not look at this one.
                    _ => At::Head { length: Some(u64::MAX), coded },
                },
                None => {
                    let coded = coded || value_of(line, b"transfer-encoding").is_some();
                    At::Head { length, coded }
                }
            },
            // The empty line behind a chunk is read with its bytes.
            At::Size => {
                let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
                match number(&line[..digits], 16) {
                    // The line was cut within the number.
                    _ if digits >= LINE => At::Lost,
                    Some(0) => At::Trailer,
                    Some(size) => match size.checked_add(2) {
                        Some(left) => At::Body { left, chunked: true },
                        None => At::Lost,
                    },
                    None => At::Lost,
                }
            }
            // To hyper a trailer's line ends with CR LF. To others in front of us LF may do.
            At::Trailer if !self.returned => At::Lost,
            At::Trailer if line.is_empty() => At::Between,
            at => at,
        };
    }
}

/// The value of a header's line, if its name is `name`, which is in small letters.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (said, rest) = line.split_at_checked(name.len())?;
    let value = rest.trim_ascii_start().strip_prefix(b":")?;
    said.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    if !digits.iter().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// A connection whose bytes are read along.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    heads: Heads,
}

impl<S> Watched<S> {
    /// Reads along what comes from `stream`.
    pub fn new(stream: S, heads: Heads) -> Self {
        Self { stream, heads }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.heads.note(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [&str; 6] = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\nX: content-length: 3\nContent-Lengths: 3\nCONTENT-length:\t9 \n\nA: b\r\n\r\nc",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "\r\n\n\r\nPOST / HTTP/1.1\r\ntransfer-encoding:chunked\r\n\r\n19;x=\"0\"\r\nContent-Length: 3\r\n\r\nab\r\n\r\n5  \r\n0\r\n\r\n\r\n000\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 3\r\nA: b\r\n\r\n",
    ];
    const TWICE: [&str; 5] = [
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\nTransfer-Encoding: chunked\nA: b\ncontent-LENGTH:3\n\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: none\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding:\r\n\r\n",
    ];

    fn verdicts(pieces: &[&[u8]]) -> Vec<Verdict> {
        let mut reader = Reader::default();
        for piece in pieces {
            reader.read(piece);
            assert!(reader.line.capacity() <= 2 * LINE);
        }
        reader.heads.into()
    }

    #[test]
    fn both_lengths_are_found_behind_any_requests_and_wherever_the_bytes_are_parted() {
        let before = PLAIN.concat();
        for twice in TWICE {
            let sent = format!("{before}{twice}{before}");
            let sent = sent.as_bytes();
            let mut expected = vec![Verdict::Plain; PLAIN.len()];
            expected.push(Verdict::Twice);
            for place in 0..sent.len() {
                let (first, second) = sent.split_at(place);
                assert_eq!(verdicts(&[first, second]), expected, "{twice:?} parted at {place}");
            }
            let bytes: Vec<&[u8]> = sent.chunks(1).collect();
            assert_eq!(verdicts(&bytes), expected, "{twice:?} byte by byte");
            let lines = "\r\n".repeat(100_000);
            assert_eq!(verdicts(&[lines.as_bytes(), twice.as_bytes()]), [Verdict::Twice]);
        }
    }

    #[test]
    fn a_long_line_is_cut_and_hides_no_length_behind_it() {
        let long = "a".repeat(100_000);
        let spaces = " ".repeat(1000);
        for head in [
            format!(
                "POST /{long} HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
            ),
            format!(
                "POST / HTTP/1.1\r\nX: {long}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
            ),
            format!(
                "POST / HTTP/1.1\r\nContent-Length:{spaces}3\r\nTransfer-Encoding:{spaces}chunked\r\n\r\n"
            ),
        ] {
            assert_eq!(verdicts(&[head.as_bytes()]), [Verdict::Twice]);
        }
    }

    #[test]
    fn a_size_of_a_chunk_is_read_whole_or_nothing_behind_it() {
        let zeros = "0".repeat(1000);
        let bad = format!("{}\r\nabcde\r\n0\r\n\r\n", "5".repeat(1000));
        let padded = format!("{zeros}5 \t{} ;\r\nabcde\r\n{zeros}\r\n\r\n", " ".repeat(1000));
        for (chunks, behind) in
            [(format!("5;{zeros}\r\nabcde\r\n0;{zeros}\r\n\r\n"), 1), (padded, 1), (bad, 0)]
        {
            let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
            let sent = format!("{head}{chunks}{}", PLAIN[0]);
            assert_eq!(verdicts(&[sent.as_bytes()]).len(), 1 + behind, "{chunks:?}");
        }
    }

    #[test]
    fn padding_of_a_length_takes_nothing_from_the_next_request() {
        let (zeros, blanks) = ("0".repeat(1000), " \t".repeat(1000));
        for length in
            [format!("{blanks}2"), format!("2{blanks}"), format!(" {zeros}2"), zeros + "2"]
        {
            let request = format!("POST / HTTP/1.1\r\nContent-Length:{length}\r\n\r\n{{}}");
            let sent = request.repeat(2);
            assert_eq!(verdicts(&[sent.as_bytes()]), [Verdict::Plain; 2]);
            let bytes: Vec<&[u8]> = sent.as_bytes().chunks(1).collect();
            assert_eq!(verdicts(&bytes), [Verdict::Plain; 2]);
        }
        // Zeros behind another digit are part of a length.
        let sent = format!("POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n{}", "x".repeat(100));
        assert_eq!(verdicts(&[sent.repeat(2).as_bytes()]), [Verdict::Plain; 2]);
    }

    #[test]
    fn a_trailer_ends_only_where_hyper_ends_it() {
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        let long = "x".repeat(1000);
        for (trailer, behind) in [
            ("\r\n".to_owned(), 1),
            ("A: b\r\n\r\n".to_owned(), 1),
            (format!("A: {long}\r\nB: c\r\n\r\n"), 1),
            ("A: b\n\r\nX: y\r\n\r\n".to_owned(), 0),
            ("A: b\n\nX: y\r\n\r\n".to_owned(), 0),
            ("\n\r\nX: y\r\n\r\n".to_owned(), 0),
            (format!("A: {long}\n\r\nX: y\r\n\r\n"), 0),
        ] {
            let sent = format!("{head}{trailer}{}", TWICE[0]);
            let mut expected = vec![Verdict::Plain];
            expected.extend([Verdict::Twice].iter().take(behind));
            for place in 0..sent.len() {
                let (first, second) = sent.as_bytes().split_at(place);
                assert_eq!(verdicts(&[first, second]), expected, "{trailer:?} parted at {place}");
            }
        }
    }

    #[test]
    fn behind_what_is_no_length_nothing_is_a_request() {
        for lost in [
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
            "POST / HTTP/1.1\r\nContent-Length: +7\r\n\r\n",
        ] {
            let sent = format!("{lost}{}", PLAIN[0]);
            assert_eq!(verdicts(&[sent.as_bytes()]), [Verdict::Plain], "{lost:?}");
        }
    }
}
