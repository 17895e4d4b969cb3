//! The settings themselves: what each means, and what holds where nothing is said.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use aws::{Client, Endpoint, Service};
use egress::{Rule, Rules};
use engine::ZygotePolicy;
use packages::indexes::{Index, IndexError, Indexes};
use packages::installer::Bounds;
use sandbox::CpuBounds;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use sys::probe::total_memory;

use super::declared::settings;
use super::{Internals, Listed};
use crate::state_directory as state;
use function::{Bytes, Cpus, Span};
use lambda_api::arn::Place;
use platform::access::Demand;
use platform::limits::quotas::TenantLimits;
use platform::network_policy::{Networks, Pattern};

/// What becomes of a package that has no wheel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildFromSource {
    /// It is built in a sandbox, without a network.
    #[default]
    Sandbox,
    /// Packages without a wheel are refused.
    Never,
}

settings! {
    /// All settings of a worker.
    pub struct Config {
        "Where it listens, and who may use it":
        /// The address and port at which HTTP is served. `localhost` is taken, too; port 0 takes a free one. An address that
        /// other machines reach needs TLS, and each request a token.
        #[serde(deserialize_with = "address")]
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8470)), "\"127.0.0.1:8470\"";
        /// The worker's certificate, PEM, with those that vouch for it behind it. TCP then speaks TLS. Read again at SIGHUP.
        tls_certificate: Option<PathBuf> = None, "\"/etc/lambswool/cert.pem\"";
        /// The certificate's private key, PEM.
        tls_key: Option<PathBuf> = None, "\"/etc/lambswool/key.pem\"";
        /// When calls on a loopback address take a token: `auto` (once the first token was made), `required` or `off`.
        /// Everything else over TCP always takes one, and the Unix socket none.
        tokens: Demand = Demand::Auto, "\"auto\"";
        /// A group whose members may do everything through the Unix socket. The worker's own user and root may in any case.
        /// The members must be able to reach the state directory. Default: none.
        admin_group: Option<String> = None, "\"wool\"";
        /// How long a client may pause: before a request's header, a body's first byte, or the first byte it reads. Then it
        /// must send, or read, 64 KiB a second; a body may pause for 10 seconds at most.
        client_timeout: Span = Span(Duration::from_secs(30)), "\"30s\"";

        "AWS Lambda's API":
        /// The number of the account that ARNs name: twelve digits. A request for another account is refused.
        #[serde(deserialize_with = "account")]
        lambda_account: String = "000000000000".to_owned(), "\"000000000000\"";
        /// The region that ARNs name. A request for another region is refused.
        #[serde(deserialize_with = "region")]
        lambda_region: String = "us-east-1".to_owned(), "\"us-east-1\"";
        /// Services of AWS's kind that the worker may ask, each as `name=address`: `s3` for code that a deploy names there,
        /// `sqs` for queues that functions get messages of. It asks with `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` of its own environment, for the default tenant alone.
        /// Default: none.
        lambda_endpoints: Listed<Endpoint> = Listed::default(), "[\"s3=http://127.0.0.1:7070\", \"sqs=http://127.0.0.1:9324\"]";

        "The worker itself":
        /// The state directory. Default: `/var/lib/lambswool` for root, else `$XDG_STATE_HOME/lambswool`.
        state: PathBuf = state::default_root(), "\"/var/lib/lambswool\"";
        /// The account that the worker runs as when root starts it. Only its warden then stays root. Default: the user who
        /// starts it.
        user: Option<String> = None, "\"lambswool\"";
        /// The file of the key that seals secrets: 64 hex digits. Default: the credential `lambswool-secret-key` of systemd,
        /// else `secret.key` in the state directory, which is made.
        secret_key_file: Option<PathBuf> = None, "\"/etc/lambswool/secret.key\"";
        /// Whether to refuse to start where a limit or a line of defence is not enforced. Else the worker warns, and each
        /// deploy's answer names it.
        strict: bool = false, "false";
        /// How long running calls may take to end when the worker stops.
        drain: Span = Span(Duration::from_secs(10)), "\"10s\"";

        "Calls":
        /// The largest body of a call.
        run_body: Bytes = Bytes(6 << 20), "\"6MiB\"";
        /// The largest body of a reply.
        reply_body: Bytes = Bytes(6 << 20), "\"6MiB\"";
        /// Calls that may wait for a sandbox, over all functions.
        queue: usize = 1000, "1000";
        /// The most sandboxes at once, over all functions; zygotes and what they keep ready count. Beyond, the least recently
        /// used idle instance makes room; where none is idle, a call gets 429. Default: what the machine allows; see
        /// `wool doctor`.
        sandboxes: Option<usize> = None, "2000";
        /// The most processors of any one sandbox, whatever its function says. It holds for instances, for zygotes while they
        /// import, for builds, and for all clones of one micro-VM together. Default: all.
        cpu_max: Option<Cpus> = None, "2";
        /// Processors of an instance whose function says nothing. Default: `cpu_max`.
        cpu_default: Option<Cpus> = None, "0.5";

        "What is kept in memory":
        /// Whether instances are kept, paused, for the next call.
        handler_cache: bool = true, "true";
        /// How long a kept instance waits for a call before it is destroyed.
        idle: Span = Span(Duration::from_secs(600)), "\"10m\"";
        /// Which zygotes are made: `utility` (those that save the calls most import time), `none` (every instance is a fresh
        /// interpreter), or, to measure against, `root`, `per-lock`, `paper` or `static`. Default: `utility`.
        zygotes: Option<ZygotePolicy> = None, "\"utility\"";
        /// Memory of kept instances and zygotes together, as measured; it goes where it saves the calls most time. Busy
        /// instances are not in it. Default: half of what is available when the worker starts.
        cache_memory: Option<Bytes> = None, "\"4GiB\"";

        "Micro-VMs":
        /// Whether functions that ask for a micro-VM get one.
        microvms: bool = true, "true";
        /// Disk space of snapshots of micro-VMs that have imported; with 0, none are kept. The least recently used go. They
        /// hold what imports have read.
        snapshot_bytes: Bytes = Bytes(1 << 30), "\"1GiB\"";

        "Networks of functions":
        /// Functions that may have `network = "egress"`: patterns of names such as `report-*`, or `acme/*` for a tenant's.
        /// Default: none.
        egress: Listed<Pattern> = Listed::default(), "[\"report-*\", \"acme/*\"]";
        /// Addresses that such functions may reach although they are not public, with a port or without. The most specific
        /// entry of this list, of `egress_deny` and of the worker's own list decides. At most 512 entries. Default: none.
        egress_allow: Listed<Rule> = Listed::default(), "[\"10.1.0.0/16:5432\"]";
        /// Addresses that no such function reaches. With `0.0.0.0/0` and `[::]/0`, all but those of `egress_allow`. At most 512
        /// entries. Default: none.
        egress_deny: Listed<Rule> = Listed::default(), "[\"0.0.0.0/0\"]";
        /// Functions that may have `network = "host"`: they reach what this host reaches, the worker's API included. Default:
        /// none.
        host_network: Listed<Pattern> = Listed::default(), "[\"metrics\"]";

        "Packages":
        /// The Python of functions that do not name one: a version, or the path of an interpreter. Default: the Python of which
        /// a base was made first; where there is no base, one of uv's, else the `python3` of `PATH`, else another of the
        /// system's.
        python: Option<String> = None, "\"3.12\"";
        /// The largest bundle of a deploy.
        deploy_body: Bytes = Bytes(256 << 20), "\"256MiB\"";
        /// Disk space of packages, code and bases; what no function uses goes, the least recently used first.
        install_cache_bytes: Bytes = Bytes(20 << 30), "\"20GiB\"";
        /// The largest package, unpacked, without its bytecode.
        package_bytes: Bytes = Bytes(4 << 30), "\"4GiB\"";
        /// What becomes of a package without a wheel: `sandbox` (it is built in one, without a network) or `never` (it is
        /// refused).
        build_from_source: BuildFromSource = BuildFromSource::Sandbox, "\"sandbox\"";
        /// Memory of a build; its files may take half of it. Default: 4 GiB, at most half of the machine's.
        build_memory: Option<Bytes> = None, "\"4GiB\"";
        /// How long one step of a build may take.
        build_timeout: Span = Span(Duration::from_secs(900)), "\"15m\"";
        /// How long a deploy may wait for package indexes, from its first question to its last download.
        index_timeout: Span = Span(Duration::from_secs(1800)), "\"30m\"";
        /// Indexes that functions may name, each as `name=address` or as an address. Those that the worker's environment names
        /// (`UV_DEFAULT_INDEX`, `UV_INDEX`) and the public one are allowed in any case. `UV_INDEX_<NAME>_USERNAME` and
        /// `_PASSWORD` are sent to the index of that name alone. Default: none.
        indexes: Listed<Index> = Listed::default(), "[\"corp=https://packages.example.org/simple\"]";
        /// Addresses below which a requirement may name a file, as in `six @ https://…`. Default: none.
        package_urls: Listed<String> = Listed::default(), "[\"https://wheels.example.org/\"]";

        "Tenants and logs":
        /// What each tenant may take of the machine: a table `[tenants.NAME]` with `functions`, `concurrency`,
        /// `calls_per_second` and `memory`. `[tenants."*"]` is for tenants without a table.
        tenants: BTreeMap<String, TenantLimits> = BTreeMap::new(), "{}";
        /// The size at which a function's log is rotated, within a line of it. Three files are kept.
        log_bytes: Bytes = Bytes(10 << 20), "\"10MiB\"";
        /// Bytes a second that a function may write to its log on average; `log_bytes` at once. What is more is dropped, and
        /// the log says how much.
        log_rate: Bytes = Bytes(1 << 20), "\"1MiB\"";
        table internals: Internals;
    }
}

impl Config {
    /// The part of the HTTP door.
    #[must_use]
    pub fn doors(&self) -> doors::Settings {
        doors::Settings {
            tokens: self.tokens,
            run_body: self.run_body,
            deploy_body: self.deploy_body,
            client_timeout: self.client_timeout,
            place: Place {
                partition: "aws".to_owned(),
                region: self.lambda_region.clone(),
                account: self.lambda_account.clone(),
            },
        }
    }

    /// A service that the operator named; none: there is none of that kind.
    #[must_use]
    pub fn service(&self, service: Service) -> Option<Client> {
        let endpoint = self.lambda_endpoints.0.iter().find(|one| one.service == service)?;
        Some(Client::new(endpoint.clone(), self.lambda_region.clone()))
    }

    /// Which functions may reach something.
    #[must_use]
    pub fn networks(&self) -> Networks {
        Networks::new(&self.egress.0, &self.host_network.0, self.egress_rules())
    }

    /// What bounds every function that may reach something.
    #[must_use]
    pub fn egress_rules(&self) -> Rules {
        let (allow, deny) = (self.egress_allow.0.clone(), self.egress_deny.0.clone());
        Rules { allow, deny, worker: Some(self.listen.port()) }
    }

    /// What is said of processors.
    #[must_use]
    pub fn cpu_bounds(&self) -> CpuBounds {
        let processors = |cpus: Option<Cpus>| cpus.map(|cpus| cpus.0);
        CpuBounds { default: processors(self.cpu_default), most: processors(self.cpu_max) }
    }

    /// How large a package may be.
    #[must_use]
    pub fn package_bounds(&self) -> Bounds {
        Bounds { bytes: self.package_bytes.0, files: self.internals.package_files }
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
        let bytes =
            self.internals.run_bodies.map_or((total_memory() / 8).min(1 << 30), |bytes| bytes.0);
        bytes.max(self.of_a_call())
    }

    /// Bytes of the bundles of all deploys together; room for one at least.
    #[must_use]
    pub fn deploy_bodies(&self) -> u64 {
        let one = self.deploy_body.0;
        self.internals.deploy_bodies.map_or(one.saturating_mul(4), |bytes| bytes.0).max(one)
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
        let default = if self.internals.container_recipe.forks() {
            ZygotePolicy::Utility
        } else {
            ZygotePolicy::None
        };
        self.zygotes.unwrap_or(default)
    }
}

/// Reads the number of an account: twelve digits.
fn account<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text);
    }
    Err(D::Error::custom(format!("{text:?} is no number of an account: write twelve digits")))
}

/// The name of a region.
fn region<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if Place::is_region(&text) {
        return Ok(text);
    }
    Err(D::Error::custom(format!("{text:?} is no region: write for example \"eu-west-1\"")))
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
