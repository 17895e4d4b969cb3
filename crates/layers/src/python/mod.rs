//! The Pythons of the host.
//!
//! Looked for in this order; the first that fits is taken: uv-managed builds (they are made to be moved), the
//! `python3` of `PATH`, other versions under pyenv, and `python3.X` in `PATH` and `/usr/bin`. Each is asked what it
//! is by running it; a virtual environment or a pyenv shim leads to the interpreter behind it.

mod candidates;
mod request;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

pub use request::{PythonRequest, RequestError};

use crate::{Interpreter, Patience};

const PROBE: &str = include_str!("probe.py");

/// How long an interpreter may take to say what it is.
const PROBED: Duration = Duration::from_secs(60);

/// The oldest version that a base is made from.
pub const OLDEST: (u64, u64) = (3, 11);

/// A Python of the host that a base can be made from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct HostPython {
    implementation: String,
    /// Its full version, such as `3.12.1`.
    pub version: String,
    /// The interpreter's real file.
    pub executable: PathBuf,
    /// The standard library's real directory.
    pub(crate) stdlib: PathBuf,
    /// The extension modules' real directory; none when they are built in.
    pub(crate) dynload: Option<PathBuf>,
    /// `lib`, or `lib64` on some distributions: where below its prefix this interpreter looks.
    pub(crate) libdir: String,
    /// Its library's name, such as `python3.12`.
    pub(crate) libname: String,
    /// Where its OpenSSL looks for authorities.
    pub(crate) cafile: Option<PathBuf>,
    threaded: bool,
}

/// Why no Python was found.
#[derive(Debug, Error)]
pub enum PythonError {
    /// The named interpreter does not run, or is not one.
    #[error("{} does not answer as a Python 3 does; name a working interpreter", path.display())]
    NotPython {
        /// What was named.
        path: PathBuf,
    },
    /// The named interpreter cannot be a base.
    #[error("{} cannot be used: {reason}", path.display())]
    Unsuitable {
        /// What was named.
        path: PathBuf,
        /// The reason, as a clause.
        reason: String,
    },
    /// The machine has no Python that can be a base.
    #[error(
        "no Python ≥ 3.11 on this machine: install python3 (≥ 3.11), for example `apt install python3`"
    )]
    None,
    /// Some, but none that fits.
    #[error(
        "no Python {wanted} on the worker's machine (found: {found}): ask for one that is there, or install it there, for example `uv python install {example}`"
    )]
    NoneFits {
        /// What was asked for.
        wanted: String,
        /// The Pythons that the machine has.
        found: String,
        /// A version to install.
        example: String,
    },
    /// There is none anywhere.
    #[error("no Python can be {wanted} and 3.11 or newer, which a function needs: ask for another")]
    Impossible {
        /// What was asked for.
        wanted: String,
    },
}

impl HostPython {
    /// Asks one interpreter what it is.
    ///
    /// # Errors
    /// When it does not answer, or cannot be a base.
    pub fn probe(path: &Path) -> Result<Self, PythonError> {
        // One that hangs is none that answers.
        let patience = Patience::of(PROBED, || false);
        let answer: Result<Self, _> = Interpreter::at(path).ask_within(&patience, PROBE, &[]);
        let python = answer.map_err(|_| PythonError::NotPython { path: path.to_owned() })?;
        match python.unsuitable() {
            Some(reason) => Err(PythonError::Unsuitable { path: path.to_owned(), reason }),
            None => Ok(python),
        }
    }

    /// How to run it where it is.
    #[must_use]
    pub fn interpreter(&self) -> Interpreter {
        Interpreter::at(&self.executable)
    }

    fn unsuitable(&self) -> Option<String> {
        if self.implementation != "cpython" {
            return Some(format!("it is {}, not CPython", self.implementation));
        }
        if self.threaded {
            return Some("it is a free-threaded build".to_owned());
        }
        if request::numbers(&self.version) < vec![OLDEST.0, OLDEST.1] {
            return Some(format!("it is Python {}; 3.11 or newer is needed", self.version));
        }
        None
    }
}

/// Finds the first Python that fits.
///
/// # Errors
/// When there is none, with what there is.
pub fn find(request: &PythonRequest) -> Result<HostPython, PythonError> {
    if let Some(path) = request.path() {
        return HostPython::probe(path);
    }
    let mut found = Vec::new();
    for python in discover() {
        if request.accepts(&python.version) {
            return Ok(python);
        }
        found.push(python.version);
    }
    if found.is_empty() {
        return Err(PythonError::None);
    }
    let wanted = request.to_string();
    Err(match request.example() {
        Some(example) => PythonError::NoneFits { wanted, found: found.join(", "), example },
        None => PythonError::Impossible { wanted },
    })
}

/// All Pythons that a base can be made from, in the order of preference, each once. They are asked as the iterator
/// goes on.
pub fn discover() -> impl Iterator<Item = HostPython> {
    let mut asked = BTreeSet::new();
    let mut known = BTreeSet::new();
    candidates::all()
        .filter(move |path| asked.insert(path.canonicalize().unwrap_or_else(|_| path.clone())))
        .filter_map(|path| HostPython::probe(&path).ok())
        .filter(move |python| known.insert(python.executable.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_python_is_named_in_the_error() {
        let error = find(&PythonRequest::parse("/bin/true").unwrap()).unwrap_err().to_string();
        assert!(error.contains("/bin/true"), "{error}");
    }

    #[test]
    fn an_old_python_is_refused_with_its_version() {
        let known = HostPython {
            implementation: "cpython".to_owned(),
            version: "3.10.13".to_owned(),
            executable: "/usr/bin/python3.10".into(),
            stdlib: "/usr/lib/python3.10".into(),
            dynload: None,
            libdir: "lib".to_owned(),
            libname: "python3.10".to_owned(),
            cafile: None,
            threaded: false,
        };
        assert_eq!(known.unsuitable().unwrap(), "it is Python 3.10.13; 3.11 or newer is needed");
        assert_eq!(HostPython { version: "3.11.0".to_owned(), ..known.clone() }.unsuitable(), None);
        assert!(
            HostPython { version: "3.13.0".to_owned(), threaded: true, ..known }
                .unsuitable()
                .is_some()
        );
    }

    #[test]
    fn a_version_that_is_not_there_is_answered_with_those_that_are() {
        let error = find(&PythonRequest::parse("3.99").unwrap()).unwrap_err().to_string();
        assert!(error.contains("3.99"), "{error}");
        assert!(discover().all(|python| error.contains(&python.version)), "{error}");
        assert!(error.ends_with("`uv python install 3.99`"), "{error}");
        let never = PythonRequest::any().requiring("<3.11").unwrap();
        let error = find(&never).unwrap_err().to_string();
        assert!(error.contains("<3.11") && !error.contains("install"), "{error}");
    }

    #[test]
    fn every_discovered_python_is_a_real_file_that_can_be_probed_again() {
        let pythons: Vec<_> = discover().collect();
        assert!(!pythons.is_empty(), "this machine has no Python ≥ 3.11");
        for python in pythons {
            assert_eq!(python.executable, python.executable.canonicalize().unwrap());
            assert_eq!(HostPython::probe(&python.executable).unwrap(), python);
        }
    }
}
