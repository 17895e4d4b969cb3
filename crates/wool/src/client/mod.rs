//! A small HTTP client: one request a connection, over TCP or a Unix socket.

mod connection;
mod error;
mod health;
mod listener;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Response, StatusCode, header};
use serde::de::DeserializeOwned;

use doors::native::ErrorBody;
use function::Label;
use platform::access::Secret;

pub use error::{ClientError, Target};

/// Where a worker listens unless told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8470";

/// Talks to one worker.
#[derive(Clone, Debug)]
pub struct Client {
    target: Target,
    /// Whether the address was guessed and not given.
    guessed: bool,
    token: Option<Secret>,
    ca: Option<PathBuf>,
    tenant: Option<Label>,
}

impl Client {
    /// Finds the worker: at `url` if given, else by the state directory's socket; without a socket in a directory that was
    /// not given either, where workers listen by default. Only root or this user is sent something there: any user of the
    /// machine could listen, to be given code, events and secrets.
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
                Ok(Self { guessed: true, ..Self::at(DEFAULT_URL)? })
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
        Self { target, guessed: false, token: None, ca: None, tenant: None }
    }

    /// The same, with a token that goes with every request. It is sent neither to a guessed address, where any user of this
    /// machine may listen, nor over a connection that others can read.
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
        let reply = self.watched(self.exchange(method, path, headers, body)).await?;
        if self.guessed && self.token.is_some() && reply.status() == StatusCode::UNAUTHORIZED {
            return Err(ClientError::Withheld(self.target.clone()));
        }
        Ok(reply)
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
    use tokio::net::TcpListener;

    use super::*;

    /// A worker that wants a token, and what it is told.
    async fn asks_for_one(client: &Client, listener: &TcpListener) -> (ClientError, String) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let worker = async {
            let (mut asked, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = asked.read(&mut request).await.unwrap();
            asked.write_all(b"HTTP/1.1 401 x\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        };
        let (refused, request) =
            tokio::join!(client.ask(Method::GET, "/v1/status", &[], Bytes::new()), worker);
        (refused.unwrap_err(), request)
    }

    #[tokio::test]
    async fn a_token_goes_to_no_worker_that_was_only_guessed_and_over_no_open_line() {
        let token = Secret::draw().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let said = Client::at(&url).unwrap().with_token(Some(token.clone()));
        let (refused, request) = asks_for_one(&said, &listener).await;
        assert!(request.contains(token.reveal()), "where it was said, it is sent");
        assert!(matches!(refused, ClientError::Unexpected { .. }), "{refused}");
        let guessed = Client { guessed: true, ..said };
        let (refused, request) = asks_for_one(&guessed, &listener).await;
        assert!(!request.contains(token.id()), "{request}");
        assert!(refused.to_string().contains(&format!("--url {url}")), "{refused}");
        let dir = tempfile::tempdir().unwrap();
        assert!(Client::find(None, dir.path(), false).unwrap().guessed);
        assert!(!Client::find(None, dir.path(), true).unwrap().guessed);
        // Refused before anybody is connected to: these addresses are for documentation.
        for open in ["http://192.0.2.1:8470", "http://[2001:db8::1]:1", "http://worker.example"] {
            let client = Client::at(open).unwrap().with_token(Some(token.clone()));
            let refused = client.ask(Method::GET, "/v1/status", &[], Bytes::new()).await;
            assert!(matches!(refused, Err(ClientError::InTheClear(_))), "{open}: {refused:?}");
        }
    }

    /// A listener of another user: a socket belongs to whoever makes it, and the thread's user is its own (setfsuid(2)).
    fn of_somebody_else() -> std::net::TcpListener {
        let made = std::thread::spawn(|| {
            let _ = nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
            std::net::TcpListener::bind("127.0.0.1:0").unwrap()
        });
        made.join().unwrap()
    }

    #[tokio::test]
    async fn whom_nobody_named_is_sent_nothing_unless_it_is_root_or_the_same_user() {
        if !rustix::process::geteuid().is_root() {
            return skips::skip("root", "only root can become somebody else");
        }
        let listener = of_somebody_else();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let guessed = Client { guessed: true, ..Client::at(&url).unwrap() };
        let secret = Bytes::from_static(b"secret");
        // Bounded: whoever listens there answers nothing.
        let put = guessed.send(Method::PUT, "/v1/secrets/x", &[], secret);
        let put = tokio::time::timeout(std::time::Duration::from_secs(20), put).await;
        let refused = put.expect("it is refused at once").unwrap_err();
        assert!(matches!(refused, ClientError::Strangers { uid: Some(65_534), .. }), "{refused}");
        let words = refused.to_string();
        assert!(words.contains(&format!("--url {url}")) && words.contains("wool up"), "{words}");
        assert!(!guessed.healthy().await);
        let (mut heard, mut said) = (listener.accept().unwrap().0, Vec::new());
        let _ = std::io::Read::read_to_end(&mut heard, &mut said).unwrap();
        assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
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
