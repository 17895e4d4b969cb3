//! Whether a finished base works: its interpreter is run from where it lies, by its own loader on its own libraries.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::BaseError;
use crate::Interpreter;

const SCRIPT: &str = include_str!("verify.py");

/// Without these no function runs, not even ours.
const ESSENTIAL: [&str; 6] = ["json", "importlib", "traceback", "math", "select", "struct"];

/// A Python without these runs, with less in it; told when it is built.
const EXPECTED: [&str; 18] = [
    "ssl",
    "sqlite3",
    "zlib",
    "bz2",
    "lzma",
    "ctypes",
    "decimal",
    "zoneinfo",
    "hashlib",
    "socket",
    "asyncio",
    "multiprocessing",
    "uuid",
    "csv",
    "datetime",
    "random",
    "subprocess",
    "xml.parsers.expat",
];

#[derive(Debug, Deserialize)]
struct Answer {
    path: Vec<PathBuf>,
    missing: Vec<(String, String)>,
}

/// Returns what does not work, with the interpreter's own words.
pub(super) fn verify(
    interpreter: &Interpreter,
    root: &Path,
) -> Result<Vec<(String, String)>, BaseError> {
    let names: Vec<&OsStr> = ESSENTIAL.iter().chain(&EXPECTED).map(OsStr::new).collect();
    let answer: Answer = interpreter.ask(SCRIPT, &names)?;
    if let Some(outside) = answer.path.iter().find(|path| !path.starts_with(root)) {
        return Err(BaseError::Outside { path: outside.clone() });
    }
    if let Some((module, reason)) =
        answer.missing.iter().find(|(name, _)| ESSENTIAL.contains(&name.as_str()))
    {
        return Err(BaseError::Broken { module: module.clone(), reason: reason.clone() });
    }
    Ok(answer.missing)
}
