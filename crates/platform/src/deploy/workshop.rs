//! What makes versions of bundles: the seam between a deploy and the read-only layers on disk.

use std::fmt::Debug;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use bundle::manifest::Overrides;
use engine::Handler;
use layers::Patience;
use serde_json::Value;
use thiserror::Error;

use crate::deploy::progress::Progress;

/// What was uploaded.
#[derive(Debug)]
pub struct Bundle {
    /// How it is packed.
    pub packing: Packing,
    /// Its bytes, read from the beginning.
    pub file: File,
    /// What counts whatever it says itself.
    pub over: Overrides,
}

/// How a bundle is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packing {
    /// One Python source; the module's name, without `.py`.
    Source(String),
    /// A ZIP archive.
    Zip,
    /// A tar archive.
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

/// A version that is ready to run.
#[derive(Clone, Debug)]
pub struct Made {
    /// How to run it. Its id is not set yet.
    pub handler: Handler,
    /// What the function says of itself, and what its deploy said instead.
    pub manifest: Value,
    /// The exact lock of its packages.
    pub lock: String,
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
    /// Makes everything that a version needs on disk. Blocks: milliseconds when it was made before, minutes when
    /// packages have to be fetched, for which it waits no longer than `patience`.
    ///
    /// # Errors
    /// When the function or the machine does not allow it; what was finished until then stays as a cache.
    fn make(
        &self,
        name: &str,
        bundle: Bundle,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Made, MakeError>;

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
