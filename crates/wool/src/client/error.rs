//! Where a worker is, and why it gives no good answer.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use thiserror::Error;

use doors::door::tls::TrustError;
use doors::error::ErrorDetail;

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A TCP address: `host:port`.
    Tcp(String),
    /// `host:port`, with TLS
    Tls(String),
    /// The worker's socket.
    Unix(PathBuf),
}

/// Why a request has no good answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nothing answers there.
    #[error(
        "no worker answers at {target}: start one with `wool up`, or say where it is with --url or --state"
    )]
    NoWorker {
        /// The address that was tried.
        target: Target,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The URL is none that can be used.
    #[error("{0:?} is no worker's address: use http://HOST:PORT, https://HOST:PORT or unix:PATH")]
    Url(String),
    /// The process that answers there is not known.
    #[error(
        "the worker at {target} does not prove who it is: name its certificate, or the one that vouches for it, with --ca FILE"
    )]
    Unproven {
        /// The address that was tried.
        target: Target,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Others could read the token on its way.
    #[error(
        "the token was not sent to {0}: without TLS, whoever is on the way could read it; use https://, a tunnel to a loopback address, or unix:PATH"
    )]
    InTheClear(Target),
    /// Nobody can be known.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// It takes connections and says nothing.
    #[error(
        "the worker at {target} has not answered for {} s and does not say that it is well: look into its log, or end its process{}", after.as_secs(), ending(*pid)
    )]
    Hung {
        /// The address that was tried.
        target: Target,
        /// The time that was waited.
        after: Duration,
        /// Its process, where its socket tells.
        pid: Option<i32>,
    },
    /// It answered, and ended before it had told everything.
    #[error(
        "the worker at {target} is gone: nothing more of the log can be told; start it again with `wool up`"
    )]
    Gone {
        /// The address that was tried.
        target: Target,
    },
    /// The connection broke.
    #[error("the worker at {target} broke off")]
    Broken {
        /// The address that was tried.
        target: Target,
        /// The error of the HTTP client.
        #[source]
        source: hyper::Error,
    },
    /// The worker refused.
    #[error("{}", .detail.message)]
    Refused {
        /// The reply's status.
        status: StatusCode,
        /// The error as the worker told it.
        detail: ErrorDetail,
    },
    /// The reply is not what a worker says.
    #[error("an unexpected reply from {target}: {reason}; is it a worker of this release?")]
    Unexpected {
        /// The address that was tried.
        target: Target,
        /// What does not fit.
        reason: String,
    },
}

fn ending(pid: Option<i32>) -> String {
    pid.map(|pid| format!(" (kill -9 {pid})")).unwrap_or_default()
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
