//! What came of a program at one place of the table.

use std::fmt;

use e2e::Way;

/// A place of the table, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Such as `3.12`.
    pub(crate) python: String,
    /// How the instance was made.
    pub(crate) way: Way,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

/// What came of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Both calls were right; whether packages had been imported before the function was loaded.
    Right { ahead: bool },
    /// It failed as the program says that it must here; the line tells how.
    Limit(String),
    /// The first line of what went wrong.
    Wrong(String),
    /// It is wrong under a plain Python of the host, or has no wheels for it.
    LeftOut(String),
}

impl Outcome {
    /// Of the first error, if there is one, and of the limit that the program names.
    pub(crate) fn judge(result: Result<bool, String>, limit: Option<&str>) -> Self {
        match (result, limit) {
            (Ok(ahead), None) => Self::Right { ahead },
            (Ok(_), Some(limit)) => {
                Self::Wrong(format!("it is right, and the program names a limit: {limit}"))
            }
            (Err(error), Some(limit)) if error.contains(limit) => Self::Limit(error),
            (Err(error), _) => Self::Wrong(error),
        }
    }

    /// One word for a table.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Right { .. } => "right",
            Self::Limit(_) => "limit",
            Self::Wrong(_) => "WRONG",
            Self::LeftOut(_) => "left out",
        }
    }

    /// The line that tells more, if there is one.
    pub(crate) fn line(&self) -> Option<&str> {
        match self {
            Self::Right { .. } => None,
            Self::Limit(line) | Self::Wrong(line) | Self::LeftOut(line) => Some(line),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line() {
            None => f.write_str(self.word()),
            Some(line) => write!(f, "{}: {line}", self.word()),
        }
    }
}

/// The first line of a message, no longer than fits a table.
pub(crate) fn first_line(message: &str) -> String {
    let line = message.trim().lines().next().unwrap_or_default();
    line.chars().take(200).collect()
}
