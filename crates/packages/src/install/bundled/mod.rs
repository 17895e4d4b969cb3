//! Distributions that a function's bundle brings itself, recognised by content.
//!
//! ```text
//!   bundle ─► *.dist-info at its root ─► each row of RECORD hashed ─► closure over top-level names ─► Brought
//!                  │ no                       │ another content            │ a name shared with code
//!                  └──────────────────────────┴── stays code, and is told ─┘
//!   Brought ─► files linked beside a RECORD as uv writes it ─► named by content ─► wheels/<id> ─► a set, as of a lock
//! ```
//!
//! `pip install -t`, `uv pip install --target` and `sam build` leave each distribution's list of files with their hashes.
//! A wheel that is made of these files has the id that it would have from an index: that is a hash of its files and of the
//! Python ([`super::wheel::identify`]). So functions that bring the same share disk, bytecode and zygotes, and no index is
//! asked. What a distribution says of itself is not trusted: a forged one has other files, and so another id.
//!
//! The rules:
//!
//! 1. A candidate is a directory `*.dist-info` at the root with `RECORD`, `METADATA` and `WHEEL`.
//! 2. Its files are the rows of `RECORD` without what an installer writes there, without bytecode, and without commands. Each
//!    must be a regular file of the size and SHA-256 that its row says, and be listed by no distribution before it.
//! 3. What moves shares no top-level name with what stays: [`closure`].
//! 4. What lists files outside of its modules (`*.data`, rows with `..`) stays. Commands are made from `entry_points.txt`.
//! 5. The distribution that has the handler's module stays: it is the function.

mod closure;
mod commands;
mod examine;
mod reason;
mod record;
mod shelve;
mod tree;

use std::collections::BTreeSet;
use std::path::Path;

use layers::FileError;

pub use reason::Reason;
pub use shelve::install;

use commands::Target;
use examine::Examiner;
use record::Row;
use tree::Tree;

/// Most distributions of a bundle. Each costs a directory and a run of the compiler.
const MAX_DISTRIBUTIONS: usize = 500;

/// What a bundle brings beside its own code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// What becomes wheels, by `.dist-info`.
    pub distributions: Vec<Distribution>,
    /// What stays code, by `.dist-info`, and why.
    pub refused: Vec<(String, Reason)>,
}

/// A distribution of which every file is what its `RECORD` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Normalised name (PEP 503), as its `METADATA` says it.
    pub name: String,
    /// The version, as its `METADATA` says it.
    pub version: String,
    /// Its directory `*.dist-info`.
    info: String,
    /// Its files, as its `RECORD` lists them.
    rows: Vec<Row>,
    /// What its installer wrote beside them, which is written anew.
    receipts: Vec<String>,
    /// Its commands: names, and what they call.
    commands: Vec<(String, Target)>,
}

/// Finds the distributions in `root`. `own` is the top-level name of the handler's module. Pure: the same files have the
/// same answer on every machine.
///
/// # Errors
/// When a file cannot be read. Nothing that stands in one is an error.
pub fn recognise(root: &Path, own: &str) -> Result<Brought, FileError> {
    let tree = Tree::of(root)?;
    let candidates = tree.candidates();
    if candidates.len() > MAX_DISTRIBUTIONS {
        let refused = candidates.into_iter().map(|info| (info, Reason::TooMany(MAX_DISTRIBUTIONS)));
        return Ok(Brought { refused: refused.collect(), ..Brought::default() });
    }
    let mut examiner = Examiner::new(root, &tree);
    let examined = candidates.into_iter().map(|info| examiner.examine(info));
    Ok(closure::over(&tree, own, examined.collect::<Result<_, _>>()?))
}

impl Brought {
    /// Paths of all that leaves the code.
    #[must_use]
    pub fn leaving(&self) -> BTreeSet<&str> {
        self.distributions.iter().flat_map(Distribution::claims).collect()
    }
}

impl Distribution {
    /// Paths of what goes with it.
    fn claims(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| &*row.path).chain(self.receipts.iter().map(|path| &**path))
    }
}

#[cfg(test)]
mod tests;
