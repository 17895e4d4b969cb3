//! Layers: files that functions of one tenant share, numbered version by version.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::NameError;
use crate::{BundleDigest, Label};

/// Longest name of a layer, in bytes.
pub const MAX_LAYER_NAME: usize = 140;

/// Most versions of layers that one function has: AWS's own limit.
pub const MAX_LAYERS: usize = 5;

/// Most bytes of a layer unpacked, and of a function's code together with its layers: AWS's own limit.
pub const MAX_LAYERED_BYTES: u64 = 262_144_000;

/// A layer's name: letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerName(String);

impl LayerName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LayerName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let fits = (1..=MAX_LAYER_NAME).contains(&text.len()) && text.bytes().all(plain);
        if fits { Ok(Self(text.to_owned())) } else { Err(NameError::of_layer(text)) }
    }
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A layer's whole name: its own, and whose it is. Two tenants may each have a layer of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WholeLayerName {
    tenant: String,
    name: String,
}

impl WholeLayerName {
    /// A tenant's layer.
    #[must_use]
    pub fn new(tenant: &Label, name: &LayerName) -> Self {
        Self { tenant: tenant.to_string(), name: name.to_string() }
    }

    /// A name that was checked before it was stored.
    #[must_use]
    pub fn stored(tenant: String, name: String) -> Self {
        Self { tenant, name }
    }

    /// The tenant that owns the layer.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The layer's name without its tenant.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A version of a layer that a version of a function has: its files are below `/opt`. The function keeps them when the
/// layer's version is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedLayer {
    /// The ARN that names it.
    pub arn: String,
    /// Bytes of the archive that it came in.
    pub code_size: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// The digest of its files.
    pub bundle: BundleDigest,
    /// Modules that it brings, by their names at the top.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Whether its code imports packages that AWS's own runtimes have, and brings none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uses_runtime_set: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layers_name_is_plain_or_refused() {
        let long = "a".repeat(141);
        for bad in ["", "a.b", "a/b", "..", "a b", "ä", "a:1", long.as_str()] {
            let refused = bad.parse::<LayerName>().unwrap_err().to_string();
            assert!(refused.contains("no layer name"), "{refused}");
        }
        let longest = "a".repeat(140);
        for good in ["a", "-", "_x", longest.as_str()] {
            assert_eq!(good.parse::<LayerName>().unwrap().as_str(), good);
        }
    }
}
