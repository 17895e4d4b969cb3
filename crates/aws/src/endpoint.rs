//! Where a service is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A service with an interface of AWS's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Keeps objects in buckets.
    S3,
    /// Keeps messages in queues.
    Sqs,
}

impl Service {
    /// As it is written, and as signatures name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Sqs => "sqs",
        }
    }
}

/// A service and its address: `sqs=http://127.0.0.1:9324`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint {
    /// Which service it is.
    pub service: Service,
    /// Where it is: scheme, host and port, without a slash behind them.
    pub url: String,
}

/// Why a text is no [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no endpoint: write for example \"s3=https://s3.example.com\" or \"sqs=http://127.0.0.1:9324\""
)]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let refused = || EndpointError(text.to_owned());
        let (service, url) = text.split_once('=').ok_or_else(refused)?;
        let service = match service.trim() {
            "s3" => Service::S3,
            "sqs" => Service::Sqs,
            _ => return Err(refused()),
        };
        let url = url.trim().trim_end_matches('/');
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let is_host = |host: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
            !host.is_empty() && host.chars().all(plain)
        };
        match rest {
            Some(host) if is_host(host) => Ok(Self { service, url: url.to_owned() }),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.service.as_str(), self.url)
    }
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Self, EndpointError> {
        text.parse()
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_service_and_an_address() {
        for (written, read) in [
            ("s3=https://s3.example.com", "s3=https://s3.example.com"),
            ("sqs=http://127.0.0.1:9324/", "sqs=http://127.0.0.1:9324"),
            ("s3 = http://[::1]:7070", "s3=http://[::1]:7070"),
        ] {
            assert_eq!(written.parse::<Endpoint>().unwrap().to_string(), read);
        }
        for bad in [
            "",
            "s3",
            "s3=",
            "s3=example.com",
            "s3=ftp://example.com",
            "s3=http://",
            "s3=http://user@example.com",
            "s3=http://example.com/path",
            "s3=http://example.com?x",
            "S3=http://example.com",
            "dynamodb=http://example.com",
        ] {
            let refused = bad.parse::<Endpoint>().unwrap_err().to_string();
            assert!(refused.contains("s3=https://s3.example.com"), "{bad}");
        }
    }
}
