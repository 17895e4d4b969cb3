//! The command line: what can be said, and the help that explains it.

mod control;
mod functions;
mod releases;
mod worker;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub use control::{Audit, Secret, Tls, Token, TokenCreate};
use doors::native::MOST_LINES;
use function::Label;
pub use functions::{Deploy, Event, Invoke, Logs, Ls, Rm, Run};
pub use releases::{Alias, Publish, RollBack, Unpublish, Versions};
pub use worker::{Clean, Down, Up};

const EXAMPLES: &str = "\
Examples:
  wool up --detach                        start a worker in the background
  wool run hello.py '{\"name\": \"Ada\"}'     call a function from a file, without deploying it
  wool deploy thumbnail/                  deploy a folder under its own name
  wool invoke thumbnail @photo.jpg -o small.jpg
  wool logs thumbnail -f                  follow what it prints
  wool down                               stop the worker

Exit status:
  0  it worked
  1  it did not; the reason is on stderr
  2  the command line is wrong
  3  no worker answers
  4  the function raised an exception, could not be loaded, or died
  5  the function did not answer within its timeout

Environment:
  WOOL_URL, WOOL_STATE  as --url and --state; every key of the configuration has such a variable (see `wool up --help`)
  WOOL_CA, WOOL_TENANT  as --ca and --tenant
  WOOL_TOKEN            a token for the worker; or WOOL_TOKEN_FILE, as --token-file
  WOOL_LOG              what the worker reports about itself, for example `debug` (default `info`)";

/// Runs Python functions on this machine, in isolated containers that start in milliseconds.
#[derive(Debug, Parser)]
#[command(name = "wool", version, after_help = EXAMPLES)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
    /// The command and its arguments.
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Global {
    /// Where the worker is: http://HOST:PORT, https://HOST:PORT or unix:PATH [default: the state directory's socket]
    #[arg(
        long,
        global = true,
        env = "WOOL_URL",
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub url: Option<String>,
    /// The state directory [default: /var/lib/lambswool for root, else $XDG_STATE_HOME/lambswool]
    #[arg(
        long,
        global = true,
        env = "WOOL_STATE",
        value_name = "DIR",
        overrides_with = "state",
        help_heading = "Global options"
    )]
    pub state: Option<PathBuf>,
    /// A file that holds a token for the worker [default: the token in WOOL_TOKEN]
    #[arg(
        long,
        global = true,
        env = "WOOL_TOKEN_FILE",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub token_file: Option<PathBuf>,
    /// CA certificates (PEM) that verify a worker at https:// [default: those that this machine trusts]
    #[arg(
        long,
        global = true,
        env = "WOOL_CA",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub ca: Option<PathBuf>,
    /// Tenant to act for, administrators only [default: the tenant `default`]
    #[arg(
        long,
        global = true,
        env = "WOOL_TENANT",
        value_name = "NAME",
        help_heading = "Global options"
    )]
    pub tenant: Option<Label>,
    /// Write JSON to stdout, for scripts
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
}

const ENV_HELP: &str = "A token goes along where one is given (--token-file or WOOL_TOKEN), as AWS_SESSION_TOKEN. Clients in that shell send it to other services of AWS, too: use a shell of its own, or set the variables for one program.";

/// The commands of `wool`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the worker
    Up(Up),
    /// Stop the worker; running calls may end first
    Down(Down),
    /// Stop the worker and remove everything that it keeps: functions, packages, logs
    Clean(Clean),
    /// Call a function from a file or folder, without deploying it; starts a worker if none answers
    Run(Run),
    /// Deploy a function: a .py file or a folder
    Deploy(Deploy),
    /// Call a deployed function
    Invoke(Invoke),
    /// List the functions
    Ls(Ls),
    /// Remove functions
    Rm(Rm),
    /// List the versions of a function that are kept
    Versions(Versions),
    /// Give a function's current version a number, under which it stays callable
    Publish(Publish),
    /// Remove published versions of a function
    Unpublish(Unpublish),
    /// Aliases: names for published versions
    #[command(subcommand)]
    Alias(Alias),
    /// Make an earlier version of a function current again
    Rollback(RollBack),
    /// Show what a function printed
    Logs(Logs),
    /// Print the variables that clients of AWS Lambda read, for a shell: eval "$(wool env)"
    #[command(after_help = ENV_HELP)]
    Env,
    /// List the packages that are installed, and who uses them
    Packages(Packages),
    /// List the zygotes: interpreters that have imported packages already, and what each has spared
    Zygotes,
    /// Tokens: who may do what through the HTTP API
    #[command(subcommand)]
    Token(Token),
    /// Secrets of functions: environment variables that no listing shows
    #[command(subcommand)]
    Secret(Secret),
    /// Show what was changed, and by whom
    Audit(Audit),
    /// The worker's TLS certificate
    #[command(subcommand)]
    Tls(Tls),
    /// The root file systems that functions start from, each made of a Python of this machine
    #[command(subcommand)]
    Base(Base),
    /// Say what this machine can do, and what is missing or degraded
    Doctor(Doctor),
    /// Run programs directly on KVM, without an operating system
    #[command(subcommand)]
    Unikernel(Unikernel),
    /// Write a completion script for a shell to stdout
    Completions {
        /// The shell to write for
        shell: Shell,
    },
    /// Write the description of the HTTP API to stdout
    Openapi,
}

/// `wool packages`
#[derive(Clone, Debug, Args)]
pub struct Packages {
    /// What to do; without it they are listed.
    #[command(subcommand)]
    pub action: Option<PackagesAction>,
}

/// What else can be done with packages.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum PackagesAction {
    /// Remove the packages and the code that no function uses
    Prune,
    /// Read every file of every package, and fetch again what is not as it was
    Verify,
}

/// The arguments of `wool doctor`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Doctor {
    /// Also test KVM, and list the system calls that functions missed in micro-VMs
    #[arg(long)]
    pub microvm: bool,
}

/// `wool unikernel`
#[derive(Clone, Debug, Subcommand)]
pub enum Unikernel {
    /// Run a static program that is built with guest/unikernel/wool.h; it exits with the program's own status
    #[command(
        after_help = "Example:\n  cc -O2 -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie -o hello examples/unikernel/hello.c\n  wool unikernel run hello Ada Grace\n\nWhat it answers goes to stdout, a line each; what it logs goes to stderr."
    )]
    Run(RunUnikernel),
}

/// `wool unikernel run`
#[derive(Clone, Debug, Args)]
pub struct RunUnikernel {
    /// The program: an ELF file
    pub file: PathBuf,
    /// Requests for it to answer, one after another
    pub requests: Vec<String>,
    /// What it is started with
    #[arg(long, default_value = "")]
    pub argument: String,
    /// Stop it after this time
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: function::quantity::Span,
}

/// The arguments of `wool base`.
#[derive(Clone, Debug, Subcommand)]
pub enum Base {
    /// Make a base of a Python of this machine; one that is there already is left alone
    Build {
        /// A version such as 3.12, or the path of an interpreter [default: one of uv's, else the python3 of PATH, else another]
        python: Option<String>,
    },
    /// List the bases of this machine
    Ls,
}

/// How many lines to go back. The bound is the worker's, so that no request is sent in vain.
fn lines(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(lines) if lines <= MOST_LINES as usize => Ok(lines),
        Ok(_) => Err(format!("at most {MOST_LINES} lines")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_may_follow_the_command() {
        let cli = Cli::try_parse_from([
            "wool",
            "invoke",
            "hello",
            "-",
            "--url",
            "http://127.0.0.1:1",
            "--json",
        ])
        .unwrap();
        assert_eq!(cli.global.url.as_deref(), Some("http://127.0.0.1:1"));
        assert!(cli.global.json);
        let Command::Invoke(invoke) = cli.command else { panic!("{:?}", cli.command) };
        assert_eq!((invoke.name.as_str(), invoke.event.event.as_deref()), ("hello", Some("-")));
    }

    /// A worker that becomes an account is told again, after what was said.
    #[test]
    fn of_a_state_or_a_configuration_that_is_said_twice_the_last_counts() {
        let said = ["wool", "up", "--state", "a", "--config", "c"];
        let again = ["--state", "/a", "--config", "/c"];
        let cli = Cli::try_parse_from(said.iter().chain(&again)).unwrap();
        assert_eq!(cli.global.state, Some("/a".into()));
        let Command::Up(up) = cli.command else { panic!("{:?}", cli.command) };
        assert_eq!(up.config, Some("/c".into()));
    }

    #[test]
    fn more_lines_than_there_are_to_have_are_refused_before_anybody_is_asked() {
        for command in [&["logs", "f"][..], &["audit"]] {
            let parse = |lines| Cli::try_parse_from([&["wool"], command, &["-n", lines]].concat());
            assert!(parse("100000").is_ok());
            let refused = parse("1000000").unwrap_err().to_string();
            assert!(refused.contains("at most 100000"), "{refused}");
        }
    }

    #[test]
    fn an_event_that_begins_with_a_hyphen_follows_two_hyphens() {
        let cli = Cli::try_parse_from(["wool", "run", "f.py", "--", "-1"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("{:?}", cli.command) };
        assert_eq!(run.event.event.as_deref(), Some("-1"));
    }
}
