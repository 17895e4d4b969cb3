//! `POST /run/{name}`: calling a function. Every call passes here, so little is done.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use engine::{Served, Start, fault};
use function::{Qualifier, QualifierError};
use platform::access::to;
use platform::invoke::Event;
use sandbox::InvocationId;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Query;
use crate::App;
use crate::error::{ApiError, ErrorBody};
use crate::request::{Budgets, Held, Permitted, body};

/// Says where the sandbox came from: `cold`, `fork` or `resume`.
pub const START: HeaderName = HeaderName::from_static("lambswool-start");

/// Names the invocation, as the logs do. A caller may choose it, to follow the log while the function runs.
pub const INVOCATION: HeaderName = HeaderName::from_static("lambswool-invocation");

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Names the version that ran, where a number or an alias was called.
const VERSION: HeaderName = HeaderName::from_static("lambswool-version");

/// Which version is called.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunQuery {
    /// A published version's number, or an alias; the current version without it.
    #[param(
        min_length = 1,
        max_length = 128,
        pattern = r"^(\$LATEST|[1-9][0-9]{0,8}|[A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*)$"
    )]
    qualifier: Option<String>,
}

/// Call a function and wait for its result.
///
/// The body is the event: JSON, or any bytes for a function with `binary = true`, which sees their content type as
/// `context.content_type`.
///
/// Once a call was admitted, its reply has three headers. `Server-Timing` says how many milliseconds each stage took,
/// `Lambswool-Start` where the sandbox came from, and `Lambswool-Invocation` the id of the call in the log. A request may
/// choose that id; two calls of one id are both in the log. `Lambswool-Version` has the number of the version that ran, where
/// a number or an alias was called.
///
/// A client that hangs up ends the call: the function is stopped wherever it is.
#[utoipa::path(
    post,
    path = "/run/{name}",
    tag = "calls",
    params(
        ("name" = String, Path, description = "the function's name"),
        RunQuery,
        ("lambswool-invocation" = Option<String>, Header, description = "the invocation's id; random by default", pattern = "^[A-Za-z0-9][A-Za-z0-9-]{0,63}$"),
    ),
    request_body(description = "the event", content((serde_json::Value = "application/json"), (Vec<u8> = "application/octet-stream"))),
    responses(
        (status = 200, description = "what the function returned", body = serde_json::Value, headers(
            ("server-timing" = String, description = "milliseconds of each stage"),
            ("lambswool-start" = String, description = "`cold`, `fork` or `resume`"),
            ("lambswool-invocation" = String, description = "the invocation's id"),
        )),
        (status = 400, description = "the body is no JSON, or the name or the invocation's id is not valid", body = ErrorBody),
        (status = 403, description = "the operator no longer allows the function its network", body = ErrorBody),
        (status = 404, description = "no such function or version", body = ErrorBody),
        (status = 408, description = "the body arrives too slowly", body = ErrorBody),
        (status = 413, description = "the body is too large", body = ErrorBody),
        (status = 429, description = "too many calls at once; see Retry-After", body = ErrorBody),
        (status = 502, description = "the function raised, died or did not answer properly", body = ErrorBody),
        (status = 503, description = "no sandbox could be made, the worker is stopping, or too many replies wait to be read", body = ErrorBody),
        (status = 504, description = "the function did not answer in time", body = ErrorBody),
    ),
)]
pub(super) async fn run(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::Invoke>,
    Query(query): Query<RunQuery>,
    headers: HeaderMap,
    counted: Option<Extension<Arc<Held>>>,
    Extension(budgets): Extension<Budgets>,
    body: Body,
) -> Result<Response, ApiError> {
    fault::point("invoke").await;
    let id = invocation(&headers)?;
    let qualifier = qualifier(query)?;
    let target = app.invoker.find(&permit, &qualifier).await?;
    let number = target.number();
    let allowed = body::Allowed {
        bytes: app.settings.run_body.0,
        setting: Some("run_body"),
        patience: app.settings.client_timeout.0,
    };
    // A small one has been read, and counts until `counted` goes.
    let held = counted.is_none().then(|| budgets.run.hold(permit.tenant().as_str()));
    let (body, _held) = body::collect(&headers, body, allowed, held).await?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.map(str::to_owned);
    let event =
        Event { body, content_type, id: id.clone(), lambda: None, tail: false, parts: None };
    let served = app.invoker.call(target, event).await?;
    fault::point("reply").await;
    let mut response = respond(served, &id);
    if let Some(number) = number {
        response.headers_mut().insert(VERSION, HeaderValue::from(number));
    }
    Ok(response)
}

fn qualifier(query: RunQuery) -> Result<Qualifier, ApiError> {
    let Some(text) = query.qualifier else { return Ok(Qualifier::Latest) };
    text.parse().map_err(|refused: QualifierError| {
        ApiError::new(StatusCode::BAD_REQUEST, "bad-version", refused.to_string())
    })
}

/// The id that the caller chose, or a random one.
fn invocation(headers: &HeaderMap) -> Result<InvocationId, ApiError> {
    let Some(chosen) = headers.get(INVOCATION) else {
        return random_id().map_err(|_| ApiError::internal("the kernel gave no random bytes"));
    };
    chosen.to_str().unwrap_or_default().parse().map_err(|reason| {
        let message = format!("the header Lambswool-Invocation is no id: {reason}");
        ApiError::new(StatusCode::BAD_REQUEST, "bad-invocation", message)
    })
}

/// A random id: 128 bits.
///
/// # Errors
/// When the kernel gives no random bytes.
pub fn random_id() -> io::Result<InvocationId> {
    let mut random = [0; 16];
    platform::random::fill(&mut random)?;
    Ok(InvocationId::from_random(random))
}

fn respond(served: Served, id: &InvocationId) -> Response {
    let mut response = match served.result {
        Ok(outcome) => {
            let mut response = Response::new(Body::from(outcome.body));
            // The function chooses it: what is no header value becomes "bytes".
            let content_type = HeaderValue::from_str(&outcome.content_type)
                .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            response
        }
        Err(error) => ApiError::from(error).into_response(),
    };
    let headers = response.headers_mut();
    if let Ok(timing) = HeaderValue::from_str(&served.stages.server_timing()) {
        headers.insert(SERVER_TIMING, timing);
    }
    if let Some(start) = served.start {
        headers.insert(START, HeaderValue::from_static(Start::as_str(start)));
    }
    if let Ok(id) = HeaderValue::from_str(id.as_str()) {
        headers.insert(INVOCATION, id);
    }
    response
}
