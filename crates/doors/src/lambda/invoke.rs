//! Calling a function.

use std::sync::Arc;

use axum::http::StatusCode;
use base64::prelude::*;
use engine::{CallError, LambdaFailure, Outcome};
use function::LATEST;
use lambda_api::Fault;
use lambda_api::eventstream::{self, Complete};
use platform::access::{Permit, to};
use platform::events::Full;
use platform::invoke::{Event, InvokeError, Target};
use sandbox::InvocationId;
use sandbox::wire::LambdaCall;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::call::{Answer, Call, Named};
use super::event_invoke;
use crate::error::ApiError;

/// The largest payload of an event that no client waits for: the service's own limit.
const EVENT_BYTES: usize = 1 << 20;

/// The longest client context, as Base64: the service's own limit.
const CONTEXT_BYTES: usize = 3583;

/// How a function whose failure nothing handles is told of.
const UNHANDLED: &str = "Unhandled";

/// Names the version that ran.
const EXECUTED_VERSION: &str = "x-amz-executed-version";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Members {
    function_name: String,
    qualifier: Option<String>,
    #[serde(default)]
    invocation_type: InvocationType,
    #[serde(default)]
    log_type: LogType,
    client_context: Option<String>,
    tenant_id: Option<String>,
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

/// `Invoke`: waits for the result, runs an event later, or only asks whether it may.
pub(super) async fn invoke(mut call: Call) -> Result<Answer, Fault> {
    let Asked { named, permit, target, asked } = asked(&mut call).await?;
    match asked.invocation_type {
        InvocationType::DryRun => Ok(Answer::empty().status(StatusCode::NO_CONTENT)),
        InvocationType::Event => accept(call, permit, &asked, &named),
        InvocationType::RequestResponse => {
            let Ended { version, result, log } = wait(&call, &asked, &named, target).await?;
            let answer = match result {
                Ok(outcome) => Answer::bytes(outcome.body, &outcome.content_type),
                Err(failed) => Answer::json(&failed)?.with("x-amz-function-error", UNHANDLED),
            };
            let answer = match log {
                Some(log) => answer.with("x-amz-log-result", &log),
                None => answer,
            };
            Ok(answer.with(EXECUTED_VERSION, &version))
        }
    }
}

/// `InvokeWithResponseStream`: what the function returns is one part of the stream, once it has returned.
pub(super) async fn stream(mut call: Call) -> Result<Answer, Fault> {
    let Asked { named, target, asked, .. } = asked(&mut call).await?;
    if asked.invocation_type == InvocationType::DryRun {
        return Ok(Answer::empty().status(StatusCode::NO_CONTENT));
    }
    let Ended { version, result, log } = wait(&call, &asked, &named, target).await?;
    let (mut frames, failed) = match result {
        Ok(outcome) => (eventstream::chunk(&outcome.body), None),
        Err(failed) => (Vec::new(), Some(serde_json::to_string(&failed).unwrap_or_default())),
    };
    let error_code = failed.as_ref().map(|_| UNHANDLED.to_owned());
    let end = Complete { error_code, error_details: failed, log_result: log };
    frames.extend(eventstream::complete(&end));
    let answer = Answer::bytes(frames.into(), eventstream::CONTENT_TYPE);
    Ok(answer.with(EXECUTED_VERSION, &version))
}

/// A call that may be made.
struct Asked {
    named: Named,
    permit: Permit<to::Invoke>,
    target: Target,
    asked: Members,
}

/// What is to be called, and how.
async fn asked(call: &mut Call) -> Result<Asked, Fault> {
    let asked: Members = call.read()?;
    let named = call.named(&asked.function_name, asked.qualifier.as_deref())?;
    let permit = call.permit::<to::Invoke>(&named.name)?;
    if let Some(context) = &asked.client_context {
        let text = BASE64_STANDARD.decode(context).ok();
        let read = text.map(|text| serde_json::from_slice::<Map<String, Value>>(&text));
        if context.len() > CONTEXT_BYTES || !matches!(read, Some(Ok(_))) {
            return Err(Fault::invalid_request_content(format!(
                "Client context must be a valid Base64-encoded JSON object of at most {CONTEXT_BYTES} bytes."
            )));
        }
    }
    let target = call.app.invoker.find(&permit, &named.version()).await;
    let target = target.map_err(|error| not_called(call, &named, error))?;
    Ok(Asked { named, permit, target, asked })
}

/// `InvokeAsync`, the older form of an event.
pub(super) async fn invoke_async(mut call: Call) -> Result<Answer, Fault> {
    let Asked { named, permit, asked, .. } = asked(&mut call).await?;
    accept(call, permit, &asked, &named)
}

/// Takes an event, which runs from now on.
fn accept(
    call: Call,
    permit: Permit<to::Invoke>,
    asked: &Members,
    named: &Named,
) -> Result<Answer, Fault> {
    let bytes = call.payload.len();
    if bytes > EVENT_BYTES {
        return Err(Fault::request_too_large(format!(
            "{bytes} byte payload is too large for the Event invocation type (limit {EVENT_BYTES} bytes)"
        )));
    }
    check_json(&call.payload)?;
    let tries = event_invoke::tries(&call.app, &permit, &named.version());
    let event = event(&call, named, asked);
    let taken = call.app.events.accept(permit, named.version(), event, tries);
    taken.map_err(|Full| Fault::too_many_requests("ConcurrentInvocationLimitExceeded"))?;
    Ok(Answer::empty().status(StatusCode::ACCEPTED))
}

/// A call that ended.
struct Ended {
    version: String,
    result: Result<Outcome, LambdaFailure>,
    /// The end of its log, as Base64, where that was asked for.
    log: Option<String>,
}

/// Calls it, and waits for what comes of it.
async fn wait(call: &Call, asked: &Members, named: &Named, target: Target) -> Result<Ended, Fault> {
    let version = target.number().map_or_else(|| LATEST.to_owned(), |number| number.to_string());
    let served = call.app.invoker.call(target, event(call, named, asked)).await;
    let served = served.map_err(|error| not_called(call, named, error))?;
    let result = match served.result {
        Ok(outcome) => Ok(outcome),
        Err(error) => Err(failed(error, &call.id)?),
    };
    let is_tail = asked.log_type == LogType::Tail;
    let log = is_tail.then(|| BASE64_STANDARD.encode(&served.tail));
    Ok(Ended { version, result, log })
}

/// What the function is called with.
fn event(call: &Call, named: &Named, asked: &Members) -> Event {
    let qualifier = named.qualifier.as_ref().map(ToString::to_string);
    let context = asked.client_context.as_ref().and_then(|text| BASE64_STANDARD.decode(text).ok());
    let lambda = LambdaCall {
        function_arn: call.arn(named.name.as_str(), qualifier.as_deref()),
        client_context: context.and_then(|text| String::from_utf8(text).ok()),
        trace_id: Some(call.trace_id.clone()),
        tenant_id: asked.tenant_id.clone(),
        ..LambdaCall::default()
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
    let is_raised = matches!(error, CallError::Raised(_) | CallError::NotLoaded(_));
    if !is_raised || failure.error_type.starts_with("Runtime.") {
        return Ok(failure);
    }
    // A class without its module, as the service names it.
    let bare = failure.error_type.rsplit('.').next().unwrap_or_default();
    Ok(LambdaFailure { error_type: bare.to_owned(), ..failure })
}

/// Why a function was not called, in the service's words.
fn not_called(call: &Call, named: &Named, error: InvokeError) -> Fault {
    match error {
        InvokeError::Unknown(_) | InvokeError::UnknownVersion { .. } => call.not_found(named),
        InvokeError::NotJson(said) => not_json(&said),
        InvokeError::Reserved(_) => {
            Fault::too_many_requests("ReservedFunctionConcurrentInvocationLimitExceeded")
        }
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
