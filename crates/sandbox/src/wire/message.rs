//! Messages: the header of a frame, decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use function::{Convention, Lambda};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

use super::frame::{Frame, FrameError};

/// Everything an instance must know before its first call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The module inside `/var/task`, dotted, without `.py`.
    pub module: String,
    /// The function's name in that module.
    pub function: String,
    /// The handler's calling convention.
    pub convention: Convention,
    /// The name it was deployed under; `context.function_name`.
    pub name: String,
    /// Its version; `context.function_version`.
    pub version: String,
    /// Megabytes; `context.memory_limit_in_mb`.
    pub memory_mb: u64,
    /// Environment variables, beside the guest's own.
    pub environment: BTreeMap<String, String>,
    /// Whether bodies pass through as bytes (`event` is then `bytes`) instead of as JSON.
    pub binary: bool,
    /// Threads that its numeric libraries may have in their pools; 0 leaves their number as it is.
    #[serde(default)]
    pub threads: u32,
    /// Whether to report imports: before `loaded`, and before the first call's answer.
    #[serde(default)]
    pub observe: bool,
    /// The names in `/var/task`; none: the guest lists the directory itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<String>>,
    /// What a function expects that AWS's runtime calls; none: it is called as the convention says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda: Option<Arc<Lambda>>,
}

/// What AWS's runtime says to a function of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LambdaCall {
    /// `context.invoked_function_arn`, with the qualifier that the caller gave.
    pub function_arn: String,
    /// `context.function_version`: `$LATEST` or a version's number.
    pub version: String,
    /// JSON from which `context.client_context` is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_context: Option<String>,
    /// `_X_AMZN_TRACE_ID` during the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// `context.tenant_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Whether a generator yields the answer in parts; otherwise it is no answer, as with AWS's runtime.
    #[serde(default, skip_serializing_if = "is_false")]
    pub streams: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}

/// From the worker to a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Request {
    /// Import the handler's code. Once, first.
    Load(Load),
    /// Call the handler with the frame's body.
    Invoke {
        /// `context.aws_request_id`.
        id: String,
        /// Milliseconds until the worker gives up; `context.get_remaining_time_in_millis()` counts
        /// down from it.
        remaining_ms: u64,
        /// The body's content type.
        content_type: String,
        /// What a function that was loaded with [`Load::lambda`] is told of the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lambda: Option<Arc<LambdaCall>>,
    },
    /// The guest is a clone, or was reset: its randomness must not repeat a sibling's. Sent before
    /// any other request; not answered.
    Wake {},
}

/// Which stream a log line was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogStream {
    /// Standard output, `sys.stdout`.
    Stdout,
    /// Standard error, `sys.stderr`.
    Stderr,
    /// None: the worker tells of a call, such as how it failed. No guest can send it.
    #[serde(skip)]
    Worker,
}

/// An exception that left the handler, or a module that could not be loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The exception's class, with its module unless that is `builtins`. Of a function with
    /// [`Load::lambda`], its bare name, or AWS's name of what went wrong.
    pub error_type: String,
    /// `str(exception)`
    pub message: String,
    /// The user's own lines of the traceback, as Python formats them; the guest's are left out. Of
    /// a function with [`Load::lambda`], a text for each frame: AWS's `stackTrace`.
    pub traceback: Vec<String>,
    /// What a program says of it, JSON that its caller is given as it is; empty: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub payload: String,
}

impl Failure {
    /// Whether the process ran out of memory: a `MemoryError`, or the form that numpy and others
    /// give it.
    #[must_use]
    pub fn is_of_memory(&self) -> bool {
        self.error_type.ends_with("MemoryError")
    }
}

/// From a guest to the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reply {
    /// The guest can be loaded.
    Ready {
        /// The guest's pid in its own namespace; a claim, never to be trusted.
        pid: i32,
    },
    /// Modules imported from `/opt/python` since the last such message or since the fork, in the
    /// order in which the imports ended. The frame's body has one module name a line. Only sent
    /// when [`Load::observe`] asks for it.
    Imports {},
    /// The handler's code is imported.
    Loaded {
        /// Milliseconds that the import took.
        milliseconds: f64,
    },
    /// Output of the handler; the frame's body is the text. `id` is empty while loading.
    Log {
        /// The invocation that wrote it.
        id: String,
        /// Standard output or standard error.
        stream: LogStream,
    },
    /// A part of the result of a handler that yields it, where [`LambdaCall::streams`] says so; the frame's body is the part. What
    /// [`Reply::Done`] says comes behind all of them.
    Part {
        /// The invocation that is answered.
        id: String,
    },
    /// The handler returned; the frame's body is the result.
    Done {
        /// The invocation that is answered.
        id: String,
        /// The body's content type.
        content_type: String,
    },
    /// The handler raised, or could not be loaded (`id` is then empty).
    Failed {
        /// The invocation that is answered; empty for a load.
        id: String,
        /// The exception that it raised.
        #[serde(flatten)]
        failure: Failure,
    },
}

/// Why a frame is no message.
#[derive(Debug, Error)]
pub enum MessageError {
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The header is no message of this protocol.
    #[error("an unknown or malformed message")]
    Header(#[from] serde_json::Error),
}

impl Request {
    /// Appends the message's frame to `out`.
    ///
    /// # Errors
    /// When it is too long.
    pub fn encode(&self, body: &[u8], out: &mut Vec<u8>) -> Result<(), MessageError> {
        // A load may carry secrets. Reserve room for all of it, however it is escaped: growing the
        // vector would leave a copy of them behind.
        let mut header = Zeroizing::new(Vec::with_capacity(self.length_at_most()));
        serde_json::to_writer(&mut *header, self)?;
        Ok(Frame::encode(&header, body, out)?)
    }

    /// An upper bound, nearly exact, of the header's length in bytes.
    fn length_at_most(&self) -> usize {
        // The longest escape: `\u0000`.
        const ESCAPED: usize = 6;
        let variables = match self {
            Self::Load(load) => load.environment.iter().map(|(k, v)| k.len() + v.len() + 2).sum(),
            Self::Invoke { .. } | Self::Wake {} => 0,
        };
        1024 + ESCAPED * variables
    }

    /// Reads a message from its frame; the body comes along.
    ///
    /// # Errors
    /// When the header is not one of ours.
    pub fn decode(frame: Frame) -> Result<(Self, Vec<u8>), MessageError> {
        Ok((serde_json::from_slice(&frame.header)?, frame.body))
    }
}

impl Reply {
    /// Appends the message's frame to `out`.
    ///
    /// # Errors
    /// When it is too long.
    pub fn encode(&self, body: &[u8], out: &mut Vec<u8>) -> Result<(), MessageError> {
        Ok(Frame::encode(&serde_json::to_vec(self)?, body, out)?)
    }

    /// Reads a message from its frame; the body comes along.
    ///
    /// # Errors
    /// When the header is not one of ours.
    pub fn decode(frame: Frame) -> Result<(Self, Vec<u8>), MessageError> {
        Ok((serde_json::from_slice(&frame.header)?, frame.body))
    }
}
