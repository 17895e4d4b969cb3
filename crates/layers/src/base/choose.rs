//! Which base a function gets.

use std::path::{Path, PathBuf};

use super::{Base, BaseError, build};
use crate::python::{self, PythonRequest};
use crate::{FileError, Progress, Store, description};

/// All bases, the oldest first.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(store: &Store) -> Result<Vec<Base>, FileError> {
    let directory = store.kind("base");
    let entries = std::fs::read_dir(&directory).map_err(FileError::at("list", &directory))?;
    let mut bases: Vec<Base> = entries
        .flatten()
        .filter_map(|entry| Base::read(store, entry.file_name().to_str()?.strip_suffix(".json")?))
        .collect();
    bases.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
    Ok(bases)
}

/// The bases below a state directory of which another program has removed a part, and that part's path. Makes nothing.
#[must_use]
pub fn damaged(state: &Path) -> Vec<(Base, PathBuf)> {
    let layers = state.join("layers");
    let entries = std::fs::read_dir(layers.join("base")).into_iter().flatten().flatten();
    let descriptions = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let bases = descriptions.filter_map(|path| description::read::<Base>(&path));
    bases
        .filter(Base::is_current)
        .filter_map(|base| {
            let root = layers.join(base.layer.as_path());
            let gone = base.parts().into_iter().map(|part| root.join(part));
            let gone = gone.into_iter().find(|part| part.symlink_metadata().is_err())?;
            Some((base, gone))
        })
        .collect()
}

/// The base that serves a request: of the Pythons that fit, the one that was made into a base first (so that a second
/// base changes nothing for who asked for none), in its newest making.
///
/// # Errors
/// When the directory cannot be read.
pub fn find(store: &Store, request: &PythonRequest) -> Result<Option<Base>, FileError> {
    Ok(choose(list(store)?, request))
}

fn choose(bases: Vec<Base>, request: &PythonRequest) -> Option<Base> {
    let fits = |base: &Base| match request.path() {
        Some(path) => path.canonicalize().is_ok_and(|path| path == base.source),
        None => request.accepts(&base.version),
    };
    let fitting: Vec<Base> = bases.into_iter().filter(fits).collect();
    let source = fitting.first()?.source.clone();
    fitting.into_iter().rfind(|base| base.source == source)
}

/// The base that serves a request, made from a Python of the host when there is none yet.
///
/// # Errors
/// When no Python fits, or no base can be made of it.
pub fn default_or_build(
    store: &Store,
    request: &PythonRequest,
    progress: &dyn Progress,
) -> Result<Base, BaseError> {
    if let Some(base) = find(store, request)? {
        return Ok(base);
    }
    build(store, &python::find(request)?, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(id: &str, version: &str, source: &str, created: u64) -> Base {
        Base {
            id: id.to_owned(),
            version: version.to_owned(),
            layer: format!("base/{id}").parse().unwrap(),
            interpreter: "/usr/bin/python3".to_owned(),
            source: PathBuf::from(source),
            bytes: 1,
            created,
            missing: Vec::new(),
            format: 1,
            libraries: PathBuf::from("usr/lib"),
            loader: None,
        }
    }

    #[test]
    fn the_first_python_stays_the_default_and_its_newest_making_counts() {
        let bases = vec![
            base("a", "3.11.7", "/p", 1),
            base("b", "3.13.0", "/q", 2),
            base("c", "3.11.9", "/p", 3),
        ];
        assert_eq!(choose(bases.clone(), &PythonRequest::any()).unwrap().id, "c");
        assert_eq!(choose(bases.clone(), &PythonRequest::parse("3.13").unwrap()).unwrap().id, "b");
        let exact = PythonRequest::any().requiring("==3.11.7").unwrap();
        assert_eq!(choose(bases.clone(), &exact).unwrap().id, "a");
        assert!(choose(bases, &PythonRequest::parse("3.12").unwrap()).is_none());
    }

    #[test]
    fn a_minor_version_is_two_numbers() {
        assert_eq!(base("a", "3.11.7", "/p", 1).minor(), "3.11");
    }
}
