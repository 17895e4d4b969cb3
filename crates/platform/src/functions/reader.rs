//! Listing and showing functions, as doors ask for it.

use std::sync::Arc;

use engine::Engine;
use function::{Kind, Qualifier};
use store::{AliasRow, PastVersion, Version};

use super::known::Known;
use super::{Function, Registry, RegistryError, Release};
use crate::access::{Permit, to};

/// A function's past, and what of it can still be called.
#[derive(Clone, Debug)]
pub struct History {
    /// Its versions, newest first.
    pub versions: Vec<PastVersion>,
    /// Its published versions, by number.
    pub releases: Vec<Release>,
    /// Its aliases, by name.
    pub aliases: Vec<AliasRow>,
}

/// Reads the functions of a worker, for callers with a permit.
#[derive(Clone, Debug)]
pub struct FunctionReader {
    registry: Arc<Registry>,
    engine: Arc<Engine>,
}

impl FunctionReader {
    /// Those of a registry, which run on an engine.
    #[must_use]
    pub fn new(registry: Arc<Registry>, engine: Arc<Engine>) -> Self {
        Self { registry, engine }
    }

    /// The tenant's functions that the caller may touch, by name; `hidden`: also those that `wool run` made.
    #[must_use]
    pub fn list(&self, permit: &Permit<to::ListFunctions>, hidden: bool) -> Vec<Arc<Function>> {
        let mut functions = self.registry.list();
        functions.retain(|function| {
            (hidden || !function.temporary)
                && function.is_of(permit.tenant())
                && permit.caller().may_touch(function.name())
        });
        functions
    }

    /// A function; none: it is not there.
    #[must_use]
    pub fn show(&self, permit: &Permit<to::ShowFunction>) -> Option<Arc<Function>> {
        self.registry.get(permit.function())
    }

    /// A function at one of its versions; of an alias that shares its calls, at the version that gets the most of them by
    /// default. None: it is not there.
    #[must_use]
    pub fn show_version(
        &self,
        permit: &Permit<to::ShowFunction>,
        qualifier: &Qualifier,
    ) -> Option<Arc<Function>> {
        self.registry.resolve(permit.function(), qualifier, || 1.0)
    }

    /// A function's published versions, by number, and its aliases, by name; none of a function that is not there.
    #[must_use]
    pub fn releases(&self, permit: &Permit<to::ShowFunction>) -> (Vec<Release>, Vec<AliasRow>) {
        self.registry.releases(permit.function())
    }

    /// The tenant's functions that the caller may touch, by name, each with its published versions by number.
    #[must_use]
    pub fn list_versions(
        &self,
        permit: &Permit<to::ListFunctions>,
    ) -> Vec<(Arc<Function>, Vec<Release>)> {
        let functions = self.list(permit, false);
        let releases = |function: &Function| self.registry.releases(&function.whole_name()).0;
        functions.into_iter().map(|one| (Arc::clone(&one), releases(&one))).collect()
    }

    /// The calls at a time that functions of the tenant are limited to, together; of those that the caller may touch and that
    /// have a limit of their own.
    #[must_use]
    pub fn reserved(&self, permit: &Permit<to::ListFunctions>) -> u64 {
        let most = |function: &Arc<Function>| {
            let most = |known: &Known| known.concurrency().most();
            self.registry.peek(&function.whole_name(), most).flatten()
        };
        self.list(permit, false).iter().filter_map(most).map(u64::from).sum()
    }

    /// The versions and aliases of a function that was shown or deployed.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn history(&self, function: &Function) -> Result<History, RegistryError> {
        if function.temporary {
            let Version { id, created, .. } = function.current();
            let versions = vec![PastVersion { id: id.clone(), created: *created }];
            return Ok(History { versions, releases: Vec::new(), aliases: Vec::new() });
        }
        let (registry, name) = (Arc::clone(&self.registry), function.whole_name());
        let read = tokio::task::spawn_blocking(move || {
            let (releases, aliases) = registry.releases(&name);
            Ok(History { versions: registry.history(&name)?, releases, aliases })
        });
        read.await.map_err(|_| RegistryError::BrokeOff)?
    }

    /// Whether functions of the kind `microvm` run in machines here.
    #[must_use]
    pub fn have_machines(&self) -> bool {
        self.engine.lacks(Kind::Microvm).is_none()
    }
}
