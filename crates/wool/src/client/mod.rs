//! A small HTTP client: one request a connection, over TCP or a Unix socket.

mod connection;
mod error;
mod health;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Response, header};
use serde::de::DeserializeOwned;

use doors::error::ErrorBody;
use function::Label;
use platform::access::Secret;

pub use error::{ClientError, Target};

/// Talks to one worker.
#[derive(Clone, Debug)]
pub struct Client {
    target: Target,
    token: Option<Secret>,
    ca: Option<PathBuf>,
    tenant: Option<Label>,
}

impl Client {
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

    /// The same, with a token that goes with every request. It is not sent over a connection that others can read.
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
        self.watched(self.exchange(method, path, headers, body)).await
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
        let body = response.into_body().collect();
        let body = self.watched(async { body.await.map_err(self.broken()) }).await?;
        Ok(body.to_bytes())
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
        let next = async |body: &mut Incoming| {
            self.watched(async { body.frame().await.transpose().map_err(self.broken()) }).await
        };
        while let Some(frame) = next(&mut body).await? {
            let Ok(data) = frame.into_data() else { continue };
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

    #[tokio::test]
    async fn a_token_goes_over_no_open_line() {
        let token = Secret::draw().unwrap();
        // Refused before a connection is made: these addresses are for documentation.
        for open in ["http://192.0.2.1:8470", "http://[2001:db8::1]:1", "http://worker.example"] {
            let client = Client::at(open).unwrap().with_token(Some(token.clone()));
            let refused = client.ask(Method::GET, "/v1/status", &[], Bytes::new()).await;
            assert!(matches!(refused, Err(ClientError::InTheClear(_))), "{open}: {refused:?}");
        }
    }

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
