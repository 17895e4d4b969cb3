//! How a system call ends, and why a process pauses.

use crate::linux::abi::registers::Answer;
use crate::machine::{Fault, VcpuError};

/// How a system call ends.
#[derive(Debug)]
pub(crate) enum Flow {
    /// It returns.
    Answer(Answer),
    /// There is no such call.
    Unknown,
    /// The same of one in [`OPTIONAL_CALLS`](crate::linux::OPTIONAL_CALLS).
    Optional,
    /// Registers are as they shall be already.
    Resumed,
    /// The process ends.
    Exit(i32),
    /// A signal ends the process.
    Kill(i32),
    /// It cannot be answered now: the process pauses before it.
    Again(Pause),
    /// The machine is of no further use.
    Lost(VcpuError),
}

impl From<Answer> for Flow {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

/// Why a process does not run at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It waits for something from the worker.
    Idle,
    /// It has said something: take it and run it again. Only of one that is [`Process::be_prompt`](crate::linux::Process::be_prompt).
    Spoke,
    /// It was stopped from outside.
    Stopped,
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it; the exception that led to it, if one did.
    Killed(i32, Option<Fault>),
    /// It waits for something that only it could do itself.
    Stuck,
}
