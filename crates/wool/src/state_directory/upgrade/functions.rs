//! Takes over the functions that the release before portable records kept, once.
//!
//! ```text
//!   registry.sqlite: handlers and manifests as JSON ─► records ──► functions.sqlite
//!   layers/code/<id>: a bundle's files, compiled    ─► archives ─► bundles/
//! ```
//! A version whose code is no longer on the disk is taken over without its files: it is listed, and cannot be called until
//! it is deployed again, as before. So are past versions, which nothing calls.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bundle::code::Bundle as Code;
use engine::Handler;
use function::{BundleDigest, Manifest, PackageLock, VersionRecord};
use layers::Store as Layers;
use packages::lock;
use platform::functions::Handlers;
use serde::Deserialize;
use serde_json::Value;
use store::{Bundles, FunctionRow, Functions, StoreError, Version};
use store_sqlite::former::{self, OldFunction, OldVersion};

/// The minor version that is noted where nothing tells it: of a version that cannot be called anyway.
const UNKNOWN_PYTHON: &str = "3.11";

/// Where functions are taken over to.
#[derive(Debug)]
pub(super) struct Upgrade<'a> {
    /// Takes the records.
    pub(super) store: &'a mut dyn Functions,
    /// Takes the files of bundles.
    pub(super) bundles: &'a dyn Bundles,
    /// Takes what this machine has made of them.
    pub(super) handlers: &'a Handlers,
    /// Where the code of versions is.
    pub(super) layers: &'a Layers,
}

/// What a record needs of an old handler.
#[derive(Deserialize)]
struct OldHandler {
    name: String,
    python: OldPython,
    code: sandbox::Layer,
}

#[derive(Deserialize)]
struct OldPython {
    base: sandbox::Layer,
}

impl Upgrade<'_> {
    /// Takes over all functions of an old database; returns how many there are. Of past versions, which are only listed,
    /// the files are not kept.
    ///
    /// # Errors
    /// When a current version's record cannot be read, or something cannot be written.
    pub(super) fn take_over(&mut self, old: &Path) -> Result<usize, StoreError> {
        let functions = former::read(old)?;
        for OldFunction { tenant, updated, versions } in &functions {
            let Some((last, past)) = versions.split_last() else { continue };
            let put = |version| FunctionRow { current: Arc::new(version), updated: *updated };
            for version in past {
                match self.version(tenant, version, false) {
                    Ok(version) => self.store.put(&put(version))?,
                    Err(error) => {
                        let error = sandbox::chain(&error);
                        tracing::warn!(version = version.id, error, "a past version is left out");
                    }
                }
            }
            let version = self.version(tenant, last, true)?;
            self.store.put(&put(version))?;
        }
        Ok(functions.len())
    }

    fn version(
        &self,
        tenant: &str,
        old: &OldVersion,
        is_current: bool,
    ) -> Result<Version, StoreError> {
        let unreadable = |source: serde_json::Error| StoreError::Row {
            row: format!("the version {}", old.id),
            source: source.into(),
        };
        let handler: OldHandler = serde_json::from_str(&old.handler).map_err(unreadable)?;
        let said: Value = serde_json::from_str(&old.manifest).map_err(unreadable)?;
        let warnings = said.get("warnings").cloned().map(serde_json::from_value);
        let manifest: Manifest = serde_json::from_value(said).map_err(unreadable)?;
        let code = self.layers.layer_path(&handler.code);
        let kept = match is_current && self.layers.has(&handler.code) {
            true => self.keep(&code, &handler.name)?,
            false => None,
        };
        // Of no files: it cannot be made again.
        let bundle = || blake3::hash(handler.code.to_string().as_bytes()).into();
        let bundle = kept.unwrap_or_else(bundle);
        let python = minor_of(self.layers, &handler.python.base)
            .or_else(|| minor_of_code(&code))
            .or_else(|| manifest.python.as_deref().and_then(minor))
            .unwrap_or_else(|| UNKNOWN_PYTHON.to_owned());
        let direct = lock::asked_for(&manifest.requirements);
        let lock = (!old.lock.is_empty()).then(|| PackageLock { text: old.lock.clone(), direct });
        let (tenant, name) = (tenant.to_owned(), handler.name);
        let record = VersionRecord { tenant, name, python, bundle, manifest, lock };
        let id = record.id();
        // What cannot be read is made again from the record.
        if is_current && let Ok(handler) = serde_json::from_str::<Handler>(&old.handler) {
            self.handlers.write(&Handler { id: id.clone(), ..handler });
        }
        let warnings = warnings.and_then(Result::ok).unwrap_or_default();
        Ok(Version { id, record, created: old.created, warnings })
    }

    /// Keeps the files of a code layer as the bundle that it was made of; none: they cannot be read, and the function runs
    /// while its layers are there.
    fn keep(&self, code: &Path, name: &str) -> Result<Option<BundleDigest>, StoreError> {
        let code = match Code::from_dir(self.layers, code) {
            Ok(code) => code,
            Err(error) => {
                let error = sandbox::chain(&error);
                tracing::warn!(function = name, error, "its files cannot be kept: deploy it again");
                return Ok(None);
            }
        };
        let digest = code.digest();
        self.bundles.put(&digest, &mut |archive| code.pack(archive))?;
        Ok(Some(digest))
    }
}

/// `3.12` of `3.12.1`.
fn minor(version: &str) -> Option<String> {
    let mut parts = version.split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    Some(format!("{major}.{minor}"))
}

/// The Python of a base, which its description tells though the base is gone.
fn minor_of(layers: &Layers, base: &sandbox::Layer) -> Option<String> {
    let mut path = layers.layer_path(base).into_os_string();
    path.push(".json");
    let description: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    minor(description.get("version")?.as_str()?)
}

/// The Python that code was compiled for: `main.cpython-312.pyc`.
fn minor_of_code(code: &Path) -> Option<String> {
    let compiled = fs::read_dir(code.join("__pycache__")).ok()?;
    compiled.filter_map(Result::ok).find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (_, tag) = name.strip_suffix(".pyc")?.rsplit_once(".cpython-3")?;
        tag.parse::<u16>().is_ok().then(|| format!("3.{tag}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_code_tells_its_python() {
        let code = tempfile::tempdir().unwrap();
        assert_eq!(minor_of_code(code.path()), None);
        fs::create_dir(code.path().join("__pycache__")).unwrap();
        fs::write(code.path().join("__pycache__/a.b.cpython-313.pyc"), "").unwrap();
        assert_eq!(minor_of_code(code.path()).unwrap(), "3.13");
    }
}
