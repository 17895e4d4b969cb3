//! Calling a function.

use std::sync::Arc;

use axum::http::StatusCode;
use base64::prelude::*;
use engine::{CallError, LambdaFailure};
use function::LATEST;
use lambda_api::Fault;
use platform::access::{Permit, to};
use platform::events::Full;
use platform::invoke::{Event, InvokeError, Target};
use sandbox::InvocationId;
use sandbox::wire::LambdaCall;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::call::{Answer, Call, Named};
use crate::error::ApiError;

/// The largest payload that an event which nobody waits for may have: the service's own limit.
const EVENT_BYTES: usize = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    function_name: String,
    qualifier: Option<String>,
    #[serde(default)]
    invocation_type: InvocationType,
    #[serde(default)]
    log_type: LogType,
    client_context: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum InvocationType {
    #[default]
    RequestResponse,
    Event,
    DryRun,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum LogType {
    #[default]
    None,
    Tail,
}

/// `Invoke`.
pub(super) async fn invoke(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = call.named(&asked.function_name, asked.qualifier.as_deref())?;
    let permit = call.permit::<to::Invoke>(&named.name)?;
    if let Some(context) = &asked.client_context {
        let text = BASE64_STANDARD.decode(context).ok();
        let read = text.map(|text| serde_json::from_slice::<serde_json::Value>(&text));
        if !matches!(read, Some(Ok(_))) {
            let message = "Client context must be a valid Base64-encoded JSON object.";
            return Err(Fault::invalid_request_content(message));
        }
    }
    let target = call.app.invoker.find(&permit, &named.version()).await;
    let target = target.map_err(|error| not_called(&call, &named, error))?;
    match asked.invocation_type {
        InvocationType::DryRun => Ok(Answer::empty().status(StatusCode::NO_CONTENT)),
        InvocationType::Event => accept(call, permit, asked, &named),
        InvocationType::RequestResponse => wait(call, asked, &named, target).await,
    }
}

/// `InvokeAsync`, the older form of an event.
pub(super) async fn invoke_async(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let named = call.named(&asked.function_name, None)?;
    let permit = call.permit::<to::Invoke>(&named.name)?;
    let target = call.app.invoker.find(&permit, &named.version()).await;
    target.map_err(|error| not_called(&call, &named, error))?;
    accept(call, permit, asked, &named)
}

/// Takes an event, which runs from now on.
fn accept(
    call: Call,
    permit: Permit<to::Invoke>,
    asked: Asked,
    named: &Named,
) -> Result<Answer, Fault> {
    let bytes = call.payload.len();
    if bytes > EVENT_BYTES {
        return Err(Fault::request_too_large(format!(
            "{bytes} byte payload is too large for the Event invocation type (limit {EVENT_BYTES} bytes)"
        )));
    }
    check_json(&call.payload)?;
    // Which version that is will be known when it runs.
    let event = event(&call, named, LATEST, asked);
    let taken = call.app.events.accept(permit, named.version(), event, call.held);
    taken.map_err(|Full| Fault::too_many_requests("ConcurrentInvocationLimitExceeded"))?;
    Ok(Answer::empty().status(StatusCode::ACCEPTED))
}

/// Calls it, and waits for what comes of it.
async fn wait(call: Call, asked: Asked, named: &Named, target: Target) -> Result<Answer, Fault> {
    let version = target.number().map_or_else(|| LATEST.to_owned(), |number| number.to_string());
    let is_tail = asked.log_type == LogType::Tail;
    let event = event(&call, named, &version, asked);
    let served = call.app.invoker.call(target, event).await;
    let served = served.map_err(|error| not_called(&call, named, error))?;
    let answer = match served.result {
        Ok(outcome) => Answer::bytes(outcome.body, &outcome.content_type),
        Err(error) => {
            let failed = failed(error, &call.id)?;
            Answer::json(&failed)?.with("x-amz-function-error", "Unhandled")
        }
    };
    let answer = match is_tail {
        true => answer.with("x-amz-log-result", &BASE64_STANDARD.encode(&served.tail)),
        false => answer,
    };
    Ok(answer.with("x-amz-executed-version", &version))
}

/// What the function is called with.
fn event(call: &Call, named: &Named, version: &str, asked: Asked) -> Event {
    let qualifier = named.qualifier.as_ref().map(ToString::to_string);
    let context = asked.client_context.and_then(|text| BASE64_STANDARD.decode(text).ok());
    let lambda = LambdaCall {
        function_arn: call.arn(named.name.as_str(), qualifier.as_deref()),
        version: version.to_owned(),
        client_context: context.and_then(|text| String::from_utf8(text).ok()),
        trace_id: call.trace_id.clone(),
        tenant_id: None,
    };
    Event {
        body: call.payload.clone(),
        content_type: None,
        id: call.id.clone(),
        lambda: Some(Arc::new(lambda)),
        tail: asked.log_type == LogType::Tail,
    }
}

/// The payload of a call that failed.
///
/// # Errors
/// When it did not fail in the function, and was not made.
fn failed(error: CallError, id: &InvocationId) -> Result<LambdaFailure, Fault> {
    if let CallError::Busy { retry_after } = error {
        let seconds = u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX).max(1);
        let fault = Fault::too_many_requests("ConcurrentInvocationLimitExceeded");
        return Err(fault.with_retry_after(seconds));
    }
    let Some(failure) = error.as_lambda(id) else { return Err(ApiError::from(error).into()) };
    // A class without its module, as the service names it; `Runtime.…` is the runtime's own.
    let kind = &failure.error_type;
    let is_ours = kind.starts_with("Runtime.") || kind.starts_with("Sandbox.");
    let bare = if is_ours { kind } else { kind.rsplit('.').next().unwrap_or(kind) };
    Ok(LambdaFailure { error_type: bare.to_owned(), ..failure })
}

/// Why a function was not called, in the service's words.
fn not_called(call: &Call, named: &Named, error: InvokeError) -> Fault {
    match error {
        InvokeError::Unknown(_) | InvokeError::UnknownVersion { .. } => call.not_found(named),
        InvokeError::NotJson(said) => not_json(&said),
        error => ApiError::from(error).into(),
    }
}

fn check_json(payload: &[u8]) -> Result<(), Fault> {
    if payload.is_empty() {
        return Ok(());
    }
    let read = serde_json::from_slice::<IgnoredAny>(payload);
    read.map(drop).map_err(|error| not_json(&error.to_string()))
}

fn not_json(said: &str) -> Fault {
    Fault::invalid_request_content(format!("Could not parse request body into json: {said}"))
}
