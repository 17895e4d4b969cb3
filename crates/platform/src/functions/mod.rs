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
mod reader;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use engine::Handler;
use function::{Label, VersionId, WholeName};
use sandbox::Layer;
use store::{Bundles, FunctionRow, Functions, PastVersion, StoreError, Version};
use thiserror::Error;

pub use handlers::Handlers;
pub(crate) use handlers::layers_of;
pub use reader::FunctionReader;

/// A function: a name, its current version, and how this machine runs that.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// What is stored of it.
    pub stored: FunctionRow,
    /// How this machine runs the current version; none until that was made here.
    pub handler: Option<Arc<Handler>>,
}

impl Function {
    /// The current version.
    #[must_use]
    pub fn current(&self) -> &Version {
        &self.stored.current
    }

    /// The current version's settings.
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

    /// Whether a call holds its current version.
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
    /// Its version is current, and was run like that before, if it was.
    Current(Option<Arc<Handler>>),
    /// Another version is current by now, and is run like that, if it is made.
    Superseded(Option<Arc<Handler>>),
    /// The function was removed.
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

/// The functions of a worker: a store, and all current versions in memory.
#[derive(Debug)]
pub struct Registry {
    functions: RwLock<BTreeMap<WholeName, Known>>,
    // One writer at a time, and the memory follows the disk in the same order: taken before `functions`.
    store: Mutex<Box<dyn Functions>>,
    bundles: Arc<dyn Bundles>,
    handlers: Handlers,
}

/// A function in memory.
#[derive(Debug)]
struct Known {
    function: Arc<Function>,
    /// Versions before the current one that something still runs: as many as that at most, and those put since.
    earlier: Vec<Weak<Handler>>,
}

impl Known {
    fn new(function: Arc<Function>) -> Self {
        Self { function, earlier: Vec::new() }
    }

    /// Makes another version current; returns the function as it was.
    fn advance(&mut self, function: Arc<Function>) -> Arc<Function> {
        let before = std::mem::replace(&mut self.function, function);
        self.earlier.retain(|handler| handler.strong_count() > 0);
        self.earlier.extend(before.handler.as_ref().map(Arc::downgrade));
        before
    }

    fn has(&self, version: &VersionId) -> bool {
        self.function.current().id == *version
            || self.earlier.iter().filter_map(Weak::upgrade).any(|handler| handler.id == *version)
    }
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
        let known = |stored: FunctionRow| {
            let handler = handlers.read(&stored.current.id).map(Arc::new);
            let function = Function { stored, handler };
            (function.whole_name(), Known::new(Arc::new(function)))
        };
        let functions = RwLock::new(store.list()?.into_iter().map(known).collect());
        Ok(Self { functions, store: Mutex::new(store), bundles, handlers })
    }

    /// Notes how this machine runs a version, if that is current. Writes a file.
    pub fn made(&self, handler: Arc<Handler>) -> Noted {
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = functions.get_mut(&handler.whole_name()) else { return Noted::Gone };
        if known.function.current().id != handler.id {
            return Noted::Superseded(known.function.handler.clone());
        }
        let mut changed = Function::clone(&known.function);
        let before = changed.handler.replace(Arc::clone(&handler));
        known.function = Arc::new(changed);
        drop(functions);
        self.handlers.write(&handler);
        Noted::Current(before)
    }

    /// Forgets how this machine runs a function: its version is to be made again.
    pub fn unmake(&self, name: &WholeName) {
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = functions.get_mut(name) {
            let mut changed = Function::clone(&known.function);
            changed.handler = None;
            known.function = Arc::new(changed);
        }
    }

    /// A layer of a handler that is no longer on the disk, if there is one.
    #[must_use]
    pub fn lost(&self, handler: &Handler) -> Option<Layer> {
        self.handlers.lost(handler)
    }

    /// Removes the bundles that no current version has, and what is remembered of other versions. No deploy may be
    /// under way.
    ///
    /// # Errors
    /// When a directory cannot be read, or a file not be removed.
    pub fn tidy(&self) -> Result<(), StoreError> {
        let functions = self.list();
        let versions = functions.iter().map(|function| function.current());
        self.handlers.retain(&versions.clone().map(|version| version.id.clone()).collect());
        self.bundles.retain(&versions.map(|version| version.record.bundle.clone()).collect())
    }

    /// Whether what runs is a version of a function that is there. Of a function that was removed it is none, even where
    /// another was deployed under its name since, unless that one has the same version.
    pub fn has(&self, handler: &Handler) -> bool {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(&handler.whole_name()).is_some_and(|known| known.has(&handler.id))
    }

    /// Finds a function in memory.
    #[must_use]
    pub fn get(&self, name: &WholeName) -> Option<Arc<Function>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(name).map(|known| Arc::clone(&known.function))
    }

    /// All functions of all tenants, by tenant and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Function>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.values().map(|known| Arc::clone(&known.function)).collect()
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
        let mut function = Function { stored, handler: Some(handler) };
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.get(name).is_some_and(|function| holds(&function)) {
            return Ok(None);
        }
        store.remove(name)?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        Ok(functions.remove(name).map(|known| known.function))
    }

    /// A function's versions, newest first. Waits for the disk.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn history(&self, name: &WholeName) -> Result<Vec<PastVersion>, StoreError> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).history(name)
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
