//! The warden's state, and what all commands do with it. The commands themselves are further
//! `impl Warden` blocks, in the file of their subject.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;

use sys::process::PidFd;

use crate::cgroup::pacemaker::Pacemaker;
use crate::cgroup::{Cgroups, Group};
use crate::confine::filter::Filters;
use crate::isolation::Isolation;
use crate::limits::{Cpu, Limits, Network};
use crate::network::proxies::Proxies;
use crate::outcome::{CommandError, kernel};
use crate::process::shared_namespaces::SharedNamespaces;
use crate::protocol::{Host, VERSION};
use crate::rootfs::root::Root;
use crate::rootfs::view::MAX_VIEWS;
use crate::rootfs::{Roots, attach_proc, can_attach_proc};
use crate::sandbox::identity::{Identities, MAX_AHEAD};
use crate::sandbox::record::Sandbox;
use crate::uids::Uids;

/// Maximum number of sandboxes that the warden knows.
const MAX_SANDBOXES: u64 = 16_000;

/// Descriptors of the warden for one sandbox: its root and process, five files of its cgroup (where
/// there are three hierarchies), and a derived zygote's namespace or a root zygote's pipe.
const DESCRIPTORS_PER_SANDBOX: u64 = 8;

/// Descriptors for the warden itself, its views, what it makes ahead, and the making of one
/// sandbox.
const DESCRIPTORS_OF_WARDEN: u64 = 64 + (MAX_VIEWS + MAX_AHEAD) as u64;

/// The warden's whole state.
#[derive(Debug)]
pub struct Warden {
    pub(crate) proxies: Proxies,
    /// Dropped before the namespaces, which wait for all of the warden's children.
    pub(crate) pacemaker: Option<Pacemaker>,
    pub(crate) namespaces: SharedNamespaces,
    pub(crate) roots: Roots,
    pub(crate) cgroups: Cgroups,
    pub(crate) uids: Uids,
    pub(crate) sandboxes: HashMap<u64, Sandbox>,
    pub(crate) dying: VecDeque<u64>,
    /// Cgroups of earlier instances that no zygote forked, ready for the next ones.
    pub(crate) idle_groups: Vec<Group>,
    pub(crate) identities: Identities,
    pub(crate) filters: Filters,
    pub(crate) host: Host,
}

impl Warden {
    /// The warden's state before the first command; `roots` are those of the isolation,
    /// `descriptors` is this process's limit.
    #[must_use]
    pub fn new(
        namespaces: SharedNamespaces,
        roots: Roots,
        cgroups: Cgroups,
        uids: Uids,
        isolation: Isolation,
        descriptors: u64,
    ) -> Self {
        let held = descriptors.saturating_sub(DESCRIPTORS_OF_WARDEN) / DESCRIPTORS_PER_SANDBOX;
        let scopes = sys::probe::landlock() >= 6;
        let host = Host {
            version: VERSION,
            cgroups: cgroups.layout(),
            late_mounts: roots.late(),
            proc: !isolation.forks() || roots.late() && can_attach_proc(),
            isolation,
            scopes,
            cpu: cgroups.limits_cpu(),
            sandboxes: held.clamp(1, MAX_SANDBOXES),
        };
        // Without it all works as well, only slower now and then.
        let pacemaker = Pacemaker::start(&cgroups).ok().flatten();
        Self {
            proxies: Proxies::default(),
            pacemaker,
            filters: Filters::build(scopes, isolation),
            namespaces,
            roots,
            cgroups,
            uids,
            sandboxes: HashMap::new(),
            dying: VecDeque::new(),
            idle_groups: Vec::new(),
            identities: Identities::default(),
            host,
        }
    }

    /// Attaches `/proc` to an instance's root, unless it has mounted its own.
    pub(crate) fn show_processes(&self, root: &Root, process: &PidFd) -> Result<(), CommandError> {
        if self.host.proc && self.host.isolation.forks() {
            attach_proc(root.as_fd(), process, self.host.isolation)
                .map_err(kernel("attach /proc"))?;
        }
        Ok(())
    }

    /// Limits the processors of a sandbox whose process exists, if its limits say so.
    pub(crate) fn limit_cpu(&self, group: &Group, cpu: Cpu) -> Result<(), CommandError> {
        if cpu == Cpu::UNLIMITED {
            return Ok(());
        }
        self.cgroups.limit_cpu(group, cpu).map_err(kernel("limit processors"))
    }

    /// Limits the kernel's socket buffers of a sandbox that may have connections by its memory
    /// limit.
    pub(crate) fn limit_sockets(
        &self,
        group: &Group,
        network: Network,
        limits: Limits,
    ) -> Result<(), CommandError> {
        if network == Network::None {
            return Ok(());
        }
        self.cgroups.limit_sockets(group, limits.memory_bytes).map_err(kernel("limit sockets"))
    }

    pub(crate) fn find(&mut self, sandbox: u64) -> Result<&mut Sandbox, CommandError> {
        match self.sandboxes.get_mut(&sandbox) {
            Some(found) if !found.dying => Ok(found),
            _ => Err(CommandError::Wrong("no such sandbox")),
        }
    }
}
