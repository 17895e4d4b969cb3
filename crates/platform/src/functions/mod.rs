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
//! Temporary functions, those that `wool run` made, are in memory alone: a tenant has at most [`MAX_TEMPORARY`], and the one
//! that was used longest ago makes room for another. The next run of its file deploys it again, in milliseconds.
//!
//! What is stored is portable: records, and the files of bundles ([`Bundles`]). How this machine runs a version, its
//! [`Handler`], is made from them and only remembered ([`Handlers`]).
//!
//! A door has a [`FunctionReader`], which takes a permit; the [`Registry`] is for the parts that run functions.

mod attachments;
mod handlers;
mod known;
mod layer_versions;
mod reader;
mod releases;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use engine::Handler;
use function::{Label, Qualifier, VersionId, WholeLayerName, WholeName};
use sandbox::{Layer, chain};
use store::{Bundles, FunctionRow, Functions, LayerRow, PastVersion, StoreError, Version};
use thiserror::Error;

pub use attachments::{AttachmentError, Attachments};
pub use handlers::Handlers;
pub(crate) use handlers::layers_of;
pub use known::Release;
pub use layer_versions::{LayerVersions, MAX_LAYER_VERSIONS, PolicyError};
pub use reader::{FunctionReader, History};
pub use releases::{Alias, ReleaseError, Releases};

use known::Known;

use crate::limits::concurrency::Concurrency;

/// A function at one of its versions, the current one where nothing else is said, and how this machine runs that.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// What is stored of it, unless it is temporary.
    pub stored: FunctionRow,
    /// Made by `wool run`: left out of lists, and in memory alone.
    pub temporary: bool,
    /// How this machine runs the version; none until that was made here.
    pub handler: Option<Arc<Handler>>,
    /// The version's number, where a number or an alias was asked for.
    pub number: Option<u32>,
    /// What its author says of the published version.
    pub description: Option<String>,
}

impl Function {
    /// The version that the function is at.
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
    fn is_called(&self) -> bool {
        self.handler.as_ref().is_some_and(|handler| Arc::strong_count(handler) > 1)
    }

    /// Whether it is a tenant's.
    #[must_use]
    pub fn is_of(&self, tenant: &Label) -> bool {
        self.current().record.tenant == tenant.as_str()
    }
}

/// A version that was made current, and what that changed.
#[derive(Debug)]
pub struct Put {
    /// The function as it stands.
    pub function: Arc<Function>,
    /// Handlers that no version is run by any more.
    pub left: Vec<Arc<Handler>>,
    /// Temporary functions that are gone for it.
    pub gone: Vec<Arc<Function>>,
}

/// What a deploy has to find under its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Whatever is there.
    #[default]
    Anything,
    /// No function of that name.
    Nothing,
    /// A function whose current version is this one.
    Version(VersionId),
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
    /// A tenant has as many versions of layers as it may.
    #[error(
        "{tenant} has as many versions of layers as it may ({MAX_LAYER_VERSIONS}): remove one that no new function is to have"
    )]
    FullOfLayers {
        /// The tenant's name.
        tenant: String,
    },
    /// A function was to be made, and is there.
    #[error("the function {:?} is there already", .0.name())]
    Exists(WholeName),
    /// A function was to be changed, and is not there.
    #[error("no function {:?}: see `wool ls`", .0.name())]
    Unknown(WholeName),
    /// A function was to be changed, and was changed by another caller.
    #[error("the function {:?} was changed meanwhile: look at it again", .0.name())]
    Changed(WholeName),
    /// The work ended without a result.
    #[error("the registry broke off")]
    BrokeOff,
}

/// The functions of a worker: a store, and all current and published versions in memory.
#[derive(Debug)]
pub struct Registry {
    functions: RwLock<BTreeMap<WholeName, Known>>,
    layers: RwLock<BTreeMap<(WholeLayerName, u32), Arc<LayerRow>>>,
    // One writer at a time, and the memory follows the disk in the same order: taken before `functions`.
    store: Mutex<Box<dyn Functions>>,
    bundles: Arc<dyn Bundles>,
    handlers: Handlers,
    /// Counts the uses of temporary functions: a clock for [`Known::used`].
    uses: AtomicU64,
}

/// Temporary functions of one tenant; there may be more only while all of them are being called.
pub const MAX_TEMPORARY: usize = 32;

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
            let function =
                Function { stored, temporary: false, handler, number: None, description: None };
            functions.insert(function.whole_name(), Known::new(Arc::new(function), 0));
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
        for (name, attachment) in store.attachments()? {
            if let Some(known) = functions.get_mut(&name) {
                known.attach(attachment);
            }
        }
        let layer = |row: LayerRow| ((row.layer.clone(), row.number), Arc::new(row));
        let layers = RwLock::new(store.layers()?.into_iter().map(layer).collect());
        let functions = RwLock::new(functions);
        Ok(Self {
            functions,
            layers,
            store: Mutex::new(store),
            bundles,
            handlers,
            uses: AtomicU64::new(1),
        })
    }

    fn store(&self) -> MutexGuard<'_, Box<dyn Functions>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how this machine runs a version, if that is kept. Writes a file.
    pub fn made(&self, handler: Arc<Handler>) -> Noted {
        // A deploy of the same version waits: the file that is written last is of what is run.
        let _store = self.store();
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
    /// When a directory cannot be read, or a file not be removed.
    pub fn tidy(&self) -> Result<(), StoreError> {
        let functions = self.all();
        let kept = self.store().bundles();
        let ids = functions.iter().map(|function| function.current().id.clone()).collect();
        self.handlers.retain(&ids);
        let mut bundles = match kept {
            Ok(bundles) => bundles,
            Err(error) => {
                // An old version cannot be read: what it needs is not known, so nothing goes.
                tracing::warn!(error = chain(&error), "unused bundles cannot be told");
                return Ok(());
            }
        };
        // Those of temporary functions are in no store.
        bundles.extend(functions.iter().flat_map(|one| one.current().record.bundles()).cloned());
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
        self.resolve_for_call(name, qualifier, draw).map(|(function, _)| function)
    }

    /// The same, with what counts the function's calls.
    pub(crate) fn resolve_for_call(
        &self,
        name: &WholeName,
        qualifier: &Qualifier,
        draw: impl FnOnce() -> f64,
    ) -> Option<(Arc<Function>, Arc<Concurrency>)> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        let known = self.used(functions.get(name)?);
        Some((known.resolve(qualifier, draw)?, Arc::clone(known.concurrency())))
    }

    /// Notes that a function is used, if it is temporary.
    fn used<'a>(&self, known: &'a Known) -> &'a Known {
        if known.is_temporary() {
            known.set_used(self.uses.fetch_add(1, Ordering::Relaxed));
        }
        known
    }

    /// Finds a function at its current version.
    #[must_use]
    pub fn get(&self, name: &WholeName) -> Option<Arc<Function>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(name).map(|known| self.used(known).current())
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

    /// Whether a deploy finds what its caller has seen.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn check_over(&self, name: &WholeName, over: &Over) -> Result<(), RegistryError> {
        // One that is in memory alone makes room for one that is kept.
        let there = self.get(name).filter(|function| !function.temporary);
        match (over, there) {
            (Over::Nothing, Some(_)) => Err(RegistryError::Exists(name.clone())),
            (Over::Version(_), None) => Err(RegistryError::Unknown(name.clone())),
            (Over::Version(id), Some(there)) if there.current().id != *id => {
                Err(RegistryError::Changed(name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Whether a tenant that may have `most` functions, temporary ones aside, may have this one.
    ///
    /// # Errors
    /// When it is not there, and as many others are.
    pub fn check_room(&self, name: &WholeName, most: usize) -> Result<(), RegistryError> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        let stored = functions.iter().filter(|(_, known)| !known.is_temporary());
        let mut of_tenant = stored.map(|(one, _)| one).filter(|one| one.tenant() == name.tenant());
        if of_tenant.clone().count() < most || of_tenant.any(|one| one == name) {
            return Ok(());
        }
        Err(RegistryError::Full { tenant: name.tenant().to_owned(), most })
    }

    /// Makes a version current of a tenant that may have `most` functions. A stored function stays stored. Waits for the disk
    /// unless the function is temporary.
    ///
    /// # Errors
    /// When the tenant has no room, or the store refused; nothing has changed then.
    pub fn put(
        &self,
        version: impl Into<Arc<Version>>,
        handler: Arc<Handler>,
        temporary: bool,
        most: usize,
        over: &Over,
    ) -> Result<Put, RegistryError> {
        let current = version.into();
        let updated = current.created;
        let stored = FunctionRow { current, updated };
        let name = stored.current.record.whole_name();
        let mut store = self.store();
        self.check_over(&name, over)?;
        let temporary = temporary && self.get(&name).is_none_or(|before| before.temporary);
        if !temporary {
            self.check_room(&name, most)?;
            self.handlers.write(&handler);
            store.put(&stored)?;
        }
        Ok(self.keep(name, stored, handler, temporary))
    }

    /// Makes a version of a function that is there current again. None: the function was removed. Waits for the disk.
    ///
    /// # Errors
    /// When the store refused; nothing has changed then.
    pub fn put_back(
        &self,
        version: Version,
        handler: Arc<Handler>,
        updated: SystemTime,
    ) -> Result<Option<Put>, StoreError> {
        let stored = FunctionRow { current: Arc::new(version), updated };
        let name = stored.current.record.whole_name();
        let mut store = self.store();
        if self.get(&name).is_none_or(|function| function.temporary) {
            return Ok(None);
        }
        self.handlers.write(&handler);
        store.put(&stored)?;
        Ok(Some(self.keep(name, stored, handler, false)))
    }

    /// Puts a function's current version into memory. The caller holds the store.
    fn keep(
        &self,
        name: WholeName,
        stored: FunctionRow,
        handler: Arc<Handler>,
        temporary: bool,
    ) -> Put {
        let function = Arc::new(Function {
            stored,
            temporary,
            handler: Some(handler),
            number: None,
            description: None,
        });
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let gone = if temporary { make_room(&mut functions, &name) } else { Vec::new() };
        let used = self.uses.fetch_add(1, Ordering::Relaxed);
        let left = match functions.entry(name) {
            Entry::Occupied(mut known) => known.get_mut().advance(Arc::clone(&function)),
            Entry::Vacant(place) => {
                place.insert(Known::new(Arc::clone(&function), used));
                Vec::new()
            }
        };
        Put { function, left, gone }
    }

    /// Removes a function; returns it at each of its versions, none when it was not there. `leaves` is told of them before
    /// that, and no other can come meanwhile. Waits for the disk.
    ///
    /// # Errors
    /// When the store refused; nothing has changed then.
    pub fn remove(
        &self,
        name: &WholeName,
        leaves: impl FnOnce(&[Arc<Function>]),
    ) -> Result<Vec<Arc<Function>>, StoreError> {
        let mut store = self.store();
        let Some(function) = self.get(name) else { return Ok(Vec::new()) };
        leaves(&self.versions(name));
        if !function.temporary {
            store.remove(name)?;
        }
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        Ok(functions.remove(name).map(|known| known.versions()).unwrap_or_default())
    }

    /// One version of a function, whether or not calls can reach it. Waits for the disk.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn version(&self, name: &WholeName, id: &VersionId) -> Result<Option<Version>, StoreError> {
        self.store().version(name, id)
    }

    /// Whether the files of a version are still there. Waits for the disk.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn has_files(&self, version: &Version) -> Result<bool, StoreError> {
        for bundle in version.record.bundles() {
            if self.bundles.get(bundle)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A function's versions, newest first. Waits for the disk.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn history(&self, name: &WholeName) -> Result<Vec<PastVersion>, StoreError> {
        self.store().history(name)
    }
}

/// Removes the temporary functions that are too many once there is one of this name: first the one that was used longest ago,
/// and none that is being called. A call may still come meanwhile, and keeps the handler that it found.
fn make_room(functions: &mut BTreeMap<WholeName, Known>, coming: &WholeName) -> Vec<Arc<Function>> {
    let others: Vec<_> = functions
        .iter()
        .filter(|(name, known)| {
            known.is_temporary() && name.tenant() == coming.tenant() && *name != coming
        })
        .collect();
    let surplus = (others.len() + 1).saturating_sub(MAX_TEMPORARY);
    let mut idle: Vec<_> = others
        .into_iter()
        .filter(|(_, known)| !known.is_called())
        .map(|(name, known)| (known.used(), name.clone()))
        .collect();
    idle.sort();
    idle.truncate(surplus);
    idle.iter()
        .filter_map(|(_, name)| functions.remove(name))
        .map(|known| known.current())
        .collect()
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

    fn handler(tenant: &str, name: &str) -> Arc<Handler> {
        Arc::new(crate::network_policy::tests::handler(tenant, name, sandbox::Network::None, &[]))
    }

    fn version(tenant: &str, name: &str) -> Version {
        let id = handler(tenant, name).id.clone();
        let created = std::time::SystemTime::UNIX_EPOCH;
        Version { id, record: record(tenant, name), created, warnings: Vec::new() }
    }

    fn put(registry: &Registry, name: &str, temporary: bool) -> Vec<String> {
        let put = registry
            .put(version("acme", name), handler("acme", name), temporary, 2, &Over::Anything)
            .unwrap();
        put.gone.iter().map(|function| function.name().to_owned()).collect()
    }

    fn named(name: &str) -> WholeName {
        record("acme", name).whole_name()
    }

    #[test]
    fn the_temporary_function_that_was_used_longest_ago_goes_unless_it_is_called() {
        let (store, root) = (Memory::default(), tempfile::tempdir().unwrap());
        let registry = registry(Box::new(store.clone()), root.path());
        put(&registry, "stored", false);
        let of_another = version("emca", "run-0");
        registry.put(of_another, handler("emca", "run-0"), true, 2, &Over::Anything).unwrap();
        for number in 0..MAX_TEMPORARY {
            assert_eq!(put(&registry, &format!("run-{number}"), true), [""; 0]);
        }
        assert_eq!(put(&registry, "run-5", true), [""; 0], "it is there, and takes no room");
        // Used again, and being called.
        registry.get(&named("run-0")).unwrap();
        let called = registry.get(&named("run-1")).unwrap().handler.clone();
        registry.get(&named("run-2")).unwrap();
        for (coming, gone) in [("a", "run-3"), ("b", "run-4"), ("c", "run-6")] {
            assert_eq!(put(&registry, coming, true), [gone]);
        }
        drop(called);
        assert_eq!(registry.list().len(), 1 + 1 + MAX_TEMPORARY);
        assert_eq!(store.list().unwrap().len(), 1, "the others are in memory alone");
        let all = registry.list();
        let _called: Vec<_> = all.iter().map(|one| one.handler.clone()).collect();
        assert_eq!(put(&registry, "d", true), [""; 0], "one more, while all are called");
    }

    #[test]
    fn a_temporary_function_takes_no_room_and_is_stored_once_it_is_deployed() {
        let (store, root) = (Memory::default(), tempfile::tempdir().unwrap());
        let registry = registry(Box::new(store.clone()), root.path());
        for name in ["one", "two", "three"] {
            put(&registry, name, true);
        }
        put(&registry, "one", false);
        put(&registry, "two", false);
        put(&registry, "one", true);
        assert!(!registry.get(&named("one")).unwrap().temporary, "it stays stored");
        assert_eq!(store.list().unwrap().len(), 2);
        let full = registry.put(
            version("acme", "three"),
            handler("acme", "three"),
            false,
            2,
            &Over::Anything,
        );
        assert!(matches!(full, Err(RegistryError::Full { most: 2, .. })));
        assert!(registry.get(&named("three")).unwrap().temporary, "nothing has changed");
        assert_eq!(registry.remove(&named("three"), |_| ()).unwrap().len(), 1);
        assert_eq!(registry.remove(&named("three"), |_| ()).unwrap().len(), 0);
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
                declared: false,
                bundled: false,
                told: None,
                layers: Vec::new(),
                lambda: None,
            },
            lock: None,
        }
    }
}
