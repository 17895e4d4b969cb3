//! The settings themselves: what each means, and what holds where nothing is said.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use container::Isolation;
use egress::Rule;
use engine::ZygotePolicy;
use packages::indexes::{Index, IndexError, Indexes};
use packages::installer::Bounds;
use sandbox::CpuBounds;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use sys::probe::total_memory;

use super::Listed;
use crate::access::Demand;
use crate::networks::Pattern;
use crate::quotas::TenantLimits;
use crate::state;
use function::quantity::{Bytes, Cpus, Span};

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
    /// Where HTTP is served: an address, or `localhost`, and a port; port 0 takes a free one. One that other machines reach
    /// takes TLS and a token. Default `127.0.0.1:8470`.
    #[serde(deserialize_with = "address")]
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
    /// Default: the one of which a base was made first; where there is no base yet one of uv's, else the `python3` of
    /// `PATH`, else another of pyenv's or the system's.
    pub python: Option<String>,
    /// Largest body of a call. Default 6 MiB.
    pub run_body: Bytes,
    /// Largest bundle of a deploy. Default 256 MiB.
    pub deploy_body: Bytes,
    /// Bodies of all calls over TCP together that are in memory, from their first byte to the end of their call, and replies of
    /// more than 64 KiB until they have been read. A tenant has at most as much as is still free: half of all, when it is
    /// alone. Beyond, a call is told to come back. The Unix socket has an eighth of that besides. Default: an eighth of the
    /// machine's memory, at most 1 GiB.
    pub run_bodies: Option<Bytes>,
    /// Bundles of all deploys over TCP together that lie on the disk until they are deployed, shared out among tenants likewise;
    /// of the Unix socket an eighth besides, two at least. Default: four times `deploy_body`.
    pub deploy_bodies: Option<Bytes>,
    /// Most connections over TCP at once. Beyond, the one that has been idle longest is closed; where none is idle, the
    /// newcomer gets 503. Default, and most: what the limit of open files leaves to them.
    pub connections: Option<usize>,
    /// How long a client may take to send the header of its next request, to send the first of a body, or to read the first
    /// of an answer; then it must send, or read, 64 KiB a second. A body may pause that long, and 10 seconds at most. Default
    /// 30 seconds.
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
    /// A tree of zygotes, each made when the worker starts or as soon as a function comes that it may serve: what `wool zygotes
    /// --json` printed, or nested `{"packages": ["name==version", …], "children": […]}`. Default: with `utility`, what this
    /// worker's zygotes were when it last stopped, for the functions that it has when it starts.
    pub zygote_seed: Option<PathBuf>,
    /// Package sets of which the worker makes zygotes when it starts, those of the functions deployed last first, beside the ones of
    /// `zygote_seed`. Default 8.
    pub prepared: usize,
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
    /// Disk space of the snapshots of micro-VMs' reference machines, from which they go on after a restart of the worker; the
    /// least recently used go. 0: none are kept. They hold what imports have read. Default 1 GiB.
    pub snapshot_bytes: Bytes,
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
    pub indexes: Listed<Index>,
    /// Addresses below which a requirement may name a file, as in `six @ https://…`.
    /// Default: none.
    pub package_urls: Listed<String>,
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
    /// Size at which a function's log is rotated, within a line of it. Default 10 MiB.
    pub log_bytes: Bytes,
    /// Bytes a second that a function may write to its log on the average, over all its calls, what says of each line whose
    /// it is included; `log_bytes` at once. What is more is dropped, and the log says how much. Default 1 MiB.
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
            prepared: 8,
            zygote_idle: Span(Duration::from_secs(3600)),
            idle: Span(Duration::from_secs(600)),
            slots: 4,
            spares: 8,
            isolation: Isolation::LEAN,
            microvms: true,
            snapshot_bytes: Bytes(1 << 30),
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
            indexes: Listed::default(),
            package_urls: Listed::default(),
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

impl Config {
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
        Indexes::new(self.indexes.0.clone(), self.package_urls.0.clone(), variable)
    }

    /// Memory of a build, in bytes.
    #[must_use]
    pub fn build_memory(&self) -> u64 {
        self.build_memory.map_or((total_memory() / 2).min(4 << 30), |bytes| bytes.0)
    }

    /// Bytes of the bodies and the replies of all calls together; room for one at least.
    #[must_use]
    pub fn run_bodies(&self) -> u64 {
        let bytes = self.run_bodies.map_or((total_memory() / 8).min(1 << 30), |bytes| bytes.0);
        bytes.max(self.of_a_call())
    }

    /// Bytes of the bundles of all deploys together; room for one at least.
    #[must_use]
    pub fn deploy_bodies(&self) -> u64 {
        let one = self.deploy_body.0;
        self.deploy_bodies.map_or(one.saturating_mul(4), |bytes| bytes.0).max(one)
    }

    /// Bytes of bodies of calls, and of bundles, that come through the Unix socket: an eighth of what may come over TCP, which
    /// cannot take it away. Room for two of each at least: its owner is one tenant.
    #[must_use]
    pub fn own_bodies(&self) -> (u64, u64) {
        let share = |of: u64, one: u64| (of / 8).max(one.saturating_mul(2));
        (
            share(self.run_bodies(), self.of_a_call()),
            share(self.deploy_bodies(), self.deploy_body.0),
        )
    }

    /// The larger one of a call's body and its reply.
    fn of_a_call(&self) -> u64 {
        self.run_body.0.max(self.reply_body.0)
    }

    /// Which zygotes exist.
    #[must_use]
    pub fn zygotes(&self) -> ZygotePolicy {
        let default =
            if self.isolation.forks() { ZygotePolicy::Utility } else { ZygotePolicy::None };
        self.zygotes.unwrap_or(default)
    }
}

/// An address with a port. The one name is that which every machine has, so that nothing depends on a resolver.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    let port = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok());
    port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .or_else(|| text.parse().ok())
        .ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is no address with a port: write for example 127.0.0.1:8470, localhost:8470 or [::1]:8470"
            ))
        })
}
