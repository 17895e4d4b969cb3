//! Versions of layers: files that functions share.

use std::fmt::Debug;
use std::time::SystemTime;

use function::{BundleDigest, WholeLayerName};

use crate::StoreError;

/// One immutable version of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerVersion {
    /// When it was published, to the millisecond.
    pub published: SystemTime,
    /// The digest of its files.
    pub bundle: BundleDigest,
    /// Bytes of its files.
    pub bytes: u64,
    /// Modules that it brings, by their names at the top.
    pub modules: Vec<String>,
    /// Whether its code imports packages that AWS's own runtimes have, and brings none.
    pub uses_runtime_set: bool,
    /// What its author says of it: a text that the store does not read, JSON as a rule.
    pub text: String,
}

/// A version of a layer under the number that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRow {
    /// The layer that it is a version of.
    pub layer: WholeLayerName,
    /// 1 for the layer's first.
    pub number: u32,
    /// What was published.
    pub version: LayerVersion,
    /// Its policy: a text that the store does not read.
    pub policy: Option<String>,
}

/// Keeps versions of layers.
pub trait Layers: Send + Debug {
    /// Adds a version of a layer under the layer's next number, and returns that. A number is not given twice, even when
    /// its version was removed.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn publish_layer(
        &mut self,
        layer: &WholeLayerName,
        version: &LayerVersion,
    ) -> Result<u32, StoreError>;

    /// Changes the policy of a version of a layer. Returns whether the version is there.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn set_layer_policy(
        &mut self,
        layer: &WholeLayerName,
        number: u32,
        policy: Option<&str>,
    ) -> Result<bool, StoreError>;

    /// Removes a version of a layer. Returns whether it was there.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn remove_layer(&mut self, layer: &WholeLayerName, number: u32) -> Result<bool, StoreError>;

    /// All versions of layers, by tenant, name and number.
    ///
    /// # Errors
    /// When the store, or a row of it, cannot be read.
    fn layers(&self) -> Result<Vec<LayerRow>, StoreError>;
}
