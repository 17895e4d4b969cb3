//! How to run a base's Python or the host's, outside any sandbox.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::Patience;
use crate::child::{self, Unfinished};

/// Most bytes that are read of a script's answer, and of its standard error.
const MAX_ANSWER: u64 = 16 << 20;

/// A command line that starts an interpreter.
#[derive(Clone, Debug)]
pub struct Interpreter {
    words: Vec<OsString>,
}

/// Why a script of ours has no result.
#[derive(Debug, Error)]
pub enum RunError {
    /// It could not be started, or was ended.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// It ended badly.
    #[error("{} failed ({status}): {words}", program.display())]
    Failed {
        /// What was started.
        program: PathBuf,
        /// The exit status of the interpreter.
        status: std::process::ExitStatus,
        /// What it wrote to its standard error.
        words: String,
    },
    /// It did not answer as our script does.
    #[error("{} gave an unreadable answer", program.display())]
    Answer {
        /// What was started.
        program: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl Interpreter {
    /// The interpreter at a path, or of a name on `PATH`.
    pub fn at(program: impl Into<OsString>) -> Self {
        Self { words: vec![program.into()] }
    }

    /// An interpreter that is started by these words.
    pub(crate) fn of(words: Vec<OsString>) -> Self {
        Self { words }
    }

    /// The words of the command line, the program first.
    #[must_use]
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    fn program(&self) -> PathBuf {
        self.words.first().map(PathBuf::from).unwrap_or_default()
    }

    /// A command isolated from the environment, the working directory and `site`.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        command.args(&self.words[1..]).args(["-I", "-S", "-B", "-X", "utf8", "-W", "ignore"]);
        // `-I` ignores these, but a wrapper script (a pyenv shim) on the way might not.
        for name in ["PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONSTARTUP"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs a script that prints one JSON value, however long it takes.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        script: &str,
        arguments: &[&OsStr],
    ) -> Result<T, RunError> {
        self.ask_within(&Patience::endless(), script, arguments)
    }

    /// Runs a script that prints one JSON value, for no longer than `patience` lasts.
    ///
    /// # Errors
    /// When the script cannot be run to its end, ends badly, or prints something else.
    pub fn ask_within<T: DeserializeOwned>(
        &self,
        patience: &Patience,
        script: &str,
        arguments: &[&OsStr],
    ) -> Result<T, RunError> {
        self.ask_held(patience, |_| (), script, arguments)
    }

    /// As [`Interpreter::ask_within`]; `hold` sets limits on the command before it starts.
    ///
    /// # Errors
    /// As there.
    pub fn ask_held<T: DeserializeOwned>(
        &self,
        patience: &Patience,
        hold: impl FnOnce(&mut Command),
        script: &str,
        arguments: &[&OsStr],
    ) -> Result<T, RunError> {
        let program = self.program();
        let mut command = self.command();
        command.arg("-c").arg(script).args(arguments);
        hold(&mut command);
        let (status, output, words) = child::run(&mut command, || patience.over(), whole, whole)?;
        if !status.success() {
            let words = String::from_utf8_lossy(&words).trim().to_owned();
            return Err(RunError::Failed { program, status, words });
        }
        serde_json::from_slice(&output).map_err(|source| RunError::Answer { program, source })
    }
}

fn whole(pipe: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    // What was cut off shows in the status, or is no answer.
    let _ = pipe.take(MAX_ANSWER).read_to_end(&mut all);
    all
}
