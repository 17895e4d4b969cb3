//! What a layer will hold: destinations and where their content comes from. A plan has an identity before a byte is
//! copied, so that making a base again when nothing has changed costs a listing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::FileError;
use crate::elf::without_search_paths;

/// What stands at one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A copy of a host file.
    Copy(PathBuf),
    /// A copy of a host's program or library without its search paths (DT_RUNPATH, DT_RPATH),
    /// which name directories of the host.
    Object(PathBuf),
    /// A file with this text.
    Text(String),
    /// A file with these bytes.
    Bytes(Vec<u8>),
    /// A symbolic link.
    Link(PathBuf),
    /// A directory that may stay empty: a mount point.
    Directory,
}

/// Destinations relative to the layer's root.
#[derive(Debug, Default)]
pub(super) struct Plan {
    items: BTreeMap<PathBuf, Item>,
}

impl Plan {
    /// Adds an item; what was planned first at a destination stays.
    pub(super) fn put(&mut self, destination: impl Into<PathBuf>, item: Item) {
        self.items.entry(destination.into()).or_insert(item);
    }

    /// Puts an item in the place of what was planned at its destination.
    pub(super) fn replace(&mut self, destination: impl Into<PathBuf>, item: Item) {
        self.items.insert(destination.into(), item);
    }

    /// Adds a copy of everything below `source` that `wanted` accepts (by its path relative to `source`). Links are
    /// followed: the layer must not depend on what they lead to.
    pub(super) fn put_tree(
        &mut self,
        source: &Path,
        destination: &Path,
        wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<(), FileError> {
        let mut open = vec![(PathBuf::new(), Vec::<PathBuf>::new())];
        while let Some((relative, above)) = open.pop() {
            let directory = source.join(&relative);
            let real = directory.canonicalize().map_err(FileError::at("resolve", &directory))?;
            // A link to a directory above itself would never end.
            if above.contains(&real) {
                continue;
            }
            let entries = fs::read_dir(&directory).map_err(FileError::at("list", &directory))?;
            let below: Vec<PathBuf> = above.into_iter().chain([real]).collect();
            for entry in entries {
                let entry = entry.map_err(FileError::at("list", &directory))?;
                let path = relative.join(entry.file_name());
                if !wanted(&path) {
                    continue;
                }
                // A dangling link has nothing to copy.
                let Ok(metadata) = fs::metadata(entry.path()) else {
                    continue;
                };
                if metadata.is_dir() {
                    open.push((path, below.clone()));
                } else if metadata.is_file() {
                    self.put(destination.join(path), Item::Copy(entry.path()));
                }
            }
        }
        Ok(())
    }

    /// Takes out destinations that are there already.
    pub(super) fn leave_out(&mut self, there: &dyn Fn(&Path) -> bool) {
        self.items.retain(|path, _| !there(path));
    }

    /// Host files that will be copied to below `destination`.
    pub(super) fn sources_below(&self, destination: &Path) -> Vec<PathBuf> {
        let below = self.items.iter().filter(|(path, _)| path.starts_with(destination));
        below
            .filter_map(
                |(_, item)| {
                    if let Item::Copy(from) = item { Some(from.clone()) } else { None }
                },
            )
            .collect()
    }

    /// Turns the copies of libraries below `destination` into objects; returns the host's files.
    pub(super) fn make_objects(&mut self, destination: &Path) -> Vec<PathBuf> {
        let mut sources = Vec::new();
        for (path, item) in &mut self.items {
            if let Item::Copy(from) = item
                && path.starts_with(destination)
                && from.extension().is_some_and(|extension| extension == "so")
            {
                sources.push(from.clone());
                *item = Item::Object(std::mem::take(from));
            }
        }
        sources
    }

    /// Feeds everything that decides the layer's content: destinations, texts, links, and size and time of each copied
    /// file.
    pub(super) fn identify(&self, hasher: &mut blake3::Hasher) -> Result<(), FileError> {
        for (destination, item) in &self.items {
            let told = match item {
                Item::Copy(from) => format!("copy {}", version(from)?),
                Item::Object(from) => format!("object {}", version(from)?),
                Item::Bytes(bytes) => format!("bytes {}", blake3::hash(bytes)),
                Item::Text(text) => format!("text {text}"),
                Item::Link(target) => format!("link {}", target.display()),
                Item::Directory => "directory".to_owned(),
            };
            let line = format!("{}\0{told}\0", destination.display());
            hasher.update(line.as_bytes());
        }
        Ok(())
    }

    /// Does it. Calls `copied` with the bytes written so far.
    pub(super) fn write(&self, root: &Path, copied: &dyn Fn(u64)) -> Result<u64, FileError> {
        let mut total = 0;
        for (destination, item) in &self.items {
            let path = root.join(destination);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(FileError::at("create", parent))?;
            }
            match item {
                Item::Copy(from) => {
                    total += copy(from, &path).map_err(FileError::at("copy", from))?;
                    copied(total);
                }
                Item::Object(from) => {
                    total += copy_object(from, &path).map_err(FileError::at("copy", from))?;
                    copied(total);
                }
                Item::Text(text) => {
                    fs::write(&path, text).map_err(FileError::at("write", &path))?
                }
                Item::Bytes(bytes) => {
                    fs::write(&path, bytes).map_err(FileError::at("write", &path))?
                }
                Item::Link(target) => {
                    symlink(target, &path).map_err(FileError::at("link", &path))?
                }
                Item::Directory => {
                    fs::create_dir_all(&path).map_err(FileError::at("create", &path))?
                }
            }
        }
        Ok(total)
    }
}

/// Size and time of a host file, by which a change of its content shows.
fn version(file: &Path) -> Result<String, FileError> {
    let metadata = fs::metadata(file).map_err(FileError::at("look at", file))?;
    Ok(format!("{} {}.{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

/// Copies content and the executable bit, neither owner nor time nor extended attributes.
fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let mut source = fs::File::open(from)?;
    let mut target = target(&source, to)?;
    io::copy(&mut source, &mut target)
}

/// Bytes of a program or library that are written at once. The page cache's folios are as large as
/// the writes, and a page fault maps a folio at once: an interpreter of 23 MB starts 0.1 ms faster
/// than with 64 KB, and no faster with 2 MB (ext4, Linux 6.18).
const PIECE: usize = 1 << 20;

/// As [`copy`], without the file's search paths.
fn copy_object(from: &Path, to: &Path) -> io::Result<u64> {
    let mut source = fs::File::open(from)?;
    let mut target = target(&source, to)?;
    let mut bytes = Vec::new();
    source.read_to_end(&mut bytes)?;
    let bytes = without_search_paths(bytes);
    for piece in bytes.chunks(PIECE) {
        target.write_all(piece)?;
    }
    Ok(bytes.len() as u64)
}

fn target(source: &fs::File, path: &Path) -> io::Result<fs::File> {
    let executable = source.metadata()?.mode() & 0o111 != 0;
    let mode = if executable { 0o755 } else { 0o644 };
    fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(plan: &Plan) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        plan.identify(&mut hasher).unwrap();
        hasher.finalize()
    }

    #[test]
    fn a_tree_is_copied_through_its_links_and_loops_end() {
        let source = tempfile::tempdir().unwrap();
        fs::create_dir(source.path().join("a")).unwrap();
        fs::write(source.path().join("a/x"), "1").unwrap();
        symlink("a/x", source.path().join("y")).unwrap();
        symlink("..", source.path().join("a/loop")).unwrap();
        symlink("nowhere", source.path().join("dangling")).unwrap();
        let mut plan = Plan::default();
        plan.put_tree(source.path(), Path::new("t"), &|_| true).unwrap();
        let target = tempfile::tempdir().unwrap();
        assert_eq!(plan.write(target.path(), &|_| ()).unwrap(), 2);
        assert_eq!(fs::read_to_string(target.path().join("t/y")).unwrap(), "1");
        assert!(
            !target.path().join("t/a/loop").exists() && !target.path().join("t/dangling").exists()
        );
    }

    #[test]
    fn a_changed_source_changes_the_identity() {
        let source = tempfile::tempdir().unwrap();
        let file = source.path().join("x");
        fs::write(&file, "1").unwrap();
        let mut plan = Plan::default();
        plan.put("x", Item::Copy(file.clone()));
        let before = identity(&plan);
        assert_eq!(before, identity(&plan));
        fs::write(&file, "22").unwrap();
        assert_ne!(before, identity(&plan));
    }
}
