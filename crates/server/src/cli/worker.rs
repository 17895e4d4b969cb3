//! Commands about the worker itself, and the settings that it starts with.

use std::path::PathBuf;

use clap::Args;

use function::quantity::Span;

const UP: &str = "\
Settings come from a file, then from WOOL_* variables, then from flags; the later wins. The file is --config FILE, else
$XDG_CONFIG_HOME/lambswool/config.toml, else /etc/lambswool/config.toml. Unknown keys are errors. A size is a number of bytes,
or has a unit: KiB, MiB, GiB or TiB; KB, MB, GB and TB are the same, powers of 1024. Keys and defaults:
  listen = \"127.0.0.1:8470\"    addresses other than loopback need TLS and a token; port 0 picks a free one
  tls_certificate = FILE       PEM; TCP then speaks TLS. Read again at SIGHUP
  tls_key = FILE               its private key, PEM
  tokens = \"auto\"              when TCP asks for a token: from the first that is made on; or \"required\", \"off\"
  admin_group = NAME           a group that may do everything through the Unix socket; default: none
  secret_key_file = FILE       the key of secrets, 64 hex digits; default: secret.key in the state directory
  state = DIR                  see --state
  user = NAME                  account to run as when root starts the worker; default: whoever starts it
  python = \"3.12\"              what functions run on unless they say; default: the one a base was made of
                               first; where there is no base, one of uv's, else the python3 of PATH, else another
  run_body = \"6MiB\"            largest body of a call       (WOOL_RUN_BODY)
  deploy_body = \"256MiB\"       largest bundle of a deploy
  run_bodies = \"1GiB\"          of all calls together, and of replies that wait to be read; a tenant has at
                               most as much as is free; default: an eighth of the memory, at most 1 GiB
  deploy_bodies = \"1GiB\"       of all deploys together, on disk; default: four times deploy_body
  reply_body = \"6MiB\"          largest body of a reply
  connections = 4000           over TCP at once; default: what the limit of open files leaves to them
  client_timeout = \"30s\"      to send a request's header, or the first of its body
  handler_cache = true         keep finished instances, paused, for the next call
  idle = \"10m\"                 destroy them after this time without a call
  zygotes = \"utility\"          or \"paper\", \"static\", \"per-lock\", \"root\", \"none\" (isolation \"general\" has none)
  zygote_idle = \"1h\"           destroy them after this time without anything made from them
  zygote_seed = FILE           a tree of zygotes to start from, as `wool zygotes --json` prints it
  prepared = 8                 package sets, the last deployed, of which zygotes are made at the start
  memory = \"4GiB\"              of kept instances and zygotes together; default: half of what is available
  handler_cache_bytes = \"2GiB\" most of it for kept instances; default: no cap of their own
  zygote_bytes = \"2GiB\"        most of it for zygotes; default: no cap of their own
  proc = \"/proc\"               its meminfo and pressure/memory tell when memory is short: caches then shrink
  slots = 4                    slots that each zygote keeps prepared
  spares = 8                   forks that a busy zygote keeps landed and waiting for code (two when it is not busy)
  isolation = \"lean\"           or, to measure against: \"sock\", \"general\"; then changes, as in \"lean,own=net\"
  microvms = true              run functions in micro-VMs when they ask for it
  snapshot_bytes = \"1GiB\"      disk space of snapshots of micro-VMs that have imported; 0: none are kept
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

/// `wool down`
#[derive(Clone, Debug, Args)]
pub struct Down {
    /// Give up waiting after this time
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: Span,
}

/// `wool clean`
#[derive(Clone, Debug, Args)]
pub struct Clean {
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn every_setting_is_in_the_help_of_up() {
        for key in config::keys() {
            assert!(UP.contains(&format!("\n  {key} = ")), "{key}");
        }
    }
}
