//! What makes versions of bundles, in two halves: the seam between a deploy and the read-only layers on disk.
//!
//! ```text
//!   Bundle ──admit──► VersionRecord, portable ──materialise──► Handler, this machine's
//!                     │ again at any time, when a layer is gone ─┘
//! ```

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use bundle::code;
use bundle::manifest::{Declared, Overrides};
use engine::Handler;
use function::{BundleDigest, VersionRecord, WholeName};
use layers::Patience;
use layers::base::Base;
use packages::sources::Sources;
use thiserror::Error;

use crate::deploy::progress::Progress;
pub use crate::deploy::split::Split;

/// What a version is to be made of.
#[derive(Debug)]
pub struct Bundle {
    /// The files that it is made of.
    pub files: Files,
    /// Where the version's settings are.
    pub settings: SettingsFrom,
}

/// The files of a bundle.
#[derive(Debug)]
pub enum Files {
    /// They were uploaded.
    Sent {
        /// How they are packed.
        packing: Packing,
        /// The archive's bytes, read from the beginning.
        file: File,
    },
    /// They are those of another version.
    Kept(BundleDigest),
}

/// Where a version's settings are.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingsFrom {
    /// In the bundle's files, but for what the deploy says instead.
    Files(Overrides),
    /// In the deploy alone: the bundle's files are code, and are not judged.
    Declared(Box<Declared>),
}

/// How a bundle is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packing {
    /// One Python source; the module's name, without `.py`.
    Source(String),
    /// A ZIP archive (PKWARE).
    Zip,
    /// A tar archive, not compressed.
    Tar,
    /// A tar archive, compressed with gzip.
    TarGz,
}

impl Packing {
    /// As a deploy says it.
    #[must_use]
    pub fn content_type(&self) -> &'static str {
        match self {
            Self::Source(_) => "text/x-python",
            Self::Zip => "application/zip",
            Self::Tar => "application/x-tar",
            Self::TarGz => "application/gzip",
        }
    }
}

/// A bundle that was accepted as a version of a function.
#[derive(Debug)]
pub struct Admitted {
    /// What the version is made from.
    pub record: VersionRecord,
    /// Settings without effect, one sentence each.
    pub warnings: Vec<String>,
    /// The bundle itself, so that it need not be unpacked twice.
    pub opened: Option<Opened>,
}

/// An unpacked bundle, and what was read from it.
#[derive(Debug)]
pub struct Opened {
    /// Its code, unpacked and not sealed yet.
    pub code: code::Bundle,
    /// The whole of it, where a part are packages.
    pub split: Option<Split>,
    /// Where its packages come from, beside what the worker's environment says.
    pub sources: Sources,
    /// Whether its packages are a lock of another tool's, to be kept as it is.
    pub locked: bool,
    /// The base that it runs on here.
    pub base: Base,
    /// The modules that the base's Python has itself.
    pub standard: BTreeSet<String>,
    /// Modules that it imports from `src/` alone, each with the warning to give if no package brings it.
    pub in_src: Vec<(String, String)>,
}

impl Opened {
    /// All of its files.
    #[must_use]
    pub fn whole(&self) -> &code::Bundle {
        self.split.as_ref().map_or(&self.code, |split| &split.whole)
    }
}

/// A version that is ready to run on this machine.
#[derive(Clone, Debug)]
pub struct Made {
    /// How this machine runs it.
    pub handler: Handler,
    /// Further settings without effect.
    pub warnings: Vec<String>,
}

/// The files of a layer that were kept.
#[derive(Clone, Debug)]
pub struct KeptLayer {
    /// What the files are kept by.
    pub bundle: BundleDigest,
    /// Bytes of the files, unpacked.
    pub bytes: u64,
    /// Modules that they are of, by their names at the top.
    pub modules: Vec<String>,
    /// Whether they import packages that AWS's own runtimes have, and are of none themselves.
    pub uses_runtime_set: bool,
}

/// Why no version was made.
#[derive(Debug, Error)]
pub enum MakeError {
    /// The function has to change: its author reads this.
    #[error("{message}")]
    Function {
        /// One word for what is wrong, such as `manifest` or `packages`.
        step: &'static str,
        /// What, where, and what to do.
        message: String,
    },
    /// The machine has to change (no space, no Python, no installer): its operator reads this.
    #[error("{message}")]
    Machine {
        /// One word for what failed.
        step: &'static str,
        /// What, and what to do.
        message: String,
    },
}

impl MakeError {
    /// The same, in which `STATE` stands for the state directory: a tenant is not told where that is.
    #[must_use]
    pub fn without(self, state: &Path) -> Self {
        let state = state.to_string_lossy();
        let hide = |message: String| message.replace(&*state, "STATE");
        match self {
            Self::Function { step, message } => Self::Function { step, message: hide(message) },
            Self::Machine { step, message } => Self::Machine { step, message: hide(message) },
        }
    }
}

/// Makes versions of bundles.
pub trait Workshop: Send + Sync + Debug {
    /// Checks a bundle, locks its packages and keeps its files: all that a version is made from, for any machine.
    /// Blocks: milliseconds, or seconds when packages are resolved, for which it waits no longer than `patience`.
    ///
    /// # Errors
    /// When the function or the machine does not allow it.
    fn admit(
        &self,
        name: &WholeName,
        bundle: Bundle,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Admitted, MakeError>;

    /// Makes everything that a version needs on this machine; what is there already is used. `opened` is its bundle,
    /// if that was just admitted. Blocks: milliseconds when all was made before, minutes when packages have to be
    /// fetched, for which it waits no longer than `patience`.
    ///
    /// # Errors
    /// When the machine does not allow it, or the kept bundle is gone; what was finished until then stays as a cache.
    fn materialise(
        &self,
        record: &VersionRecord,
        opened: Option<Opened>,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Made, MakeError>;

    /// Checks the files of a layer, which come as a zip archive, and keeps them. Blocks: seconds when there are many.
    ///
    /// # Errors
    /// When no layer can have such files, or they cannot be kept.
    fn keep_layer(&self, archive: File) -> Result<KeptLayer, MakeError>;

    /// Whether packages that were there already were mended since this was asked last, whatever came of the version that
    /// they were mended for: who runs may have imported them as they were.
    fn take_mended(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_does_not_tell_where_the_state_directory_is() {
        let error = MakeError::Machine {
            step: "manifest",
            message: "/var/lib/x/layers/base/1/ld.so failed: cannot read /var/lib/x/layers"
                .to_owned(),
        };
        let told = error.without(Path::new("/var/lib/x")).to_string();
        assert_eq!(told, "STATE/layers/base/1/ld.so failed: cannot read STATE/layers");
    }
}
