//! What a build asks of its sandboxes. The crate that makes sandboxes implements [`Sandboxes`].

use std::fmt::Debug;
use std::fs::File;

use layers::base::Base;
use layers::{Patience, Progress};
use sandbox::Layer;

use crate::build_error::SandboxError;

/// The module that every build calls into.
pub const MODULE: &str = "lambswool_build";
/// The function in [`MODULE`]. Its body and its answer are bytes.
pub const FUNCTION: &str = "build";

/// One call into a new sandbox: [`FUNCTION`] of [`MODULE`] in `code`.
#[derive(Debug)]
pub struct Task<'a> {
    /// The base with this machine's compiler in it.
    pub base: &'a Base,
    /// What the build requires, as `/opt/python`.
    pub packages: Option<Layer>,
    /// The source's archive and our own code.
    pub code: Layer,
    /// The event of the build, as JSON.
    pub body: Vec<u8>,
    /// Tells when the deploy has been given up.
    pub patience: &'a Patience,
}

/// Makes sandboxes to build in. Implemented where sandboxes are.
pub trait Sandboxes: Send + Sync + Debug {
    /// Calls into a sandbox of its own, which has no network and ends with the call. What it prints
    /// is told line by line. Its answer is in a file at its beginning: it may be larger than a
    /// worker's memory should ever hold.
    ///
    /// # Errors
    /// When it does not answer, with the reason.
    fn call(&self, task: Task<'_>, progress: &dyn Progress) -> Result<File, SandboxError>;
}

/// Foreign words as they may be shown: lines without whatever steers a terminal.
#[must_use]
pub fn plain(words: &str) -> String {
    let shown = |c: char| if c == '\t' { ' ' } else { c };
    words.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).map(shown).collect()
}
