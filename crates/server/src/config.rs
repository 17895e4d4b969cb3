//! Settings: a TOML file, then `WOOL_*` variables, then flags; the later wins. Unknown keys are errors.
//!
//! The file is `--config FILE`, else the first of `$XDG_CONFIG_HOME/lambswool/config.toml` and
//! `/etc/lambswool/config.toml` that exists. Every key `k` has a variable `WOOL_K` (`log_bytes` → `WOOL_LOG_BYTES`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use container::Isolation;
use egress::{MOST_RULES, Rule};
use engine::ZygotePolicy;
use layers::Indexes;
use layers::indexes::{Index, IndexError};
use layers::uv::Bounds;
use sandbox::CpuBounds;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;
use toml::{Table, Value};

use crate::access::{Demand, Unprotected};
use crate::networks::{Listed, Pattern};
use crate::quantity::{Bytes, Cpus, Span};
use crate::quotas::TenantLimits;
use crate::state;

/// What becomes of a package that has no wheel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildFromSource {
    /// It is built in a sandbox, without a network.
    #[default]
    Sandbox,
    /// It is refused.
    Never,
}

/// All settings of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where HTTP is served: an address and a port; port 0 takes a free one. One that other machines reach takes TLS and a
    /// token. Default `127.0.0.1:8470`.
    pub listen: SocketAddr,
    /// The worker's certificate, PEM, those that vouch for it behind it: TCP then speaks TLS. Read again at SIGHUP.
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's private key, PEM.
    pub tls_key: Option<PathBuf>,
    /// When TCP asks for a token: `auto` (from the moment at which the first is made), `required`, or `off` (never). The
    /// Unix socket asks for none. Default `auto`.
    pub tokens: Demand,
    /// A group whose members may do everything through the Unix socket, as the worker's own user and root may; they
    /// must be able to reach the state directory. Default: none.
    pub admin_group: Option<String>,
    /// The file of the key that seals secrets: 64 hex digits, for nobody else's eyes. Default: the credential
    /// `lambswool-secret-key` that systemd gives, else `secret.key` in the state directory, which is made.
    pub secret_key_file: Option<PathBuf>,
    /// The state directory. Default `/var/lib/lambswool` for root, else `$XDG_STATE_HOME/lambswool`.
    pub state: PathBuf,
    /// The account that a worker which root starts runs as; only its warden then stays root. Default: whoever starts it.
    pub user: Option<String>,
    /// The Python that functions run on unless they name one: a version such as `3.12`, or the path of an interpreter.
    /// Default: the newest that is found.
    pub python: Option<String>,
    /// Largest body of a call. Default 6 MiB.
    pub run_body: Bytes,
    /// Largest bundle of a deploy. Default 256 MiB.
    pub deploy_body: Bytes,
    /// Bodies of all calls over TCP together that are in memory, from their first byte to the end of their call. Beyond, a call
    /// is told to come back. The Unix socket has an eighth of that besides. Default: an eighth of the machine's memory, at most
    /// 1 GiB.
    pub run_bodies: Option<Bytes>,
    /// Bundles of all deploys over TCP together that lie on the disk until they are deployed; of the Unix socket an eighth
    /// besides, one at least. Default: four times `deploy_body`.
    pub deploy_bodies: Option<Bytes>,
    /// Most connections over TCP at once. Beyond, the one that has been idle longest is closed; where none is idle, the
    /// newcomer gets 503. Default, and most: what the limit of open files leaves to them.
    pub connections: Option<usize>,
    /// How long a client may take to send the header of its next request, to send the first of a body, or to read the first
    /// of an answer; then it must send, or read, 64 KiB a second. Default 30 seconds.
    pub client_timeout: Span,
    /// Largest body of a reply. Default 6 MiB.
    pub reply_body: Bytes,
    /// Whether instances are kept, paused, for the next call. Default true.
    pub handler_cache: bool,
    /// Memory of kept instances, zygotes and what those leave behind together, measured; it goes where it saves the calls
    /// most time. Busy instances are not in it. Default: half of what is available when the worker starts.
    pub memory: Option<Bytes>,
    /// Most of `memory` that kept instances may have. Default: no cap of their own.
    pub handler_cache_bytes: Option<Bytes>,
    /// Most of `memory` that zygotes may have. Default: no cap of their own.
    pub zygote_bytes: Option<Bytes>,
    /// Where the kernel tells how much memory is available (`meminfo`) and how long tasks wait for some
    /// (`pressure/memory`): by these, `memory` shrinks for a while. Default `/proc`.
    pub proc: PathBuf,
    /// Which zygotes exist: `none` (each instance a fresh interpreter), `root`, `per-lock`, `paper` (SOCK's policy),
    /// `static` (those of `zygote_seed`) or `utility` (whatever spares the calls most import time). Default `utility`, and
    /// `none` under an isolation that nothing can be forked into.
    pub zygotes: Option<ZygotePolicy>,
    /// A tree of zygotes, each made as soon as a function comes that it may serve: what `wool zygotes --json` printed, or
    /// nested `{"packages": ["name==version", …], "children": […]}`.
    pub zygote_seed: Option<PathBuf>,
    /// Zygotes are destroyed after this time without anything having been made from them, but the root. Default 1 hour.
    pub zygote_idle: Span,
    /// Kept instances are destroyed after this time without a call. Default 10 minutes.
    pub idle: Span,
    /// Slots that each zygote keeps prepared. Default 4.
    pub slots: usize,
    /// Forks that a busy zygote keeps landed and waiting for code, and two where it is not busy; of a micro-VM's, as many
    /// rehearsed clones, two at most. Default 8.
    pub spares: usize,
    /// How sandboxes are walled off: `lean`, `sock` or `general`, then changes, as in `lean,own=net`: see [`Isolation`].
    /// All but `lean` are there to be measured against. Default `lean`.
    pub isolation: Isolation,
    /// Whether functions that ask for it run in micro-VMs. Default true.
    pub microvms: bool,
    /// Functions that may have `network = "egress"`: patterns of names, such as `report-*`, of a tenant's functions
    /// `acme/*`. Default: none.
    pub egress: Listed<Pattern>,
    /// Addresses that such functions may reach although they are not public, with a port or without: `10.1.0.0/16:5432`.
    /// The most specific entry of this list, the next and our own decides. At most 512 entries. Default: none.
    pub egress_allow: Listed<Rule>,
    /// Addresses that no such function reaches; with `0.0.0.0/0` and `[::]/0`, all but those of `egress_allow`. At most 512
    /// entries. Default: none.
    pub egress_deny: Listed<Rule>,
    /// Functions that may have `network = "host"`, as in `egress`: they reach whatever this host reaches, the worker's API
    /// included. Default: none.
    pub host_network: Listed<Pattern>,
    /// Disk space of all packages, code and bases together; what no function uses goes, the least recently used first.
    /// Default 20 GiB.
    pub install_cache_bytes: Bytes,
    /// Largest package, unpacked, its bytecode apart. Default 4 GiB: twice the largest that are known.
    pub package_bytes: Bytes,
    /// Most files of a package. Default 50000.
    pub package_files: u64,
    /// What becomes of a package that has no wheel: `sandbox` (it is built in one, without a network) or `never` (it is
    /// refused). Default `sandbox`.
    pub build_from_source: BuildFromSource,
    /// Memory of a build; its files may take half of it. Default 4 GiB, at most half of the machine's.
    pub build_memory: Option<Bytes>,
    /// How long one step of a build may take. Default 15 minutes.
    pub build_timeout: Span,
    /// How long a deploy may wait for package indexes, from its first question to its last download; building does not
    /// count. Default 30 minutes.
    pub index_timeout: Span,
    /// Indexes that functions may name beside those that the worker's environment names (`UV_DEFAULT_INDEX`, `UV_INDEX`) and
    /// the public one, each as `name=address` or as an address. `UV_INDEX_<NAME>_USERNAME` and `_PASSWORD` go to the one of that name.
    /// Default: none.
    #[serde(deserialize_with = "words")]
    pub indexes: Vec<Index>,
    /// Addresses below which a requirement may name a file, as in `six @ https://…`.
    /// Default: none.
    #[serde(deserialize_with = "words")]
    pub package_urls: Vec<String>,
    /// Most sandboxes at once over all functions, zygotes and what they keep ready included. Beyond, the least recently used
    /// idle instance makes room; where none is idle, a call is told to come back. Default: what the machine allows; see
    /// `wool doctor`.
    pub sandboxes: Option<usize>,
    /// Sandboxes being made at the same time. Default: twice the processors, at least 4.
    pub creations: Option<usize>,
    /// What each tenant may take of the machine, a table each; `[tenants."*"]` is for those without one. Default: no limits.
    pub tenants: BTreeMap<String, TenantLimits>,
    /// Whether the worker refuses to start where a limit or a line of defence is not enforced, and says which; else it
    /// warns, and each deploy's answer names it. Default false.
    pub strict: bool,
    /// Most processors that any one sandbox may take, whatever its function says: instances, zygotes while they import,
    /// builds; of micro-VMs, all that come from one reference machine together. Default: all.
    pub cpu_most: Option<Cpus>,
    /// Processors of an instance whose function says nothing: `0.5` is half of one. Default: `cpu_most`.
    pub cpu: Option<Cpus>,
    /// Calls waiting for a sandbox, over all functions. Default 1000.
    pub queue: usize,
    /// How long running calls may take to end when the worker stops. Default 10 seconds.
    pub drain: Span,
    /// Size at which a function's log is rotated. Default 10 MiB.
    pub log_bytes: Bytes,
    /// Bytes a second that a function may write to its log on the average, over all its calls; `log_bytes` at once. What is
    /// more is dropped, and the log says how much. Default 1 MiB.
    pub log_rate: Bytes,
    /// Log files kept for each function, the current one included. Default 3.
    pub log_files: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8470)),
            tls_certificate: None,
            tls_key: None,
            tokens: Demand::Auto,
            admin_group: None,
            secret_key_file: None,
            state: state::default_root(),
            user: None,
            python: None,
            run_body: Bytes(6 << 20),
            deploy_body: Bytes(256 << 20),
            run_bodies: None,
            deploy_bodies: None,
            connections: None,
            client_timeout: Span(Duration::from_secs(30)),
            reply_body: Bytes(6 << 20),
            handler_cache: true,
            memory: None,
            handler_cache_bytes: None,
            zygote_bytes: None,
            proc: PathBuf::from("/proc"),
            zygotes: None,
            zygote_seed: None,
            zygote_idle: Span(Duration::from_secs(3600)),
            idle: Span(Duration::from_secs(600)),
            slots: 4,
            spares: 8,
            isolation: Isolation::LEAN,
            microvms: true,
            egress: Listed::default(),
            egress_allow: Listed::default(),
            egress_deny: Listed::default(),
            host_network: Listed::default(),
            install_cache_bytes: Bytes(20 << 30),
            package_bytes: Bytes(4 << 30),
            package_files: 50_000,
            build_from_source: BuildFromSource::Sandbox,
            build_memory: None,
            build_timeout: Span(Duration::from_secs(900)),
            index_timeout: Span(Duration::from_secs(1800)),
            indexes: Vec::new(),
            package_urls: Vec::new(),
            sandboxes: None,
            creations: None,
            tenants: BTreeMap::new(),
            strict: false,
            cpu_most: None,
            cpu: None,
            queue: 1000,
            drain: Span(Duration::from_secs(10)),
            log_bytes: Bytes(10 << 20),
            log_rate: Bytes(1 << 20),
            log_files: 3,
        }
    }
}

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is no TOML.
    #[error("{path} is no valid TOML: {reason}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Where and what.
        reason: String,
    },
    /// A key is unknown or a value does not fit.
    #[error("a setting does not fit ({sources}): {reason}")]
    Value {
        /// Where settings were read from.
        sources: String,
        /// What does not fit.
        reason: String,
    },
    /// The address is reachable from other machines, and nothing protects who uses it there.
    #[error("{0}")]
    Unprotected(Unprotected),
    /// One of the two is missing.
    #[error("TLS takes a certificate and its key: name both files, tls_certificate and tls_key")]
    HalfOfTls,
    /// Zygotes are asked for where nothing can be forked.
    #[error(
        "nothing can be forked in isolation \"{0}\", whose sandboxes have a mount namespace of their own: leave `zygotes` out, or choose an isolation without own=mnt"
    )]
    NothingForks(Isolation),
    /// A place of packages is none.
    #[error("package_urls: {0}")]
    Packages(#[source] IndexError),
    /// The proxy would be told of more than it takes.
    #[error(
        "{setting} has {entries} entries and may have {}: name whole networks in place of their addresses",
        MOST_RULES
    )]
    TooManyRules {
        /// Which of the two lists.
        setting: &'static str,
        /// How many there are.
        entries: usize,
    },
    /// Only the zygotes of a tree are asked for, and no tree is given.
    #[error("zygotes = \"static\" makes those of a given tree: name its file with zygote_seed")]
    NoSeed,
}

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--state`
    pub state: Option<PathBuf>,
    /// `--python`
    pub python: Option<String>,
    /// `--user`
    pub user: Option<String>,
    /// `--strict`
    pub strict: bool,
}

impl Config {
    /// Reads the settings of this process.
    ///
    /// # Errors
    /// When a file, a variable or a flag does not fit.
    pub fn read(flags: &Flags) -> Result<Self, ConfigError> {
        let path = Self::file(flags);
        let file = match &path {
            Some(path) => Some((path.as_path(), read_file(path)?)),
            None => None,
        };
        Self::combine(file, |name| std::env::var(name).ok(), flags)
    }

    /// The file that settings are read from, if there is one.
    #[must_use]
    pub fn file(flags: &Flags) -> Option<PathBuf> {
        flags.config.clone().or_else(|| places().into_iter().find(|path| path.is_file()))
    }

    /// Puts file, variables and flags together.
    ///
    /// # Errors
    /// When one of them does not fit.
    pub fn combine(
        file: Option<(&Path, String)>,
        variable: impl Fn(&str) -> Option<String>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        let mut sources = Vec::new();
        let mut table = Table::new();
        if let Some((path, text)) = file {
            table = text.parse().map_err(|e: toml::de::Error| ConfigError::Syntax {
                path: path.to_owned(),
                reason: e.to_string(),
            })?;
            sources.push(path.display().to_string());
        }
        for key in keys() {
            let name = format!("WOOL_{}", key.to_uppercase());
            if let Some(text) = variable(&name).filter(|text| !text.is_empty()) {
                table.insert(key, scalar(&text));
                sources.push(name);
            }
        }
        let said = [
            ("listen", flags.listen.clone()),
            ("state", flags.state.as_ref().map(|path| path.display().to_string())),
            ("python", flags.python.clone()),
            ("user", flags.user.clone()),
        ];
        for (key, text) in said {
            if let Some(text) = text {
                table.insert(key.to_owned(), Value::String(text));
                sources.push(format!("--{key}"));
            }
        }
        if flags.strict {
            table.insert("strict".to_owned(), Value::Boolean(true));
            sources.push("--strict".to_owned());
        }
        let config: Self = table.try_into().map_err(|e: toml::de::Error| ConfigError::Value {
            sources: sources.join(", "),
            reason: e.message().to_owned(),
        })?;
        if config.tls_certificate.is_some() != config.tls_key.is_some() {
            return Err(ConfigError::HalfOfTls);
        }
        // Whether there is a token is seen when the worker starts; without TLS it takes one in any case.
        let tls = config.tls_certificate.is_some();
        let asks = tls && config.tokens != Demand::Off;
        Unprotected::check(config.listen, tls, asks).map_err(ConfigError::Unprotected)?;
        if !config.isolation.forks() && config.zygotes() != ZygotePolicy::None {
            return Err(ConfigError::NothingForks(config.isolation));
        }
        if config.zygotes() == ZygotePolicy::Static && config.zygote_seed.is_none() {
            return Err(ConfigError::NoSeed);
        }
        config.indexes().map_err(ConfigError::Packages)?;
        let lists = [("egress_allow", &config.egress_allow), ("egress_deny", &config.egress_deny)];
        for (setting, list) in lists {
            let entries = list.0.len();
            if entries > MOST_RULES {
                return Err(ConfigError::TooManyRules { setting, entries });
            }
        }
        Ok(config)
    }

    /// What is said of processors.
    #[must_use]
    pub fn cpu_bounds(&self) -> CpuBounds {
        let processors = |cpus: Option<Cpus>| cpus.map(|cpus| cpus.0);
        CpuBounds { default: processors(self.cpu), most: processors(self.cpu_most) }
    }

    /// How large a package may be.
    #[must_use]
    pub fn package_bounds(&self) -> Bounds {
        Bounds { bytes: self.package_bytes.0, files: self.package_files }
    }

    /// What functions may name as places of packages.
    ///
    /// # Errors
    /// When one of `package_urls` is no address.
    pub fn indexes(&self) -> Result<Indexes, IndexError> {
        let variable = |name: &str| std::env::var(name).ok();
        Indexes::new(self.indexes.clone(), self.package_urls.clone(), variable)
    }

    /// Memory of a build, in bytes.
    #[must_use]
    pub fn build_memory(&self) -> u64 {
        self.build_memory.map_or((total_memory() / 2).min(4 << 30), |bytes| bytes.0)
    }

    /// Bytes of the bodies of all calls together; room for one at least.
    #[must_use]
    pub fn run_bodies(&self) -> u64 {
        let bytes = self.run_bodies.map_or((total_memory() / 8).min(1 << 30), |bytes| bytes.0);
        bytes.max(self.run_body.0)
    }

    /// Bytes of the bundles of all deploys together; room for one at least.
    #[must_use]
    pub fn deploy_bodies(&self) -> u64 {
        let one = self.deploy_body.0;
        self.deploy_bodies.map_or(one.saturating_mul(4), |bytes| bytes.0).max(one)
    }

    /// Bytes of bodies of calls, and of bundles, that come through the Unix socket: an eighth of what may come over TCP, which
    /// cannot take it away. Room for one of each at least.
    #[must_use]
    pub fn own_bodies(&self) -> (u64, u64) {
        let share = |of: u64, one: Bytes| (of / 8).max(one.0);
        (share(self.run_bodies(), self.run_body), share(self.deploy_bodies(), self.deploy_body))
    }

    /// Which zygotes exist.
    #[must_use]
    pub fn zygotes(&self) -> ZygotePolicy {
        let default =
            if self.isolation.forks() { ZygotePolicy::Utility } else { ZygotePolicy::None };
        self.zygotes.unwrap_or(default)
    }
}

/// Of this machine, in bytes.
fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

/// Every key that a configuration may hold.
fn keys() -> Vec<String> {
    // A key whose default is "none" is missing from the table that the defaults make.
    let optional = [
        "tls_certificate",
        "tls_key",
        "admin_group",
        "secret_key_file",
        "user",
        "python",
        "run_bodies",
        "deploy_bodies",
        "connections",
        "memory",
        "handler_cache_bytes",
        "zygote_bytes",
        "zygotes",
        "zygote_seed",
        "build_memory",
        "sandboxes",
        "creations",
        "cpu_most",
        "cpu",
    ];
    let mut keys: Vec<String> =
        Table::try_from(Config::default()).unwrap_or_default().keys().cloned().collect();
    keys.extend(optional.map(str::to_owned));
    keys
}

/// A list of texts, or one text of words: a variable holds no list.
fn words<'de, D: Deserializer<'de>, T: FromStr<Err = E>, E: Display>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Said {
        Text(String),
        List(Vec<String>),
    }
    let all = match Said::deserialize(from)? {
        Said::Text(text) => text.split_whitespace().map(str::to_owned).collect(),
        Said::List(all) => all,
    };
    all.iter().map(|one| one.parse().map_err(D::Error::custom)).collect()
}

/// A variable's text as TOML would have it: `true` and `10` are no strings, all else is.
fn scalar(text: &str) -> Value {
    match (text.parse::<bool>(), text.parse::<i64>()) {
        (Ok(flag), _) => Value::Boolean(flag),
        (_, Ok(number)) => Value::Integer(number),
        _ => Value::String(text.to_owned()),
    }
}

fn places() -> Vec<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    user.into_iter()
        .chain([PathBuf::from("/etc")])
        .map(|dir| dir.join("lambswool/config.toml"))
        .collect()
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combine(
        file: &str,
        variables: &[(&str, &str)],
        flags: &Flags,
    ) -> Result<Config, ConfigError> {
        let variable =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Config::combine(Some((Path::new("c.toml"), file.to_owned())), variable, flags)
    }

    #[test]
    fn a_flag_beats_a_variable_and_a_variable_beats_the_file() {
        let file = "listen = '127.0.0.1:1'\nqueue = 5\nidle = 30\nrun_body = '1MiB'";
        let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
        let variables =
            [("WOOL_LISTEN", "127.0.0.1:2"), ("WOOL_QUEUE", "7"), ("WOOL_ZYGOTES", "none")];
        let config = combine(file, &variables, &flags).unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.queue, 7);
        assert_eq!(config.zygotes(), ZygotePolicy::None);
        assert_eq!(config.idle, Span(Duration::from_secs(30)));
        assert_eq!(config.run_body, Bytes(1 << 20));
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_the_known_ones() {
        let refused =
            combine("lisen = '127.0.0.1:1'", &[], &Flags::default()).unwrap_err().to_string();
        assert!(refused.contains("lisen") && refused.contains("listen"), "{refused}");
    }

    #[test]
    fn an_address_that_others_can_reach_is_refused() {
        let refused = combine("listen = '0.0.0.0:8470'", &[], &Flags::default()).unwrap_err();
        assert!(matches!(refused, ConfigError::Unprotected(_)), "{refused}");
        assert!(combine("listen = '[::1]:0'", &[], &Flags::default()).is_ok());
        let tls = "listen = '0.0.0.0:8470'\ntls_certificate = 'c.pem'\ntls_key = 'k.pem'";
        assert!(combine(tls, &[], &Flags::default()).is_ok());
        let off = combine(tls, &[("WOOL_TOKENS", "off")], &Flags::default()).unwrap_err();
        assert!(off.to_string().contains("wool token create"), "{off}");
        let half = combine("tls_key = 'k.pem'", &[], &Flags::default()).unwrap_err();
        assert!(matches!(half, ConfigError::HalfOfTls));
    }

    #[test]
    fn indexes_are_a_list_or_words_and_hold_no_credentials() {
        let file = "indexes = ['corp=https://c.example/simple', 'https://d.example/simple']";
        let listed = combine(file, &[], &Flags::default()).unwrap();
        let words = ("WOOL_INDEXES", "corp=https://c.example/simple https://d.example/simple");
        let said = combine("", &[words], &Flags::default()).unwrap();
        assert_eq!((listed.indexes.len(), &listed.indexes), (2, &said.indexes));
        let secret = combine("indexes = 'https://me:hunter2@c.example'", &[], &Flags::default());
        let secret = secret.unwrap_err().to_string();
        assert!(secret.contains("UV_INDEX_CORP_PASSWORD"), "{secret}");
        let local = combine("package_urls = ['/wheels']", &[], &Flags::default()).unwrap_err();
        assert!(local.to_string().contains("package_urls"), "{local}");
    }

    #[test]
    fn zygotes_are_refused_where_nothing_can_be_forked() {
        let general = ("WOOL_ISOLATION", "general");
        let config = combine("", &[general], &Flags::default()).unwrap();
        assert_eq!((config.isolation, config.zygotes()), (Isolation::GENERAL, ZygotePolicy::None));
        let refused = combine("zygotes = 'root'", &[general], &Flags::default()).unwrap_err();
        assert!(matches!(refused, ConfigError::NothingForks(Isolation::GENERAL)), "{refused}");
        assert!(combine("isolation = 'sock'\nzygotes = 'root'", &[], &Flags::default()).is_ok());
        let misspelt = combine("isolation = 'docker'", &[], &Flags::default()).unwrap_err();
        assert!(misspelt.to_string().contains("lean, sock or general"), "{misspelt}");
    }

    #[test]
    fn processors_are_numbers_in_a_file_and_texts_in_a_variable() {
        let config = combine("cpu = 0.5", &[("WOOL_CPU_MOST", "1.5")], &Flags::default()).unwrap();
        let bounds = config.cpu_bounds();
        assert_eq!(bounds.default.unwrap().number(), 0.5);
        assert_eq!(bounds.most.unwrap().number(), 1.5);
        let refused = combine("cpu = '50%'", &[], &Flags::default()).unwrap_err().to_string();
        assert!(refused.contains("0.5 for half of one"), "{refused}");
        assert!(combine("", &[], &Flags { strict: true, ..Flags::default() }).unwrap().strict);
    }

    #[test]
    fn a_static_tree_has_to_be_named() {
        let refused = combine("zygotes = 'static'", &[], &Flags::default()).unwrap_err();
        assert!(refused.to_string().contains("zygote_seed"), "{refused}");
        let named =
            combine("zygotes = 'static'\nzygote_seed = 'tree.json'", &[], &Flags::default());
        assert_eq!(named.unwrap().zygotes(), ZygotePolicy::Static);
    }

    #[test]
    fn more_rules_than_the_proxy_takes_are_refused_by_the_name_of_their_setting() {
        for (setting, variable) in
            [("egress_allow", "WOOL_EGRESS_ALLOW"), ("egress_deny", "WOOL_EGRESS_DENY")]
        {
            let list = |entries: usize| vec!["10.0.0.0/8"; entries].join(",");
            let read = |entries| combine("", &[(variable, &list(entries))], &Flags::default());
            assert!(read(MOST_RULES).is_ok());
            let refused = read(MOST_RULES + 1).unwrap_err().to_string();
            assert!(refused.starts_with(setting) && refused.contains("512"), "{refused}");
        }
    }

    #[test]
    fn every_setting_has_a_variable() {
        let optional = combine(
            "",
            &[("WOOL_CREATIONS", "3"), ("WOOL_PYTHON", "3.12"), ("WOOL_ZYGOTE_BYTES", "1GiB")],
            &Flags::default(),
        );
        let config = optional.unwrap();
        assert_eq!((config.creations, config.python.as_deref()), (Some(3), Some("3.12")));
        assert_eq!(config.zygote_bytes, Some(Bytes(1 << 30)));
        assert_eq!(keys().len(), 53);
    }
}
