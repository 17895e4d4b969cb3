//! Packing what is on disk for a deploy.
//!
//! A file goes as it is; a folder as a tar archive whose bytes depend on nothing but names, modes and contents, so
//! that its hash names it. Links are packed as links: the worker refuses them, and says which.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use layers::code::skipped;

/// Directories that are not sent, beside what the worker leaves out.
const SKIPPED: [&str; 2] = ["venv", "node_modules"];

/// A packed function.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// A name for it that people recognise: the file's or folder's.
    pub(super) stem: String,
    /// The bundle's content type.
    pub(super) content_type: &'static str,
    /// The bundle.
    pub(super) bytes: Bytes,
}

/// Packs a `.py` file, an archive or a folder.
pub(super) fn pack(path: &Path) -> Result<Packed> {
    let absolute =
        path.canonicalize().with_context(|| format!("cannot read {}", path.display()))?;
    if absolute.is_dir() {
        let stem = absolute
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        return Ok(Packed {
            stem,
            content_type: "application/x-tar",
            bytes: pack_folder(&absolute)?,
        });
    }
    let name =
        absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
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
    let bytes = fs::read(&absolute).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Packed { stem: stem.to_owned(), content_type, bytes: Bytes::from(bytes) })
}

fn pack_folder(folder: &Path) -> Result<Bytes> {
    let mut files = Vec::new();
    collect(folder, Path::new(""), &mut files)?;
    files.sort();
    let mut archive = tar::Builder::new(Vec::new());
    archive.mode(tar::HeaderMode::Deterministic);
    archive.follow_symlinks(false);
    for file in files {
        let from = folder.join(&file);
        archive
            .append_path_with_name(&from, &file)
            .with_context(|| format!("cannot pack {}", from.display()))?;
    }
    Ok(Bytes::from(archive.into_inner().context("cannot pack the folder")?))
}

fn collect(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let folder = root.join(below);
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
        let name = entry.file_name();
        let kind =
            entry.file_type().with_context(|| format!("cannot read {}", entry.path().display()))?;
        let text = name.to_str().unwrap_or_default();
        if skipped(text) {
            continue;
        }
        if kind.is_dir() {
            // A folder made by `python -m venv`, whatever its name: it is full of links.
            if !SKIPPED.contains(&text) && !entry.path().join("pyvenv.cfg").exists() {
                collect(root, &below.join(&name), files)?;
            }
        } else {
            files.push(below.join(&name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_packs_to_the_same_bytes_whenever_it_was_touched() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("report");
        fs::create_dir_all(folder.join("data")).unwrap();
        fs::create_dir_all(folder.join("__pycache__")).unwrap();
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
        assert_eq!(names, ["data/a.csv", "main.py"]);
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
