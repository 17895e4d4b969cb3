//! Layers of AWS's kind: what a function finds below `/opt`.

use std::fs::File;

use bundle::code::{self, CodeError};
use bundle::manifest::Manifest;
use function::{AttachedLayer, BundleDigest, MAX_LAYERED_BYTES};
use layers::FileError;
use layers::base::Base;
use sandbox::Layer;
use thiserror::Error;

use super::{Layered, function, machine};
use crate::deploy::runtime_set;
use crate::deploy::workshop::{KeptLayer, MakeError, Opened, Packing};

impl Layered {
    /// The directory that layers make together, with packages if there are any; none of no layers.
    pub(super) fn opt(
        &self,
        layers: &[AttachedLayer],
        packages: Option<&Layer>,
        base: &Base,
    ) -> Result<Option<Layer>, MakeError> {
        if layers.is_empty() {
            return Ok(None);
        }
        let digests: Vec<_> = layers.iter().map(|layer| &layer.bundle).collect();
        let unpack = |digest: &BundleDigest| self.kept(digest).map_err(OptError::Make);
        match code::make_opt(&self.store, base, &digests, packages, unpack) {
            Ok(layer) => Ok(Some(layer)),
            Err(OptError::Make(error)) => Err(error),
            Err(OptError::Code(error)) => Err(machine("layers", &error)),
        }
    }

    /// [`Workshop::keep_layer`](super::Workshop::keep_layer), with errors that may name places of the state directory.
    pub(super) fn kept_layer(&self, archive: File) -> Result<KeptLayer, MakeError> {
        let layer = self.unpack(&Packing::Zip, archive)?;
        if layer.path().join(code::RESERVED).symlink_metadata().is_ok() {
            return Err(function("layer", &ReservedName));
        }
        if layer.bytes > MAX_LAYERED_BYTES {
            return Err(function("layer", &LayerTooLarge));
        }
        let (bundle, bytes) = (layer.digest(), layer.bytes);
        let modules = code::modules_of_layer(layer.path());
        let kept = self.bundles.put(&bundle, &mut |archive| layer.pack(archive));
        kept.map_err(|error| machine("bundle", &error))?;
        let uses_runtime_set = runtime_set::is_used(&layer.path().join("python"));
        Ok(KeptLayer { bundle, bytes, modules, uses_runtime_set })
    }
}

/// Whether its code or its layers' imports what AWS's own runtimes have, and none of its layers brings that.
pub(super) fn uses_runtime_set(opened: &Opened, layers: &[AttachedLayer]) -> bool {
    let brings = |layer: &AttachedLayer| {
        layer.modules.iter().any(|module| module == runtime_set::REQUIREMENT)
    };
    let uses = runtime_set::is_used(opened.code.path())
        || layers.iter().any(|layer| layer.uses_runtime_set);
    uses && !layers.iter().any(brings)
}

/// Refuses layers that a function cannot have.
pub(super) fn check_layers(manifest: &Manifest, code_bytes: u64) -> Result<(), MakeError> {
    let layers = &manifest.layers;
    if layers.is_empty() {
        return Ok(());
    }
    if !manifest.kind.is_container() {
        return Err(function("layers", &MachineWithLayers));
    }
    let of_layers: u64 = layers.iter().map(|layer| layer.bytes).sum();
    let bytes = of_layers.saturating_add(code_bytes);
    if bytes > MAX_LAYERED_BYTES {
        return Err(function("layers", &LayersTooLarge(bytes)));
    }
    Ok(())
}

/// A function wants both.
#[derive(Debug, Error)]
#[error(
    "layers are for containers, a micro-VM has none: leave `isolation` out, or put the layers' files into the archive"
)]
struct MachineWithLayers;

/// A layer has a file where a sandbox has Lambswool's own.
#[derive(Debug, Error)]
#[error(
    "the layer has a folder {:?}, where a function finds Lambswool's own files: give it another name",
    code::RESERVED
)]
struct ReservedName;

/// A layer is larger than AWS's may be.
#[derive(Debug, Error)]
#[error("Unzipped size must be smaller than {MAX_LAYERED_BYTES} bytes")]
struct LayerTooLarge;

/// A function is larger with its layers than AWS's may be.
#[derive(Debug, Error)]
#[error(
    "Function code combined with layers exceeds the maximum allowed size of {MAX_LAYERED_BYTES} bytes. The actual size is {0} bytes."
)]
struct LayersTooLarge(u64);

/// Why layers were not put together.
#[derive(Debug, Error)]
enum OptError {
    /// The files of one are not there.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// They could not be written, or not be compiled.
    #[error(transparent)]
    Code(#[from] CodeError),
}

impl From<FileError> for OptError {
    fn from(error: FileError) -> Self {
        Self::Code(error.into())
    }
}
