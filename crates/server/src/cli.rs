//! The command line: what can be said, and the help that explains it.

mod control;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::access::Label;
pub use control::{Audit, Secret, Tls, Token, TokenCreate};

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
#[command(name = "wool", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Global {
    /// Where the worker is: http://HOST:PORT, https://HOST:PORT or unix:PATH [default: the state directory's socket,
    /// then 127.0.0.1:8470]
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
    /// Certificates to know a worker at https:// by, PEM [default: those that this machine trusts]
    #[arg(
        long,
        global = true,
        env = "WOOL_CA",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub ca: Option<PathBuf>,
    /// Whose functions are meant, for an administrator [default: the tenant `default`]
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

/// The commands.
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
    /// Show what a function printed
    Logs(Logs),
    /// List the packages that are installed, and who uses them
    Packages(Packages),
    /// List the zygotes: interpreters that have imported packages already, and what each has spared
    Zygotes,
    /// Tokens: who may do what through the HTTP API
    #[command(subcommand)]
    Token(Token),
    /// Secrets of functions: variables of their environment that nobody else sees
    #[command(subcommand)]
    Secret(Secret),
    /// Show what was changed, and by whom
    Audit(Audit),
    /// The worker's certificate, for other machines to know it by
    #[command(subcommand)]
    Tls(Tls),
    /// The root file systems that functions start from, each made of a Python of this machine
    #[command(subcommand)]
    Base(Base),
    /// Say what this machine can do, and what is missing or degraded
    Doctor(Doctor),
    /// Programs that are machines of their own, without an operating system
    #[command(subcommand)]
    Unikernel(Unikernel),
    /// Write a completion script for a shell to stdout
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Write the description of the HTTP API to stdout
    Openapi,
}

const UP: &str = "\
Settings come from a file, then from WOOL_* variables, then from flags; the later wins. The file is --config FILE, else
$XDG_CONFIG_HOME/lambswool/config.toml, else /etc/lambswool/config.toml. Unknown keys are errors. Keys and defaults:
  listen = \"127.0.0.1:8470\"    others than loopback addresses take TLS and a token; port 0 takes a free port
  tls_certificate = FILE       PEM; TCP then speaks TLS. Read again at SIGHUP
  tls_key = FILE               its private key, PEM
  tokens = \"auto\"              when TCP asks for a token: from the first that is made on; or \"required\", \"off\"
  admin_group = NAME           a group that may do everything through the Unix socket; default: none
  secret_key_file = FILE       the key of secrets, 64 hex digits; default: secret.key in the state directory
  state = DIR                  see --state
  python = \"3.12\"              what functions run on unless they say; default: the newest that is found
  run_body = \"6MiB\"            largest body of a call       (WOOL_RUN_BODY)
  deploy_body = \"256MiB\"       largest bundle of a deploy
  run_bodies = \"1GiB\"          of all calls together; default: an eighth of the memory, at most 1 GiB
  deploy_bodies = \"1GiB\"       of all deploys together, on disk; default: four times deploy_body
  reply_body = \"6MiB\"          largest body of a reply
  connections = 4000           over TCP at once; default: what the limit of open files leaves to them
  client_timeout = \"30s\"      to send a request's header, or the first of its body
  handler_cache = true         keep finished instances, paused, for the next call
  idle = \"10m\"                 destroy them after this time without a call
  zygotes = \"utility\"          or \"paper\", \"static\", \"per-lock\", \"root\", \"none\" (isolation \"general\" has none)
  zygote_idle = \"1h\"           destroy them after this time without anything made from them
  zygote_seed = FILE           a tree of zygotes to start from, as `wool zygotes --json` prints it
  memory = \"4GiB\"              of kept instances and zygotes together; default: half of what is available
  handler_cache_bytes = \"2GiB\" most of it for kept instances; default: no cap of their own
  zygote_bytes = \"2GiB\"        most of it for zygotes; default: no cap of their own
  proc = \"/proc\"               its meminfo and pressure/memory tell when memory is short: caches then shrink
  slots = 4                    slots that each zygote keeps prepared
  spares = 8                   forks that a busy zygote keeps landed and waiting for code (two when it is not busy)
  isolation = \"lean\"           or, to measure against: \"sock\", \"general\"; then changes, as in \"lean,own=net\"
  microvms = true              run functions in micro-VMs when they ask for it
  install_cache_bytes = \"20GiB\"  disk space of packages, code and bases; what no function uses goes, oldest first
  package_bytes = \"4GiB\"       largest package, unpacked
  package_files = 50000        most files of a package
  build_from_source = \"sandbox\"  build packages without a wheel in a sandbox; or \"never\"
  build_memory = \"4GiB\"        of one build; default: 4 GiB, at most half of the machine's
  build_timeout = \"15m\"        of one step of a build
  index_timeout = \"30m\"        of all that a deploy asks of package indexes
  indexes = [\"corp=https://packages.example.org/simple\"]  that functions may name; default: none
  package_urls = [\"https://wheels.example.org/\"]  below which a requirement may name a file; default: none
  egress = [\"report-*\", \"acme/*\"]  functions that may connect to what they list; default: none
  egress_allow = [\"10.1.0.0/16:5432\"]  addresses that are not public and that they may; default: none
  egress_deny = [\"0.0.0.0/0\"]  addresses that they may not; default: none
  host_network = [\"metrics\"]   functions that may have the host's network, the API included; default: none
  sandboxes = 2000             most at once, over all functions; default: what the machine allows
  cpu_most = 2                 processors of any one sandbox at most; default: all
  cpu = 0.5                    of an instance whose function says nothing; default: cpu_most
  tenants = {}                 what each may take: [tenants.NAME] functions, concurrency, calls_per_second, memory
  strict = false               refuse to start where a limit or a line of defence is not enforced
  creations = 4                sandboxes made at the same time; default: twice the processors
  queue = 1000                 calls that may wait, over all functions
  drain = \"10s\"                how long running calls may take to end when the worker stops
  log_bytes = \"10MiB\"          size at which a function's log is rotated
  log_rate = \"1MiB\"           a second that a function may write to it on the average; log_bytes at once
  log_files = 3                files kept for each function";

/// `wool up`
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = UP)]
pub struct Up {
    /// Where to serve HTTP: an address and a port; port 0 takes a free one [default: 127.0.0.1:8470]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// The configuration file
    #[arg(long, value_name = "FILE", env = "WOOL_CONFIG")]
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

/// `wool down`
#[derive(Clone, Debug, Args)]
pub struct Down {
    /// Give up waiting after this time
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: crate::quantity::Span,
}

/// `wool clean`
#[derive(Clone, Debug, Args)]
pub struct Clean {
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// `wool run`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  wool run hello.py '{\"name\": \"Ada\"}'\n  echo '[1, 2]' | wool run sum.py -\n  wool run thumbnail/ @photo.jpg -o small.jpg --timings\n\nThe result goes to stdout; what the function prints goes to stderr."
)]
pub struct Run {
    /// A .py file or a folder
    pub path: PathBuf,
    /// What to run it in [default: what the function says, else a container]
    #[arg(long, value_name = "KIND")]
    pub isolation: Option<Isolation>,
    /// How to call it.
    #[command(flatten)]
    pub event: Event,
}

/// What a function can run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Isolation {
    /// A container
    Container,
    /// A machine of its own, without a kernel: needs KVM
    Microvm,
}

impl Isolation {
    /// As the API says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Microvm => "microvm",
        }
    }
}

/// `wool deploy`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  wool deploy hello.py\n  wool deploy report/ --name monthly-report\n\nA function is `def handler(event, context)` or `def f(event)`. Packages come from a PEP 723 header, requirements.txt\nor pyproject.toml; limits from [tool.lambswool] there."
)]
pub struct Deploy {
    /// A .py file or a folder
    pub path: PathBuf,
    /// The name to deploy under [default: the file's or folder's]
    #[arg(short, long)]
    pub name: Option<String>,
}

/// `wool invoke`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  wool invoke hello '{\"name\": \"Ada\"}'\n  wool invoke hello @event.json --timings\n  cat photo.jpg | wool invoke thumbnail - --content-type image/jpeg -o small.jpg"
)]
pub struct Invoke {
    /// The function's name
    pub name: String,
    /// How to call it.
    #[command(flatten)]
    pub event: Event,
}

/// How a function is called.
#[derive(Clone, Debug, Default, Args)]
pub struct Event {
    /// The event: JSON, `@FILE` for a file's contents, or `-` for stdin
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

/// `wool ls`
#[derive(Clone, Debug, Args)]
pub struct Ls {
    /// Also the functions that `wool run` made
    #[arg(short, long)]
    pub all: bool,
}

/// `wool rm`
#[derive(Clone, Debug, Args)]
pub struct Rm {
    /// The functions' names
    #[arg(required = true)]
    pub names: Vec<String>,
}

/// `wool logs`
#[derive(Clone, Debug, Args)]
pub struct Logs {
    /// The function's name
    pub name: String,
    /// Go on with what it prints from now on
    #[arg(short, long)]
    pub follow: bool,
    /// How many lines to go back
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub lines: usize,
    /// Only lines of this invocation, and those of importing the code
    #[arg(long, value_name = "ID")]
    pub invocation: Option<String>,
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

/// `wool doctor`
#[derive(Clone, Copy, Debug, Args)]
pub struct Doctor {
    /// Also try KVM out, and tell what functions missed in micro-VMs
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
    pub timeout: crate::quantity::Span,
}

/// `wool base`
#[derive(Clone, Debug, Subcommand)]
pub enum Base {
    /// Make a base of a Python of this machine; one that is there already is left alone
    Build {
        /// A version such as 3.12, or the path of an interpreter [default: the newest that is found]
        python: Option<String>,
    },
    /// List the bases
    Ls,
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

    #[test]
    fn an_event_that_begins_with_a_hyphen_follows_two_hyphens() {
        let cli = Cli::try_parse_from(["wool", "run", "f.py", "--", "-1"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("{:?}", cli.command) };
        assert_eq!(run.event.event.as_deref(), Some("-1"));
    }

    #[test]
    fn every_setting_is_in_the_help_of_up() {
        let toml::Value::Table(defaults) =
            toml::Value::try_from(crate::config::Config::default()).unwrap()
        else {
            panic!("settings are a table")
        };
        for key in defaults.keys() {
            assert!(UP.contains(&format!("\n  {key} = ")), "{key}");
        }
    }
}
