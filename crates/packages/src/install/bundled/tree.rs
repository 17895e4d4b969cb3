//! All files of a bundle, without bytecode.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use layers::FileError;

/// Paths below a bundle's root, and whether each is a regular file.
#[derive(Debug)]
pub(super) struct Tree(BTreeMap<String, bool>);

impl Tree {
    /// Follows no link.
    pub(super) fn of(root: &Path) -> Result<Self, FileError> {
        let mut files = BTreeMap::new();
        let mut open = vec![PathBuf::new()];
        while let Some(relative) = open.pop() {
            let directory = root.join(&relative);
            for entry in fs::read_dir(&directory).map_err(FileError::at("list", &directory))? {
                let entry = entry.map_err(FileError::at("list", &directory))?;
                let kind = entry.file_type().map_err(FileError::at("look at", &directory))?;
                let path = relative.join(entry.file_name());
                if entry.file_name() == "__pycache__" {
                    continue;
                }
                if kind.is_dir() {
                    open.push(path);
                } else {
                    // One whose name is no text is no file that a row can name.
                    let named = path.to_str().is_some();
                    files.insert(path.to_string_lossy().into_owned(), named && kind.is_file());
                }
            }
        }
        Ok(Self(files))
    }

    /// Names of the directories `*.dist-info` at the root, sorted.
    pub(super) fn candidates(&self) -> Vec<String> {
        let tops = self.0.keys().filter_map(|path| path.split_once('/'));
        let named = tops
            .map(|(top, _)| top)
            .filter(|top| top.strip_suffix(".dist-info").is_some_and(|stem| !stem.is_empty()));
        named.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.0.get(path) == Some(&true)
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|path| &**path)
    }

    /// Paths in one directory at the root.
    pub(super) fn inside(&self, top: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{top}/");
        let from = self.0.range(prefix.clone()..).map(|(path, _)| &**path);
        from.take_while(move |path| path.starts_with(&prefix))
    }
}
