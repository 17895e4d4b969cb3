//! How a system call ends, and why a process pauses.

use crate::linux::abi::registers::Answer;
use crate::machine::{Fault, VcpuError};

/// How a system call ends.
#[derive(Debug)]
pub(crate) enum Flow {
    /// It returns to the guest.
    Answer(Answer),
    /// The call does not exist.
    Unknown,
    /// The call does not exist, and is one of [`OPTIONAL_CALLS`](crate::linux::OPTIONAL_CALLS).
    Optional,
    /// The registers are set already: the guest goes on as they are.
    Resumed,
    /// The process ends.
    Exit(i32),
    /// A signal ends the process.
    Kill(i32),
    /// It cannot be answered yet: the process pauses before it.
    Again(Pause),
    /// The machine cannot be used any more.
    Lost(VcpuError),
}

impl From<Answer> for Flow {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

/// Why a process does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It waits for bytes on its channel.
    Idle,
    /// It wrote to its channel: take the bytes and run it again. Only after
    /// [`Process::be_prompt`](crate::linux::Process::be_prompt).
    Spoke,
    /// Its stopper stopped it.
    Stopped,
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it; with the exception that caused the signal, if one did.
    Killed(i32, Option<Fault>),
    /// It touched more memory than it may have, and was ended.
    OutOfMemory,
    /// All its threads wait for each other.
    Stuck,
}
