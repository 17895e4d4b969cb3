//! What AWS Lambda says of a call: in the function's log around it, and to a caller when it fails.
//!
//! ```text
//!   START RequestId: ID Version: 7
//!   …                                            what the function writes; the guest tells what it raised
//!   ID Task timed out after 3.00 seconds         what only the worker knows
//!   END RequestId: ID
//!   REPORT RequestId: ID⇥Duration: 1.23 ms⇥Billed Duration: 2 ms⇥Memory Size: 128 MB⇥Max Memory Used: 33 MB⇥…
//! ```

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use function::LATEST;
use sandbox::{Death, InvocationId};
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::call::{Call, CallError, Outcome, Stage};
use crate::journey::Journey;
use crate::relay::Relay;

/// How a guest says that AWS's interpreter would have ended.
pub(crate) const EXIT_ERROR: &str = "Runtime.ExitError";

/// There is no program to start, or it cannot be started.
const NO_ENTRY: &str = "Runtime.InvalidEntrypoint";

const SIGKILL: i32 = 9;

/// A failure as AWS tells a caller of it: the reply's payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LambdaFailure {
    /// What went wrong.
    pub error_message: String,
    /// An exception's name, or AWS's name of what happened.
    pub error_type: String,
    /// The invocation; empty where the code could not be imported, none where the process ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Where it was raised, a text for each frame; none where the process ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_trace: Option<Vec<String>>,
    /// What a program said of it, JSON, in the place of all else; empty: nothing.
    #[serde(skip)]
    pub payload: String,
}

impl LambdaFailure {
    /// The reply's payload, JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        if self.payload.is_empty() {
            // Texts alone: nothing that could fail.
            return serde_json::to_string(self).unwrap_or_default();
        }
        self.payload.clone()
    }
}

impl CallError {
    /// The failure as AWS tells a caller of it; none: it was not the function's, and its caller gets
    /// an error of the service.
    #[must_use]
    pub fn as_lambda(&self, id: &InvocationId) -> Option<LambdaFailure> {
        let ended = |error_type: &str, why: &str| LambdaFailure {
            error_message: format!("RequestId: {id} Error: {why}"),
            error_type: error_type.to_owned(),
            request_id: None,
            stack_trace: None,
            payload: String::new(),
        };
        let (failure, request_id) = match self {
            Self::Raised(failure) => (failure, id.to_string()),
            Self::NotLoaded(failure) => (failure, String::new()),
            Self::Died(Death::OutOfMemory) => {
                return Some(ended("Runtime.OutOfMemory", &died(Death::Signal(SIGKILL))));
            }
            Self::Died(death) => return Some(ended(EXIT_ERROR, &died(*death))),
            Self::TimedOut { limit } => return Some(ended("Sandbox.Timedout", &late(*limit))),
            Self::BadAnswer(what) => return Some(ended("Runtime.Unknown", what)),
            Self::TooLong { limit, .. } => {
                return Some(LambdaFailure {
                    error_message: format!(
                        "Response payload size exceeded maximum allowed payload size ({limit} bytes)."
                    ),
                    error_type: "Function.ResponseSizeTooLarge".to_owned(),
                    request_id: None,
                    stack_trace: None,
                    payload: String::new(),
                });
            }
            Self::Busy { .. }
            | Self::NoSandbox(_)
            | Self::NoSecrets(_)
            | Self::Lost
            | Self::Stopping => return None,
        };
        let payload = json(&failure.payload);
        let kind = failure.error_type.as_str();
        if payload.is_empty() && (kind == EXIT_ERROR || kind == NO_ENTRY) {
            return Some(ended(kind, &failure.message));
        }
        Some(LambdaFailure {
            error_message: failure.message.clone(),
            error_type: failure.error_type.clone(),
            request_id: Some(request_id),
            stack_trace: Some(failure.traceback.clone()),
            payload,
        })
    }
}

/// The text, where it is JSON: a guest may say anything.
fn json(text: &str) -> String {
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    if is_json { text.to_owned() } else { String::new() }
}

fn died(death: Death) -> String {
    match death {
        Death::Exited(0) | Death::Unknown => "Runtime exited without providing a reason".to_owned(),
        Death::Exited(status) => format!("Runtime exited with error: exit status {status}"),
        Death::OutOfMemory | Death::Signal(SIGKILL) => {
            "Runtime exited with error: signal: killed".to_owned()
        }
        Death::Signal(number) => format!("Runtime exited with error: signal: {number}"),
    }
}

fn late(limit: Duration) -> String {
    format!("Task timed out after {:.2} seconds", limit.as_secs_f64())
}

/// The version that a call names.
pub(crate) fn version(call: &Call) -> &str {
    call.lambda.as_ref().map_or(LATEST, |lambda| &lambda.version)
}

/// Writes that a call begins, unless it comes to nothing that the function did. `failed` is why it
/// got no instance. False: there is nothing to report.
pub(crate) fn begin(call: &Call, failed: Option<&CallError>, relay: &mut Relay) -> bool {
    let is_told = call.handler.lambda.is_some()
        && failed.is_none_or(|error| error.as_lambda(&call.id).is_some());
    if is_told {
        relay.tell_first(format!("START RequestId: {} Version: {}\n", call.id, version(call)));
    }
    is_told
}

/// Writes how a call ended.
pub(crate) fn end(
    call: &Call,
    result: &Result<Outcome, CallError>,
    journey: &Journey,
    relay: &mut Relay,
) {
    let id = &call.id;
    let mut text = String::new();
    let failure = result.as_ref().err().and_then(|error| error.as_lambda(id));
    let status = match (result, &failure) {
        (Err(CallError::TimedOut { limit }), _) => {
            let now = humantime::format_rfc3339_millis(SystemTime::now());
            let _ = writeln!(text, "{now} {id} {}\n", late(*limit));
            "\tStatus: timeout".to_owned()
        }
        // The guest has told of it.
        (Err(_), Some(failure)) if failure.stack_trace.is_some() => {
            format!("\tStatus: error\tError Type: {}", failure.error_type)
        }
        (Err(_), Some(LambdaFailure { error_message, error_type, .. })) => {
            let _ = writeln!(text, "{error_message}\n{error_type}");
            format!("\tStatus: error\tError Type: {error_type}")
        }
        _ => String::new(),
    };
    let took = journey.took(Stage::Call).or(journey.took(Stage::Load)).unwrap_or_default();
    let milliseconds = took.as_secs_f64() * 1e3;
    let _ = write!(
        text,
        "END RequestId: {id}\nREPORT RequestId: {id}\tDuration: {milliseconds:.2} ms\tBilled Duration: {} ms\tMemory Size: {} MB\tMax Memory Used: {} MB",
        milliseconds.ceil(),
        call.handler.limits.memory_bytes >> 20,
        journey.memory.div_ceil(1 << 20),
    );
    if let Some(made_in_ms) = journey.made_in_ms() {
        let _ = write!(text, "\tInit Duration: {made_in_ms:.2} ms");
    }
    relay.tell(text + &status + "\n");
}

#[cfg(test)]
mod tests {
    use sandbox::wire::Failure;

    use super::*;

    fn told(error: &CallError) -> String {
        let id = "r-1".parse().unwrap();
        error.as_lambda(&id).map_or_else(|| "null".to_owned(), |failure| failure.to_json())
    }

    #[test]
    fn what_a_program_says_of_its_failure_is_passed_on_if_it_is_json() {
        let failure = |error_type: &str, payload: &str| {
            CallError::Raised(Failure {
                error_type: error_type.to_owned(),
                message: "no".to_owned(),
                traceback: Vec::new(),
                payload: payload.to_owned(),
            })
        };
        for own in [r#"{"errorType": "A",  "more": [1]}"#, "1", "null"] {
            assert_eq!(told(&failure("A", own)), own);
            assert_eq!(told(&failure(EXIT_ERROR, own)), own);
        }
        let plain = r#"{"errorMessage":"no","errorType":"A","requestId":"r-1","stackTrace":[]}"#;
        for none in ["", "{", "1 2", "NaN"] {
            assert_eq!(told(&failure("A", none)), plain, "{none}");
        }
        assert_eq!(
            told(&failure(NO_ENTRY, "")),
            r#"{"errorMessage":"RequestId: r-1 Error: no","errorType":"Runtime.InvalidEntrypoint"}"#
        );
    }

    #[test]
    fn a_failure_has_awss_words() {
        let failure = |error_type: &str, message: &str| Failure {
            error_type: error_type.to_owned(),
            message: message.to_owned(),
            traceback: vec!["  File".to_owned()],
            payload: String::new(),
        };
        assert_eq!(
            told(&CallError::Raised(failure("Mine", "no"))),
            r#"{"errorMessage":"no","errorType":"Mine","requestId":"r-1","stackTrace":["  File"]}"#
        );
        assert_eq!(
            told(&CallError::NotLoaded(failure("Mine", "no"))),
            r#"{"errorMessage":"no","errorType":"Mine","requestId":"","stackTrace":["  File"]}"#
        );
        let exit = "Runtime exited with error: exit status 3";
        let expected = format!(
            r#"{{"errorMessage":"RequestId: r-1 Error: {exit}","errorType":"Runtime.ExitError"}}"#
        );
        assert_eq!(told(&CallError::Raised(failure(EXIT_ERROR, exit))), expected);
        assert_eq!(told(&CallError::Died(Death::Exited(3))), expected);
        let limit = Duration::from_millis(1500);
        assert_eq!(
            told(&CallError::TimedOut { limit }),
            r#"{"errorMessage":"RequestId: r-1 Error: Task timed out after 1.50 seconds","errorType":"Sandbox.Timedout"}"#
        );
        assert!(told(&CallError::Died(Death::OutOfMemory)).contains("signal: killed"));
        assert_eq!(told(&CallError::Stopping), "null");
    }
}
