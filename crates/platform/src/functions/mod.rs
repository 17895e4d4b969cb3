//! Which functions exist, and which version of each is current.
//!
//! ```text
//!   deploy ──► Registry::put ──► Store (durable, then) ──► memory      remove likewise
//!   call   ──► Registry::get ────────────────────────────► memory      microseconds, no disk
//! ```
//!
//! Versions are immutable and named by what they are made of; a deploy adds one, or finds it there, and makes it
//! current. The disk comes first: what `put` returned for survives `kill -9` of the worker and loss of power.
//!
//! What is stored is portable: records, and the files of bundles ([`Bundles`]). How this machine runs a version, its
//! [`Handler`], is made from them and only remembered ([`Handlers`]).
//!
//! A door has a [`FunctionReader`], which takes a permit; the [`Registry`] is for the parts that run functions.

mod handlers;
mod known;
mod reader;
mod releases;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use engine::Handler;
use function::{Label, Qualifier, VersionId, WholeName};
use sandbox::Layer;
use store::{Bundles, FunctionRow, Functions, PastVersion, StoreError, Version};
use thiserror::Error;

pub use handlers::Handlers;
pub(crate) use handlers::layers_of;
pub use known::Release;
pub use reader::{FunctionReader, History};
pub use releases::{Alias, ReleaseError, Releases};

use known::Known;

/// A function at one of its versions, the current one where nothing else is said, and how this machine runs that.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// What is stored of it.
    pub stored: FunctionRow,
    /// How this machine runs the version; none until that was made here.
    pub handler: Option<Arc<Handler>>,
    /// The version's number, of a function that was found by a number or an alias.
    pub number: Option<u32>,
}

impl Function {
    /// The version.
    #[must_use]
    pub fn current(&self) -> &Version {
        &self.stored.current
    }

    /// The version's settings.
    #[must_use]
    pub fn manifest(&self) -> &function::Manifest {
        &self.current().record.manifest
    }

    /// The name it was deployed under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.current().record.name
    }

    /// The same, and whose it is.
    #[must_use]
    pub fn whole_name(&self) -> WholeName {
        self.current().record.whole_name()
    }

    /// Whether a call holds its version.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.handler.as_ref().is_some_and(|handler| Arc::strong_count(handler) > 1)
    }

    /// Whether it is a tenant's.
    #[must_use]
    pub fn is_of(&self, tenant: &Label) -> bool {
        self.current().record.tenant == tenant.as_str()
    }
}

/// What became of a handler that was made.
#[derive(Debug)]
pub enum Noted {
    /// Its version is current or published, and was run like that before, if it was.
    Kept(Option<Arc<Handler>>),
    /// The function was removed, or has other versions by now.
    Gone,
}

/// Why a function was not recorded or removed.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tenant has as many functions as it may.
    #[error(
        "{tenant} has as many functions as it may ({most}): remove one with `wool rm`, or have the operator raise `functions` in [tenants.{tenant}]"
    )]
    Full {
        /// The tenant's name.
        tenant: String,
        /// The most functions of this tenant.
        most: usize,
    },
    /// The work ended without a result.
    #[error("the registry broke off")]
    BrokeOff,
}

impl RegistryError {
    pub(crate) fn full(name: &WholeName, most: usize) -> Self {
        Self::Full { tenant: name.tenant().to_owned(), most }
    }
}

/// The functions of a worker: a store, and all current and published versions in memory.
#[derive(Debug)]
pub struct Registry {
    functions: RwLock<BTreeMap<WholeName, Known>>,
    // One writer at a time, and the memory follows the disk in the same order: taken before `functions`.
    store: Mutex<Box<dyn Functions>>,
    bundles: Arc<dyn Bundles>,
    handlers: Handlers,
}

impl Registry {
    /// Reads all functions of a store. Their files are in `bundles`; how this machine runs them is in `handlers`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(
        store: Box<dyn Functions>,
        bundles: Arc<dyn Bundles>,
        handlers: Handlers,
    ) -> Result<Self, StoreError> {
        let mut functions = BTreeMap::new();
        for stored in store.list()? {
            let handler = handlers.read(&stored.current.id).map(Arc::new);
            let function = Function { stored, handler, number: None };
            functions.insert(function.whole_name(), Known::new(Arc::new(function)));
        }
        for published in store.published()? {
            if let Some(known) = functions.get_mut(&published.version.record.whole_name()) {
                let id = &published.version.id;
                let handler = match known.find(id) {
                    Some(function) => function.handler.clone(),
                    None => handlers.read(id).map(Arc::new),
                };
                known.publish(published, handler);
            }
        }
        for (name, alias) in store.aliases()? {
            if let Some(known) = functions.get_mut(&name) {
                known.put_alias(alias);
            }
        }
        let functions = RwLock::new(functions);
        Ok(Self { functions, store: Mutex::new(store), bundles, handlers })
    }

    fn store(&self) -> MutexGuard<'_, Box<dyn Functions>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how this machine runs a version, if that is kept. Writes a file.
    pub fn made(&self, handler: Arc<Handler>) -> Noted {
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = functions.get_mut(&handler.whole_name()) else { return Noted::Gone };
        if known.find(&handler.id).is_none() {
            return Noted::Gone;
        }
        let before = known.run_by(&handler.id, Some(&handler));
        drop(functions);
        self.handlers.write(&handler);
        Noted::Kept(before)
    }

    /// Forgets how this machine runs a version of a function: it is to be made again.
    pub fn unmake(&self, handler: &Handler) {
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = functions.get_mut(&handler.whole_name()) {
            known.run_by(&handler.id, None);
        }
    }

    /// A layer of a handler that is no longer on the disk, if there is one.
    #[must_use]
    pub fn lost(&self, handler: &Handler) -> Option<Layer> {
        self.handlers.lost(handler)
    }

    /// Removes the bundles that no kept version has, and what is remembered of versions that are neither current nor
    /// published. No deploy may be under way.
    ///
    /// # Errors
    /// When the store or a directory cannot be read, or a file not be removed.
    pub fn tidy(&self) -> Result<(), StoreError> {
        let bundles = self.store().bundles()?;
        let ids = self.all().iter().map(|function| function.current().id.clone()).collect();
        self.handlers.retain(&ids);
        self.bundles.retain(&bundles)
    }

    /// Whether what runs is a version of a function that is there. Of a function that was removed it is none, even where
    /// another was deployed under its name since, unless that one has the same version.
    pub fn has(&self, handler: &Handler) -> bool {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(&handler.whole_name()).is_some_and(|known| known.has(&handler.id))
    }

    /// Finds a function at a version that calls can reach: it is current or published.
    #[must_use]
    pub fn find(&self, name: &WholeName, version: &VersionId) -> Option<Arc<Function>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(name)?.find(version).cloned()
    }

    /// Finds the version of a function that a qualifier means. Where an alias shares its calls between two, `draw` says
    /// which: a number from 0 to 1, evenly spread.
    #[must_use]
    pub fn resolve(
        &self,
        name: &WholeName,
        qualifier: &Qualifier,
        draw: impl FnOnce() -> f64,
    ) -> Option<Arc<Function>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(name)?.resolve(qualifier, draw)
    }

    /// Finds a function at its current version.
    #[must_use]
    pub fn get(&self, name: &WholeName) -> Option<Arc<Function>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(name).map(Known::current)
    }

    /// A function at its current version and at each published one; empty when it is not there.
    #[must_use]
    pub fn versions(&self, name: &WholeName) -> Vec<Arc<Function>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(name).map(Known::versions).unwrap_or_default()
    }

    /// All functions of all tenants at their current and their published versions.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Function>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.values().flat_map(Known::versions).collect()
    }

    /// All functions of all tenants at their current versions, by tenant and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Function>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.values().map(Known::current).collect()
    }

    /// Whether a tenant that may have `most` functions may have this one.
    ///
    /// # Errors
    /// When it is not there, and as many others are.
    pub fn check_room(&self, name: &WholeName, most: usize) -> Result<(), RegistryError> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        let of_tenant = |one: &&WholeName| one.tenant() == name.tenant();
        if functions.contains_key(name) || functions.keys().filter(of_tenant).count() < most {
            return Ok(());
        }
        Err(RegistryError::full(name, most))
    }

    /// Makes a version current of a tenant that may have `most` functions; returns the function as it stands and what was
    /// current before. Waits for the disk.
    ///
    /// # Errors
    /// When the tenant has no room, or the store refused; nothing has changed then.
    pub fn put(
        &self,
        version: impl Into<Arc<Version>>,
        handler: Arc<Handler>,
        hidden: bool,
        most: usize,
    ) -> Result<(Arc<Function>, Option<Arc<Function>>), RegistryError> {
        let current = version.into();
        let updated = current.created;
        let stored = FunctionRow { current, hidden, updated };
        let mut function = Function { stored, handler: Some(handler), number: None };
        let mut store = self.store();
        let name = function.whole_name();
        self.check_room(&name, most)?;
        if let Some(known) = self.get(&name) {
            function.stored.hidden = hidden && known.stored.hidden;
        }
        if let Some(handler) = &function.handler {
            self.handlers.write(handler);
        }
        store.put(&function.stored)?;
        let function = Arc::new(function);
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let before = match functions.entry(name) {
            Entry::Occupied(mut known) => Some(known.get_mut().advance(Arc::clone(&function))),
            Entry::Vacant(place) => {
                place.insert(Known::new(Arc::clone(&function)));
                None
            }
        };
        Ok((function, before))
    }

    /// Removes a function; returns what it was. Waits for the disk.
    ///
    /// # Errors
    /// When the store refused; nothing has changed then.
    pub fn remove(&self, name: &WholeName) -> Result<Option<Arc<Function>>, StoreError> {
        self.remove_if(name, |_| true)
    }

    /// Removes a function if `holds` says so; returns what it was. Meanwhile no other version can take its place and no
    /// other caller can remove it; a call may still come, and keeps the handler that it found. Waits for the disk.
    ///
    /// # Errors
    /// When the store refused; nothing has changed then.
    pub fn remove_if(
        &self,
        name: &WholeName,
        holds: impl FnOnce(&Arc<Function>) -> bool,
    ) -> Result<Option<Arc<Function>>, StoreError> {
        let mut store = self.store();
        if !self.get(name).is_some_and(|function| holds(&function)) {
            return Ok(None);
        }
        store.remove(name)?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        Ok(functions.remove(name).map(|known| known.current()))
    }

    /// One version of a function, whether or not calls can reach it. Waits for the disk.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn version(&self, name: &WholeName, id: &VersionId) -> Result<Option<Version>, StoreError> {
        self.store().version(name, id)
    }

    /// A function's versions, newest first. Waits for the disk.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn history(&self, name: &WholeName) -> Result<Vec<PastVersion>, StoreError> {
        self.store().history(name)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;
    use std::time::Duration;

    use function::{Convention, Limits, Manifest, Network, VersionRecord};
    use store::memory::Memory;

    use super::*;

    /// A registry that keeps its handlers in `root`.
    pub(crate) fn registry(store: Box<dyn Functions>, root: &Path) -> Registry {
        let layers = layers::Store::open(root).unwrap();
        let handlers = Handlers::open(layers, &root.join("handlers")).unwrap();
        Registry::open(store, Arc::new(Memory::default()), handlers).unwrap()
    }

    /// The record of a function without packages.
    pub(crate) fn record(tenant: &str, name: &str) -> VersionRecord {
        VersionRecord {
            tenant: tenant.to_owned(),
            name: name.to_owned(),
            python: "3.11".to_owned(),
            bundle: blake3::hash(name.as_bytes()).into(),
            manifest: Manifest {
                module: "m".to_owned(),
                function: "f".to_owned(),
                convention: Convention::Lambda,
                requirements: Vec::new(),
                requires_python: None,
                python: None,
                kind: function::Kind::default(),
                reset: function::Reset::default(),
                limits: Limits::default(),
                network: Network::None,
                egress: Vec::new(),
                timeout: Duration::from_secs(1),
                concurrency: 1,
                environment: BTreeMap::new(),
                sets: Vec::new(),
                import_cache: true,
                binary: false,
            },
            lock: None,
        }
    }
}
