//! The heads of requests as they were sent.
//!
//! A request with both lengths, `Content-Length` and `Transfer-Encoding`, is read by one of them here and may have been read by
//! the other in front of us (RFC 9112, 6.1 and 6.3: request smuggling). hyper goes by the second, takes the first out of the
//! head, and closes the connection afterwards; so the request cannot be told by its headers any more, and its bytes are looked at.
//!
//! ```text
//!   connection ─► bytes are kept ─ a request is there ─► looked at, and no more kept ─ its answer is over ─► kept again
//! ```
//! What a client sends before it has its answer is not kept: such a head is read by hyper alone.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::http::{HeaderMap, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::api::ApiError;

/// The bytes of a connection since its last answer was over; none while a request is answered. At most `most`, the largest head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    kept: Arc<Mutex<Option<Vec<u8>>>>,
    most: usize,
}

impl Head {
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: Arc::new(Mutex::new(Some(Vec::new()))), most }
    }

    /// Keeps what comes from here on.
    pub(crate) fn expect(&self) {
        *self.lock() = Some(Vec::new());
    }

    /// Why the request that has just come is refused, by its headers and its bytes.
    ///
    /// # Errors
    /// 400 for a request whose length is said twice, 501 for a coding that is none of ours (RFC 9112, 6.1).
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let sent = self.lock().take().unwrap_or_default();
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter().peekable();
        if codings.peek().is_none() {
            return Ok(());
        }
        let refused = |status, message| Err(ApiError::new(status, "bad-request", message));
        if headers.contains_key(header::CONTENT_LENGTH) || says_length(&sent) {
            return refused(
                StatusCode::BAD_REQUEST,
                "the request has both Content-Length and Transfer-Encoding: send one of them",
            );
        }
        let codings = codings.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let mut chunked = 0;
        for coding in codings.map(<[u8]>::trim_ascii) {
            if !coding.eq_ignore_ascii_case(b"chunked") {
                return refused(
                    StatusCode::NOT_IMPLEMENTED,
                    "the request has a Transfer-Encoding other than chunked: send it without",
                );
            }
            chunked += 1;
        }
        if chunked != 1 {
            return refused(StatusCode::BAD_REQUEST, "the request is said to be chunked twice");
        }
        Ok(())
    }

    fn note(&self, bytes: &[u8]) {
        if let Some(kept) = &mut *self.lock() {
            let room = self.most.saturating_sub(kept.len()).min(bytes.len());
            kept.extend_from_slice(&bytes[..room]);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a line before the first empty one is a `Content-Length`.
fn says_length(sent: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length";
    let begun = sent.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(sent.len());
    let lines = sent[begun..].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.take_while(|line| !line.is_empty()).any(|line| {
        let (name, rest) = line.split_at(line.len().min(NAME.len()));
        name.eq_ignore_ascii_case(NAME) && rest.trim_ascii_start().starts_with(b":")
    })
}

/// A connection whose request heads are kept.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    head: Head,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, head: Head) -> Self {
        Self { stream, head }
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
        self.head.note(&buffer.filled()[before..]);
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

    #[test]
    fn a_length_is_found_in_a_head_and_not_in_what_follows_it() {
        for sent in [
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\r\nPOST / HTTP/1.1\nA: b\ncontent-LENGTH:3\n\n",
        ] {
            assert!(says_length(sent.as_bytes()), "{sent}");
        }
        for sent in [
            "",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nContent-Length: 3\r\n",
            "POST / HTTP/1.1\nX: content-length: 3\nContent-Lengths: 3\n\n",
        ] {
            assert!(!says_length(sent.as_bytes()), "{sent}");
        }
    }
}
