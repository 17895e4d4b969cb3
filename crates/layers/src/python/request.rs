//! Which Python is wanted.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pep440_rs::{Version, VersionSpecifiers};
use thiserror::Error;

/// Beyond what there will be: minor versions, and patches of one.
const MINORS: u64 = 99;
const PATCHES: u64 = 99;

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
    NoPython(String),
    /// No version, where nothing else may be.
    #[error("{0:?} is no version of Python 3: write for example \"3.12\"")]
    NoVersion(String),
    /// A path, where only the operator may name one.
    #[error(
        "{0:?} is a path, and the worker's machine is its operator's: a function names a version, such as \"3.12\""
    )]
    Path(String),
    /// A Python below 3.11.
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

    /// `3.12`, `3.12.1`, or an absolute path: an operator's words.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let text = text.trim();
        if text.starts_with('/') {
            return Ok(Self { path: Some(PathBuf::from(text)), ..Self::default() });
        }
        Self::version_of(text).map_err(|error| match error {
            RequestError::NoVersion(text) | RequestError::Path(text) => {
                RequestError::NoPython(text)
            }
            other => other,
        })
    }

    /// `3.12` or `3.12.1`: a function's words. A path would be the deployer's choice of a program on the worker's machine.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn version_of(text: &str) -> Result<Self, RequestError> {
        let text = text.trim();
        if text.contains('/') {
            return Err(RequestError::Path(text.to_owned()));
        }
        let version = text.strip_prefix("python").unwrap_or(text);
        let parts: Vec<&str> = version.split('.').collect();
        let plain =
            (1..=3).contains(&parts.len()) && parts.iter().all(|p| p.parse::<u16>().is_ok());
        if plain && ["1", "2"].contains(&parts[0]) {
            return Err(RequestError::TooOld(version.to_owned()));
        }
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

    /// The same, limited to one minor version, such as `3.12`.
    ///
    /// # Errors
    /// When the text is no version.
    pub fn of_minor(self, minor: &str) -> Result<Self, RequestError> {
        let narrow = Self::version_of(minor)?;
        let named = self.version.as_deref().map(numbers).unwrap_or_default();
        match named.starts_with(&numbers(minor)) {
            true => Ok(self),
            false => Ok(Self { version: narrow.version, ..self }),
        }
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

    /// A version that would do, to install; none when nothing can: `requires-python` excludes the version that is asked for,
    /// or all that are new enough.
    pub(super) fn example(&self) -> Option<String> {
        // What most packages have wheels for, first.
        let minors = [12, 13, 14].into_iter().chain(super::OLDEST.1..=MINORS);
        let mut fitting = minors.filter_map(|minor| {
            let mut patches = (0..=PATCHES).rev();
            let patch = patches.find(|patch| self.accepts(&format!("3.{minor}.{patch}")))?;
            // When the newest will do, whichever it is.
            Some(if patch == PATCHES { format!("3.{minor}") } else { format!("3.{minor}.{patch}") })
        });
        fitting.next()
    }

    /// The interpreter that is asked for by path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
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
    fn what_is_advised_to_be_installed_is_what_was_asked_for() {
        let example = |version: Option<&str>, requires: &str| {
            let request =
                version.map_or(PythonRequest::any(), |v| PythonRequest::parse(v).unwrap());
            request.requiring(requires).unwrap().example()
        };
        for (version, requires, advised) in [
            (None, ">=3.11", Some("3.12")),
            (None, ">=3.13", Some("3.13")),
            (None, "<3.12", Some("3.11")),
            (None, ">=3.15", Some("3.15")),
            (None, "==3.12.4", Some("3.12.4")),
            (None, ">=3.12,<3.12.5", Some("3.12.4")),
            (Some("3.14"), ">=3.11", Some("3.14")),
            (Some("3.12"), ">=3.13", None),
            (None, "<3.11", None),
            (None, ">=4", None),
        ] {
            assert_eq!(example(version, requires).as_deref(), advised, "{version:?} {requires}");
        }
    }

    #[test]
    fn nonsense_and_old_versions_are_refused_with_an_example() {
        assert!(matches!(PythonRequest::parse("snake"), Err(RequestError::NoPython(_))));
        assert!(matches!(PythonRequest::parse("bin/python"), Err(RequestError::NoPython(_))));
        assert!(matches!(PythonRequest::parse("2.7"), Err(RequestError::TooOld(_))));
        // A function may name no path, and is not advised to.
        let told = PythonRequest::version_of("snake").unwrap_err().to_string();
        assert!(told.contains("3.12") && !told.contains('/'), "{told}");
        for path in ["/usr/bin/python3", "bin/python"] {
            assert_eq!(
                PythonRequest::version_of(path).unwrap_err(),
                RequestError::Path(path.to_owned())
            );
        }
        assert_eq!(
            PythonRequest::parse("3.9").unwrap_err(),
            RequestError::TooOld("3.9".to_owned())
        );
        assert!(PythonRequest::any().requiring("at least 3").is_err());
    }
}
