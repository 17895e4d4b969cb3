//! Functions that are called as AWS Lambda's own runtimes call them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a function expects around it that was made for AWS Lambda: its variables, its context, the words of its failures and
/// the form of its log are AWS's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lambda {
    /// The function that is called, as its deploy wrote it: `module.function`, `dir/module.function`, or any other text.
    pub handler: String,
    /// The name of AWS's runtime, such as `python3.12`.
    pub runtime: String,
    /// Whether its log is of JSON objects, and from which level on; none: it is text, from WARN on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_level: Option<LogLevel>,
}

impl Lambda {
    /// Whether the function is a program of its own, which asks AWS's runtime API for its events.
    #[must_use]
    pub fn is_program(&self) -> bool {
        is_program(&self.runtime)
    }
}

/// Whether AWS's runtime of this name runs a program that the function brings: `provided.al2023`.
#[must_use]
pub fn is_program(runtime: &str) -> bool {
    PROGRAMS.contains(&runtime)
}

/// AWS's runtimes that bring nothing.
const PROGRAMS: [&str; 3] = ["provided.al2023", "provided.al2", "provided"];

/// A level of a function's log, as AWS names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LogLevel {
    /// All that is logged.
    Trace,
    /// What helps to find a mistake.
    Debug,
    /// AWS's default for JSON.
    #[default]
    Info,
    /// What may be wrong.
    Warn,
    /// What has failed.
    Error,
    /// What ends the function.
    Fatal,
}

impl LogLevel {
    /// As AWS writes it: `INFO`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_what_awss_runtimes_without_a_language_run() {
        for (runtime, is) in [("provided.al2023", true), ("provided", true), ("python3.12", false)]
        {
            assert_eq!(is_program(runtime), is, "{runtime}");
        }
    }

    #[test]
    fn a_level_is_stored_as_it_is_written() {
        use LogLevel::{Debug, Error, Fatal, Info, Trace, Warn};
        for level in [Trace, Debug, Info, Warn, Error, Fatal] {
            assert_eq!(serde_json::to_string(&level).unwrap(), format!("\"{level}\""));
        }
    }
}
