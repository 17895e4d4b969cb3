//! The guest layer: Lambswool's own Python, the same for all functions on a base.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

use sandbox::Layer;
use thiserror::Error;

use crate::base::Base;
use crate::store::{layer, short};
use crate::{FileError, RunError, Store, bytecode};

/// Where sandboxes see the layer.
const PREFIX: &str = "/opt/lambswool";

/// The guest's script that puts what a fresh interpreter runs into one file, if the guest has one.
const BUNDLE: &str = "lambswool_guest/bundle.py";

/// Why the guest is not installed.
#[derive(Debug, Error)]
pub enum GuestError {
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// An embedded path that leaves the layer: a fault of the build.
    #[error("the guest's file {0:?} is not named by a relative path of plain names")]
    Name(String),
    /// The byte compiler failed.
    #[error("the guest cannot be compiled")]
    Compile(#[source] RunError),
}

/// Writes the guest's files, unless they are there, and compiles them for a base. Shared objects become executable.
///
/// # Errors
/// When they cannot be written or compiled.
pub fn install(store: &Store, base: &Base, files: &[(&str, &[u8])]) -> Result<Layer, GuestError> {
    let mut sorted = files.to_vec();
    sorted.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    hasher.update(base.minor().as_bytes());
    for (path, content) in &sorted {
        let plain = Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
        if path.is_empty() || !plain {
            return Err(GuestError::Name((*path).to_owned()));
        }
        // Lengths in front, so that no two sets of files look the same.
        hasher.update(&(path.len() as u64).to_le_bytes()).update(path.as_bytes());
        hasher.update(&(content.len() as u64).to_le_bytes()).update(content);
    }
    let layer = layer("guest", &short(&hasher.finalize()));
    store.make::<GuestError>(&layer, |root| {
        for (path, content) in &sorted {
            let target = root.join(path);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).map_err(FileError::at("create", parent))?;
            }
            fs::write(&target, content).map_err(FileError::at("write", &target))?;
            if target.extension().is_some_and(|extension| extension == "so") {
                let executable = fs::Permissions::from_mode(0o755);
                fs::set_permissions(&target, executable)
                    .map_err(FileError::at("set the mode of", &target))?;
            }
        }
        let python = base.command(store);
        bytecode::compile(&python, root, PREFIX).map_err(GuestError::Compile)?;
        if let Some((_, script)) = files.iter().find(|(path, _)| *path == BUNDLE) {
            let script = String::from_utf8_lossy(script);
            let bundled = python.ask::<u64>(&script, &[root.as_os_str(), PREFIX.as_ref()]);
            bundled.map_err(GuestError::Compile)?;
        }
        Ok(())
    })?;
    Ok(layer)
}
