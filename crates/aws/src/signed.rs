//! Signed requests.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use thiserror::Error;
use ureq::http::{Request, Response};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::endpoint::{Endpoint, Service};

/// Most bytes of an answer that is held in memory. Ten messages of a queue are the longest: 1 MiB each, in base64 and escapes.
const MOST: u64 = 64 << 20;

/// Longest wait for a connection, and for the beginning of an answer beyond what the request asks the service to wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a service gave no answer of use.
#[derive(Debug, Error)]
pub enum Failure {
    /// It answered with an error.
    #[error("{code}: {message}")]
    Refused {
        /// The service's name of what is wrong, such as `NoSuchKey`.
        code: String,
        /// The service's words.
        message: String,
    },
    /// There was no answer.
    #[error("{url} does not answer: {source}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// Why there was none.
        source: Box<ureq::Error>,
    },
    /// The answer is none that the service gives.
    #[error("{url} gave an answer that is not understood: {what}")]
    Strange {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The request could not be signed.
    #[error("the request cannot be signed: {0}")]
    Unsigned(String),
}

/// Asks one service.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    endpoint: Endpoint,
    region: String,
    credentials: Credentials,
}

impl Client {
    /// Asks that service, with the credentials of this process's environment. A service that looks at no signature takes any.
    #[must_use]
    pub fn new(endpoint: Endpoint, region: String) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let any = || "lambswool".to_owned();
        let key = variable("AWS_ACCESS_KEY_ID").unwrap_or_else(any);
        let secret = variable("AWS_SECRET_ACCESS_KEY").unwrap_or_else(any);
        let token = variable("AWS_SESSION_TOKEN");
        let credentials = Credentials::new(key, secret, token, None, "environment");
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(PATIENCE))
            .build();
        Self { agent: agent.into(), endpoint, region, credentials }
    }

    /// The service's address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.endpoint.url
    }

    /// Sends a request to a path of the service, and returns the answer whatever its status is. `wait`: how long the service
    /// was asked to wait itself.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        wait: Duration,
    ) -> Result<Response<Body>, Failure> {
        let url = format!("{}{path}", self.endpoint.url);
        let identity = self.credentials.clone().into();
        let mut settings = SigningSettings::default();
        if self.endpoint.service == Service::S3 {
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        }
        let unsigned = |error: &dyn std::error::Error| Failure::Unsigned(error.to_string());
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.endpoint.service.as_str())
            .time(SystemTime::now())
            .settings(settings)
            .build()
            .map_err(|error| unsigned(&error))?
            .into();
        let signable =
            SignableRequest::new(method, &url, headers.iter().copied(), SignableBody::Bytes(body))
                .map_err(|error| unsigned(&error))?;
        let (instructions, _) =
            sign(signable, &parameters).map_err(|error| unsigned(&error))?.into_parts();
        let (signed, _) = instructions.into_parts();
        let mut request = Request::builder().method(method).uri(&url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        for header in &signed {
            request = request.header(header.name(), header.value());
        }
        let request = request.body(body).map_err(|error| unsigned(&error))?;
        let request = self
            .agent
            .configure_request(request)
            .timeout_recv_response(Some(wait + PATIENCE))
            .build();
        let unreachable = |source| Failure::Unreachable { url, source: Box::new(source) };
        self.agent.run(request).map_err(unreachable)
    }

    /// The body of an answer, in memory.
    pub(crate) fn read(&self, answer: &mut Response<Body>) -> Result<Vec<u8>, Failure> {
        let read = answer.body_mut().with_config().limit(MOST).read_to_vec();
        read.map_err(|source| Failure::Unreachable {
            url: self.url().to_owned(),
            source: Box::new(source),
        })
    }

    pub(crate) fn strange(&self, what: impl Into<String>) -> Failure {
        Failure::Strange { url: self.url().to_owned(), what: what.into() }
    }
}
