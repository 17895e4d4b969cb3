//! Why a sandbox died, and the words in which its caller is told.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a sandbox died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Death {
    /// It was killed because it reached its memory limit.
    OutOfMemory,
    /// A signal ended it.
    Signal(i32),
    /// It exited by itself.
    Exited(i32),
    /// This host cannot tell (exit status of a foreign process: Linux ≥ 6.15).
    Unknown,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("it reached its memory limit"),
            Self::Signal(number) => match known(*number) {
                Some((name, "")) => write!(f, "killed by {name} ({number})"),
                Some((name, reason)) => write!(f, "killed by {name} ({number}): {reason}"),
                None => write!(f, "killed by signal {number}"),
            },
            Self::Exited(code) => write!(f, "it exited with status {code}"),
            Self::Unknown => f.write_str("its process ended"),
        }
    }
}

/// A signal's name (signal(7)), with its usual reason in a handler if there is one.
fn known(signal: i32) -> Option<(&'static str, &'static str)> {
    Some(match signal {
        1 => ("SIGHUP", ""),
        2 => ("SIGINT", ""),
        3 => ("SIGQUIT", ""),
        4 => ("SIGILL", "native code has an instruction that this processor has not, or gave up"),
        5 => ("SIGTRAP", ""),
        6 => ("SIGABRT", "native code called abort(), as it does when a check of its own fails"),
        7 => (
            "SIGBUS",
            "a file in memory became shorter than what was mapped of it, or found no room",
        ),
        8 => ("SIGFPE", "native code divided by zero"),
        9 => ("SIGKILL", "the handler did not do it: the kernel or another process ended it"),
        10 => ("SIGUSR1", ""),
        // A handler is pid 1 of its namespace, and the kernel withholds from pid 1 each signal that
        // it does not handle, except the kernel's own. So SIGABRT does nothing there, and abort()
        // goes on to an instruction that faults.
        11 => ("SIGSEGV", "native code touched memory that it may not, or called abort()"),
        12 => ("SIGUSR2", ""),
        13 => ("SIGPIPE", ""),
        14 => ("SIGALRM", ""),
        15 => ("SIGTERM", ""),
        16 => ("SIGSTKFLT", ""),
        24 => ("SIGXCPU", ""),
        25 => ("SIGXFSZ", ""),
        26 => ("SIGVTALRM", ""),
        27 => ("SIGPROF", ""),
        29 => ("SIGIO", ""),
        30 => ("SIGPWR", ""),
        31 => ("SIGSYS", "a system call that the sandbox does not have"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_reported_with_its_name_and_meaning() {
        let told = |number| Death::Signal(number).to_string();
        assert_eq!(
            told(11),
            "killed by SIGSEGV (11): native code touched memory that it may not, or called abort()"
        );
        assert!(told(6).starts_with("killed by SIGABRT (6): native code called abort()"));
        assert_eq!(told(15), "killed by SIGTERM (15)");
        assert_eq!(told(34), "killed by signal 34");
    }
}
