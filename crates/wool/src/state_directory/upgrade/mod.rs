//! Brings a state directory of version 1 up to date, once.
//!
//! Everything is written beside what is there. The new version's number comes last, so that an interrupted upgrade begins
//! again from an unchanged directory. `tests/tests/records.rs` tests it on a directory that version 1 has made.
//!
//! [`VERSION`] goes up when an earlier release would lose or misread something; a table or a file that may be absent takes no
//! new version (`docs/developer/README.md`, "What is stored"). There is one step, from 1 to 2: with a third version, being
//! older than [`VERSION`] says no longer which steps are missing.

mod audit;
mod functions;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};
use layers::Store;
use platform::audit::Audit;
use platform::functions::Handlers;
use store_sqlite::{FileBundles, SqliteFunctions};

use self::functions::Upgrade;
use super::layout::{self, BESIDE, OLD_AUDIT, OLD_REGISTRY, VERSION};
use super::{Hold, write_whole};

impl Hold {
    /// Brings the directory to this release's version, if it holds what version 1 held. `audit` is its audit log.
    /// Interrupted, it may leave actions there twice. What it finds decides, not the number alone, so that a directory that
    /// was copied without its `version` loses nothing: it is done where `functions.sqlite` is there and `version` is not
    /// older.
    ///
    /// # Errors
    /// When something in it cannot be read or written; what version 1 held is then as it was.
    pub fn upgrade(&self, audit: &Audit) -> Result<()> {
        let root = self.state.root();
        let (old, old_audit) = (root.join(OLD_REGISTRY), root.join(OLD_AUDIT));
        let is_older = layout::version(root)?.is_some_and(|found| found < VERSION);
        let is_taken_over = self.state.functions().exists() && !is_older;
        if !is_taken_over && (old.exists() || old_audit.exists()) {
            self.take_over_all(&old, &old_audit, audit)?;
        }
        if is_older {
            let version = root.join("version");
            write_whole(&version, format!("{VERSION}\n").as_bytes(), 0o644)
                .context("cannot write the state directory's version")?;
        }
        if !is_taken_over || old.exists() {
            remove_database(&old).context("cannot remove the former registry")?;
            match fs::remove_dir_all(&old_audit) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).context("cannot remove the former audit log");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take_over_all(&self, old: &Path, old_audit: &Path, audit: &Audit) -> Result<()> {
        if old.exists() {
            let functions = self.take_over(old).inspect_err(|_| {
                // It begins again from nothing.
                drop(remove_database(&self.state.functions()));
            });
            let functions = functions.context("cannot upgrade the state directory")?;
            tracing::info!(functions, version = VERSION, "upgraded the state directory");
        }
        audit::take_over(old_audit, audit).context("cannot take over the audit log")?;
        audit.sync()?;
        File::open(self.state.root())?.sync_all().context("cannot sync the state directory")
    }

    fn take_over(&self, old: &Path) -> Result<usize> {
        let layers = Store::open(self.state.root())?;
        // What an interrupted upgrade has written.
        remove_database(&self.state.functions())?;
        let mut store = SqliteFunctions::open(&self.state.functions())?;
        let bundles = FileBundles::open(&self.state.bundles())?;
        let handlers = Handlers::open(layers.clone(), &self.state.handlers())?;
        let (bundles, handlers) = (&bundles, &handlers);
        let mut upgrade = Upgrade { store: &mut store, bundles, handlers, layers: &layers };
        Ok(upgrade.take_over(old)?)
    }
}

fn remove_database(path: &Path) -> std::io::Result<()> {
    for end in [""].iter().chain(&BESIDE) {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
