//! Errors of ours in the service's form.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use lambda_api::Fault;

use crate::error::ApiError;
use crate::request::Refusal;

/// Names the error, for clients that do not look into the body.
const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        let message = error.detail().message.clone();
        let fault = match (&*error.detail().r#type, error.status().as_u16()) {
            ("unauthorized", _) => Self::unrecognized_client(format!(
                "{message}; clients of AWS take it as AWS_SESSION_TOKEN: `wool env` prints what they read"
            )),
            ("body-too-large", _) => Self::request_entity_too_large(message),
            ("no-sandbox" | "no-secrets" | "stopping", _) => Self::resource_not_ready(message),
            // Not again: what was asked for was done.
            ("reply-dropped", _) => Self::request_too_large(message),
            ("slow-body", _) => Self::service(message),
            ("quota", _) => Self::code_storage_exceeded(message),
            (_, 404) => Self::resource_not_found(message),
            (_, 403) => Self::access_denied(message),
            (_, 409) => Self::resource_conflict(message),
            (_, 429) => Self::too_many_requests("CallerRateLimitExceeded"),
            (_, 400..500) => Self::invalid_parameter_value(message),
            _ => Self::service(message),
        };
        match error.retry_after() {
            Some(seconds) => fault.with_retry_after(seconds),
            None => fault,
        }
    }
}

impl Refusal for Fault {
    fn kind(&self) -> &str {
        self.code()
    }
}

/// The reply of an error.
pub(super) fn respond(fault: Fault) -> Response {
    let mut response = Response::new(Body::from(fault.body()));
    *response.status_mut() =
        StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(code) = HeaderValue::from_str(fault.code()) {
        headers.insert(ERROR_TYPE, code);
    }
    if let Some(after) = fault.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after));
    }
    response
}
