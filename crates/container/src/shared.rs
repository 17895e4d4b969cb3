//! What all containers of one provider share: the warden, settings, the proxy, and names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use egress::Rules;
use sandbox::{CpuBounds, Limits, SandboxId};

use crate::client::Client;
use crate::container::warden_limits;
use crate::reach::Proxy;

/// Settings of the provider.
#[derive(Clone, Copy, Debug)]
pub struct ContainerOptions {
    /// Slots that each zygote keeps prepared.
    pub slots: usize,
    /// Landed forks that a busy zygote keeps waiting for code; an idle one keeps two. They hide the
    /// fork, and the rare wait for a cgroup attach. Each costs about a megabyte.
    pub spares: usize,
    /// Bounds of every sandbox's share of the processors.
    pub cpu: CpuBounds,
}

impl Default for ContainerOptions {
    fn default() -> Self {
        Self { slots: 4, spares: 8, cpu: CpuBounds::NONE }
    }
}

/// State that all containers of one provider share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Arc<Client>,
    pub(crate) options: ContainerOptions,
    pub(crate) proxy: Proxy,
    names: AtomicU64,
    /// Released sandboxes that were not yet gone when the warden was last asked.
    pub(crate) reaping: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(client: Client, options: ContainerOptions, rules: Rules) -> Self {
        let (client, proxy) = (Arc::new(client), Proxy::new(rules));
        let (names, reaping) = (AtomicU64::new(0), AtomicUsize::new(0));
        Self { client, options, proxy, names, reaping }
    }

    /// The limits of an instance that requests these.
    pub(crate) fn of_instance(&self, asked: Limits) -> warden::protocol::Limits {
        warden_limits(Limits { cpu: self.options.cpu.of_instance(asked.cpu), ..asked })
    }

    /// The limits of a zygote that requests these.
    pub(crate) fn of_zygote(&self, asked: Limits) -> warden::protocol::Limits {
        warden_limits(Limits { cpu: self.options.cpu.bounded(asked.cpu), ..asked })
    }

    pub(crate) fn new_name(&self) -> SandboxId {
        SandboxId(self.names.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
