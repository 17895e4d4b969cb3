//! Which functions exist, and which version of each is current.
//!
//! ```text
//!   deploy ──► Registry::put ──► Store (durable, then) ──► memory      remove likewise
//!   call   ──► Registry::resolve ────────────────────────► memory      microseconds, no disk
//! ```
//!
//! Versions are immutable and named by what they are made of; a deploy adds one, or finds it there, and makes it
//! current. The disk comes first: what `put` returned for survives `kill -9` of the worker and loss of power.

pub(crate) mod millis;
mod sqlite;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use engine::{Handler, HandlerId};
use serde_json::Value;
use thiserror::Error;

pub use sqlite::Sqlite;

use function::Label;
use function::WholeName;

/// One immutable version of a function, with what it was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// How to run it.
    pub handler: Arc<Handler>,
    /// When it was first deployed, to the millisecond.
    pub created: SystemTime,
    /// What the function said of itself.
    pub manifest: Value,
    /// The exact lock of its packages.
    pub lock: String,
}

/// A function: a name and its current version.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The current version.
    pub current: Arc<Version>,
    /// Made by `wool run` and not shown unless asked for; gone when the worker starts again, or room is needed.
    pub hidden: bool,
    /// When a version was last made current, to the millisecond.
    pub updated: SystemTime,
}

impl Function {
    /// The name it was deployed under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.current.handler.name
    }

    /// The same, and whose it is.
    #[must_use]
    pub fn whole_name(&self) -> WholeName {
        self.current.handler.whole_name()
    }

    /// Whether a call holds its current version, which [`Registry::resolve`] gave it.
    #[must_use]
    pub fn is_called(&self) -> bool {
        Arc::strong_count(&self.current.handler) > 1
    }

    /// Whether it is a tenant's.
    #[must_use]
    pub fn is_of(&self, tenant: &Label) -> bool {
        self.current.handler.tenant == tenant.as_str()
    }
}

/// A version in a function's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Its identity.
    pub id: HandlerId,
    /// When it was first deployed.
    pub created: SystemTime,
}

/// What a store could not do.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The database failed.
    #[error("the registry {0}")]
    Database(&'static str, #[source] rusqlite::Error),
    /// Its file cannot be made, or not be closed to others.
    #[error("cannot make the registry's file: its directory must belong to the worker's user")]
    File(#[source] std::io::Error),
    /// A newer release wrote it.
    #[error(
        "the registry was written by a newer release (schema {found}, this one knows {known}): install that release, or choose another state directory with --state DIR"
    )]
    Newer {
        /// Its schema.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A row is not what we wrote.
    #[error("the registry's version {id} cannot be read")]
    Row {
        /// Which version.
        id: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A tenant has as many functions as it may.
    #[error(
        "{tenant} has as many functions as it may ({most}): remove one with `wool rm`, or have the operator raise `functions` in [tenants.{tenant}]"
    )]
    Full {
        /// Whose.
        tenant: String,
        /// How many.
        most: usize,
    },
}

impl StoreError {
    pub(crate) fn full(name: &WholeName, most: usize) -> Self {
        Self::Full { tenant: name.tenant().to_owned(), most }
    }
}

/// Where functions are kept for good.
pub trait Store: Send + Debug {
    /// Adds the function's version, or finds it, and makes it current. Durable when it returns.
    ///
    /// # Errors
    /// When nothing was changed.
    fn put(&mut self, function: &Function) -> Result<(), StoreError>;

    /// Removes a function with all its versions; says whether it was there. Durable when it returns.
    ///
    /// # Errors
    /// When nothing was changed.
    fn remove(&mut self, name: &WholeName) -> Result<bool, StoreError>;

    /// All functions.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn load(&self) -> Result<Vec<Function>, StoreError>;

    /// A function's versions, newest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn history(&self, name: &WholeName) -> Result<Vec<Past>, StoreError>;
}

/// The functions of a worker: a store, and all current versions in memory.
#[derive(Debug)]
pub struct Registry {
    functions: RwLock<BTreeMap<WholeName, Known>>,
    // One writer at a time, and the memory follows the disk in the same order: taken before `functions`.
    store: Mutex<Box<dyn Store>>,
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
        self.earlier.push(Arc::downgrade(&before.current.handler));
        before
    }

    fn has(&self, version: &HandlerId) -> bool {
        self.function.current.handler.id == *version
            || self.earlier.iter().filter_map(Weak::upgrade).any(|handler| handler.id == *version)
    }
}

impl Registry {
    /// Reads all functions of a store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(store: Box<dyn Store>) -> Result<Self, StoreError> {
        let functions = store.load()?.into_iter();
        let functions = functions.map(|f| (f.whole_name(), Known::new(Arc::new(f)))).collect();
        Ok(Self { functions: RwLock::new(functions), store: Mutex::new(store) })
    }

    /// Puts others in the place of handlers, in memory only: what the disk says of a version stays as it was deployed.
    pub fn replace(&self, other: impl Fn(&Handler) -> Option<Handler>) {
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        for Known { function, .. } in functions.values_mut() {
            if let Some(handler) = other(&function.current.handler) {
                let mut changed = Function::clone(function);
                Arc::make_mut(&mut changed.current).handler = Arc::new(handler);
                *function = Arc::new(changed);
            }
        }
    }

    /// A function's current version.
    #[must_use]
    pub fn resolve(&self, name: &WholeName) -> Option<Arc<Handler>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(name).map(|known| Arc::clone(&known.function.current.handler))
    }

    /// Whether what runs is a version of a function that is there: of one that was removed it is not, though another of that
    /// name was deployed since. A version of both is taken for the new one's.
    pub fn has(&self, handler: &Handler) -> bool {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(&handler.whole_name()).is_some_and(|known| known.has(&handler.id))
    }

    /// A function.
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
    pub fn check_room(&self, name: &WholeName, most: usize) -> Result<(), StoreError> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        let of_tenant = |one: &&WholeName| one.tenant() == name.tenant();
        if functions.contains_key(name) || functions.keys().filter(of_tenant).count() < most {
            return Ok(());
        }
        Err(StoreError::full(name, most))
    }

    /// Makes a version current of a tenant that may have `most` functions; returns the function as it stands and what was
    /// current before. Waits for the disk.
    ///
    /// # Errors
    /// When the tenant has no room, or the store refused; nothing has changed then.
    pub fn put(
        &self,
        version: impl Into<Arc<Version>>,
        hidden: bool,
        most: usize,
    ) -> Result<(Arc<Function>, Option<Arc<Function>>), StoreError> {
        let current = version.into();
        let updated = current.created;
        let mut function = Function { current, hidden, updated };
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let name = function.whole_name();
        self.check_room(&name, most)?;
        if let Some(known) = self.get(&name) {
            function.hidden = hidden && known.hidden;
        }
        store.put(&function)?;
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

    /// Removes a function of which something holds; returns what it was. While that is asked nobody puts another version
    /// into its place or removes it; a call may still come, and keeps what it was resolved to. Waits for the disk.
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
    pub fn history(&self, name: &WholeName) -> Result<Vec<Past>, StoreError> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).history(name)
    }
}
