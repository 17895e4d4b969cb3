//! Copies a folder into a bundle.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use layers::FileError;

use super::CodeError;
use super::writer::{Writer, skipped};

pub(super) fn copy(folder: &Path, writer: &mut Writer) -> Result<(), CodeError> {
    let mut open = vec![String::new()];
    while let Some(relative) = open.pop() {
        let directory = folder.join(&relative);
        let entries = fs::read_dir(&directory).map_err(FileError::at("list", &directory))?;
        for entry in entries {
            let entry = entry.map_err(FileError::at("list", &directory))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                return Err(CodeError::Name { entry: name.to_string_lossy().into_owned() });
            };
            if skipped(name) {
                continue;
            }
            let path =
                if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
            let metadata = entry.metadata().map_err(FileError::at("look at", &entry.path()))?;
            if metadata.is_dir() {
                // A folder made by `python -m venv`, whatever its name.
                if !entry.path().join("pyvenv.cfg").exists() {
                    writer.add_folder(&path)?;
                    open.push(path);
                }
            } else if metadata.is_symlink() {
                return Err(CodeError::Link { entry: path });
            } else if metadata.is_file() {
                let mut file =
                    File::open(entry.path()).map_err(FileError::at("open", &entry.path()))?;
                writer.add(&path, metadata.mode() & 0o111 != 0, &mut file, None)?;
            } else {
                return Err(CodeError::Special { entry: path });
            }
        }
    }
    Ok(())
}
