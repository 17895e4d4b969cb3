//! How much there is below a directory, without opening a file.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// How many files, links included.
    pub files: u64,
    /// Their bytes; directories are not counted.
    pub bytes: u64,
}

impl Extent {
    /// Counts everything below `root`.
    ///
    /// # Errors
    /// When a directory or an entry cannot be read.
    pub fn of(root: &Path) -> io::Result<Self> {
        let mut extent = Self::default();
        let mut open = vec![root.to_owned()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    open.push(entry.path());
                } else {
                    extent.files += 1;
                    extent.bytes += metadata.len();
                }
            }
        }
        Ok(extent)
    }

    /// Counts what can be read below `root` while another process writes there: entries that vanish
    /// are left out.
    #[must_use]
    pub fn seen(root: &Path) -> Self {
        let mut extent = Self::default();
        let mut open = vec![root.to_owned()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => open.push(entry.path()),
                    Ok(metadata) => {
                        extent.files += 1;
                        extent.bytes += metadata.len();
                    }
                    Err(_) => {}
                }
            }
        }
        extent
    }
}
