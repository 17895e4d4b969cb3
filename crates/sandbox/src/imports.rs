//! The report of a guest on the imports of its zygote.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Effects of a zygote's imports, as its guest reports them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Imports {
    /// Milliseconds that all imports took together. At most the time measured from outside.
    pub milliseconds: f64,
    /// The modules in `sys.modules` that come from files outside the standard library, in the order
    /// in which their imports ended: a module stands behind those that it imports.
    pub files: Vec<LoadedFile>,
    /// Threads and processes left running beside the main one. Not zero: do not fork from this
    /// zygote.
    pub threads: u32,
    /// Files left open. Not zero: do not fork from this zygote.
    pub fds: u32,
    /// Writable mappings that a fork would share with the zygote. Not zero: do not fork from it.
    #[serde(default)]
    pub shared: u32,
    /// The scratch directory holds files that a fork cannot be given, by number or kind: do not
    /// fork from this zygote.
    #[serde(default)]
    pub scratch: bool,
    /// An interval timer is set, which a fork does not inherit: do not fork from this zygote.
    #[serde(default)]
    pub timers: bool,
    /// The modules whose imports left any of these behind.
    pub left_by: Vec<String>,
    /// Modules that could not be imported, each with the text of the exception.
    pub failed: Vec<(String, String)>,
    /// Environment variables that code without a file looked up, by the requested module on whose
    /// behalf it did: see [`LoadedFile::variables`].
    #[serde(default)]
    pub variables: Vec<(String, Vec<String>)>,
}

impl Imports {
    /// Limits the reported times to `elapsed`, the time measured from outside: the report may have
    /// been written by a package.
    pub fn bound(&mut self, elapsed: Duration) {
        let most = elapsed.as_secs_f64() * 1e3;
        // Also maps NaN to 0.
        let within = |said: f64| said.max(0.0).min(most);
        self.milliseconds = within(self.milliseconds);
        self.files.iter_mut().for_each(|file| file.milliseconds = within(file.milliseconds));
        let sum: f64 = self.files.iter().map(|file| file.milliseconds).sum();
        if sum > most {
            self.files.iter_mut().for_each(|file| file.milliseconds *= most / sum);
        }
    }
}

/// A module that was loaded from a file. A guest may send it as a list of these fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadedFile {
    /// The module's dotted name.
    pub module: String,
    /// The file's path inside the sandbox.
    pub path: String,
    /// Milliseconds that its import took, without imports inside it. Reported by the guest, bounded
    /// by [`Imports::bound`].
    pub milliseconds: f64,
    /// The module whose import first imported this one; empty when the spec requested it.
    pub importer: String,
    /// Names of the environment variables that the module looked up, without imports inside it;
    /// `A_*` stands for all that begin with `A_`.
    #[serde(default)]
    pub variables: Vec<String>,
}
