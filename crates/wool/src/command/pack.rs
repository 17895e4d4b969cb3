//! Packing what is on disk for a deploy.
//!
//! A file goes as it is; a folder as a tar archive whose bytes depend on nothing but names, modes and contents, so
//! that its hash names it. Links are packed as links: the worker refuses them, and says which. How much it is, is looked at
//! before anything is read.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use bundle::code::skipped;
use bytes::Bytes;

use function::quantity;

/// Directories that are not sent, beside what the worker leaves out.
const SKIPPED: [&str; 2] = ["venv", "node_modules"];

/// A packed function.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// A name for it that people recognise: the file's or folder's.
    pub(super) stem: String,
    /// The bundle's content type.
    pub(super) content_type: &'static str,
    /// The bundle's bytes.
    pub(super) bytes: Bytes,
}

/// What can be packed, and how much it is.
#[derive(Clone, Debug)]
pub(super) struct Found {
    path: PathBuf,
    pub(super) stem: String,
    content_type: &'static str,
    /// Of a folder: what is packed of it, in its order.
    files: Option<Vec<PathBuf>>,
    /// Its bytes as they lie on disk.
    pub(super) bytes: u64,
}

/// Looks at a `.py` file, an archive or a folder; reads nothing of it.
pub(super) fn find(path: &Path) -> Result<Found> {
    let unreadable = || format!("cannot read {}", path.display());
    let absolute = path.canonicalize().with_context(unreadable)?;
    let kind = fs::metadata(&absolute).with_context(unreadable)?;
    let name =
        absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if kind.is_dir() {
        let (mut files, mut bytes) = (Vec::new(), 0);
        collect(&absolute, Path::new(""), &mut files, &mut bytes)?;
        files.sort();
        let content_type = "application/x-tar";
        return Ok(Found { path: absolute, stem: name, content_type, files: Some(files), bytes });
    }
    let kinds = [
        (".py", "text/x-python"),
        (".zip", "application/zip"),
        (".tar", "application/x-tar"),
        (".tar.gz", "application/gzip"),
        (".tgz", "application/gzip"),
    ];
    let Some((stem, content_type)) =
        kinds.iter().find_map(|(end, kind)| Some((name.strip_suffix(end)?, *kind)))
    else {
        bail!(
            "{} is no function: give a .py file, a folder, a .zip, .tar or .tar.gz",
            path.display()
        );
    };
    let stem = stem.to_owned();
    Ok(Found { path: absolute, stem, content_type, files: None, bytes: kind.len() })
}

impl Found {
    /// Refuses what is more than a worker takes.
    pub(super) fn within(self, limit: Option<u64>) -> Result<Self> {
        match limit {
            Some(limit) if self.bytes > limit => bail!(
                "{} holds {}, and the worker takes {} at most: leave out what the function does not need, or have the operator raise `deploy_body`",
                self.path.display(),
                quantity::Bytes(self.bytes),
                quantity::Bytes(limit),
            ),
            _ => Ok(self),
        }
    }

    /// Reads and packs it.
    pub(super) fn pack(self) -> Result<Packed> {
        let Self { path, stem, content_type, files, .. } = self;
        let bytes = match files {
            Some(files) => pack_folder(&path, &files)?,
            None => fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?,
        };
        Ok(Packed { stem, content_type, bytes: Bytes::from(bytes) })
    }
}

fn pack_folder(folder: &Path, files: &[PathBuf]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.mode(tar::HeaderMode::Deterministic);
    archive.follow_symlinks(false);
    // Where a file has holes is its file system's affair, and the worker reads no such entries.
    archive.sparse(false);
    for file in files {
        let from = folder.join(file);
        archive
            .append_path_with_name(&from, file)
            .with_context(|| format!("cannot pack {}", from.display()))?;
    }
    archive.into_inner().context("cannot pack the folder")
}

fn collect(root: &Path, below: &Path, files: &mut Vec<PathBuf>, bytes: &mut u64) -> Result<()> {
    let folder = root.join(below);
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
        let name = entry.file_name();
        let unreadable = || format!("cannot read {}", entry.path().display());
        let kind = entry.file_type().with_context(unreadable)?;
        let text = name.to_str().unwrap_or_default();
        if skipped(text) {
            continue;
        }
        if kind.is_dir() {
            // A folder made by `python -m venv`, whatever its name: it is full of links.
            if !SKIPPED.contains(&text) && !entry.path().join("pyvenv.cfg").exists() {
                let before = files.len();
                collect(root, &below.join(&name), files, bytes)?;
                // One that is empty is told by itself, the others by what is in them.
                if files.len() == before {
                    files.push(below.join(&name));
                }
            }
            continue;
        }
        let special = [
            (kind.is_fifo(), "a named pipe"),
            (kind.is_socket(), "a socket"),
            (kind.is_block_device() || kind.is_char_device(), "a device"),
        ];
        if let Some((_, what)) = special.iter().find(|(is, _)| *is) {
            bail!(
                "{} is {what}, and a function's folder holds files: remove it, or deploy another folder",
                entry.path().display()
            );
        }
        *bytes += entry.metadata().with_context(unreadable)?.len();
        files.push(below.join(&name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(path: &Path) -> Result<Packed> {
        find(path)?.pack()
    }

    #[test]
    fn a_file_with_holes_is_packed_as_any_other() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("main.py"), "x = 1\n").unwrap();
        let sparse = fs::File::create(dir.path().join("sparse.bin")).unwrap();
        sparse.set_len(1 << 20).unwrap();
        std::os::unix::fs::FileExt::write_at(&sparse, b"end", (1 << 20) - 3).unwrap();
        let packed = pack(dir.path()).unwrap();
        let mut archive = tar::Archive::new(&packed.bytes[..]);
        let kinds: Vec<_> =
            archive.entries().unwrap().map(|e| e.unwrap().header().entry_type()).collect();
        assert_eq!(kinds, [tar::EntryType::Regular; 2]);
    }

    #[test]
    fn what_is_no_file_is_named_and_nothing_is_read_of_what_is_too_much() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("main.py"), "x = 1\n").unwrap();
        // Reading it would take more memory than there is.
        fs::File::create(dir.path().join("huge")).unwrap().set_len(1 << 50).unwrap_or_else(|_| {
            // Larger than this file system's files may be.
            fs::File::create(dir.path().join("huge")).unwrap().set_len(1 << 43).unwrap();
        });
        let refused = find(dir.path()).unwrap().within(Some(256 << 20)).unwrap_err().to_string();
        assert!(refused.contains("256MiB") && refused.contains("deploy_body"), "{refused}");
        assert!(find(dir.path()).unwrap().within(None).is_ok());
        let socket = dir.path().join("data");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let refused = find(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("data is a socket"), "{refused}");
    }

    #[test]
    fn a_folder_packs_to_the_same_bytes_whenever_it_was_touched() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("report");
        fs::create_dir_all(folder.join("data")).unwrap();
        fs::create_dir_all(folder.join("__pycache__")).unwrap();
        fs::create_dir_all(folder.join("plugins/empty")).unwrap();
        fs::write(folder.join("main.py"), "x = 1\n").unwrap();
        fs::write(folder.join("data/a.csv"), "a\n").unwrap();
        fs::write(folder.join("__pycache__/main.pyc"), "1").unwrap();
        let first = pack(&folder).unwrap();
        fs::write(folder.join("__pycache__/main.pyc"), "2").unwrap();
        fs::write(folder.join("main.py"), "x = 1\n").unwrap();
        let second = pack(&folder).unwrap();
        assert_eq!((first.stem.as_str(), first.content_type), ("report", "application/x-tar"));
        assert_eq!(first.bytes, second.bytes);
        let mut archive = tar::Archive::new(&first.bytes[..]);
        let names: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|e| e.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["data/a.csv", "main.py", "plugins/empty"]);
    }

    #[test]
    fn a_virtual_environment_of_any_name_and_what_the_worker_leaves_out_are_not_packed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("report");
        for name in ["env", "env/bin", ".tox", ".mypy_cache", ".svn", "venv", "data"] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("file"), "").unwrap();
        }
        fs::write(folder.join("env/pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        std::os::unix::fs::symlink("/usr/bin/python3", folder.join("env/bin/python")).unwrap();
        fs::write(folder.join("main.py"), "x = 1\n").unwrap();
        let packed = pack(&folder).unwrap();
        let mut archive = tar::Archive::new(&packed.bytes[..]);
        let names: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|e| e.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["data/file", "main.py"]);
    }

    #[test]
    fn what_is_no_function_is_refused_with_what_would_be_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("notes.txt");
        fs::write(&file, "").unwrap();
        let refused = pack(&file).unwrap_err().to_string();
        assert!(refused.contains(".py"), "{refused}");
        assert!(pack(&dir.path().join("missing.py")).is_err());
    }
}
