//! A small HTTP client: one request a connection, over TCP or a Unix socket.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::access::{Label, Secret};
use crate::api::{ErrorBody, ErrorDetail, TENANT};
use crate::tls::{self, TrustError};

/// Where a worker listens unless told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8470";

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `host:port`
    Tcp(String),
    /// `host:port`, with TLS
    Tls(String),
    /// The worker's socket.
    Unix(PathBuf),
}

/// Talks to one worker.
#[derive(Clone, Debug)]
pub struct Client {
    target: Target,
    token: Option<Secret>,
    ca: Option<PathBuf>,
    tenant: Option<Label>,
}

/// Why a request has no good answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nothing answers there.
    #[error(
        "no worker answers at {target}: start one with `wool up`, or say where it is with --url or --state"
    )]
    NoWorker {
        /// Where.
        target: Target,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The URL is none that can be used.
    #[error("{0:?} is no worker's address: use http://HOST:PORT, https://HOST:PORT or unix:PATH")]
    Url(String),
    /// Whoever answers there is not known.
    #[error(
        "the worker at {target} does not prove who it is: name its certificate, or the one that vouches for it, with --ca FILE"
    )]
    Unproven {
        /// Where.
        target: Target,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Nobody can be known.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The connection broke.
    #[error("the worker at {target} broke off")]
    Broken {
        /// Where.
        target: Target,
        /// Why.
        #[source]
        source: hyper::Error,
    },
    /// The worker refused.
    #[error("{}", .detail.message)]
    Refused {
        /// The reply's status.
        status: StatusCode,
        /// What it says.
        detail: ErrorDetail,
    },
    /// The reply is not what a worker says.
    #[error("an unexpected reply from {target}: {reason}; is it a worker of this release?")]
    Unexpected {
        /// Where.
        target: Target,
        /// What does not fit.
        reason: String,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(authority) => write!(f, "http://{authority}"),
            Self::Tls(authority) => write!(f, "https://{authority}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Client {
    /// Finds the worker: at `url` when said, else by the state directory's socket; when nobody said that directory and
    /// there is no socket in it, where workers listen by default.
    ///
    /// # Errors
    /// When the URL cannot be used.
    pub fn find(
        url: Option<&str>,
        state: &Path,
        state_was_said: bool,
    ) -> Result<Self, ClientError> {
        let of_state = Self::of(state);
        match (url, &of_state.target) {
            (Some(url), _) => Self::at(url),
            // To ask a stranger's worker instead of the one that was meant would surprise.
            (None, Target::Unix(socket)) if !state_was_said && !socket.exists() => {
                Self::at(DEFAULT_URL)
            }
            (None, _) => Ok(of_state),
        }
    }

    /// The worker of a state directory.
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self::to(Target::Unix(state.join("run/wool.sock")))
    }

    /// The worker at `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// When the URL is none of these.
    pub fn at(url: &str) -> Result<Self, ClientError> {
        if let Some(path) = url.strip_prefix("unix:") {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            return Ok(Self::to(Target::Unix(path)));
        }
        let uri: hyper::Uri = url.parse().map_err(|_| ClientError::Url(url.to_owned()))?;
        match (uri.scheme_str(), uri.host(), uri.path()) {
            (Some("http"), Some(host), "" | "/") => {
                Ok(Self::to(Target::Tcp(format!("{host}:{}", uri.port_u16().unwrap_or(80)))))
            }
            (Some("https"), Some(host), "" | "/") => {
                Ok(Self::to(Target::Tls(format!("{host}:{}", uri.port_u16().unwrap_or(443)))))
            }
            _ => Err(ClientError::Url(url.to_owned())),
        }
    }

    fn to(target: Target) -> Self {
        Self { target, token: None, ca: None, tenant: None }
    }

    /// The same, with a token that goes with every request.
    #[must_use]
    pub fn with_token(self, token: Option<Secret>) -> Self {
        Self { token, ..self }
    }

    /// The same, which means the functions of a tenant.
    #[must_use]
    pub fn for_tenant(self, tenant: Option<Label>) -> Self {
        Self { tenant, ..self }
    }

    /// The same, which knows a worker with TLS by these certificates; without, by those that this machine trusts.
    #[must_use]
    pub fn trusting(self, ca: Option<PathBuf>) -> Self {
        Self { ca, ..self }
    }

    /// Where it talks to.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether a worker answers there and serves.
    pub async fn healthy(&self) -> bool {
        let request = self.send(Method::GET, "/healthz", &[], Bytes::new());
        let answer = tokio::time::timeout(Duration::from_secs(2), request).await;
        matches!(answer, Ok(Ok(response)) if response.status() == StatusCode::OK)
    }

    /// Sends a request; any reply will do.
    ///
    /// # Errors
    /// When no reply came.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let host = match &self.target {
            Target::Tcp(authority) | Target::Tls(authority) => authority.as_str(),
            Target::Unix(_) => "localhost",
        };
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, host);
        if let Some(token) = &self.token {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
                .map_err(|error| self.unexpected(error.to_string()))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        if let Some(tenant) = &self.tenant {
            request = request.header(TENANT, tenant.as_str());
        }
        for (name, value) in headers {
            let value = HeaderValue::from_str(value)
                .map_err(|_| self.unexpected(format!("{value:?} cannot stand in a header")))?;
            request = request.header(name, value);
        }
        let request =
            request.body(Full::new(body)).map_err(|error| self.unexpected(error.to_string()))?;
        let unreachable = |source| ClientError::NoWorker { target: self.target.clone(), source };
        match &self.target {
            Target::Tcp(authority) => {
                let stream = TcpStream::connect(authority).await.map_err(unreachable)?;
                stream.set_nodelay(true).map_err(unreachable)?;
                self.exchange(stream, request).await
            }
            Target::Tls(authority) => {
                let connector = tls::connector(self.ca.as_deref())?;
                let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(host)
                    .map_err(|_| ClientError::Url(self.target.to_string()))?;
                let stream = TcpStream::connect(authority).await.map_err(unreachable)?;
                stream.set_nodelay(true).map_err(unreachable)?;
                let unproven =
                    |source| ClientError::Unproven { target: self.target.clone(), source };
                let stream = connector.connect(name, stream).await.map_err(unproven)?;
                self.exchange(stream, request).await
            }
            Target::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                self.exchange(stream, request).await
            }
        }
    }

    /// Sends a request whose reply must be a success.
    ///
    /// # Errors
    /// When there is no reply, or the worker refused.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let response = self.send(method, path, headers, body).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = self.body(response).await?;
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(said) => Err(ClientError::Refused { status, detail: said.error }),
            Err(_) => Err(self.unexpected(format!("status {status}"))),
        }
    }

    /// Asks for JSON.
    ///
    /// # Errors
    /// When there is no reply, the worker refused, or the reply is something else.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let response = self.ask(Method::GET, path, &[], Bytes::new()).await?;
        let body = self.body(response).await?;
        serde_json::from_slice(&body).map_err(|error| self.unexpected(error.to_string()))
    }

    /// Reads a reply's body to its end.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn body(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        Ok(response.into_body().collect().await.map_err(self.broken())?.to_bytes())
    }

    /// Hands each line of a reply's body to `each`, as it arrives.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn lines(
        &self,
        response: Response<Incoming>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), ClientError> {
        let (mut body, mut pending) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(self.broken())?.into_data() else { continue };
            pending.extend_from_slice(&data);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                each(&pending[..end]);
                pending.drain(..=end);
            }
        }
        if !pending.is_empty() {
            each(&pending);
        }
        Ok(())
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(self.broken())?;
        // Ends with the connection; a failure shows in the request.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(self.broken())
    }

    /// A reply that does not fit.
    pub fn unexpected(&self, reason: impl Into<String>) -> ClientError {
        ClientError::Unexpected { target: self.target.clone(), reason: reason.into() }
    }

    fn broken(&self) -> impl FnOnce(hyper::Error) -> ClientError {
        let target = self.target.clone();
        move |source| ClientError::Broken { target, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_or_a_socket() {
        let target = |url: &str| Client::at(url).map(|client| client.target);
        assert_eq!(
            target("http://127.0.0.1:8470").unwrap(),
            Target::Tcp("127.0.0.1:8470".to_owned())
        );
        assert_eq!(target("http://[::1]:1/").unwrap(), Target::Tcp("[::1]:1".to_owned()));
        assert_eq!(target("unix:/run/w.sock").unwrap(), Target::Unix(PathBuf::from("/run/w.sock")));
        assert_eq!(
            target("unix:///run/w.sock").unwrap(),
            Target::Unix(PathBuf::from("/run/w.sock"))
        );
        assert_eq!(target("https://w.lan").unwrap(), Target::Tls("w.lan:443".to_owned()));
        for bad in ["ftp://x", "127.0.0.1:8470", "http://x/y", ""] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn no_worker_is_an_error_that_says_how_to_start_one() {
        let dir = tempfile::tempdir().unwrap();
        let client = Client::at(&format!("unix:{}", dir.path().join("none").display())).unwrap();
        let error = client.get::<ErrorBody>("/v1/status").await.unwrap_err();
        assert!(error.to_string().contains("wool up"), "{error}");
        assert!(!client.healthy().await);
    }
}
