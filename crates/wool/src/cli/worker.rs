//! Commands about the worker itself, and the settings that it starts with.

use std::path::PathBuf;

use clap::Args;

use function::Span;

use crate::config;

/// The arguments of `wool up`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = config::help())]
pub struct Up {
    /// Where to serve HTTP: an address and a port; port 0 takes a free one [default: 127.0.0.1:8470]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// The configuration file
    #[arg(long, value_name = "FILE", env = "WOOL_CONFIG", overrides_with = "config")]
    pub config: Option<PathBuf>,
    /// The Python that functions run on unless they name one: a version, or the path of an interpreter
    #[arg(long, value_name = "PYTHON")]
    pub python: Option<String>,
    /// The account to run as, when root starts it: only the warden then stays root
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Refuse to start where this host does not enforce every limit and line of defence
    #[arg(long)]
    pub strict: bool,
    /// Go on in the background once the worker answers; it writes to STATE/logs/worker.log
    #[arg(short, long)]
    pub detach: bool,
    /// Runs as the background half of --detach.
    #[arg(long, hide = true)]
    pub background: bool,
    /// The process of a warden that waits for this worker.
    #[arg(long, hide = true, value_name = "PID")]
    pub warden: Option<i32>,
}

/// The arguments of `wool down`.
#[derive(Clone, Debug, Args)]
pub struct Down {
    /// Give up waiting after this time
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: Span,
}

/// The arguments of `wool clean`.
#[derive(Clone, Debug, Args)]
pub struct Clean {
    /// Do not ask before removing
    #[arg(short, long)]
    pub yes: bool,
}
