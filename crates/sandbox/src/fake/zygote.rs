//! A fake zygote.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::instance::FakeInstance;
use super::recorded::import;
use super::{Operation, Shared};
use crate::{
    Imports, Instance, InstanceSpec, Pending, ProviderError, Sandbox, SandboxId, Zygote, ZygoteSpec,
};

/// Stands for a zygote's process: whether it runs, and its modules. Lives as long as the zygote.
#[derive(Debug)]
pub(super) struct Process {
    alive: AtomicBool,
    /// All modules, inherited ones first.
    pub(super) modules: Vec<String>,
}

impl Process {
    pub(super) fn kill(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }
}

#[derive(Debug)]
pub(super) struct FakeZygote {
    id: SandboxId,
    spec: ZygoteSpec,
    imports: Imports,
    bytes: u64,
    age: Duration,
    process: Arc<Process>,
    shared: Arc<Shared>,
}

impl FakeZygote {
    /// Runs the imports, then makes the zygote.
    pub(super) async fn make(
        shared: &Arc<Shared>,
        spec: ZygoteSpec,
        parent: Option<&Self>,
    ) -> Result<Self, ProviderError> {
        let recorded = Arc::clone(&shared.state().recorded);
        let had = parent.map_or(&[][..], |parent| &parent.process.modules);
        let (imports, bytes) = import(&spec.imports, had, &recorded).await;
        let new = imports.files.iter().map(|file| file.module.clone());
        let modules = had.iter().cloned().chain(new).collect();
        let id = shared.id();
        if spec.imports.iter().any(|module| module == "dies") {
            let reason = "while importing: its process ended".to_owned();
            return Err(ProviderError::ZygoteLost { id, reason });
        }
        let process = Arc::new(Process { alive: AtomicBool::new(true), modules });
        let mut state = shared.state();
        state.zygotes.insert(id, Arc::downgrade(&process));
        state.census.zygotes += 1;
        match parent {
            Some(_) => {
                state.census.derived_zygotes += 1;
                state.derived_ms += imports.milliseconds;
            }
            None => state.census.created_zygotes += 1,
        }
        let (bytes, age) = (state.settings.zygote_bytes + bytes, state.settings.zygote_age);
        Ok(Self { id, spec, imports, bytes, age, process, shared: Arc::clone(shared) })
    }

    fn answers(&self) -> Result<(), ProviderError> {
        if self.alive() {
            return Ok(());
        }
        Err(ProviderError::ZygoteLost { id: self.id, reason: "its process ended".to_owned() })
    }
}

impl Sandbox for FakeZygote {
    fn id(&self) -> SandboxId {
        self.id
    }

    fn memory(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn alive(&self) -> bool {
        self.process.alive.load(Ordering::SeqCst)
    }
}

impl Zygote for FakeZygote {
    fn spec(&self) -> &ZygoteSpec {
        &self.spec
    }

    fn imports(&self) -> &Imports {
        &self.imports
    }

    fn age(&self) -> Duration {
        self.age
    }

    fn derive(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        Box::pin(async move {
            self.spec.check_derive(&spec)?;
            let latency = self.shared.settings().derive;
            self.shared.begin(Operation::Derive, Some(self.id), latency).await?;
            self.answers()?;
            Ok(Box::new(Self::make(&self.shared, spec, Some(self)).await?) as Box<dyn Zygote>)
        })
    }

    fn fork(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        Box::pin(async move {
            self.spec.check_fork(&spec)?;
            let latency = self.shared.settings().fork;
            self.shared.begin(Operation::Fork, Some(self.id), latency).await?;
            self.answers()?;
            let had = self.process.modules.clone();
            let made = FakeInstance::make(&self.shared, Some(self.id), had)
                .map_err(ProviderError::step("socketpair"))?;
            self.shared.state().forked_from.push((self.id, self.spec.imports.clone()));
            Ok(Box::new(made) as Box<dyn Instance>)
        })
    }
}

impl Drop for FakeZygote {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.zygotes.remove(&self.id);
        state.census.zygotes -= 1;
    }
}
