//! A directory that uv works in: a project with nothing but its dependencies and `[tool.uv]`.
//!
//! Looking for settings, uv goes up from where it stands to the first project. It finds this one,
//! and never a project above the state directory. The user's and the system's own `uv.toml` still
//! count.

use std::fs;
use std::path::Path;

use layers::staging::Staging;
use layers::store::short;
use layers::{FileError, Store};
use toml::{Table, Value};

use crate::requirements;

/// The directory; gone when dropped.
#[derive(Debug)]
pub(crate) struct Project {
    staging: Staging,
}

/// Its file of dependencies.
pub(crate) const FILE: &str = "pyproject.toml";

/// Its file of hashes.
pub(crate) const HASHES: &str = "hashes.txt";

impl Project {
    /// Writes a project that needs what is `wanted`; those with hashes are repeated in [`HASHES`],
    /// with their hashes.
    pub(crate) fn write(
        store: &Store,
        wanted: &[String],
        settings: &Table,
    ) -> Result<Self, FileError> {
        let plain = |line: &String| Value::String(requirements::without_hashes(line));
        let project = Table::from_iter([
            ("name".to_owned(), Value::String("function".to_owned())),
            ("version".to_owned(), Value::String("0".to_owned())),
            ("dependencies".to_owned(), Value::Array(wanted.iter().map(plain).collect())),
        ]);
        let tool = Table::from_iter([("uv".to_owned(), Value::Table(settings.clone()))]);
        let whole = Table::from_iter([
            ("project".to_owned(), Value::Table(project)),
            ("tool".to_owned(), Value::Table(tool)),
        ]);
        let text = whole.to_string();
        let hashes: String = wanted.iter().map(|line| format!("{line}\n")).collect();
        // Named by the content: a caller that asks the same at the same time waits, and then finds
        // uv's cache filled.
        let name =
            format!("project-{}", short(&blake3::hash(format!("{text}\0{hashes}").as_bytes())));
        let staging = Staging::begin(&store.uv(), &name)?;
        for (name, text) in [(FILE, text), (HASHES, hashes)] {
            let path = staging.path().join(name);
            fs::write(&path, text).map_err(FileError::at("write", &path))?;
        }
        Ok(Self { staging })
    }

    pub(crate) fn path(&self) -> &Path {
        self.staging.path()
    }
}

/// Metadata of a package, as `dependency-metadata` of `[tool.uv]` has it: a name alone. It keeps uv
/// from looking into the source, which would run the source's own code.
pub(crate) fn stub(name: &str) -> Value {
    Value::Table(Table::from_iter([("name".to_owned(), Value::String(name.to_owned()))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_says_requirements_without_and_with_their_hashes() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path()).unwrap();
        let wanted = ["six==1.16.0 ; python_version > '3' --hash=sha256:00".to_owned()];
        let settings: Table = "prerelease = \"allow\"".parse().unwrap();
        let project = Project::write(&store, &wanted, &settings).unwrap();
        let text = fs::read_to_string(project.path().join(FILE)).unwrap();
        let said: Table = text.parse().unwrap();
        assert_eq!(
            said["project"]["dependencies"][0].as_str().unwrap(),
            "six==1.16.0 ; python_version > '3'"
        );
        assert_eq!(said["tool"]["uv"]["prerelease"].as_str().unwrap(), "allow");
        let hashes = fs::read_to_string(project.path().join(HASHES)).unwrap();
        assert!(hashes.contains("--hash=sha256:00"));
    }
}
