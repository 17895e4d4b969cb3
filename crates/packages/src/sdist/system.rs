//! What a source says of how it is built: the `build-system` table of its `pyproject.toml` (PEP
//! 518).

use serde::Serialize;
use toml::{Table, Value};

use crate::build_error::BuildError;
use crate::requirements;

/// Where a backend is and what it needs (PEP 518, PEP 517).
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct System {
    pub(super) requires: Vec<String>,
    pub(super) backend: String,
    pub(super) backend_path: Vec<String>,
}

impl System {
    /// Of a `pyproject.toml`; without one, or without its table, what PEP 517 prescribes.
    pub(super) fn read(text: Option<&str>) -> Result<Self, BuildError> {
        let wrong = |what: &str| BuildError::Project(what.to_owned());
        let project: Table =
            text.unwrap_or_default().parse().map_err(|e: toml::de::Error| wrong(e.message()))?;
        let Some(table) = project.get("build-system").and_then(Value::as_table) else {
            return Ok(Self::legacy(vec!["setuptools>=40.8.0".to_owned()]));
        };
        let texts = |key: &str| -> Result<Vec<String>, BuildError> {
            let all =
                table.get(key).map_or(Some(&[][..]), |value| value.as_array().map(Vec::as_slice));
            let all =
                all.and_then(|all| all.iter().map(|one| one.as_str().map(str::to_owned)).collect());
            all.ok_or_else(|| wrong(&format!("build-system.{key} is no list of texts")))
        };
        let (requires, backend_path) = (texts("requires")?, texts("backend-path")?);
        check(&requires)?;
        Ok(match table.get("build-backend") {
            Some(Value::String(backend)) => {
                Self { requires, backend: backend.clone(), backend_path }
            }
            Some(_) => return Err(wrong("build-system.build-backend is no text")),
            None => Self::legacy(requires),
        })
    }

    fn legacy(requires: Vec<String>) -> Self {
        let backend = "setuptools.build_meta:__legacy__".to_owned();
        Self { requires, backend, backend_path: Vec::new() }
    }
}

/// Only packages of an index may be required.
pub(super) fn check(wanted: &[String]) -> Result<(), BuildError> {
    let refused = |one: &String| requirements::check_indexed("pyproject.toml", one).err();
    match wanted.iter().find_map(refused) {
        Some(error) => Err(BuildError::Project(error.to_string())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_without_a_build_system_is_built_by_setuptools() {
        for text in [None, Some(""), Some("[project]\nname = \"x\"")] {
            let system = System::read(text).unwrap();
            assert_eq!(system.backend, "setuptools.build_meta:__legacy__");
            assert_eq!(system.requires, ["setuptools>=40.8.0"]);
        }
        let text = "[build-system]\nrequires = [\"setuptools\", \"cython\"]";
        let system = System::read(Some(text)).unwrap();
        assert_eq!((system.requires.len(), system.backend_path.len()), (2, 0));
        let text = "[build-system]\nrequires = []\nbuild-backend = \"b:c\"\nbackend-path = [\".\"]";
        let system = System::read(Some(text)).unwrap();
        assert_eq!(
            (system.backend.as_str(), system.backend_path.as_slice()),
            ("b:c", &[".".to_owned()][..])
        );
    }

    #[test]
    fn a_build_system_that_reaches_outside_an_index_is_refused() {
        for bad in [
            "[1]",
            "\"x\"",
            "[\"x @ file:///etc\"]",
            "[\"git+https://example.org/x\"]",
            "[\"x @ https://example.org/x-1-py3-none-any.whl\"]",
            "[\"-r /etc/passwd\"]",
        ] {
            let text = format!("[build-system]\nrequires = {bad}");
            assert!(matches!(System::read(Some(&text)), Err(BuildError::Project(_))), "{bad}");
        }
        assert!(System::read(Some("[build-system")).is_err());
    }
}
