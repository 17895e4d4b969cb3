//! What a function's files say about it, read without running any of them.
//!
//! ```text
//!   bundle ──► entry file ──► PEP 723 header │ pyproject.toml │ requirements.txt ──► Settings     (plain text)
//!   Settings + a base's interpreter ──► ast of the entry file ──► Manifest                        (parsed, not run)
//! ```
//!
//! The entry file: what `handler = "module.function"` names; else the only `.py` file of the folder, or `main.py`,
//! `app.py`, `handler.py`, `lambda_function.py`. The function: `handler`, `lambda_handler` or `f`; two arguments are
//! AWS Lambda's convention, one is OpenLambda's. Dependencies: the PEP 723 header of the entry file, else
//! `requirements.txt`, else `pylock.toml`, else `[project]` of `pyproject.toml`. `[tool.lambswool]`: of the header
//! or of `pyproject.toml`, and refused where the two differ.
//! Modules in `src/` are found where a build tool would install them (`src_layout`).
//! `[tool.uv]`: of the file whose dependencies count; `pyproject.toml`'s for `requirements.txt` and `pylock.toml`. What looks
//! like a setting and stands where none is read, or has no effect, is warned of (`stray`, `variables`).
//!
//! A deploy that declares the settings itself ([`Declared`]) has none of them read: its files are code.

mod declared;
mod encoding;
mod entry;
mod header;
mod in_variables;
mod inspect;
mod pylock;
mod quantity;
mod settings;
mod src_layout;
mod stray;
mod table;
mod variables;

use std::collections::BTreeSet;
use std::path::Path;

use layers::allowance::ALLOWANCE;
use layers::python::RequestError;
use layers::text::MAX_BYTES;
use layers::{FileError, Interpreter, RunError};
use packages::requirements::RequirementError;
use sandbox::{Kind, Reset};
use thiserror::Error;

pub use declared::{Declared, Runtime};
pub use function::Manifest;
pub use settings::Settings;
use settings::TABLE_BYTES;

/// What a bundle says, and what its deploy needs beside that.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspected {
    /// The settings of the version.
    pub manifest: Manifest,
    /// Settings without effect, one sentence each.
    pub warnings: Vec<String>,
    /// Modules that its files import and that are found in `src/` alone, each with the warning to
    /// give if no package brings it.
    pub in_src: Vec<(String, String)>,
    /// The modules that its Python has itself.
    pub standard: BTreeSet<String>,
}

/// Settings from outside of a function's files. They replace what the files say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// What it runs in; never with a way out.
    pub kind: Option<Kind>,
    /// What a call finds of the one before.
    pub reset: Option<Reset>,
}

/// What is wrong with a function.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder does not tell which file to run.
    #[error(
        "no entry file: looked for {looked_for}; found {found}; name one of these, or set handler = \"module.function\" in [tool.lambswool] of pyproject.toml"
    )]
    NoEntry {
        /// Names that were tried.
        looked_for: String,
        /// Python files that are there.
        found: String,
    },
    /// The `handler` setting is not of the right form.
    #[error("handler = {0:?} is not of the form \"module.function\"")]
    HandlerForm(String),
    /// The `handler` setting names a file that is not there.
    #[error("handler = {handler:?} names {file}, which is not there")]
    HandlerMissing {
        /// The value of the setting `handler`.
        handler: String,
        /// The file it leads to.
        file: String,
    },
    /// The entry file has no function to call.
    #[error(
        "no handler in {file}: looked for {looked_for}; it defines {found}\n\
         what a script does at once goes into a function, which is called with the event; its result is the answer:\n    {example}"
    )]
    NoFunction {
        /// The entry file.
        file: String,
        /// Names that were tried.
        looked_for: String,
        /// Functions that are there.
        found: String,
        /// One that would do, indented as it is shown.
        example: String,
    },
    /// The function cannot be called with an event.
    #[error(
        "{file}:{line}: {function} takes {arguments}; it must take (event, context) or (event)"
    )]
    Arguments {
        /// The entry file.
        file: String,
        /// The line, counted from 1.
        line: u32,
        /// Which function.
        function: String,
        /// Its parameters, as they are written.
        arguments: String,
    },
    /// The function would give its results one after the other.
    #[error(
        "{file}:{line}: {function} is a generator, and a call has one result: return the whole of it, such as \"\".join(parts) or list(parts)"
    )]
    Generator {
        /// The entry file.
        file: String,
        /// Where it first yields.
        line: u32,
        /// Which function.
        function: String,
    },
    /// The entry file is not Python.
    #[error("{file}:{line}: {message}\n    {text}")]
    Syntax {
        /// The entry file.
        file: String,
        /// The line, counted from 1.
        line: u32,
        /// Python's own words.
        message: String,
        /// The line itself.
        text: String,
    },
    /// A file is not UTF-8.
    #[error("{file} is {is}; save it as UTF-8")]
    NotText {
        /// The file, relative to the bundle.
        file: String,
        /// What it is instead.
        is: &'static str,
    },
    /// A file is longer than the limit.
    #[error("{file} has more than {} MiB; put data into files of their own", MAX_BYTES >> 20)]
    TooLong {
        /// The file, relative to the bundle.
        file: String,
    },
    /// A table is longer than the worker parses one.
    #[error("{file} holds more than {} KiB of TOML; put data into files of their own", TABLE_BYTES >> 10)]
    LongTable {
        /// The file, relative to the bundle.
        file: String,
    },
    /// Parsing takes more than it may.
    #[error(
        "{file} takes more than {} MiB or {} s to parse: make it shorter or nest less, and put data into files of their own",
        ALLOWANCE.memory >> 20, ALLOWANCE.seconds
    )]
    TooMuch {
        /// The entry file.
        file: String,
    },
    /// The header or the project file is not TOML.
    #[error("{file}: {message}")]
    Toml {
        /// The file that holds it, relative to the bundle.
        file: String,
        /// The parser's own words.
        message: String,
    },
    /// A PEP 723 header that does not end, or two of them.
    #[error("{file}: {reason} (PEP 723)")]
    Header {
        /// The file that holds it, relative to the bundle.
        file: String,
        /// What the file breaks, as a clause.
        reason: &'static str,
    },
    /// A setting that does not exist.
    #[error("{file}: [tool.lambswool] has no setting {key:?}{hint}; it has: {known}")]
    UnknownKey {
        /// The file that holds it, relative to the bundle.
        file: String,
        /// What was written.
        key: String,
        /// What was perhaps meant.
        hint: String,
        /// The keys that exist.
        known: String,
    },
    /// A declared setting with a value that it cannot have.
    #[error("{setting}: {reason}")]
    Declared {
        /// What was declared, such as `memory`.
        setting: &'static str,
        /// What it must be.
        reason: String,
    },
    /// A setting with a value that it cannot have.
    #[error("{file}: {key} = {value}: {reason}")]
    Value {
        /// The file that holds it, relative to the bundle.
        file: String,
        /// The key as it is written.
        key: String,
        /// What was written.
        value: String,
        /// What it must be.
        reason: String,
    },
    /// Settings in both places, which do not say the same.
    #[error(
        "both {header} (in its header) and {project} have settings in [tool.lambswool]: keep one of the two, with all that is to count"
    )]
    TwoPlaces {
        /// The entry file.
        header: String,
        /// The project file.
        project: String,
    },
    /// It was told to be reset, and what it runs in cannot be.
    #[error(
        "reset always is for micro-VMs without a fallback, since a container cannot be reset: say isolation microvm as well"
    )]
    Reset,
    /// Dependencies, in a form that is not read, and none in one that is.
    #[error("{file} has the function's dependencies {place}, which is not read: {instead}")]
    Elsewhere {
        /// The file that holds it, relative to the bundle.
        file: String,
        /// The form of the list, as a clause.
        place: &'static str,
        /// What to do, as a command.
        instead: String,
    },
    /// A requirement that is not accepted.
    #[error(transparent)]
    Requirement(#[from] RequirementError),
    /// A Python that cannot be asked for.
    #[error("{file} asks for a Python that it cannot have")]
    Python {
        /// The file that holds it, relative to the bundle.
        file: String,
        /// What the version breaks.
        source: RequestError,
    },
    /// The interpreter that should parse the file failed.
    #[error("the function's source could not be parsed")]
    Run(#[from] RunError),
}

/// The modules that a Python has itself: what a bundle's packages may stand in the way of.
///
/// # Errors
/// When no process could be started to ask it.
pub fn standard(interpreter: &Interpreter) -> Result<BTreeSet<String>, RunError> {
    inspect::standard(interpreter)
}

/// Reads the settings and parses the entry file of a bundle, all at once. A caller that has no interpreter yet begins with
/// [`Settings::read`].
///
/// # Errors
/// With what is wrong, where, and what to do.
pub fn inspect(root: &Path, interpreter: &Interpreter) -> Result<Inspected, ManifestError> {
    Settings::read(root, Overrides::default())?.inspect(root, interpreter)
}
