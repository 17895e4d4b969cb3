//! A package layer: exactly the distributions of a lock, flat, as `pip install --target` leaves them.
//!
//! Wheels are unpacked and nothing is built, so no foreign code runs. `.pth` files take no effect in a sandbox, whose
//! interpreter starts without `site`.

mod imports;

use std::fs;
use std::path::Path;
use std::process::Command;

use sandbox::Layer;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base::Base;
use crate::installer::{self, InstallerError};
use crate::lock::{Input, Lock};
use crate::store::layer;
use crate::uv::Uv;
use crate::{FileError, Progress, RunError, Store, bytecode};

/// An installed package set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packages {
    /// Where it is.
    pub layer: Layer,
    /// Modules of the distributions that were asked for, dotted where a namespace package stands above: what a zygote
    /// for this set imports. Sorted.
    pub imports: Vec<String>,
}

/// Why a package set is not installed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The installer could not be started.
    #[error(transparent)]
    Start(#[from] InstallerError),
    /// A distribution without a wheel for this Python and platform.
    #[error(
        "a locked package has no wheel for Python {python} on this machine, and building from source is not supported yet; uv says:\n{words}"
    )]
    NoWheel {
        /// The base's version.
        python: String,
        /// The installer's own words.
        words: String,
    },
    /// A file that is not what was locked.
    #[error("a package's file is not the one that was locked; uv says:\n{words}")]
    Hash {
        /// The installer's own words.
        words: String,
    },
    /// The index cannot be reached, and the cache does not suffice.
    #[error(
        "the package index cannot be reached, and not all packages are in the cache; uv says:\n{words}"
    )]
    Unreachable {
        /// The installer's own words.
        words: String,
    },
    /// Anything else that the installer says.
    #[error("the packages cannot be installed; uv says:\n{words}")]
    Failed {
        /// The installer's own words.
        words: String,
    },
    /// The byte compiler failed.
    #[error("the packages cannot be compiled")]
    Compile(#[source] RunError),
}

/// Installs a lock, unless it is there already.
///
/// # Errors
/// When the installer fails, with its own words.
pub fn install(
    store: &Store,
    uv: &Uv,
    base: &Base,
    lock: &Lock,
    progress: &dyn Progress,
) -> Result<Packages, InstallError> {
    let layer = layer("packages", &lock.id);
    store.make::<InstallError>(&layer, |root| {
        progress.step(&format!("installing {} package(s)", lock.distributions.len()));
        unpack(store, uv, base, lock, root, progress)?;
        progress.step("compiling the packages");
        bytecode::compile(&base.command(store), root, "/opt/python")
            .map_err(InstallError::Compile)?;
        Ok(())
    })?;
    let root = store.layer_path(&layer);
    let imports = imports::of(&root, &lock.direct).map_err(FileError::at("read", &root))?;
    Ok(Packages { layer, imports })
}

fn unpack(
    store: &Store,
    uv: &Uv,
    base: &Base,
    lock: &Lock,
    root: &Path,
    progress: &dyn Progress,
) -> Result<(), InstallError> {
    let file = Input::write(store, std::slice::from_ref(&lock.text))?;
    let command = |offline: bool| -> Result<Command, FileError> {
        let mut command = uv.command(store, base, &["pip", "install"])?;
        command.args(["--no-deps", "--require-hashes", "--only-binary", ":all:"]);
        command.args(["--link-mode", uv.link_mode(), "--target"]).arg(root);
        command.arg("-r").arg(&file.path).current_dir(store.uv());
        if offline {
            command.arg("--offline");
        }
        Ok(command)
    };
    // The hashes say what is installed, so the cache is as good as the index, and answers at once.
    let mut finished = installer::run(&mut command(true)?, false, &crate::Silent)?;
    if !finished.status.success() {
        finished = installer::run(&mut command(false)?, false, progress)?;
    }
    if finished.status.success() {
        let lock_file = root.join(".lock");
        if lock_file.exists() {
            fs::remove_file(&lock_file).map_err(FileError::at("remove", &lock_file))?;
        }
        return Ok(());
    }
    let words = finished.words;
    if installer::without_wheel(&words) {
        return Err(InstallError::NoWheel { python: base.version.clone(), words });
    }
    if installer::unreachable(&words) {
        return Err(InstallError::Unreachable { words });
    }
    if installer::wrong_hash(&words) {
        return Err(InstallError::Hash { words });
    }
    Err(InstallError::Failed { words })
}
