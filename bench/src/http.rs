//! An HTTP client with kept connections, over TCP or a Unix socket: as little of its own as possible.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};

/// Whom to talk to.
#[derive(Debug)]
pub(crate) enum Peer {
    /// `127.0.0.1:8470`
    Tcp(String),
    /// A socket's path.
    Unix(PathBuf),
}

/// Longer than anything that is measured, and than installing the largest library on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A client; its connections are kept and each serves one call at a time.
#[derive(Debug)]
pub(crate) struct Client {
    peer: Peer,
    idle: RefCell<Vec<SendRequest<Full<Bytes>>>>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// When its head was here.
    pub(crate) first: Instant,
    /// Its status.
    pub(crate) status: StatusCode,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Bytes,
}

impl Answer {
    /// The answer if it says success.
    pub(crate) fn good(self) -> Result<Self> {
        if !self.status.is_success() {
            bail!("{}: {}", self.status, String::from_utf8_lossy(&self.body).trim());
        }
        Ok(self)
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    }
}

impl Client {
    /// A client without connections.
    pub(crate) fn new(peer: Peer) -> Self {
        Self { peer, idle: RefCell::default() }
    }

    /// Opens connections ahead, so that no measured call waits for one.
    pub(crate) async fn warm(&self, connections: usize) -> Result<()> {
        while self.idle.borrow().len() < connections {
            let connection = self.connect().await?;
            self.idle.borrow_mut().push(connection);
        }
        Ok(())
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        let body = body.into();
        let exchange = async {
            let mut connection = self.connection().await?;
            let request = request(method, path, content_type, body)?;
            let response = connection.send_request(request).await.context("no answer")?;
            let first = Instant::now();
            let (parts, body) = response.into_parts();
            let body = body.collect().await.context("the answer broke off")?.to_bytes();
            if !connection.is_closed() {
                self.idle.borrow_mut().push(connection);
            }
            Ok(Answer { first, status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(PATIENCE, exchange).await.context("no answer in time")?
    }

    /// Sends a request and leaves the answer's body to be read; its connection is not used again.
    pub(crate) async fn stream(
        &self,
        method: Method,
        path: &str,
    ) -> Result<(SendRequest<Full<Bytes>>, Response<Incoming>)> {
        let mut connection = self.connect().await?;
        let request = request(method, path, "", Bytes::new())?;
        let response = connection.send_request(request).await.context("no answer")?;
        Ok((connection, response))
    }

    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>> {
        loop {
            let idle = self.idle.borrow_mut().pop();
            match idle {
                Some(mut connection) => {
                    if connection.ready().await.is_ok() {
                        return Ok(connection);
                    }
                }
                None => return self.connect().await,
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        match &self.peer {
            Peer::Tcp(address) => {
                let stream = TcpStream::connect(address).await.context("cannot connect")?;
                stream.set_nodelay(true).context("cannot set nodelay")?;
                let (sender, driver) =
                    handshake(TokioIo::new(stream)).await.context("handshake")?;
                tokio::spawn(driver);
                Ok(sender)
            }
            Peer::Unix(path) => {
                let stream = UnixStream::connect(path)
                    .await
                    .with_context(|| format!("cannot connect to {}", path.display()))?;
                let (sender, driver) =
                    handshake(TokioIo::new(stream)).await.context("handshake")?;
                tokio::spawn(driver);
                Ok(sender)
            }
        }
    }
}

fn request(
    method: Method,
    path: &str,
    content_type: &str,
    body: Bytes,
) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    if !content_type.is_empty() {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    request.body(Full::new(body)).context("no valid request")
}
