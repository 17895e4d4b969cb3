//! Calling a function.

use axum::http::StatusCode;
use base64::prelude::*;
use engine::CallError;
use function::LATEST;
use lambda_api::Fault;
use platform::access::{Permit, to};
use platform::events::Full;
use platform::invoke::{Event, InvokeError, Target};
use sandbox::Death;
use sandbox::wire::Failure;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

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
    client_context: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum InvocationType {
    #[default]
    RequestResponse,
    Event,
    DryRun,
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
        InvocationType::Event => accept(call, permit, &named),
        InvocationType::RequestResponse => wait(call, &named, target).await,
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedAsync {
    function_name: String,
}

/// `InvokeAsync`, the older form of an event.
pub(super) async fn invoke_async(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedAsync = call.read()?;
    let named = call.named(&asked.function_name, None)?;
    let permit = call.permit::<to::Invoke>(&named.name)?;
    let target = call.app.invoker.find(&permit, &named.version()).await;
    target.map_err(|error| not_called(&call, &named, error))?;
    accept(call, permit, &named)
}

/// Takes an event, which runs from now on.
fn accept(call: Call, permit: Permit<to::Invoke>, named: &Named) -> Result<Answer, Fault> {
    if call.payload.len() > EVENT_BYTES {
        let told = format!(
            "{} byte payload is too large for the Event invocation type (limit {EVENT_BYTES} bytes)",
            call.payload.len()
        );
        return Err(Fault::request_too_large(told));
    }
    check_json(&call.payload)?;
    let event = Event { body: call.payload, content_type: None, id: call.id };
    let taken = call.app.events.accept(permit, named.version(), event, call.held);
    taken.map_err(|Full| Fault::too_many_requests("ConcurrentInvocationLimitExceeded"))?;
    Ok(Answer::empty().status(StatusCode::ACCEPTED))
}

/// Calls it, and waits for what comes of it.
async fn wait(call: Call, named: &Named, target: Target) -> Result<Answer, Fault> {
    let version = target.number().map_or_else(|| LATEST.to_owned(), |number| number.to_string());
    let event = Event { body: call.payload.clone(), content_type: None, id: call.id.clone() };
    let served = call.app.invoker.call(target, event).await;
    let served = served.map_err(|error| not_called(&call, named, error))?;
    let answer = match served.result {
        Ok(outcome) => Answer::bytes(outcome.body, &outcome.content_type),
        Err(error) => {
            let failed = Failed::of(error, call.id.as_str())?;
            Answer::json(&failed)?.with("x-amz-function-error", "Unhandled")
        }
    };
    Ok(answer.with("x-amz-executed-version", &version))
}

/// What a call came to that failed: the payload in place of a result.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failed {
    error_message: String,
    error_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack_trace: Option<Vec<String>>,
}

impl Failed {
    /// An error of the function, or of its sandbox.
    ///
    /// # Errors
    /// When the worker could not call it.
    fn of(error: CallError, id: &str) -> Result<Self, Fault> {
        let whole = |error_type: &str, message: String| Self {
            error_message: format!("RequestId: {id} Error: {message}"),
            error_type: error_type.to_owned(),
            request_id: None,
            stack_trace: None,
        };
        Ok(match error {
            CallError::Raised(failure) => Self::raised(failure, id),
            CallError::NotLoaded(failure) => Self::raised(failure, ""),
            CallError::Died(death) => {
                let how = match death {
                    Death::OutOfMemory => "Runtime exited with error: signal: killed".to_owned(),
                    Death::Exited(code) if code != 0 => {
                        format!("Runtime exited with error: exit status {code}")
                    }
                    Death::Signal(number) => {
                        format!("Runtime exited with error: signal: {number}")
                    }
                    Death::Exited(_) | Death::Unknown => {
                        "Runtime exited without providing a reason".to_owned()
                    }
                };
                whole("Runtime.ExitError", how)
            }
            CallError::TimedOut { limit } => {
                let seconds = limit.as_secs_f64();
                whole("Sandbox.Timedout", format!("Task timed out after {seconds:.2} seconds"))
            }
            CallError::BadAnswer(said) => whole("Runtime.BadAnswer", said),
            CallError::Busy { retry_after } => {
                let seconds = u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX).max(1);
                let fault = Fault::too_many_requests("ConcurrentInvocationLimitExceeded");
                return Err(fault.with_retry_after(seconds));
            }
            CallError::NoSandbox(_)
            | CallError::NoSecrets(_)
            | CallError::Lost
            | CallError::Stopping => return Err(ApiError::from(error).into()),
        })
    }

    fn raised(failure: Failure, id: &str) -> Self {
        // A class is named without its module, as AWS's runtime does; `Runtime.…` is the runtime's own.
        let error_type = match failure.error_type.strip_prefix("Runtime.") {
            Some(_) => failure.error_type.clone(),
            None => failure.error_type.rsplit('.').next().unwrap_or_default().to_owned(),
        };
        Self {
            error_message: failure.message,
            error_type,
            request_id: Some(id.to_owned()),
            stack_trace: Some(failure.traceback),
        }
    }
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
