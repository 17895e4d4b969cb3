//! A call: what comes in, what goes out, how long each stage took.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sandbox::wire::{Failure, LambdaCall};
use sandbox::{Death, InvocationId, ProviderError};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::handler::Handler;
use crate::secrets::SecretsUnreadable;

/// One call of a handler.
#[derive(Clone, Debug)]
pub struct Call {
    /// The handler that is called.
    pub handler: Arc<Handler>,
    /// The request's body, as received.
    pub body: Bytes,
    /// The body's content type.
    pub content_type: String,
    /// The invocation's name.
    pub id: InvocationId,
    /// What a function that expects AWS's runtime is told of the call.
    pub lambda: Option<Arc<LambdaCall>>,
    /// Whether the end of what it writes into its log is served with the result.
    pub tail: bool,
    /// Where the parts go of a result that is yielded, as they come; none: it must come whole.
    pub parts: Option<mpsc::Sender<Bytes>>,
}

/// The most bytes of a result that goes out in parts: as on AWS.
pub(crate) const STREAM_BYTES: usize = 200 << 20;

/// Where the sandbox of a call came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// From nothing: a fresh interpreter, or a zygote had to be made first.
    Cold,
    /// Forked from a zygote that was there.
    Fork,
    /// An idle instance of the handler.
    Resume,
}

impl Start {
    /// As it stands in the `Lambswool-Start` header.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Fork => "fork",
            Self::Resume => "resume",
        }
    }
}

/// A stage of a call. Its name is at once the tracing span, the metric label and the
/// `Server-Timing` entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Registry → handler version. Measured by the server.
    Resolve,
    /// Waiting for a permit.
    Admit,
    /// Looking for an idle instance, and resuming it.
    HandlerCache,
    /// Choosing a zygote, and making it when there is none.
    ImportCache,
    /// Forking the zygote into a new sandbox, until READY is checked.
    Fork,
    /// Importing the handler's code.
    Load,
    /// The handler itself, from request to reply.
    Call,
    /// Pausing and parking, or handing to the reaper.
    Park,
}

impl Stage {
    /// All of them, in the order of a call's path.
    pub const ALL: [Self; 8] = [
        Self::Resolve,
        Self::Admit,
        Self::HandlerCache,
        Self::ImportCache,
        Self::Fork,
        Self::Load,
        Self::Call,
        Self::Park,
    ];

    /// The stage's one name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Admit => "admit",
            Self::HandlerCache => "handler_cache",
            Self::ImportCache => "import_cache",
            Self::Fork => "fork",
            Self::Load => "load",
            Self::Call => "call",
            Self::Park => "park",
        }
    }
}

/// How long each stage took. Stages that a call did not pass are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stages(pub Vec<(Stage, Duration)>);

impl Stages {
    /// Adds a stage's duration; a stage passed twice (a retry) counts both.
    pub fn record(&mut self, stage: Stage, took: Duration) {
        match self.0.iter_mut().find(|(name, _)| *name == stage) {
            Some((_, total)) => *total += took,
            None => self.0.push((stage, took)),
        }
    }

    /// The value of a `Server-Timing` header: `fork;dur=0.812, load;dur=0.310`, milliseconds.
    #[must_use]
    pub fn server_timing(&self) -> String {
        let entries = self
            .0
            .iter()
            .map(|(stage, took)| format!("{};dur={:.3}", stage.as_str(), took.as_secs_f64() * 1e3));
        entries.collect::<Vec<_>>().join(", ")
    }
}

/// What a handler returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The result's bytes, as the handler encoded it.
    pub body: Bytes,
    /// Its content type.
    pub content_type: String,
}

/// A call that was served, well or badly: the stages are told either way.
#[derive(Debug)]
pub struct Served {
    /// What came of it.
    pub result: Result<Outcome, CallError>,
    /// Where the sandbox came from; none when the call never got one.
    pub start: Option<Start>,
    /// How long each stage took.
    pub stages: Stages,
    /// The last 4 KiB of what the call wrote into its function's log, where that was asked for; else
    /// empty.
    pub tail: Vec<u8>,
}

/// Why a call has no result.
#[derive(Debug, Error)]
pub enum CallError {
    /// Too many calls at once: 429, try again after the given time.
    #[error("too many calls at once; try again in {} ms", retry_after.as_millis())]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// The handler raised an exception: 502 with its traceback.
    #[error("{}", summary(.0))]
    Raised(Failure),
    /// The handler's code could not be imported: 502 with the traceback.
    #[error("the code does not load: {}", summary(.0))]
    NotLoaded(Failure),
    /// The handler's process died: 502.
    #[error("the handler died: {}", describe(*.0))]
    Died(Death),
    /// The handler did not answer in time: 504.
    #[error(
        "no answer within {} s: make the function faster, or set `timeout` in its [tool.lambswool]",
        limit.as_secs_f64()
    )]
    TimedOut {
        /// The handler's timeout.
        limit: Duration,
    },
    /// The handler's answer breaks the protocol: 502.
    #[error("the handler's answer is not acceptable: {0}")]
    BadAnswer(String),
    /// The handler's answer is larger than allowed: 502.
    #[error(
        "the handler's answer is not acceptable: it has {length} bytes, as they are sent, and at most {limit} are accepted: return less, or raise `reply_body` in the worker's configuration"
    )]
    TooLong {
        /// How many bytes it has.
        length: usize,
        /// How many are accepted.
        limit: usize,
    },
    /// No sandbox could be made: 503.
    #[error("no sandbox could be made")]
    NoSandbox(#[source] ProviderError),
    /// The function's secrets cannot be read, and it is not loaded without them: 503.
    #[error(transparent)]
    NoSecrets(SecretsUnreadable),
    /// The provider ended, and every sandbox with it, whatever their handlers did: 503.
    #[error(
        "the worker lost its sandboxes while the function ran, and stops; the call may have had effects"
    )]
    Lost,
    /// The worker is stopping: 503.
    #[error("the worker is stopping")]
    Stopping,
}

impl CallError {
    /// What a function's log gets, in lines: what the caller is told, where the function failed and
    /// not the worker.
    pub(crate) fn log_text(&self) -> Option<String> {
        let mut text = format!("[ERROR] {self}\n");
        match self {
            Self::Raised(failure) | Self::NotLoaded(failure) => {
                let said = named(&failure.error_type, &failure.message);
                // The traceback ends with what the first line says already.
                let lines = failure.traceback.strip_suffix(&[said][..]);
                for line in lines.unwrap_or(&failure.traceback) {
                    text.push_str(line);
                    text.push('\n');
                }
            }
            Self::Died(_) | Self::TimedOut { .. } | Self::BadAnswer(_) | Self::TooLong { .. } => {}
            Self::Busy { .. }
            | Self::NoSandbox(_)
            | Self::NoSecrets(_)
            | Self::Lost
            | Self::Stopping => return None,
        }
        Some(text)
    }
}

/// What allows a function more memory.
const MORE_MEMORY: &str = "the setting `memory` in [tool.lambswool] allows more";

fn describe(death: Death) -> String {
    match death {
        Death::OutOfMemory => format!("{death}: {MORE_MEMORY}"),
        _ => death.to_string(),
    }
}

/// An exception's message, and what mends it where that is known.
#[must_use]
pub fn message_of(failure: &Failure) -> String {
    match (failure.is_of_memory(), &*failure.message) {
        (false, message) => message.to_owned(),
        (true, "") => MORE_MEMORY.to_owned(),
        (true, message) => format!("{message}; {MORE_MEMORY}"),
    }
}

/// The exception as Python prints it, and what mends it.
fn summary(failure: &Failure) -> String {
    named(&failure.error_type, &message_of(failure))
}

fn named(error_type: &str, message: &str) -> String {
    if message.is_empty() { error_type.to_owned() } else { format!("{error_type}: {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_told_what_the_function_did_and_nothing_of_the_worker() {
        let told = |error: CallError| error.log_text();
        let limit = Duration::from_secs(1);
        let late = told(CallError::TimedOut { limit }).unwrap();
        assert!(late.starts_with("[ERROR] no answer within 1 s: "), "{late}");
        let died = told(CallError::Died(Death::OutOfMemory)).unwrap();
        assert!(died.starts_with("[ERROR] the handler died: "), "{died}");
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let failure = |error_type: &str, traceback: &[&str]| Failure {
            error_type: error_type.to_owned(),
            message: "no".to_owned(),
            traceback: lines(traceback),
            ..Failure::default()
        };
        let raised = failure("ValueError", &["Traceback …", "  File …", "ValueError: no"]);
        let expected = "[ERROR] ValueError: no\nTraceback …\n  File …\n";
        assert_eq!(told(CallError::Raised(raised)).as_deref(), Some(expected));
        let noted = failure("ValueError", &["ValueError: no", "a note"]);
        let expected = "[ERROR] the code does not load: ValueError: no\nValueError: no\na note\n";
        assert_eq!(told(CallError::NotLoaded(noted)).as_deref(), Some(expected));
        let full = told(CallError::Raised(failure("MemoryError", &[]))).unwrap();
        assert_eq!(full, format!("[ERROR] MemoryError: no; {MORE_MEMORY}\n"));
        assert_eq!(told(CallError::Stopping), None);
        assert_eq!(told(CallError::Busy { retry_after: limit }), None);
    }

    #[test]
    fn a_stage_passed_twice_counts_both() {
        let mut stages = Stages::default();
        stages.record(Stage::Fork, Duration::from_micros(500));
        stages.record(Stage::Load, Duration::from_micros(250));
        stages.record(Stage::Fork, Duration::from_micros(500));
        assert_eq!(stages.server_timing(), "fork;dur=1.000, load;dur=0.250");
    }
}
