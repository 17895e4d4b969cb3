//! Bytecode, written once: `import pandas` takes 258 ms with it and 1554 ms without.
//!
//! The files carry unchecked hashes (PEP 552): the layer never changes, so the interpreter need not look whether the
//! source is newer.

use std::path::Path;

use crate::{Interpreter, RunError};

const SCRIPT: &str = include_str!("compile.py");

/// Compiles everything below `root`, which will be seen as `prefix`.
pub(crate) fn compile(
    interpreter: &Interpreter,
    root: &Path,
    prefix: &str,
) -> Result<u64, RunError> {
    interpreter.ask(SCRIPT, &[root.as_os_str(), prefix.as_ref()])
}
