//! Lists, checks and mends the packages of a state directory, and removes layers that no function uses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::{Engine, ImportCost};
use layers::{FileError, Silent, Store};
use packages::retention::{Collected, Scope, collect};
use packages::uv::UvError;
use packages::{InstallError, Set, Verdict, Wheel};
use sandbox::{Layer, chain};
use store::StoreError;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::access::{Permit, to};
use crate::deploy::Deployer;
use crate::deploy::installer::Installer;
use crate::functions::Registry;
use crate::packages::retention::{Usage, deployed};

/// Between two looks at the disk space.
const EVERY: Duration = Duration::from_secs(600);

/// Waiting for a moment without a deploy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks after the layers of one state directory.
#[derive(Debug)]
pub struct Stock {
    store: Store,
    installer: Installer,
    registry: Arc<Registry>,
    usage: Arc<Usage>,
    deployer: Arc<Deployer>,
    engine: Arc<Engine>,
    budget: u64,
}

/// What could not be done.
#[derive(Debug, Error)]
pub enum StockError {
    /// The kept bundles cannot be read or changed.
    #[error(transparent)]
    Bundles(#[from] StoreError),
    /// The store cannot be read or changed.
    #[error(transparent)]
    File(#[from] FileError),
    /// No installer to fetch with.
    #[error(transparent)]
    Installer(#[from] UvError),
    /// The check could not go on.
    #[error(transparent)]
    Check(#[from] InstallError),
    /// Deploys were under way all the time.
    #[error("a deploy is under way: try again when it is done")]
    Busy,
    /// The work ended without a result.
    #[error("the work broke off: see the worker's log")]
    BrokeOff,
}

/// A wheel, and who uses it.
#[derive(Clone, Debug)]
pub struct Stocked {
    /// The wheel on disk.
    pub wheel: Wheel,
    /// Functions with a current or published version that locked it, by name.
    pub functions: Vec<String>,
    /// When it was last used.
    pub used: SystemTime,
    /// What importing it was measured to cost.
    pub cost: ImportCost,
    /// Why no function is forked from a process that has imported it, where that was found out.
    pub unforkable: Option<String>,
}

/// The wheels of a state directory.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// Sorted by name.
    pub wheels: Vec<Stocked>,
    /// What layers may take on disk together, in bytes.
    pub budget: u64,
}

/// Puts a state directory in order before its first sandbox: what was replaced while the last worker ran goes, and
/// what exceeds the budget, bases and guests of old versions included.
///
/// # Errors
/// When the store cannot be changed.
pub fn tidy(store: &Store, registry: &Registry, budget: u64) -> Result<(), StockError> {
    store.bury()?;
    registry.tidy()?;
    tell(&collect(store, &deployed(registry), budget, Scope::Starting)?, budget);
    Ok(())
}

impl Stock {
    /// Looks after `store`; `budget` are bytes.
    #[must_use]
    pub fn new(
        store: Store,
        registry: Arc<Registry>,
        usage: Arc<Usage>,
        deployer: Arc<Deployer>,
        engine: Arc<Engine>,
        installer: Installer,
        budget: u64,
    ) -> Self {
        Self { store, installer, registry, usage, deployer, engine, budget }
    }

    /// All wheels. Reads the disk: milliseconds.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(
        self: &Arc<Self>,
        _: &Permit<to::ListPackages>,
    ) -> Result<Inventory, StockError> {
        self.blocking(|stock| {
            let mut users: BTreeMap<Layer, Vec<String>> = BTreeMap::new();
            for function in stock.registry.all() {
                let layer = function.handler.as_ref().and_then(|handler| handler.packages.clone());
                if let Some(layer) = layer {
                    users.entry(layer).or_default().push(function.whole_name().to_string());
                }
            }
            let mut of_wheel: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (layer, names) in users {
                for id in Set::find(&stock.store, &layer).into_iter().flat_map(|set| set.wheels) {
                    of_wheel.entry(id).or_default().extend(names.iter().cloned());
                }
            }
            let wheels = Wheel::all(&stock.store)?;
            let (mut unforkable, costs) = (stock.engine.unforkable(), stock.engine.import_costs());
            let stocked = |wheel: Wheel| {
                let mut functions = of_wheel.remove(&wheel.id).unwrap_or_default();
                functions.sort();
                functions.dedup();
                let cost = costs.get(&wheel.id).copied().unwrap_or_default();
                let unforkable = unforkable.remove(&wheel.id);
                Stocked { functions, used: wheel.used(&stock.store), cost, unforkable, wheel }
            };
            let wheels = wheels.into_iter().map(stocked).collect();
            Ok(Inventory { wheels, budget: stock.budget })
        })
        .await
    }

    /// Reads every file of every wheel, and fetches changed wheels again: seconds a gigabyte. Returns what was broken.
    /// Deploys wait meanwhile. After a repair, every zygote and instance that may have imported a broken file ends.
    ///
    /// # Errors
    /// When the store cannot be read, there is no installer, or deploys are under way for long.
    pub async fn verify(
        self: &Arc<Self>,
        _: &Permit<to::VerifyPackages>,
    ) -> Result<Vec<Verdict>, StockError> {
        let _turns = self.deployer.pause(PATIENCE).await.ok_or(StockError::Busy)?;
        self.blocking(|stock| {
            let installer = stock.installer.get(&stock.deployer.patience(), &Silent)?;
            let verdicts = packages::verify(&stock.store, &installer, &Silent)?;
            for Verdict { what, fault, repaired } in &verdicts {
                match repaired {
                    Ok(()) => tracing::warn!(what, fault, "a package was not as it was; repaired"),
                    Err(error) => {
                        tracing::error!(what, fault, error = chain(error), "a package is broken");
                    }
                }
            }
            if verdicts.iter().any(|verdict| verdict.repaired.is_ok()) {
                // Zygotes and instances may have imported what was broken.
                stock.engine.renew_all();
            }
            Ok(verdicts)
        })
        .await
    }

    /// Removes everything that no function uses and no sandbox runs from.
    ///
    /// # Errors
    /// When the store cannot be changed, what was removed until then being gone, or deploys are under way for long.
    pub async fn prune(
        self: &Arc<Self>,
        _: &Permit<to::PrunePackages>,
    ) -> Result<Collected, StockError> {
        self.collect(0).await
    }

    /// Keeps to the budget until the worker stops.
    pub async fn keep_to_budget(self: Arc<Self>, stop: CancellationToken) {
        let mut every = tokio::time::interval(EVERY);
        // The first tick comes at once, and `tidy` has just been.
        every.tick().await;
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            match self.collect(self.budget).await {
                Ok(collected) => tell(&collected, self.budget),
                // The next tick comes soon enough.
                Err(StockError::Busy) => {}
                Err(error) => tracing::warn!(error = chain(&error), "packages cannot be collected"),
            }
        }
    }

    async fn collect(self: &Arc<Self>, budget: u64) -> Result<Collected, StockError> {
        let _turns = self.deployer.pause(PATIENCE).await.ok_or(StockError::Busy)?;
        self.blocking(move |stock| {
            stock.registry.tidy()?;
            Ok(collect(&stock.store, &stock.usage.layers(), budget, Scope::Running)?)
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StockError> + Send + 'static,
    ) -> Result<T, StockError> {
        let this = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || work(&this));
        work.await.unwrap_or(Err(StockError::BrokeOff))
    }
}

fn tell(collected: &Collected, budget: u64) {
    let Collected { removed, freed, left } = collected;
    if !removed.is_empty() {
        tracing::info!(removed = removed.len(), freed, left, "removed what no function uses");
    }
    if *left > budget {
        tracing::warn!(left, budget, "what functions use is more than install_cache_bytes");
    }
}
