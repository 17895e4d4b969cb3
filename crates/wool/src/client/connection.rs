//! One request over a connection of its own, with the headers that name its caller.

use std::net::IpAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::pki_types::ServerName;

use super::{Client, ClientError, Target};
use doors::TENANT;
use doors::door::tls;

impl Client {
    pub(super) async fn exchange(
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
            if let Target::Tcp(authority) = &self.target
                && !is_loopback(authority)
            {
                return Err(ClientError::InTheClear(self.target.clone()));
            }
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
                self.talk(stream, request).await
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
                self.talk(stream, request).await
            }
            Target::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                self.talk(stream, request).await
            }
        }
    }

    async fn talk(
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
}

/// Whether `host:port` is this machine's own.
fn is_loopback(authority: &str) -> bool {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_this_machines_own() {
        for own in ["127.9.9.9:1", "[::1]:1", "LOCALHOST:1"] {
            assert!(is_loopback(own), "{own}");
        }
        assert!(!is_loopback("localhost.example:1") && !is_loopback("127.0.0.1.example:1"));
    }
}
