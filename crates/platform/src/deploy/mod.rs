//! Deploying: from uploaded bytes to a version that answers calls.
//!
//! ```text
//!   bundle ──► Workshop::admit ──► VersionRecord ──► Workshop::materialise ──► Registry::put ──► Engine::prepare
//!              (its files kept)    id = its hash     (layers on disk)         (durable)         (zygote, off the path)
//! ```
//!
//! Whatever fails before `put` leaves the current version as it was. What follows `put` cannot undo it: a zygote that does not come up costs the first call time, not its success.

pub mod builder;
pub mod guest;
pub mod installer;
mod layer;
pub mod pipeline;
pub(crate) mod precedence;
pub mod progress;
mod remake;
mod rollback;
mod runtime_set;
pub(crate) mod split;
pub mod workshop;

pub use rollback::{Earlier, RollBackError};

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::{Engine, Handler, fault};
use layers::Patience;
use sandbox::Network;
use store::Version;
use store::millis::truncate;
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::access::{Permit, to};
use crate::deploy::progress::Progress;
use crate::deploy::remake::UnderWay;
use crate::deploy::workshop::{Admitted, Bundle, MakeError, Workshop};
use crate::functions::{Function, Over, Put, Registry, RegistryError};
use crate::limits::quotas::Quotas;
use crate::limits::shares::{Share, Shares};
use crate::logs::Logs;
use crate::network_policy::Networks;
use crate::packages::retention::Usage;
use crate::secrets::{SecretError, Vault};
use function::WholeName;

/// Deploys that are made at the same time: each uses all processors, and may take many minutes.
const AT_ONCE: u64 = 3;

/// Between two looks for a moment without a deploy.
const LOOK: Duration = Duration::from_millis(50);

/// What is to be deployed: made from a permit.
#[derive(Debug)]
pub struct Order {
    name: WholeName,
    source: Source,
    temporary: bool,
    fresh: bool,
    over: Over,
}

/// What a version is made of.
#[derive(Debug)]
enum Source {
    /// Files that a client sent.
    Bundle(Bundle),
    /// A version that was deployed before.
    Version(Box<Version>),
}

impl Order {
    /// To deploy a bundle. `temporary`: lists leave the function out, and it is in memory alone. `fresh`: no call finds an
    /// instance that is there already.
    #[must_use]
    pub fn new(permit: &Permit<to::Deploy>, bundle: Bundle, temporary: bool, fresh: bool) -> Self {
        let (name, source) = (permit.function().clone(), Source::Bundle(bundle));
        Self { name, source, temporary, fresh, over: Over::Anything }
    }

    /// The same, for a function that must not be there yet, or must be as it was seen.
    #[must_use]
    pub fn over(self, over: Over) -> Self {
        Self { over, ..self }
    }

    /// To make a version current again: one that [`Deployer::earlier`] found.
    #[must_use]
    pub fn roll_back(permit: &Permit<to::RollBack>, version: Version) -> Self {
        let (name, source) = (permit.function().clone(), Source::Version(Box::new(version)));
        Self { name, source, temporary: false, fresh: false, over: Over::Anything }
    }
}

/// Takes bundles and makes them the current versions of functions.
#[derive(Debug)]
pub struct Deployer {
    workshop: Arc<dyn Workshop>,
    registry: Arc<Registry>,
    engine: Arc<Engine>,
    usage: Arc<Usage>,
    networks: Arc<Networks>,
    quotas: Arc<Quotas>,
    vault: Arc<Vault>,
    logs: Option<Arc<Logs>>,
    /// Deploys at a time, shared by tenants.
    turns: Arc<Shares>,
    under_way: UnderWay,
    index_timeout: Duration,
    stop: CancellationToken,
}

/// Why nothing was deployed.
#[derive(Debug, Error)]
pub enum DeployError {
    /// No version was made.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The version was made and could not be recorded.
    #[error(transparent)]
    Store(#[from] RegistryError),
    /// The function is gone, and its secrets could not be removed.
    #[error(transparent)]
    Secrets(#[from] SecretError),
    /// A function that was to go back to an earlier version is gone.
    #[error("{} was removed meanwhile: deploy it with `wool deploy`", .0.name())]
    Removed(WholeName),
    /// The client went away, or the worker stops.
    #[error("the deploy was given up, and nothing was deployed: deploy again")]
    GivenUp,
    /// The work ended without a result.
    #[error("the deploy broke off: see the worker's log")]
    BrokeOff,
}

impl Deployer {
    /// A deployer for one registry and engine, which waits for indexes as long as they take.
    #[must_use]
    pub fn new(
        workshop: Arc<dyn Workshop>,
        registry: Arc<Registry>,
        engine: Arc<Engine>,
        usage: Arc<Usage>,
        networks: Arc<Networks>,
        quotas: Arc<Quotas>,
        vault: Arc<Vault>,
    ) -> Self {
        let turns = Shares::new(AT_ONCE);
        let stop = CancellationToken::new();
        Self {
            workshop,
            registry,
            engine,
            usage,
            networks,
            quotas,
            vault,
            logs: None,
            turns,
            under_way: UnderWay::default(),
            index_timeout: Duration::MAX,
            stop,
        }
    }

    /// The same, of which a deploy waits for indexes no longer than that.
    #[must_use]
    pub fn waiting(self, index_timeout: Duration) -> Self {
        Self { index_timeout, ..self }
    }

    /// The same, which removes the logs of functions that are gone.
    #[must_use]
    pub fn tidying(self, logs: Arc<Logs>) -> Self {
        Self { logs: Some(logs), ..self }
    }

    /// Gives up the deploys that are under way, and those that would follow, unless their versions are made.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// How long the worker's own work waits for an index.
    #[must_use]
    pub fn patience(&self) -> Arc<Patience> {
        patience(self.index_timeout, self.stop.clone())
    }

    /// Holds off deploys until the returned share is dropped: layers that a deploy has made and not yet recorded look
    /// unused. Waits at most `patience` for a moment without a deploy; none: there was no such moment. A deploy never
    /// waits for a pause that has not begun: another deploy may take many minutes.
    pub async fn pause(&self, patience: Duration) -> Option<Share> {
        let until = Instant::now() + patience;
        loop {
            // Of all turns the owner is no tenant.
            match self.turns.try_take("", AT_ONCE) {
                Some(turns) => return Some(turns),
                None if Instant::now() >= until => return None,
                None => sleep(LOOK).await,
            }
        }
    }

    /// Deploys a bundle as a tenant's function. When the caller goes away before its version is made, it is given up; after
    /// that it goes on by itself. `ended` is told what came of it in any case.
    ///
    /// # Errors
    /// When nothing was deployed.
    pub async fn deploy(
        self: &Arc<Self>,
        order: Order,
        progress: Arc<dyn Progress + Send + Sync>,
        ended: impl FnOnce(&Result<Arc<Function>, DeployError>) + Send + 'static,
    ) -> Result<Arc<Function>, DeployError> {
        let (this, given_up) = (Arc::clone(self), self.stop.child_token());
        let _caller = given_up.clone().drop_guard();
        // A task of its own: a client that hangs up half-way must not leave a version recorded and not prepared.
        let work = tokio::spawn(async move {
            let deployed = this.run(order, given_up, progress).await;
            ended(&deployed);
            deployed
        });
        work.await.unwrap_or(Err(DeployError::BrokeOff))
    }

    async fn run(
        &self,
        order: Order,
        given_up: CancellationToken,
        progress: Arc<dyn Progress + Send + Sync>,
    ) -> Result<Arc<Function>, DeployError> {
        let Order { name, source, temporary, fresh, over } = order;
        let turn = given_up.run_until_cancelled(self.turns.take(name.tenant(), 1)).await;
        let turn = turn.ok_or(DeployError::GivenUp)?;
        fault::point("install_cache").await;
        let (workshop, registry) = (Arc::clone(&self.workshop), Arc::clone(&self.registry));
        let networks = Arc::clone(&self.networks);
        let (engine, usage) = (Arc::clone(&self.engine), Arc::clone(&self.usage));
        let heard = Arc::clone(&progress);
        let patience = patience(self.index_timeout, given_up.clone());
        let most = self.quotas.functions(name.tenant());
        // Before all the work, and once more when it is recorded.
        if !temporary {
            registry.check_room(&name, most)?;
        }
        registry.check_over(&name, &over)?;
        let work = tokio::task::spawn_blocking(move || {
            let (admitted, first) = match source {
                Source::Bundle(bundle) => (workshop.admit(&name, bundle, &patience, &*heard), None),
                Source::Version(version) => {
                    let Version { record, warnings, created, .. } = *version;
                    (Ok(Admitted { record, warnings, opened: None }), Some(created))
                }
            };
            let made = admitted.and_then(|admitted| {
                let Admitted { record, warnings, opened } = admitted;
                let made = workshop.materialise(&record, opened, &patience, &*heard)?;
                Ok((record, warnings, made))
            });
            if workshop.take_mended() {
                // Zygotes and instances may have imported what was broken.
                engine.renew_all();
            }
            if given_up.is_cancelled() {
                return Err(DeployError::GivenUp);
            }
            let (record, mut warnings, made) = made?;
            // Those of a version that was deployed before are known.
            let unsaid = made.warnings.into_iter().filter(|one| !warnings.contains(one));
            let unsaid: Vec<_> = unsaid.collect();
            warnings.extend(unsaid);
            let handler = Arc::new(made.handler);
            networks.check(&handler).map_err(|refused| MakeError::Function {
                step: "network",
                message: refused.to_string(),
            })?;
            let created = first.unwrap_or_else(now);
            let version = Version { id: handler.id.clone(), record, created, warnings };
            let put = match first {
                None => registry.put(version, handler, temporary, most, &over)?,
                Some(_) => {
                    let put = registry.put_back(version, handler, now());
                    put.map_err(RegistryError::from)?.ok_or(DeployError::Removed(name))?
                }
            };
            put.left.iter().for_each(|handler| usage.leave(handler));
            put.gone.iter().for_each(|function| leave(&usage, function));
            Ok::<_, DeployError>(put)
        });
        let Put { function, left, gone } = work.await.unwrap_or(Err(DeployError::BrokeOff))?;
        for function in &gone {
            self.clear_up_after(function).await;
        }
        drop(turn);
        let id = &function.current().id;
        tracing::info!(function = %function.whole_name(), version = %id, "deployed");
        for handler in &left {
            self.engine.forget(&handler.id).await;
        }
        // It was just put with one.
        let Some(handler) = &function.handler else { return Ok(function) };
        if fresh {
            self.engine.renew(&handler.id);
        }
        if let Some(lacking) = self.engine.lacks(handler.kind) {
            progress.step(&format!("its calls will be refused: {lacking}"));
        }
        if let Some(said) = reaches(handler) {
            progress.step(&said);
        }
        let begins = || {
            progress
                .step(&format!("importing {} ahead of the first call", handler.imports.join(", ")));
        };
        if !self.engine.prepare_telling(handler, begins).await {
            progress.step("importing takes long: until it is done, calls import for themselves");
        }
        Ok(function)
    }

    /// What is left of a temporary function that is gone.
    async fn clear_up_after(&self, function: &Function) {
        self.engine.forget(&function.current().id).await;
        self.remove_log(function.whole_name()).await;
        tracing::info!(function = %function.whole_name(), "a temporary function made room for another");
    }

    /// Removes the log of a function that is gone.
    async fn remove_log(&self, name: WholeName) {
        let Some(logs) = &self.logs else { return };
        let (registry, again) = (Arc::clone(&self.registry), name.clone());
        // It may have been deployed again meanwhile, and the log be that one's.
        logs.remove_unless(&name, move || registry.get(&again).is_some()).await;
    }

    /// Removes a function with all its versions, its log and its secrets; says whether it was there. Run it as a
    /// task: dropped half-way, it leaves the log and the secrets behind.
    ///
    /// # Errors
    /// When the registry could not be written; the function is then still there. When its secrets could not be removed.
    pub async fn remove(&self, permit: &Permit<to::Remove>) -> Result<bool, DeployError> {
        let (registry, name) = (Arc::clone(&self.registry), permit.function().clone());
        let usage = Arc::clone(&self.usage);
        let work = tokio::task::spawn_blocking(move || {
            // Before it goes, so that its layers are in use all the while.
            let leaves = |versions: &[Arc<Function>]| {
                versions.iter().for_each(|function| leave(&usage, function));
            };
            registry.remove(&name, leaves).map_err(RegistryError::from)
        });
        let versions = work.await.map_err(|_| DeployError::BrokeOff)??;
        if versions.is_empty() {
            return Ok(false);
        }
        for version in &versions {
            self.engine.forget(&version.current().id).await;
        }
        self.remove_log(permit.function().clone()).await;
        let (vault, name) = (Arc::clone(&self.vault), permit.function().clone());
        let forgotten = tokio::task::spawn_blocking(move || vault.forget(&name)).await;
        forgotten.map_err(|_| DeployError::BrokeOff)??;
        Ok(true)
    }
}

fn patience(limit: Duration, given_up: CancellationToken) -> Arc<Patience> {
    Arc::new(Patience::of(limit, move || given_up.is_cancelled()))
}

/// The destinations that a function may reach, as a line of its deploy.
fn reaches(handler: &Handler) -> Option<String> {
    match handler.network {
        Network::None | Network::Loopback => None,
        Network::Egress => {
            let all: Vec<_> = handler.egress.iter().map(ToString::to_string).collect();
            Some(format!("it may connect to {}, and to nothing else", all.join(", ")))
        }
        Network::Host => Some("it may reach whatever this host reaches".to_owned()),
    }
}

/// Notes that a function's version is, or is about to be, no longer deployed.
fn leave(usage: &Usage, function: &Function) {
    if let Some(handler) = &function.handler {
        usage.leave(handler);
    }
}

/// The time as the registry keeps it: to the millisecond, so that what is read back equals what was written.
fn now() -> SystemTime {
    truncate(SystemTime::now())
}
