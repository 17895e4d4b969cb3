//! Bytecode, written once: `import pandas` takes 258 ms with it and 1554 ms without.
//!
//! The files carry unchecked hashes (PEP 552): the layer never changes, so the interpreter need not
//! look whether the source is newer.
//!
//! Compiling has limits ([`Allowance`]). A source beyond them is left without bytecode, and the
//! package is installed all the same: wheels carry files that no program imports. A function that
//! does import this one compiles it in its own sandbox, within its own limits.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::allowance::{ALLOWANCE, Allowance};
use crate::{Interpreter, Patience, Progress, RunError};

const SCRIPT: &str = include_str!("compile.py");

/// What compiling may take, on each processor.
#[derive(Clone, Copy, Debug)]
struct Limits {
    each: Allowance,
    /// Seconds of CPU time after which no source is begun that comes behind one that took too much.
    all_seconds: u64,
}

const LIMITS: Limits = Limits { each: ALLOWANCE, all_seconds: 300 };

/// What was compiled of a directory, and what was left as source.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct Compiled {
    sources: u64,
    /// Some of those that took too much and have no bytecode, relative to the root.
    left: Vec<String>,
    /// How many more there are.
    more: u64,
}

impl Compiled {
    /// Tells `progress` which sources of `what` were left without bytecode, if any were.
    pub fn tell(&self, what: &str, progress: &dyn Progress) {
        if self.left.is_empty() {
            return;
        }
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        progress.line(&format!(
            "{what}: {}{more} take more than {} MiB or {} s to compile and are left as source",
            self.left.join(", "),
            LIMITS.each.memory >> 20,
            LIMITS.each.seconds
        ));
    }
}

/// Compiles every source below `root`, which sandboxes will see as `prefix`, within [`ALLOWANCE`].
///
/// # Errors
/// When the compiler cannot be run. A source that it does not understand, or that takes too much,
/// is no error.
pub fn compile(interpreter: &Interpreter, root: &Path, prefix: &str) -> Result<Compiled, RunError> {
    compile_patiently(&Patience::endless(), interpreter, root, prefix)
}

/// The same, no longer than `patience` lasts.
///
/// # Errors
/// As [`compile`], and when it was over before all was compiled: some sources have bytecode then, and some have none.
pub fn compile_patiently(
    patience: &Patience,
    interpreter: &Interpreter,
    root: &Path,
    prefix: &str,
) -> Result<Compiled, RunError> {
    compile_within(LIMITS, patience, interpreter, root, prefix)
}

fn compile_within(
    limits: Limits,
    patience: &Patience,
    interpreter: &Interpreter,
    root: &Path,
    prefix: &str,
) -> Result<Compiled, RunError> {
    let Limits { each, all_seconds } = limits;
    let numbers =
        [each.file, each.seconds, all_seconds].map(|number| OsString::from(number.to_string()));
    let mut arguments = vec![root.as_os_str(), prefix.as_ref()];
    arguments.extend(numbers.iter().map(OsString::as_os_str));
    let hold = |command: &mut Command| each.hold(command);
    interpreter.ask_held(patience, hold, SCRIPT, &arguments)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SMALL: Limits = Limits {
        each: Allowance { memory: 160 << 20, file: 4 << 20, seconds: 2 },
        all_seconds: 20,
    };

    /// Each level doubles what is inside.
    fn nested(depth: usize) -> String {
        let level = |at: usize| {
            let margin = " ".repeat(at);
            format!("{margin}try:\n{margin} pass\n{margin}finally:\n")
        };
        let levels: String = (0..depth).map(level).collect();
        format!("{levels}{}value = 1\n", " ".repeat(depth))
    }

    fn compiled(root: &Path, limits: Limits) -> Compiled {
        let python = crate::python::discover().next().unwrap();
        let python = Interpreter::at(python.executable);
        compile_within(limits, &Patience::endless(), &python, root, "/opt/python").unwrap()
    }

    fn has_bytecode(root: &Path, module: &str) -> bool {
        let entries = fs::read_dir(root.join("__pycache__")).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.any(|name| name.starts_with(&format!("{module}.")) && name.ends_with(".pyc"))
    }

    #[test]
    fn a_source_that_takes_too_much_is_left_as_it_is_and_the_others_are_compiled() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("bomb.py", &nested(19));
        write("large.py", &format!("text = {:?}\n", "x".repeat(6 << 20)));
        write("many.py", &"value = 1\n".repeat(2_000_000));
        write("good.py", "value = 1\n");
        write("template.py", "{% not Python %}\n");
        let Compiled { sources, mut left, more } = compiled(root.path(), SMALL);
        left.sort();
        assert_eq!(
            (sources, left, more),
            (5, ["bomb.py", "large.py", "many.py"].map(str::to_owned).to_vec(), 0)
        );
        assert!(has_bytecode(root.path(), "good"));
        for name in ["bomb", "large", "many"] {
            assert!(!has_bytecode(root.path(), name), "{name}");
        }
        let names: Vec<_> = fs::read_dir(root.path().join("__pycache__")).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing half-made: {names:?}");
    }

    #[test]
    fn a_source_that_takes_too_long_is_given_up_and_after_too_much_time_all_that_is_behind_it() {
        for (all_seconds, left) in [(20, &["slow.py"][..]), (0, &["slow.py", "good.py"])] {
            let root = tempfile::tempdir().unwrap();
            let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
            write("slow.py", &"value = 1\n".repeat(4_000_000));
            write("good.py", "value = 1\n");
            let each = Allowance { memory: 8 << 30, seconds: 0, ..SMALL.each };
            let limits = Limits { each, all_seconds };
            assert_eq!(compiled(root.path(), limits).left, left);
            assert_eq!(has_bytecode(root.path(), "good"), left.len() == 1);
        }
    }
}
