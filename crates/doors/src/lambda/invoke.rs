//! Calling a function.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use base64::prelude::*;
use bytes::Bytes;
use engine::{CallError, LambdaFailure, Outcome};
use function::LATEST;
use futures_util::StreamExt as _;
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
use tokio::sync::mpsc;

use super::call::{Answer, Call, Named};
use super::event_invoke;
use crate::error::ApiError;

/// The largest payload of an event that no client waits for: the service's own limit.
const EVENT_BYTES: usize = 1 << 20;

/// The longest client context, as Base64: the service's own limit.
const CONTEXT_BYTES: usize = 3583;

/// How a function whose failure nothing handles is told of.
const UNHANDLED: &str = "Unhandled";

/// Parts of a result that wait for a client to read them. Then the function waits, too.
const PARTS: usize = 4;

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
            let version = version_of(&target);
            let Ended { result, log } = wait(&call, &asked, &named, target, None).await?;
            let answer = match result {
                Ok(outcome) => Answer::bytes(outcome.body, &outcome.content_type),
                Err(failed) => Answer::bytes(Bytes::from(failed.to_json()), "application/json")
                    .with("x-amz-function-error", UNHANDLED),
            };
            let answer = match log {
                Some(log) => answer.with("x-amz-log-result", &log),
                None => answer,
            };
            Ok(answer.with(EXECUTED_VERSION, &version))
        }
    }
}

/// `InvokeWithResponseStream`: the parts that the function yields, as they come; of another one, what it returns.
pub(super) async fn stream(mut call: Call) -> Result<Answer, Fault> {
    let Asked { named, target, asked, .. } = asked(&mut call).await?;
    if asked.invocation_type == InvocationType::DryRun {
        return Ok(Answer::empty().status(StatusCode::NO_CONTENT));
    }
    let version = version_of(&target);
    let (sink, parts) = mpsc::channel(PARTS);
    let ended = async move { wait(&call, &asked, &named, target, Some(sink)).await };
    let mut streamed = Streamed { parts, ended: Some(Box::pin(ended)) };
    // Until there is a part, it can still be refused.
    let first = streamed.next().await.unwrap_or(Ok(Bytes::new()))?;
    let first = futures_util::stream::iter([Ok(first)]);
    let rest = futures_util::stream::unfold(streamed, async |mut streamed| {
        // What a fault says can be told no more: the stream breaks off.
        streamed.next().await.map(|part| (part, streamed))
    });
    let body = Body::from_stream(first.chain(rest));
    Ok(Answer::body(body, eventstream::CONTENT_TYPE).with(EXECUTED_VERSION, &version))
}

type Ending = Pin<Box<dyn Future<Output = Result<Ended, Fault>> + Send>>;

/// A call whose parts are sent on as they come. Dropping it ends the call.
struct Streamed {
    parts: mpsc::Receiver<Bytes>,
    /// None: it has ended, and that was told.
    ended: Option<Ending>,
}

impl Streamed {
    /// The next frames; none: there are no more.
    async fn next(&mut self) -> Option<Result<Bytes, Fault>> {
        let ended = self.ended.as_mut()?;
        let ended = tokio::select! {
            biased;
            Some(part) = self.parts.recv() => return Some(Ok(eventstream::chunk(&part).into())),
            ended = ended => ended,
        };
        self.ended = None;
        let Ended { result, log } = match ended {
            Ok(ended) => ended,
            Err(fault) => return Some(Err(fault)),
        };
        let mut frames = Vec::new();
        while let Ok(part) = self.parts.try_recv() {
            frames.extend(eventstream::chunk(&part));
        }
        let failed = match result {
            Ok(outcome) => {
                frames.extend(eventstream::chunk(&outcome.body));
                None
            }
            Err(failed) => Some(failed.to_json()),
        };
        let error_code = failed.as_ref().map(|_| UNHANDLED.to_owned());
        let end = Complete { error_code, error_details: failed, log_result: log };
        frames.extend(eventstream::complete(&end));
        Some(Ok(frames.into()))
    }
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
    let event = event(&call, named, asked, None);
    let taken = call.app.events.accept(permit, named.version(), event, tries);
    taken.map_err(|Full| Fault::too_many_requests("ConcurrentInvocationLimitExceeded"))?;
    Ok(Answer::empty().status(StatusCode::ACCEPTED))
}

/// A call that ended.
struct Ended {
    result: Result<Outcome, LambdaFailure>,
    /// The end of its log, as Base64, where that was asked for.
    log: Option<String>,
}

/// Calls it, and waits for what comes of it.
async fn wait(
    call: &Call,
    asked: &Members,
    named: &Named,
    target: Target,
    parts: Option<mpsc::Sender<Bytes>>,
) -> Result<Ended, Fault> {
    let event = event(call, named, asked, parts);
    let served = call.app.invoker.call(target, event).await;
    let served = served.map_err(|error| not_called(call, named, error))?;
    let result = match served.result {
        Ok(outcome) => Ok(outcome),
        Err(error) => Err(failed(error, &call.id)?),
    };
    let is_tail = asked.log_type == LogType::Tail;
    let log = is_tail.then(|| BASE64_STANDARD.encode(&served.tail));
    Ok(Ended { result, log })
}

/// The version that is called, as the service writes it.
fn version_of(target: &Target) -> String {
    target.number().map_or_else(|| LATEST.to_owned(), |number| number.to_string())
}

/// What the function is called with.
fn event(call: &Call, named: &Named, asked: &Members, parts: Option<mpsc::Sender<Bytes>>) -> Event {
    let qualifier = named.qualifier.as_ref().map(ToString::to_string);
    let context = asked.client_context.as_ref().and_then(|text| BASE64_STANDARD.decode(text).ok());
    let lambda = LambdaCall {
        function_arn: call.arn(named.name.as_str(), qualifier.as_deref()),
        client_context: context.and_then(|text| String::from_utf8(text).ok()),
        trace_id: Some(call.trace_id.clone()),
        tenant_id: asked.tenant_id.clone(),
        streams: parts.is_some(),
        ..LambdaCall::default()
    };
    Event {
        body: call.payload.clone(),
        content_type: None,
        id: call.id.clone(),
        lambda: Some(Arc::new(lambda)),
        tail: asked.log_type == LogType::Tail,
        parts,
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
