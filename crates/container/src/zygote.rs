//! A zygote, and the pools that it keeps for its forks.
//!
//! ```text
//!   slots:  prepared by the warden      ── land ──►   spares: landed, waiting for code   ── place ──► instance
//!           (namespaces, root, cgroup)                (only where mounts may come late)
//! ```
//! Both pools are filled off the request path; a fork that finds them empty makes what it needs
//! itself. Pools belong to one zygote: a slot's namespaces are made below its zygote's, and no
//! other zygote ever gets what one has held.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox::{
    Imports, Instance, InstanceSpec, Pending, ProviderError, Sandbox, SandboxId, Zygote, ZygoteSpec,
};
use sys::process::PidFd;
use tokio::io::unix::AsyncFd;
use warden::protocol::Command;

use crate::container::{ContainerInstance, warden_limits};
use crate::demand::{self, Demand};
use crate::fork::{LandedFork, Role, Slot};
use crate::handle::Handle;
use crate::imports::{Steps, import, left_something};
use crate::reach::network;
use crate::shared::Shared;
use crate::watch::watch;

/// Spares that are made at a time. The zygote forks one after the other, but the work before and
/// after the fork overlaps: one filler is hardly quicker than one client, so that after a wait the
/// pool would never fill up again.
const FILLERS: usize = 2;

/// How long spares outlast the load that they were made for.
const SURPLUS: Duration = Duration::from_secs(1);

/// A container that exists to be forked.
#[derive(Debug)]
pub(crate) struct ContainerZygote {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    handle: Handle,
    control: AsyncFd<OwnedFd>,
    process: PidFd,
    spec: ZygoteSpec,
    imports: Imports,
    slots: Mutex<VecDeque<Slot>>,
    spares: Mutex<VecDeque<LandedFork>>,
    demand: Mutex<Demand>,
    trimming: AtomicBool,
    fillers: AtomicUsize,
    /// Spares that are being made.
    landing: AtomicUsize,
}

fn lock<T>(pool: &Mutex<T>) -> MutexGuard<'_, T> {
    // A pool is whole between any two operations on it.
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ContainerZygote {
    /// Takes over a zygote that has said READY, and lets it import its modules in these `steps`.
    pub(crate) async fn new(
        shared: Arc<Shared>,
        handle: Handle,
        control: AsyncFd<OwnedFd>,
        process: PidFd,
        spec: ZygoteSpec,
        steps: &Steps,
    ) -> Result<Self, ProviderError> {
        let imports = import(&control, (&handle, &process), &spec, steps).await?;
        let inner = Arc::new(Inner {
            shared,
            handle,
            control,
            process,
            spec,
            imports,
            slots: Mutex::default(),
            spares: Mutex::default(),
            demand: Mutex::default(),
            trimming: AtomicBool::new(false),
            fillers: AtomicUsize::new(0),
            landing: AtomicUsize::new(0),
        });
        // A zygote that is unfit to be forked needs no pools.
        if !left_something(&inner.imports) {
            inner.fill();
        }
        Ok(Self { inner })
    }

    /// Makes a zygote by `make`. If its imports left something behind, and it does not know which
    /// one did, makes it once more, step by step.
    pub(crate) async fn make<M, F>(make: M) -> Result<Self, ProviderError>
    where
        M: Fn(Steps) -> F,
        F: Future<Output = Result<Self, ProviderError>>,
    {
        let made = make(Steps::AtOnce).await?;
        let imports = &made.inner.imports;
        if !left_something(imports) || !imports.left_by.is_empty() || imports.files.is_empty() {
            return Ok(made);
        }
        let steps = Steps::of(&imports.files);
        // Frees its memory and its name before another zygote takes as much.
        drop(made);
        make(steps).await
    }
}

impl Inner {
    /// Fills the pools in the background: [`FILLERS`] at most at a time.
    fn fill(self: &Arc<Self>) {
        let options = self.shared.options;
        if options.slots == 0 && options.spares == 0 {
            return;
        }
        let one_more = |fillers| (fillers < FILLERS).then_some(fillers + 1);
        if self.fillers.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            return;
        }
        // Weak: a zygote that is dropped must not be kept alive by its filler.
        let zygote = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                let Some(zygote) = zygote.upgrade() else {
                    return;
                };
                match zygote.fill_one().await {
                    Ok(true) => {}
                    Ok(false) => {
                        zygote.fillers.fetch_sub(1, Ordering::AcqRel);
                        zygote.trim();
                        return;
                    }
                    Err(error) => {
                        tracing::debug!(zygote = %zygote.handle.id, %error, "a pool was not filled");
                        zygote.fillers.fetch_sub(1, Ordering::AcqRel);
                        return;
                    }
                }
            }
        });
    }

    /// Releases surplus spares after a while, in one task at a time.
    fn trim(self: &Arc<Self>) {
        let many = |zygote: &Self| lock(&zygote.spares).len() > demand::ALWAYS;
        if !many(self) || self.trimming.swap(true, Ordering::AcqRel) {
            return;
        }
        let zygote = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SURPLUS).await;
                let Some(zygote) = zygote.upgrade() else {
                    return;
                };
                let wanted =
                    lock(&zygote.demand).spares(Instant::now(), zygote.shared.options.spares);
                // In a statement of its own: the surplus must not be dropped under the lock.
                let surplus = {
                    let mut spares = lock(&zygote.spares);
                    let keep = wanted.min(spares.len());
                    spares.split_off(keep)
                };
                drop(surplus);
                if !many(&zygote) {
                    zygote.trimming.store(false, Ordering::Release);
                    return;
                }
            }
        });
    }

    /// Adds one to the emptier pool; false when both are full.
    async fn fill_one(&self) -> Result<bool, ProviderError> {
        let options = self.shared.options;
        let late = self.handle.client.host().late_mounts;
        let wanted = lock(&self.demand).spares(Instant::now(), options.spares);
        if late {
            // Both numbers under one lock, here and where one arrives: otherwise two fillers would
            // see room for one each.
            let room = {
                let spares = lock(&self.spares);
                let take = |landing| (spares.len() + landing < wanted).then_some(landing + 1);
                self.landing.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok()
            };
            if room {
                let landed = self.land_spare().await;
                let mut spares = lock(&self.spares);
                self.landing.fetch_sub(1, Ordering::AcqRel);
                spares.push_back(landed?);
                return Ok(true);
            }
        }
        if lock(&self.slots).len() < options.slots {
            let slot = self.prepare().await?;
            lock(&self.slots).push_back(slot);
            return Ok(true);
        }
        Ok(false)
    }

    async fn land_spare(&self) -> Result<LandedFork, ProviderError> {
        let prepared = lock(&self.slots).pop_front();
        let slot = match prepared {
            Some(slot) => slot,
            None => self.prepare().await?,
        };
        slot.land(self.control.as_fd(), true).await
    }

    async fn prepare(&self) -> Result<Slot, ProviderError> {
        let client = &self.handle.client;
        let name = self.shared.new_name();
        let default = warden_limits(sandbox::Limits::default());
        let what = (Role::Instance, network(self.spec.network));
        Slot::prepare(client, name, self.handle.id, what, None, default).await
    }

    async fn fork(&self, spec: InstanceSpec) -> Result<ContainerInstance, ProviderError> {
        self.spec.check_fork(&spec)?;
        let place = |id: SandboxId| Command::Place {
            sandbox: id.0,
            packages: spec.packages.as_ref().map(ToString::to_string),
            code: spec.code.to_string(),
            opt: spec.opt.as_ref().map(ToString::to_string),
            limits: self.shared.of_instance(spec.limits),
        };
        let client = &self.handle.client;
        lock(&self.demand).note(Instant::now());
        // Each in a statement of its own: no pool is held across an await.
        let spare = lock(&self.spares).pop_front();
        let landed = if let Some(landed) = spare.filter(|landed| landed.process.alive()) {
            client.call(place(landed.handle.id), &[]).await?;
            landed
        } else {
            let prepared = lock(&self.slots).pop_front();
            let mut slot = match prepared {
                Some(slot) => slot,
                None => self.prepare().await?,
            };
            if slot.has_root() {
                // Sent with the fork: layers that are attached late are there before the code is
                // loaded.
                let command = place(slot.handle.id);
                let (placed, landed) =
                    tokio::join!(client.call(command, &[]), slot.land(self.control.as_fd(), false));
                placed?;
                landed?
            } else {
                let (_, made) = client.call(place(slot.handle.id), &[]).await?;
                let [root] = made.try_into().map_err(|_| crate::client::unexpected())?;
                slot.set_root(root);
                slot.land(self.control.as_fd(), false).await?
            }
        };
        let LandedFork { mut handle, channel, process } = landed;
        let output = handle.take_output();
        let handle = Arc::new(handle);
        let reach = self.shared.proxy.reach(&handle, &spec).await?;
        Ok(ContainerInstance { handle, channel: Some(channel), output, process, reach })
    }

    async fn derive(
        &self,
        spec: ZygoteSpec,
        steps: Steps,
    ) -> Result<ContainerZygote, ProviderError> {
        self.spec.check_derive(&spec)?;
        let packages = spec.packages.as_ref().map(ToString::to_string);
        let name = self.shared.new_name();
        let client = &self.handle.client;
        let slot = Slot::prepare(
            client,
            name,
            self.handle.id,
            (Role::Zygote, network(self.spec.network)),
            packages,
            self.shared.of_zygote(spec.limits),
        );
        let landed = slot.await?.land(self.control.as_fd(), false).await?;
        let control =
            watch(landed.channel).map_err(ProviderError::step("watch the control socket"))?;
        let shared = Arc::clone(&self.shared);
        ContainerZygote::new(shared, landed.handle, control, landed.process, spec, &steps).await
    }
}

impl Sandbox for ContainerZygote {
    fn id(&self) -> SandboxId {
        self.inner.handle.id
    }

    /// Includes its spares, which are dropped with it.
    fn memory(&self) -> io::Result<u64> {
        let spares = lock(&self.inner.spares);
        let spares = spares.iter().map(|spare| spare.handle.memory());
        spares.chain([self.inner.handle.memory()]).sum()
    }

    fn alive(&self) -> bool {
        self.inner.process.alive()
    }
}

impl Zygote for ContainerZygote {
    fn spec(&self) -> &ZygoteSpec {
        &self.inner.spec
    }

    fn imports(&self) -> &Imports {
        &self.inner.imports
    }

    fn derive(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        Box::pin(async move {
            let derive = |steps| self.inner.derive(spec.clone(), steps);
            let zygote = ContainerZygote::make(derive).await?;
            Ok(Box::new(zygote) as Box<dyn Zygote>)
        })
    }

    fn fork(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        Box::pin(async move {
            let forked = self.inner.fork(spec).await;
            self.inner.fill();
            Ok(Box::new(forked?) as Box<dyn Instance>)
        })
    }
}
