//! Why a provider could not do what it was asked.

use std::io;

use thiserror::Error;

use crate::{Death, SandboxId};

/// The only signal that no program raises by accident.
const SIGKILL: i32 = 9;

/// Why a provider could not make or examine a sandbox.
#[derive(Debug, Error)]
pub enum ProviderError {
    /// The host is out of a resource (pids, memory, descriptors, cgroups): try later, or evict.
    #[error("the host is out of {what}")]
    Exhausted {
        /// The missing resource.
        what: String,
    },
    /// The zygote is gone or does not answer: make another.
    #[error("zygote {id} does not answer: {reason}")]
    ZygoteLost {
        /// The zygote that was lost.
        id: SandboxId,
        /// The symptom, such as how its process ended.
        reason: String,
    },
    /// A signal from outside killed the sandbox before it was ready. This says nothing about its
    /// zygote, nor about the next sandbox.
    #[error("it was killed while it was made: {reason}")]
    Killed {
        /// How its process ended.
        reason: String,
    },
    /// The process that answered is not the sandbox that was requested. Never retried with the same
    /// zygote.
    #[error("zygote {id} answered with a process that is not the slot's: {reason}")]
    Impostor {
        /// The zygote that answered.
        id: SandboxId,
        /// The check that failed.
        reason: String,
    },
    /// A step of creation failed in the operating system.
    #[error("{step}")]
    Step {
        /// Names the failed step.
        step: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// This machine cannot make such sandboxes. The text says what to do about it.
    #[error("{0}")]
    Absent(String),
    /// The privileged helper refused the order.
    #[error("the warden could not: {0}")]
    Refused(String),
    /// The privileged helper is gone: nothing can be made any more.
    #[error("the warden is gone: restart the worker")]
    WardenGone,
    /// The interpreter ended before it was ready.
    #[error("the interpreter did not start: {0}")]
    Interpreter(String),
}

impl ProviderError {
    /// Names the step that failed.
    pub fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Step { step, source: source.into() }
    }

    /// The error for a process `what` that ended before it was ready; `stderr` is its output.
    pub fn ended_early(what: &str, death: Death, stderr: &str) -> Self {
        let words = stderr.trim();
        let words = if words.is_empty() { "it said nothing" } else { words };
        let reason = format!("{what} ended: {death:?}: {words}");
        match death {
            Death::Signal(SIGKILL) => Self::Killed { reason },
            _ => Self::Interpreter(reason),
        }
    }
}
