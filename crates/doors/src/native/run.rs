//! `POST /run/{name}`: the path that has to be short.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use engine::{Call, Handler, Served, Stage, Stages, Start, fault};
use sandbox::{InvocationId, Layer};
use serde::de::IgnoredAny;

use super::budget::{Budgets, Held};
use super::error::ApiError;
use super::{App, Named, body};
use platform::throttled_log::Seldom;

/// Says where the sandbox came from: `cold`, `fork` or `resume`.
pub const START: HeaderName = HeaderName::from_static("lambswool-start");

/// Names the invocation, as the logs do. A caller may choose it, to follow the log while the function runs.
pub const INVOCATION: HeaderName = HeaderName::from_static("lambswool-invocation");

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

const JSON: &str = "application/json";

/// Callers can bring it about as often as they call.
static NO_SANDBOX: Seldom = Seldom::new(Duration::from_secs(10));

/// Call a function and wait for its result.
///
/// The body is the event: JSON, or, for a function with `binary = true`, any bytes, whose content type the function
/// sees as `context.content_type`. Every reply of a call that was let in says in `Server-Timing` how long each stage took (milliseconds), in
/// `Lambswool-Start` where the sandbox came from, and in `Lambswool-Invocation` which lines of the log are its own. Who
/// wants to know that before the reply says it in the request: whoever takes a name twice finds both in the log.
///
/// Whoever hangs up ends the call: the function is stopped wherever it is.
#[utoipa::path(
    post,
    path = "/run/{name}",
    tag = "calls",
    params(
        ("name" = String, Path, description = "the function's name"),
        ("lambswool-invocation" = Option<String>, Header, description = "the invocation's id; a random one unless said", pattern = "^[A-Za-z0-9][A-Za-z0-9-]{0,63}$"),
    ),
    request_body(description = "the event", content((serde_json::Value = "application/json"), (Vec<u8> = "application/octet-stream"))),
    responses(
        (status = 200, description = "what the function returned", body = serde_json::Value, headers(
            ("server-timing" = String, description = "milliseconds of each stage"),
            ("lambswool-start" = String, description = "`cold`, `fork` or `resume`"),
            ("lambswool-invocation" = String, description = "the invocation's id"),
        )),
        (status = 400, description = "the body is no JSON, or the name or the invocation's id is none", body = super::ErrorBody),
        (status = 403, description = "the operator no longer allows the function its network", body = super::ErrorBody),
        (status = 404, description = "no such function", body = super::ErrorBody),
        (status = 408, description = "the body comes too slowly", body = super::ErrorBody),
        (status = 413, description = "the body is too large", body = super::ErrorBody),
        (status = 429, description = "too many calls at once; see Retry-After", body = super::ErrorBody),
        (status = 502, description = "the function raised, died or did not answer properly", body = super::ErrorBody),
        (status = 503, description = "no sandbox could be made, the worker is stopping, or too many replies wait to be read", body = super::ErrorBody),
        (status = 504, description = "the function did not answer in time", body = super::ErrorBody),
    ),
)]
pub(super) async fn run(
    State(app): State<Arc<App>>,
    Named(name): Named,
    headers: HeaderMap,
    counted: Option<Extension<Arc<Held>>>,
    Extension(budgets): Extension<Budgets>,
    body: Body,
) -> Result<Response, ApiError> {
    fault::point("invoke").await;
    let began = Instant::now();
    let id = invocation(&headers)?;
    let handler =
        app.registry.resolve(&name).ok_or_else(|| ApiError::unknown_function(name.name()))?;
    app.networks.check(&handler).map_err(ApiError::not_allowed)?;
    let resolved = began.elapsed();
    metrics::histogram!("lambswool_stage_seconds", "stage" => Stage::Resolve.as_str())
        .record(resolved);
    fault::point(Stage::Resolve.as_str()).await;
    let allowed = body::Allowed {
        bytes: app.settings.run_body.0,
        setting: Some("run_body"),
        patience: app.settings.client_timeout.0,
    };
    // A small one has been read, and counts until `counted` goes.
    let held = counted.is_none().then(|| budgets.run.hold(name.tenant()));
    let (body, _held) = body::collect(&headers, body, allowed, held).await?;
    let body = if handler.binary { body } else { without_mark(body) };
    let content_type = content_type(&handler, &headers, &body)?;
    let admitted =
        app.quotas.admit(&handler.tenant, handler.limits.charged_bytes(), Instant::now());
    let _part = admitted.map_err(|exhausted| ApiError::exhausted(name.tenant(), exhausted))?;
    let call = Call { handler: Arc::clone(&handler), body, content_type, id: id.clone() };
    let served = app.engine.serve(call).await;
    fault::point("reply").await;
    let mut stages = Stages::default();
    stages.record(Stage::Resolve, resolved);
    stages.0.extend(served.stages.0.iter().copied());
    let gone = match &served.result {
        Err(engine::CallError::NoSandbox(_)) => gone(&app.state, &handler),
        _ => None,
    };
    Ok(respond(served, &stages, &id, gone))
}

/// What is not there any more of what a function is made of, and what repairs that: somebody or something else has removed it.
fn gone(state: &Path, handler: &Handler) -> Option<ApiError> {
    let is_gone = |layer: &Layer| !state.join("layers").join(layer.as_path()).is_dir();
    let own = [Some(&handler.code), handler.packages.as_ref()];
    let (layer, way) = if is_gone(&handler.python.base) {
        (
            &handler.python.base,
            "make its Python again with `wool base build`; `wool doctor` says of which",
        )
    } else {
        let layer = own.into_iter().flatten().find(|layer| is_gone(layer))?;
        (layer, "deploy the function again")
    };
    let message = format!(
        "no sandbox could be made: layers/{} is gone from {}: {way}",
        layer.as_path().display(),
        state.display()
    );
    Some(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no-sandbox", message))
}

/// The event's content type. An event that is no JSON is refused before anything is made for it.
fn content_type(handler: &Handler, headers: &HeaderMap, body: &Bytes) -> Result<String, ApiError> {
    if handler.binary {
        let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        return Ok(said.unwrap_or("application/octet-stream").to_owned());
    }
    if !body.is_empty()
        && let Err(reason) = check_json(body)
    {
        let message = format!(
            "the body is no JSON: {reason}; send JSON, or set `binary = true` in the function's [tool.lambswool] to take bytes"
        );
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad-json", message));
    }
    Ok(JSON.to_owned())
}

/// JSON without the mark of UTF-8 that some programs put before it: a reader may pass over it (RFC 8259, section 8.1).
fn without_mark(body: Bytes) -> Bytes {
    if body.starts_with(b"\xef\xbb\xbf") { body.slice(3..) } else { body }
}

fn check_json(body: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    serde_json::from_str::<IgnoredAny>(text).map(drop).map_err(|error| error.to_string())
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

/// An id that nobody else has.
///
/// # Errors
/// When the kernel gives no random bytes.
pub fn random_id() -> io::Result<InvocationId> {
    let mut random = [0; 16];
    // Up to 256 bytes are never cut short: getrandom(2).
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(InvocationId::from_random(random))
}

fn respond(served: Served, stages: &Stages, id: &InvocationId, gone: Option<ApiError>) -> Response {
    let mut response = match served.result {
        Ok(outcome) => {
            let mut response = Response::new(Body::from(outcome.body));
            // The function chooses it: what is no header value becomes "bytes".
            let content_type = HeaderValue::from_str(&outcome.content_type)
                .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            response
        }
        Err(error) => {
            if let engine::CallError::NoSandbox(source) = &error
                && let Some(unsaid) = NO_SANDBOX.now(Instant::now())
            {
                let error = sandbox::chain(source);
                tracing::warn!(%error, unsaid, "no sandbox could be made");
            }
            gone.unwrap_or_else(|| ApiError::from(error)).into_response()
        }
    };
    let headers = response.headers_mut();
    if let Ok(timing) = HeaderValue::from_str(&stages.server_timing()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_passes_for_json() {
        for good in [
            "{}",
            " [1, 2.5e3, \"ü\"] ",
            "null",
            "\"a\"",
            &format!("{}1{}", "[".repeat(500), "]".repeat(500)),
        ] {
            assert_eq!(check_json(good.as_bytes()), Ok(()), "{good}");
        }
        for bad in ["{", "{'a': 1}", "[1,]", "NaN", "{} {}", "a=1"] {
            assert!(check_json(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(check_json(b"\"\xff\"").is_err());
    }
}
