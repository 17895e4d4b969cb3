//! Which databases a state directory has lost.
//!
//! Opening a store makes its file. A worker that began with a new one would remove what belongs to the rows of the lost one,
//! or let callers in whom the lost one kept out. So this is asked before any is opened.

use std::fs;
use std::path::{Path, PathBuf};

use super::layout::OLD_REGISTRY;
use super::{Hold, State, StateError};

impl Hold {
    /// Refuses a directory without its functions or tokens. Lost secrets and a lost audit log are only warned of: that costs
    /// nothing else, and both can be restored later.
    ///
    /// # Errors
    /// When `functions.sqlite` is lost and something of functions is there, or `access.sqlite` is lost and another database
    /// is there.
    pub fn check_databases(&self) -> Result<(), StateError> {
        let state = &self.state;
        if !state.has_functions() {
            let left = state.left_of_functions();
            if !left.is_empty() {
                let left: Vec<String> = left.iter().map(|it| it.display().to_string()).collect();
                let left = left.join(", ");
                return Err(StateError::NoFunctions { path: state.functions(), left });
            }
        }
        state.check_tokens()?;
        if is_database(&state.functions()) {
            for lost in [state.secrets(), state.audit()] {
                if !is_database(&lost) {
                    let path = lost.display();
                    tracing::warn!("{path} is gone or empty: the worker begins a new one");
                }
            }
        }
        Ok(())
    }
}

impl State {
    /// Refuses a directory without its tokens that was used before: of a new one, the file of tokens is made first.
    ///
    /// # Errors
    /// When `access.sqlite` is lost.
    pub(crate) fn check_tokens(&self) -> Result<(), StateError> {
        let others = [self.functions(), self.secrets(), self.audit(), self.root.join(OLD_REGISTRY)];
        match others.iter().any(|other| is_database(other)) && !is_database(&self.access()) {
            true => Err(StateError::NoTokens(self.access())),
            false => Ok(()),
        }
    }

    /// Whether secrets were sealed here before.
    #[must_use]
    pub(crate) fn has_secrets(&self) -> bool {
        is_database(&self.secrets())
    }

    fn has_functions(&self) -> bool {
        is_database(&self.functions()) || self.root.join(OLD_REGISTRY).exists()
    }

    /// What a worker without functions would remove.
    fn left_of_functions(&self) -> Vec<PathBuf> {
        let holds = |path: &PathBuf, is_one: &dyn Fn(&fs::DirEntry) -> bool| {
            fs::read_dir(path).is_ok_and(|all| all.flatten().any(|entry| is_one(&entry)))
        };
        let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        // A file system of its own brings it (ext4).
        let is_ours = |entry: &fs::DirEntry| entry.file_name() != "lost+found";
        let mut left = vec![self.bundles(), self.handlers()];
        left.retain(|path| holds(path, &is_ours));
        let is_log = |entry: &fs::DirEntry| is_ours(entry) && is_directory(entry);
        left.extend(Some(self.logs()).filter(|path| holds(path, &is_log)));
        left
    }
}

/// Whether a database stands at a path. SQLite makes one of an empty file.
fn is_database(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.len() > 0)
}
