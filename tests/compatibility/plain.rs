//! A program under a plain Python of the host, by `uv run`: what is right must be so there first.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use e2e::Site;
use e2e::machine::manifest_dir;
use tempfile::TempDir;

use crate::outcome::{Outcome, first_line};
use crate::program::{Program, REQUEST};

/// A Python of the host.
#[derive(Debug)]
pub(crate) struct Plain {
    program: String,
    directory: TempDir,
    has_uv: bool,
    /// The scripts that were right before: with what they pin, they are so again.
    right: PathBuf,
}

impl Plain {
    /// The Python that a worker's base was made of. Without `uv` that is said, and every program passes.
    pub(crate) fn of(python: &str, site: &Site) -> Self {
        let base = site.wool(&["--json", "base", "build", python]).json();
        let program = base["source"].as_str().expect("a base tells what it was made of");
        let mut uv = Command::new("uv");
        uv.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        let has_uv = uv.status().is_ok_and(|status| status.success());
        if !has_uv {
            eprintln!("there is no uv: the programs do not run under a plain Python first");
        }
        let directory = tempfile::tempdir().expect("a directory can be made");
        let version = base["version"].as_str().expect("a base tells its version");
        let right = manifest_dir().join("../target/compatibility").join(version);
        fs::create_dir_all(&right).unwrap();
        Self { program: program.to_owned(), directory, has_uv, right }
    }

    /// Runs a program to its end: why it is left out, or nothing when it is right.
    pub(crate) fn run(&self, program: &Program) -> Option<Outcome> {
        let right = self.right.join(format!("{}.py", program.name));
        let was_right = fs::read_to_string(&right).is_ok_and(|text| text == program.script());
        if !self.has_uv || was_right {
            return None;
        }
        // No name of a module that the program imports.
        let file = self.directory.path().join(format!("run-{}.py", program.name));
        fs::write(&file, program.script()).unwrap();
        fs::write(self.directory.path().join("request.py"), REQUEST).unwrap();
        let mut uv = Command::new("uv");
        uv.args(["run", "--quiet", "--no-project", "--no-build", "--python", &self.program]);
        let ended = uv.arg("--script").arg(&file).stdin(Stdio::null()).output().unwrap();
        if ended.status.success() {
            fs::write(&right, program.script()).unwrap();
            return None;
        }
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        Some(Outcome::LeftOut(first_line(last)))
    }
}
