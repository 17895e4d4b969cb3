//! Which functions a token is good for.

use std::fmt;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most patterns of one token, and the longest.
const MOST: usize = 64;
const LONGEST: usize = 256;

/// Patterns of names of functions, such as `report-*`; none: all functions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Patterns {
    written: Vec<String>,
    set: GlobSet,
}

/// Why a text is no pattern.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PatternError {
    /// The text is no glob pattern.
    #[error("{0}; a pattern is a name in which `*` stands for anything, as in 'report-*'")]
    Syntax(String),
    /// There are too many, or one is too long.
    #[error("at most {MOST} patterns of at most {LONGEST} bytes")]
    Size,
}

impl Patterns {
    /// Whether they let a function through.
    #[must_use]
    pub fn match_function(&self, name: &str) -> bool {
        self.written.is_empty() || self.set.is_match(name)
    }

    /// As they were written.
    #[must_use]
    pub fn written(&self) -> &[String] {
        &self.written
    }
}

impl TryFrom<Vec<String>> for Patterns {
    type Error = PatternError;

    fn try_from(written: Vec<String>) -> Result<Self, PatternError> {
        if written.len() > MOST || written.iter().any(|one| one.len() > LONGEST) {
            return Err(PatternError::Size);
        }
        let syntax = |error: globset::Error| PatternError::Syntax(error.to_string());
        let mut set = GlobSetBuilder::new();
        for pattern in &written {
            set.add(Glob::new(pattern).map_err(syntax)?);
        }
        Ok(Self { set: set.build().map_err(syntax)?, written })
    }
}

impl From<Patterns> for Vec<String> {
    fn from(patterns: Patterns) -> Self {
        patterns.written
    }
}

impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.written.is_empty() {
            return f.write_str("all");
        }
        f.write_str(&self.written.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(written: &[&str]) -> Patterns {
        Patterns::try_from(written.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_pattern_lets_through_what_it_names_and_nothing_that_only_begins_so() {
        let some = patterns(&["report-*", "hello"]);
        for name in ["report-", "report-daily", "hello"] {
            assert!(some.match_function(name), "{name}");
        }
        for name in ["report", "hello2", "xhello", "areport-x", ""] {
            assert!(!some.match_function(name), "{name}");
        }
        assert!(patterns(&[]).match_function("anything"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_an_example() {
        let refused = Patterns::try_from(vec!["report-[".to_owned()]).unwrap_err();
        assert!(refused.to_string().contains("report-*"), "{refused}");
        assert_eq!(Patterns::try_from(vec!["a".repeat(300)]), Err(PatternError::Size));
    }
}
