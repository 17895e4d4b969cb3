//! A reference machine, as the engine's zygote.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sandbox::{
    Imports, Instance, InstanceSpec, Layer, Limits, Pending, ProviderError, Sandbox, SandboxId,
    Zygote, ZygoteSpec,
};
use tokio::sync::mpsc;

use super::allowance::{Allowance, of_machine};
use super::family::{Family, Stage, answer};
use super::instance::MachineInstance;
use super::monitor_process::MonitorProcess;
use super::saving::{self, SnapshotTransfer};
use super::shared::Shared;
use super::snapshots::{Origin, StoredSnapshot};
use crate::MAX_MACHINES;
use crate::message::{CODE, Event, GUEST, Order, PACKAGES, Place};

/// Threads of a monitor: one for each clone, and one of the kernel's own for each.
const THREADS: u32 = 2 * MAX_MACHINES;
/// Bytes of the list of modules in one order.
const MODULES_BYTES: usize = 32 << 10;
/// Layers whose descriptors are kept open.
const MAX_LAYERS: usize = 64;

/// A frozen machine that clones are made of.
#[derive(Debug)]
pub(super) struct MachineZygote {
    shared: Arc<Shared>,
    family: Arc<Family>,
    spec: ZygoteSpec,
    imports: Imports,
    /// All imported modules, its ancestors' included.
    modules: Vec<String>,
    /// Age of the machine when this zygote was made: not zero if a snapshot was restored.
    age: Duration,
    /// Bytes of its memory before it had clones; 0 where the host cannot tell.
    bytes: u64,
    clone_bytes: u64,
    /// Bytes that a clone shares from the start, until it writes there.
    given_bytes: u64,
    opened: Mutex<HashMap<String, Arc<OwnedFd>>>,
}

impl MachineZygote {
    /// A machine that has imported `modules`: from its snapshot if there is a good one, else from
    /// the start.
    pub(super) async fn make(
        shared: Arc<Shared>,
        spec: ZygoteSpec,
        modules: Vec<String>,
    ) -> Result<Self, ProviderError> {
        let origin = Origin::new(&spec, &modules);
        if let Some(found) = find(&shared, &origin).await {
            let begun = Instant::now();
            match Self::restore(&shared, &spec, &modules, found).await {
                Ok(zygote) => {
                    let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
                    let zygote_id = zygote.id();
                    tracing::info!(zygote = %zygote_id, milliseconds, "a reference machine was restored from its snapshot");
                    return Ok(zygote);
                }
                Err(absent @ ProviderError::Absent(_)) => return Err(absent),
                Err(error) => {
                    tracing::warn!(%error, "the snapshot of a reference machine is refused");
                    // A refused snapshot is removed, unless the host was short of something, which
                    // says nothing about the file.
                    if !matches!(error, ProviderError::Exhausted { .. } | ProviderError::WardenGone)
                    {
                        shared.snapshots.iter().for_each(|snapshots| snapshots.forget(&origin));
                    }
                }
            }
        }
        Self::start(shared, spec, modules, origin).await
    }

    /// Has a monitor restore a snapshot.
    async fn restore(
        shared: &Arc<Shared>,
        spec: &ZygoteSpec,
        modules: &[String],
        found: StoredSnapshot,
    ) -> Result<Self, ProviderError> {
        let Monitor { family, mut told, layers, places } = Monitor::start(shared, spec).await?;
        let fds: Vec<_> =
            std::iter::once(found.file.as_fd()).chain(layers.iter().map(AsFd::as_fd)).collect();
        family.order(&Order::Restore { layers: places, spares: shared.spares }, &fds).await?;
        let frozen = answer(&family, &mut told, &mut Vec::new()).await?;
        let (shared, spec, modules) = (Arc::clone(shared), spec.clone(), modules.to_vec());
        Self::frozen(shared, family, spec, modules, found.imports, found.age, &frozen)
    }

    /// Has a monitor start an interpreter and import; then has it write a snapshot, off the path of
    /// calls.
    async fn start(
        shared: Arc<Shared>,
        spec: ZygoteSpec,
        modules: Vec<String>,
        origin: Origin,
    ) -> Result<Self, ProviderError> {
        let Monitor { family, mut told, layers, places } = Monitor::start(&shared, &spec).await?;
        let fds: Vec<_> = layers.iter().map(AsFd::as_fd).collect();
        let mut files = Vec::new();
        let (interpreter, started) = (spec.python.interpreter.clone(), Instant::now());
        family.order(&Order::Refer { interpreter, layers: places }, &fds).await?;
        let Event::Ready {} = answer(&family, &mut told, &mut files).await? else {
            return Err(unexpected(&family));
        };
        let (mut all, begun) = (Imports::default(), Instant::now());
        let path = spec.packages.iter().map(|_| PACKAGES.to_owned()).collect::<Vec<_>>();
        for some in in_orders(&modules) {
            let order = Order::Import { modules: some.to_vec(), path: path.clone() };
            family.order(&order, &[]).await?;
            let Event::Imported { imports } = answer(&family, &mut told, &mut files).await? else {
                return Err(unexpected(&family));
            };
            all.milliseconds += imports.milliseconds;
            all.threads = imports.threads;
            all.fds += imports.fds;
            all.left_by.extend(imports.left_by);
            all.variables.extend(imports.variables);
            all.failed.extend(imports.failed);
        }
        all.files = std::mem::take(&mut files);
        all.bound(begun.elapsed());
        family.order(&Order::Freeze { spares: shared.spares }, &[]).await?;
        let frozen = answer(&family, &mut told, &mut files).await?;
        let zygote = Self::frozen(shared, family, spec, modules, all, Duration::ZERO, &frozen)?;
        zygote.save(origin, started.elapsed(), told).await;
        Ok(zygote)
    }

    fn frozen(
        shared: Arc<Shared>,
        family: Family,
        spec: ZygoteSpec,
        modules: Vec<String>,
        imports: Imports,
        age: Duration,
        frozen: &Event,
    ) -> Result<Self, ProviderError> {
        let &Event::Frozen { clone_bytes, given_bytes } = frozen else {
            return Err(unexpected(&family));
        };
        let bytes = family.monitor.memory().unwrap_or(0);
        let (family, opened) = (Arc::new(family), Mutex::default());
        Ok(Self {
            shared,
            family,
            spec,
            imports,
            modules,
            age,
            bytes,
            clone_bytes,
            given_bytes,
            opened,
        })
    }

    /// Has the monitor write a snapshot, if snapshots are kept. It is completed off the path of
    /// calls; `told` receives the monitor's events.
    async fn save(&self, origin: Origin, age: Duration, told: mpsc::UnboundedReceiver<Event>) {
        if self.shared.snapshots.is_none() {
            return;
        }
        let piped = saving::pipe();
        let ordered = async {
            let (reader, writer) = piped?;
            let writer = writer.as_fd();
            self.family.order(&Order::Save {}, &[writer]).await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(reader)
        };
        match ordered.await {
            // Does not keep the family alive: when that ends, the pipe closes.
            Ok(pipe) => {
                let saving =
                    SnapshotTransfer { origin, age, imports: self.imports.clone(), pipe, told };
                tokio::spawn(saving.finish(Arc::clone(&self.shared)));
            }
            Err(error) => tracing::warn!(%error, "no snapshot of a reference machine is written"),
        }
    }

    async fn clone_for(&self, spec: InstanceSpec) -> Result<MachineInstance, ProviderError> {
        self.spec.check_fork(&spec)?;
        let mut wanted: Vec<(&Layer, &str)> = Vec::new();
        // The reference machine's own packages are attached already.
        let packages =
            spec.packages.iter().filter(|layer| self.spec.packages.as_ref() != Some(*layer));
        wanted.extend(packages.map(|layer| (layer, PACKAGES)));
        wanted.push((&spec.code, CODE));
        let mut layers = Vec::new();
        let mut opened = Vec::new();
        for (layer, at) in wanted {
            opened.push(self.open(layer).await?);
            layers.push(Place { layer: layer.to_string(), at: at.to_owned() });
        }
        let kind = SocketType::STREAM;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .map_err(ProviderError::step("make a channel"))?;
        let id = self.shared.containers.new_name();
        let state = self.family.expect(id.0, self.clone_bytes);
        let instance = MachineInstance::new(id, Arc::clone(&self.family), Arc::clone(&state), ours);
        let reset = !spec.reset.is_never();
        self.family.make_room(id.0, of_machine(spec.limits, self.given_bytes, reset));
        let order = Order::Clone { number: id.0, layers, limits: spec.limits, reset };
        let fds: Vec<BorrowedFd<'_>> =
            std::iter::once(theirs.as_fd()).chain(opened.iter().map(|fd| fd.as_fd())).collect();
        self.family.order(&order, &fds).await?;
        match state.beyond(&[Stage::Ordered]).await {
            Stage::Lives | Stage::Ended(_) => Ok(instance),
            Stage::Refused(what, true) => Err(ProviderError::Exhausted { what }),
            Stage::Refused(reason, false) => {
                Err(ProviderError::ZygoteLost { id: self.id(), reason })
            }
            Stage::Ordered | Stage::Lost => {
                let reason = "its monitor ended".to_owned();
                Err(ProviderError::ZygoteLost { id: self.id(), reason })
            }
        }
    }

    /// The descriptor of a layer, asked of the warden once.
    async fn open(&self, layer: &Layer) -> Result<Arc<OwnedFd>, ProviderError> {
        let name = layer.to_string();
        if let Some(found) = self.opened().get(&name) {
            return Ok(Arc::clone(found));
        }
        let fds = self.family.monitor.open(vec![name.clone()]).await?;
        let fd = Arc::new(fds.into_iter().next().ok_or_else(|| unexpected(&self.family))?);
        let mut opened = self.opened();
        if opened.len() >= MAX_LAYERS {
            opened.clear();
        }
        opened.insert(name, Arc::clone(&fd));
        Ok(fd)
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<OwnedFd>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A monitor before its first order, and the layers of its reference machine.
struct Monitor {
    family: Family,
    told: mpsc::UnboundedReceiver<Event>,
    layers: Vec<OwnedFd>,
    places: Vec<String>,
}

impl Monitor {
    async fn start(shared: &Shared, spec: &ZygoteSpec) -> Result<Self, ProviderError> {
        let allowance = Allowance::new(spec.limits);
        // Guests have limits of their own.
        let limits = Limits {
            memory_bytes: allowance.limit(),
            pids: THREADS,
            scratch_bytes: 0,
            scratch_inodes: 0,
            cpu: shared.cpu,
        };
        let (monitor, control) = MonitorProcess::start(&shared.containers, limits).await?;
        let missing_calls = Arc::clone(&shared.missing_calls);
        let (family, mut told) = Family::new(monitor, control, missing_calls, allowance)
            .map_err(ProviderError::step("watch the monitor"))?;
        let python = &spec.python;
        let mut layers = vec![
            (python.base.to_string(), "/".to_owned()),
            (python.guest.to_string(), GUEST.to_owned()),
        ];
        layers.extend(spec.packages.iter().map(|layer| (layer.to_string(), PACKAGES.to_owned())));
        let (names, places) = layers.into_iter().unzip();
        let layers = family.monitor.open(names).await?;
        // Before it runs a guest, its word is trusted: it moves functions into containers.
        match answer(&family, &mut told, &mut Vec::new()).await? {
            Event::Up {} => Ok(Self { family, told, layers, places }),
            Event::Unusable { reason } => Err(shared.without_machines(reason)),
            _ => Err(unexpected(&family)),
        }
    }
}

/// A good snapshot of a machine, if any are kept. Reads all of it, which takes a while.
async fn find(shared: &Arc<Shared>, origin: &Origin) -> Option<StoredSnapshot> {
    let (shared, origin) = (Arc::clone(shared), origin.clone());
    let find = move || shared.snapshots.as_ref()?.find(&origin);
    tokio::task::spawn_blocking(find).await.ok().flatten()
}

/// The modules, as many at a time as fit into an order; none makes an empty order, too.
fn in_orders(mut modules: &[String]) -> impl Iterator<Item = &[String]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = modules.iter().take_while(|module| {
            bytes += module.len() + 4;
            bytes <= MODULES_BYTES
        });
        let count = fits.count().max(1).min(modules.len());
        let (some, rest) = modules.split_at(count);
        modules = rest;
        Some(some).filter(|some| !some.is_empty())
    })
}

fn unexpected(family: &Family) -> ProviderError {
    let reason = "its monitor's answer does not fit the order".to_owned();
    ProviderError::ZygoteLost { id: family.monitor.id(), reason }
}

impl Sandbox for MachineZygote {
    fn id(&self) -> SandboxId {
        self.family.monitor.id()
    }

    /// The monitor's memory without its clones', which are counted by themselves: the reference
    /// machine, spares, machines with loaded code, and KVM's memory for each.
    fn memory(&self) -> io::Result<u64> {
        let all = self.family.monitor.memory()?;
        // A clone counts from its order on, before it exists.
        Ok(all.saturating_sub(self.family.clones_weigh()).max(self.bytes))
    }

    fn alive(&self) -> bool {
        self.family.alive()
    }
}

impl Zygote for MachineZygote {
    fn spec(&self) -> &ZygoteSpec {
        &self.spec
    }

    fn imports(&self) -> &Imports {
        &self.imports
    }

    fn age(&self) -> Duration {
        self.age
    }

    /// A reference machine of its own, with this one's imports and more: a frozen machine cannot go
    /// on.
    fn derive(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        Box::pin(async move {
            self.spec.check_derive(&spec)?;
            let modules = self.modules.iter().chain(&spec.imports).cloned().collect();
            let shared = Arc::clone(&self.shared);
            let zygote = Self::make(shared, spec, modules).await?;
            Ok(Box::new(zygote) as Box<dyn Zygote>)
        })
    }

    fn fork(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        Box::pin(async move { Ok(Box::new(self.clone_for(spec).await?) as Box<dyn Instance>) })
    }
}
