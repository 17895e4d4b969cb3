//! Errors as a client sees them: a status, and `{"error": {"type", "message"}}` that says what to do next.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::CallError;
use sandbox::chain;
use sandbox::wire::Failure;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use function::NameError;
use platform::access::Denied;
use platform::deploy::DeployError;
use platform::deploy::workshop::MakeError;
use platform::functions::RegistryError;
use platform::invoke::InvokeError;
use platform::limits::quotas::Exhausted;
use platform::network_policy::NotAllowed;
use store::StoreError;

/// The body of every reply that is no success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs: one of ours such as `unknown-function`, or the class of the function's own exception.
    pub r#type: String,
    /// For people: what happened and what to do.
    pub message: String,
    /// The function's own lines of the traceback, when it raised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traceback: Vec<String>,
}

/// An error on its way to a client.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    detail: ErrorDetail,
    retry_after: Option<Duration>,
}

impl ApiError {
    /// An error of ours.
    pub fn new(status: StatusCode, r#type: &str, message: impl Into<String>) -> Self {
        let detail = ErrorDetail {
            r#type: r#type.to_owned(),
            message: message.into(),
            traceback: Vec::new(),
        };
        Self { status, detail, retry_after: None }
    }

    /// No function has this name.
    #[must_use]
    pub fn unknown_function(name: &str) -> Self {
        let message = format!(
            "no function {name:?}: deploy it with `wool deploy`, or see what is there with `wool ls`"
        );
        Self::new(StatusCode::NOT_FOUND, "unknown-function", message)
    }

    /// The operator does not allow, or no longer, what the function asks for.
    pub(crate) fn not_allowed(refused: NotAllowed) -> Self {
        Self::new(StatusCode::FORBIDDEN, "network", refused.to_string())
    }

    /// There is no room now; there will be.
    pub(crate) fn busy(retry_after: Duration, message: impl Into<String>) -> Self {
        let retry_after = Some(retry_after);
        Self { retry_after, ..Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", message) }
    }

    /// A tenant takes all that it may.
    pub(crate) fn exhausted(tenant: &str, Exhausted { limit, retry_after }: Exhausted) -> Self {
        let message = format!(
            "{tenant} takes as much as it may: try again later, or have the operator raise `{limit}` in [tenants.{tenant}]"
        );
        Self::busy(retry_after, message)
    }

    /// The work is done, and its reply was dropped because no client read it.
    pub(crate) fn reply_dropped() -> Self {
        let message = "what was asked for was done, and its reply dropped: the worker holds as many bytes of replies as it may, or as many of this tenant's; read replies as they come, or raise `internals.run_bodies` in its configuration";
        let retry_after = Some(Duration::from_secs(1));
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { retry_after, ..Self::new(status, "reply-dropped", message) }
    }

    /// All connections that there may be are in use.
    pub(crate) fn too_many_connections() -> Self {
        let message = "the worker answers as many connections as it may: try again later, or raise `internals.connections` in its configuration";
        let retry_after = Some(Duration::from_secs(1));
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { retry_after, ..Self::new(status, "too-many-connections", message) }
    }

    /// The caller is not known, and has to be.
    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// The worker could not do its own part.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// The status of its reply.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// When to try again, in whole seconds: zero would mean "at once".
    pub(crate) fn retry_after(&self) -> Option<u32> {
        let after = self.retry_after?;
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        Some(u32::try_from(seconds).unwrap_or(u32::MAX).max(1))
    }

    /// What the client will read.
    #[must_use]
    pub fn detail(&self) -> &ErrorDetail {
        &self.detail
    }

    fn failed(failure: Failure) -> Self {
        let message = engine::message_of(&failure);
        let Failure { error_type, traceback, .. } = failure;
        let detail = ErrorDetail { r#type: error_type, message, traceback };
        Self { status: StatusCode::BAD_GATEWAY, detail, retry_after: None }
    }
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        let message = chain(&error);
        match error {
            CallError::Busy { retry_after } => Self::busy(retry_after, message),
            CallError::Raised(failure) | CallError::NotLoaded(failure) => Self::failed(failure),
            CallError::Died(_) => Self::new(StatusCode::BAD_GATEWAY, "died", message),
            CallError::BadAnswer(_) | CallError::TooLong { .. } => {
                Self::new(StatusCode::BAD_GATEWAY, "bad-answer", message)
            }
            CallError::TimedOut { .. } => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "timed-out", message)
            }
            CallError::NoSandbox(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no-sandbox",
                format!("{message}; `wool doctor` says what is missing"),
            ),
            CallError::NoSecrets(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-secrets", message)
            }
            CallError::Lost | CallError::Stopping => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message)
            }
        }
    }
}

impl From<InvokeError> for ApiError {
    fn from(error: InvokeError) -> Self {
        let message = chain(&error);
        match error {
            InvokeError::Unknown(name) => Self::unknown_function(name.name()),
            InvokeError::UnknownVersion { .. } => {
                Self::new(StatusCode::NOT_FOUND, "unknown-version", message)
            }
            InvokeError::NotAllowed(refused) => Self::not_allowed(refused),
            InvokeError::NotJson(_) => Self::new(StatusCode::BAD_REQUEST, "bad-json", message),
            InvokeError::Reserved(_) => Self::busy(Duration::from_secs(1), message),
            InvokeError::Exhausted(name, exhausted) => Self::exhausted(name.tenant(), exhausted),
            InvokeError::NotMade { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-sandbox", message)
            }
            InvokeError::BeingMade { .. } | InvokeError::Replaced(_) => {
                let retry_after = Some(Duration::from_secs(10));
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Self { retry_after, ..Self::new(status, "no-sandbox", message) }
            }
        }
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        let (status, kind) = match &denied {
            Denied::WrongTenant { .. } => (StatusCode::FORBIDDEN, "wrong-tenant"),
            Denied::WrongScope { .. } => (StatusCode::FORBIDDEN, "wrong-scope"),
            Denied::WrongFunction { .. } => (StatusCode::FORBIDDEN, "wrong-function"),
        };
        Self::new(status, kind, denied.to_string())
    }
}

impl From<DeployError> for ApiError {
    fn from(error: DeployError) -> Self {
        Self::from(&error)
    }
}

impl From<&DeployError> for ApiError {
    fn from(error: &DeployError) -> Self {
        match error {
            DeployError::Make(MakeError::Function { step, message }) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, step, message.clone())
            }
            DeployError::Make(MakeError::Machine { step, message }) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, step, message.clone())
            }
            DeployError::Removed(name) => Self::unknown_function(name.name()),
            DeployError::GivenUp => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error.to_string())
            }
            DeployError::Store(
                full @ (RegistryError::Full { .. } | RegistryError::FullOfLayers { .. }),
            ) => Self::new(StatusCode::FORBIDDEN, "quota", full.to_string()),
            DeployError::Store(RegistryError::Unknown(name)) => Self::unknown_function(name.name()),
            DeployError::Store(there @ (RegistryError::Exists(_) | RegistryError::Changed(_))) => {
                Self::new(StatusCode::CONFLICT, "conflict", there.to_string())
            }
            DeployError::Store(_) | DeployError::Secrets(_) | DeployError::BrokeOff => {
                Self::internal(chain(error))
            }
        }
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        DeployError::from(error).into()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::internal(chain(&error))
    }
}

impl From<QueryRejection> for ApiError {
    fn from(error: QueryRejection) -> Self {
        let message = format!("{}; /openapi.json says what this path takes", error.body_text());
        Self::new(StatusCode::BAD_REQUEST, "bad-query", message)
    }
}

impl From<NameError> for ApiError {
    fn from(error: NameError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-name", error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (kind, after) = (ErrorType(self.detail.r#type.clone()), self.retry_after());
        let mut response = (self.status, Json(ErrorBody { error: self.detail })).into_response();
        response.extensions_mut().insert(kind);
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        if let Some(after) = after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after));
        }
        response
    }
}

/// The type of a reply's error, for code that sees the reply and not its body.
#[derive(Clone, Debug)]
pub(crate) struct ErrorType(pub(crate) String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_that_a_call_fails_has_its_status() {
        let status = |error: CallError| ApiError::from(error).into_response().status().as_u16();
        assert_eq!(status(CallError::Busy { retry_after: Duration::from_millis(20) }), 429);
        assert_eq!(status(CallError::Raised(Failure::default())), 502);
        for (said, told) in [
            ("", "the setting `memory` in [tool.lambswool] allows more"),
            ("40 MiB", "40 MiB; the setting `memory` in [tool.lambswool] allows more"),
        ] {
            let (error_type, message) = ("MemoryError".to_owned(), said.to_owned());
            let failure = Failure { error_type, message, ..Failure::default() };
            assert_eq!(ApiError::from(CallError::Raised(failure)).detail().message, told);
        }
        assert_eq!(status(CallError::NotLoaded(Failure::default())), 502);
        assert_eq!(status(CallError::Died(sandbox::Death::OutOfMemory)), 502);
        assert_eq!(status(CallError::BadAnswer(String::new())), 502);
        assert_eq!(status(CallError::TimedOut { limit: Duration::from_secs(1) }), 504);
        assert_eq!(status(CallError::NoSandbox(sandbox::ProviderError::WardenGone)), 503);
        assert_eq!(status(CallError::Lost), 503);
        assert_eq!(status(CallError::Stopping), 503);
    }

    #[test]
    fn a_busy_reply_never_says_to_come_back_at_once() {
        let response = ApiError::from(CallError::Busy { retry_after: Duration::from_millis(20) })
            .into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    }
}
