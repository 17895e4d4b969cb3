//! Which Python is wanted.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pep440_rs::{Version, VersionSpecifiers};
use thiserror::Error;

/// Which Python is wanted: a version (`3.12`, `3.12.1`), a path, what `requires-python` allows, or any.
#[derive(Clone, Debug, Default)]
pub struct PythonRequest {
    version: Option<String>,
    path: Option<PathBuf>,
    requires: Option<VersionSpecifiers>,
}

/// Why a text asks for no Python.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    /// Neither version nor path.
    #[error(
        "{0:?} names no Python: give a version such as \"3.12\" or a path such as \"/usr/bin/python3\""
    )]
    NoVersion(String),
    /// A path, where only the operator may name one.
    #[error(
        "{0:?} is a path, and the worker's machine is its operator's: a function names a version, such as \"3.12\""
    )]
    Path(String),
    /// Too old.
    #[error("Python {0} is too old: 3.11 or newer is needed")]
    TooOld(String),
    /// Not a version specifier.
    #[error("{0:?} is no version specifier: write for example \">=3.11\"")]
    NoSpecifier(String),
}

impl PythonRequest {
    /// Any Python that can be a base.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// `3.12`, `3.12.1`, or an absolute path.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let text = text.trim();
        if text.starts_with('/') {
            return Ok(Self { path: Some(PathBuf::from(text)), ..Self::default() });
        }
        let version = text.strip_prefix("python").unwrap_or(text);
        let parts: Vec<&str> = version.split('.').collect();
        let plain =
            (1..=3).contains(&parts.len()) && parts.iter().all(|p| p.parse::<u16>().is_ok());
        if !plain || parts[0] != "3" {
            return Err(RequestError::NoVersion(text.to_owned()));
        }
        if parts.len() > 1 && numbers(version) < vec![super::OLDEST.0, super::OLDEST.1] {
            return Err(RequestError::TooOld(version.to_owned()));
        }
        Ok(Self { version: Some(version.to_owned()), ..Self::default() })
    }

    /// The same, and also what a `requires-python` allows.
    ///
    /// # Errors
    /// When the text is no version specifier.
    pub fn requiring(mut self, specifier: &str) -> Result<Self, RequestError> {
        let parsed = VersionSpecifiers::from_str(specifier);
        self.requires = Some(parsed.map_err(|_| RequestError::NoSpecifier(specifier.to_owned()))?);
        Ok(self)
    }

    /// Whether a Python of this version (`3.12.1`) will do. A path accepts any version.
    #[must_use]
    pub fn accepts(&self, version: &str) -> bool {
        let wanted = self.version.as_deref().map(numbers).unwrap_or_default();
        let allowed = match (&self.requires, Version::from_str(version)) {
            (Some(requires), Ok(version)) => requires.contains(&version),
            (Some(_), Err(_)) => false,
            (None, _) => true,
        };
        numbers(version).starts_with(&wanted) && allowed
    }

    /// The interpreter that is asked for by path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The version that is asked for.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

impl fmt::Display for PythonRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, &self.version, &self.requires) {
            (Some(path), _, _) => write!(f, "{}", path.display()),
            (None, Some(version), Some(requires)) => write!(f, "{version} that is {requires}"),
            (None, Some(version), None) => f.write_str(version),
            (None, None, Some(requires)) => write!(f, "{requires}"),
            (None, None, None) => f.write_str("≥ 3.11"),
        }
    }
}

/// `3.12.1` as numbers, up to the first part that is none.
pub(super) fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minor_version_accepts_its_patches_and_nothing_else() {
        let request = PythonRequest::parse("3.12").unwrap();
        assert!(request.accepts("3.12.0") && request.accepts("3.12.10"));
        assert!(
            !request.accepts("3.1.2") && !request.accepts("3.13.0") && !request.accepts("3.120.0")
        );
    }

    #[test]
    fn requires_python_and_a_version_both_count() {
        let request = PythonRequest::parse("3.12").unwrap().requiring(">=3.11,!=3.12.1").unwrap();
        assert!(request.accepts("3.12.2"));
        assert!(!request.accepts("3.12.1") && !request.accepts("3.11.7"));
    }

    #[test]
    fn nonsense_and_old_versions_are_refused_with_an_example() {
        assert!(matches!(PythonRequest::parse("snake"), Err(RequestError::NoVersion(_))));
        assert!(matches!(PythonRequest::parse("2.7"), Err(RequestError::NoVersion(_))));
        assert_eq!(
            PythonRequest::parse("3.9").unwrap_err(),
            RequestError::TooOld("3.9".to_owned())
        );
        assert!(PythonRequest::any().requiring("at least 3").is_err());
    }
}
