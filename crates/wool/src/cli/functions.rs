//! Commands about functions: what is called, deployed, listed and removed.

use std::path::PathBuf;

use clap::Args;

use doors::native::isolation::Instead;

/// The arguments of `wool run`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  wool run hello.py '{\"name\": \"Ada\"}'\n  echo '[1, 2]' | wool run sum.py -\n  wool run thumbnail/ @photo.jpg -o small.jpg --timings\n\nThe result goes to stdout; what the function prints goes to stderr. A second run of the same file may go on in the\ninstance of the first, and find what that left in its module: with --fresh, or --reset always, it does not."
)]
pub struct Run {
    /// A .py file, a folder, a .zip, .tar or .tar.gz
    pub path: PathBuf,
    /// What counts instead of its own settings.
    #[command(flatten)]
    pub instead: Instead,
    /// Call it in no instance that an earlier run has left: its module is loaded anew
    #[arg(long)]
    pub fresh: bool,
    /// How to call it.
    #[command(flatten)]
    pub event: Event,
}

/// The arguments of `wool deploy`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  wool deploy hello.py\n  wool deploy report/ --name monthly-report\n\nA function is `def handler(event, context)` or `def f(event)`. Packages come from a PEP 723 header, requirements.txt\nor pyproject.toml; limits from [tool.lambswool] there."
)]
pub struct Deploy {
    /// A .py file, a folder, a .zip, .tar or .tar.gz
    pub path: PathBuf,
    /// The name to deploy under [default: the file's or folder's]
    #[arg(short, long)]
    pub name: Option<String>,
    /// What counts instead of its own settings.
    #[command(flatten)]
    pub instead: Instead,
}

/// The arguments of `wool invoke`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  wool invoke hello '{\"name\": \"Ada\"}'\n  wool invoke hello @event.json --timings\n  wool invoke hello:live            the version that an alias points to; hello:3 is published version 3\n  cat photo.jpg | wool invoke thumbnail - --content-type image/jpeg -o small.jpg"
)]
pub struct Invoke {
    /// The function's name; `NAME:NUMBER` or `NAME:ALIAS` for a published version
    pub name: String,
    /// How to call it.
    #[command(flatten)]
    pub event: Event,
}

/// How a function is called.
#[derive(Clone, Debug, Default, Args)]
pub struct Event {
    /// The event: JSON, `@FILE` for a file's contents, or `-` for stdin, which is not read otherwise [default: empty]
    #[arg(value_name = "EVENT")]
    pub event: Option<String>,
    /// The event's content type [default: by the file's name, else application/json]
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Write the result to a file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show on stderr how long each stage of the call took
    #[arg(short, long)]
    pub timings: bool,
}

/// The arguments of `wool ls`.
#[derive(Clone, Debug, Args)]
pub struct Ls {
    /// Also the functions that `wool run` made
    #[arg(short, long)]
    pub all: bool,
}

/// The arguments of `wool rm`.
#[derive(Clone, Debug, Args)]
pub struct Rm {
    /// The functions' names
    #[arg(required = true)]
    pub names: Vec<String>,
}

/// The arguments of `wool logs`.
#[derive(Clone, Debug, Args)]
pub struct Logs {
    /// The function's name
    pub name: String,
    /// Keep printing new lines as they come
    #[arg(short, long)]
    pub follow: bool,
    /// How many lines to go back, at most 100000
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = super::lines)]
    pub lines: usize,
    /// Only lines of this invocation, and those of importing the code
    #[arg(long, value_name = "ID")]
    pub invocation: Option<String>,
}
