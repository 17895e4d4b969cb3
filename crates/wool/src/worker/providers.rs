//! Containers and micro-VMs as one provider: what a sandbox is stands in its specification.

use std::path::Path;

use container::Containers;
use engine::EngineConfig;
use sandbox::{
    Cpu, Instance, InstanceSpec, Kind, Pending, Provider, ProviderError, Zygote, ZygoteSpec,
};
use vmm::{Absent, Keep, Machines};

use crate::config::Config;

/// Makes whatever is asked for.
#[derive(Debug)]
pub(crate) struct Providers {
    containers: Containers,
    machines: Result<Machines, Absent>,
}

impl Providers {
    /// On top of one warden, on a state directory.
    pub(crate) fn new(containers: Containers, state: &Path, config: &Config) -> Self {
        let machines = if config.microvms {
            Machines::new(
                &containers,
                state,
                config.internals.spares,
                config.cpu_bounds().bounded(Cpu::default()),
                // As old as a machine gets that was never on disk.
                Keep { bytes: config.snapshot_bytes.0, age: EngineConfig::default().zygote_age },
            )
        } else {
            Err(Absent::SwitchedOff)
        };
        if let Err(absent) = &machines {
            tracing::info!(%absent, "functions run in containers only");
        }
        Self { containers, machines }
    }

    /// Has one made by who makes sandboxes of a kind. That there can be no machines may be found out over the first; who
    /// makes them is then another.
    async fn make<'a, T>(
        &'a self,
        kind: Kind,
        make: impl Fn(&'a dyn Provider) -> Pending<'a, T>,
    ) -> Result<T, ProviderError> {
        match make(self.of(kind)?).await {
            Err(ProviderError::Absent(_)) => make(self.of(kind)?).await,
            made => made,
        }
    }

    /// Who makes sandboxes of a kind.
    fn of(&self, kind: Kind) -> Result<&dyn Provider, ProviderError> {
        let machines = self.machines.as_ref();
        let machines = machines.and_then(|machines| machines.absent().map_or(Ok(machines), Err));
        match (kind, machines) {
            (Kind::Container, _) | (Kind::MicrovmOrContainer, Err(_)) => Ok(&self.containers),
            (Kind::Microvm | Kind::MicrovmOrContainer, Ok(machines)) => Ok(machines),
            (Kind::Microvm, Err(absent)) => Err(ProviderError::Absent(absent.to_string())),
        }
    }
}

impl Provider for Providers {
    fn create_zygote(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        Box::pin(async move { self.make(spec.kind, |by| by.create_zygote(spec.clone())).await })
    }

    fn create_instance(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        Box::pin(async move { self.make(spec.kind, |by| by.create_instance(spec.clone())).await })
    }

    fn reaping(&self) -> usize {
        self.containers.reaping()
    }

    fn lacks(&self, kind: Kind) -> Option<String> {
        self.of(kind).err().map(|error| error.to_string())
    }

    fn renew(&self) {
        self.machines.iter().for_each(Provider::renew);
    }
}
