//! A version of a function, described so that any machine can make it.
//!
//! ```text
//!   deploy ──admit──► VersionRecord ─────────────── materialise ──► layers and a handler
//!                      │ manifest, lock, Python     (each machine, again when a layer is gone)
//!                      │ digest of the bundle ──► the bundle's files, kept by their content
//!                      └ VersionId: hash of the record, the same on every machine
//! ```

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{BundleDigest, Manifest, WholeName};

/// Names one immutable version: the hash of its [`VersionRecord`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VersionId(pub Arc<str>);

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The exact packages of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageLock {
    /// A requirements file with the hashes of every file that may be installed.
    pub text: String,
    /// Normalised names of the distributions that the function asked for itself; empty where the
    /// list came already exact, with hashes.
    pub direct: Vec<String>,
}

/// All that a version is made from. It names no path, no layer and no machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VersionRecord {
    /// The tenant that deployed it.
    pub tenant: String,
    /// The name that it was deployed under.
    pub name: String,
    /// The Python that it was locked for: `3.12`.
    pub python: String,
    /// The digest of its files.
    pub bundle: BundleDigest,
    /// The settings that its files and its deploy gave.
    pub manifest: Manifest,
    /// Its packages; none when it asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<PackageLock>,
}

impl VersionRecord {
    /// The name of its function, tenant included.
    #[must_use]
    pub fn whole_name(&self) -> WholeName {
        WholeName::stored(self.tenant.clone(), self.name.clone())
    }

    /// The digests of all files that it is made from: its own, then those of its layers.
    pub fn bundles(&self) -> impl Iterator<Item = &BundleDigest> {
        std::iter::once(&self.bundle).chain(self.manifest.layers.iter().map(|layer| &layer.bundle))
    }

    /// The hash of its canonical JSON: 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> VersionId {
        // Fields have an order, maps are sorted and there are no floats: equal records give equal
        // bytes. Plain data cannot fail to serialize.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        VersionId(Arc::from(&blake3::hash(&bytes).to_hex()[..32]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttachedLayer;

    const RECORD: &str = r#"{
        "tenant": "acme", "name": "thumbnail", "python": "3.12",
        "bundle": "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        "manifest": {
            "module": "main", "function": "handler", "convention": "lambda",
            "requirements": ["pillow>=10"], "requires_python": null, "python": null,
            "limits": { "memory_bytes": 536870912, "pids": 64, "scratch_bytes": 67108864, "scratch_inodes": 4096 },
            "network": "none", "timeout": { "secs": 30, "nanos": 0 }, "concurrency": 64,
            "environment": { "B": "2", "A": "1" }, "import_cache": true, "binary": false
        },
        "lock": { "text": "pillow==10.4.0 --hash=sha256:00\n", "direct": ["pillow"] }
    }"#;

    fn record() -> VersionRecord {
        serde_json::from_str(RECORD).unwrap()
    }

    #[test]
    fn a_record_has_this_id_on_every_machine() {
        assert_eq!(record().id().to_string(), "18429a57b48c8fa3dd79a726cf308a19");
    }

    #[test]
    fn each_part_of_a_record_changes_its_id() {
        let changes: [fn(&mut VersionRecord); 9] = [
            |record| record.tenant.push('x'),
            |record| record.name.push('x'),
            |record| record.python.push('1'),
            |record| record.bundle = blake3::hash(b"other").into(),
            |record| record.manifest.binary = true,
            |record| record.manifest.environment.clear(),
            |record| record.lock = None,
            |record| {
                record.manifest.layers.push(AttachedLayer {
                    arn: String::new(),
                    code_size: 1,
                    bytes: 1,
                    bundle: blake3::hash(b"layer").into(),
                    modules: Vec::new(),
                    uses_runtime_set: false,
                });
            },
            |record| record.lock.as_mut().unwrap().direct.clear(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = record();
            change(&mut changed);
            assert_ne!(changed.id(), record().id(), "change {number}");
        }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let text = serde_json::to_string(&record()).unwrap();
        assert_eq!(serde_json::from_str::<VersionRecord>(&text).unwrap(), record());
    }
}
