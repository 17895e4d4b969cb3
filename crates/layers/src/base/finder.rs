//! `ctypes.util.find_library` in a base.
//!
//! Python's own asks `ldconfig`, a compiler and a linker, as programs. A base has none of them, and a micro-VM starts no program, so
//! the base's copy of `ctypes/util.py` ends with a function of ours in the place of the one that asks `ldconfig`. The answer is
//! the same: the soname of the newest library of that name. Whatever Python does when there is none stays.

use std::fs;
use std::path::Path;

use super::plan::{Item, Plan};
use crate::FileError;

const ADDED: &str = include_str!("finder.py");

/// What is replaced. A Python that does not have it stays as it is.
const REPLACED: &str = "def _findSoname_ldconfig(name):";

/// Adds the copy, for libraries in `libraries`, relative to the root.
pub(super) fn put(
    plan: &mut Plan,
    stdlib: &Path,
    library: &Path,
    libraries: &Path,
) -> Result<(), FileError> {
    let source = stdlib.join("ctypes/util.py");
    if !source.is_file() {
        return Ok(());
    }
    let text = fs::read_to_string(&source).map_err(FileError::at("read", &source))?;
    if text.contains(REPLACED) {
        let directory = Path::new("/").join(libraries);
        let added = ADDED.replace("LIBRARIES", &directory.to_string_lossy());
        plan.replace(library.join("ctypes/util.py"), Item::Text(text + &added));
    }
    Ok(())
}
