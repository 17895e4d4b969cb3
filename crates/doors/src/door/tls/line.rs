//! A connection on the TCP listener, with TLS or without.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// The TCP listener; with what makes handshakes, when there is a certificate.
pub struct Front {
    /// Accepts the connections.
    pub listener: TcpListener,
    /// Makes the handshake; none: plain HTTP.
    pub tls: Option<TlsAcceptor>,
}

/// One connection. The handshake is made when it is read from or written to first.
pub enum Line {
    /// A connection without TLS.
    Plain(TcpStream),
    /// Before its handshake.
    Shaking(Box<Accept<TcpStream>>),
    /// A connection with TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// After a handshake that failed.
    Broken,
}

impl Listener for Front {
    type Io = Line;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Line, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Replies are small and each is waited for: never hold one back to fill a packet.
        drop(stream.set_nodelay(true));
        let line = match &self.tls {
            Some(tls) => Line::Shaking(Box::new(tls.accept(stream))),
            None => Line::Plain(stream),
        };
        (line, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Line {
    fn shaken(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Self::Shaking(accept) = self {
            match ready!(Pin::new(accept).poll(context)) {
                Ok(stream) => *self = Self::Tls(Box::new(stream)),
                Err(error) => {
                    tracing::debug!(%error, "a TLS handshake failed");
                    *self = Self::Broken;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn with<T>(
        &mut self,
        context: &mut Context<'_>,
        work: impl FnOnce(Pin<&mut dyn Stream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        ready!(self.shaken(context))?;
        match self {
            Self::Plain(stream) => work(Pin::new(stream), context),
            Self::Tls(stream) => work(Pin::new(stream), context),
            Self::Shaking(_) | Self::Broken => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

/// What is read from and written to.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(context, |stream, context| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(context, |stream, context| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        !matches!(self, Self::Broken)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Without a completed handshake there is no TLS session to close.
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Shaking(_) | Self::Broken => Poll::Ready(Ok(())),
        }
    }
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Shaking(_) => "Shaking",
            Self::Tls(_) => "Tls",
            Self::Broken => "Broken",
        })
    }
}
