//! A fake zygote.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::instance::FakeInstance;
use super::{Operation, Shared};
use crate::{
    Imports, Instance, InstanceSpec, Pending, ProviderError, Sandbox, SandboxId, Zygote, ZygoteSpec,
};

/// Whether a zygote's process runs; outlives nothing but the zygote.
#[derive(Debug)]
pub(super) struct Process {
    alive: AtomicBool,
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
    process: Arc<Process>,
    shared: Arc<Shared>,
}

impl FakeZygote {
    /// Does the imports, then exists.
    pub(super) async fn make(shared: &Arc<Shared>, spec: ZygoteSpec, by: Operation) -> Self {
        let imports = import(&spec.imports).await;
        let id = shared.id();
        let process = Arc::new(Process { alive: AtomicBool::new(true) });
        let mut state = shared.state();
        state.zygotes.insert(id, Arc::downgrade(&process));
        state.census.zygotes += 1;
        match by {
            Operation::Derive => state.census.derived_zygotes += 1,
            _ => state.census.created_zygotes += 1,
        }
        let bytes = state.settings.zygote_bytes;
        Self { id, spec, imports, bytes, process, shared: Arc::clone(shared) }
    }

    fn answers(&self) -> Result<(), ProviderError> {
        if self.alive() {
            return Ok(());
        }
        Err(ProviderError::ZygoteLost { id: self.id, reason: "its process ended".to_owned() })
    }
}

/// What importing `modules` does is written in their names.
async fn import(modules: &[String]) -> Imports {
    let mut imports = Imports::default();
    for module in modules {
        match module.split_once(':') {
            Some(("slow", text)) => {
                let millis: u32 = text.parse().unwrap_or(0);
                tokio::time::sleep(Duration::from_millis(u64::from(millis))).await;
                imports.milliseconds += f64::from(millis);
            }
            _ if module == "threads" => imports.threads += 1,
            _ if module == "missing" => {
                imports.failed.push((module.clone(), "ModuleNotFoundError: missing".to_owned()));
            }
            _ if module == "stray" => {
                imports.files.push((module.clone(), "/tmp/stray.py".to_owned()))
            }
            _ => imports.files.push((module.clone(), format!("/opt/python/{module}/__init__.py"))),
        }
    }
    imports
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

    fn derive(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        Box::pin(async move {
            let latency = self.shared.settings().derive;
            self.shared.begin(Operation::Derive, Some(self.id), latency).await?;
            self.answers()?;
            Ok(Box::new(Self::make(&self.shared, spec, Operation::Derive).await) as Box<dyn Zygote>)
        })
    }

    fn fork(&self, _spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        Box::pin(async move {
            let latency = self.shared.settings().fork;
            self.shared.begin(Operation::Fork, Some(self.id), latency).await?;
            self.answers()?;
            let made = FakeInstance::make(&self.shared, Some(self.id))
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
