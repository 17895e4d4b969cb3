//! Room for what is deployed, among as many functions as its tenant may have.
//!
//! ```text
//!   list ──► victims (`hidden`) ──► remove_if, one after the other ──► put
//!    ▲        │ none would help      │ it is not what was chosen        │ another deploy has taken the room
//!    │        └► refused             │ any more, or may not go          │
//!    └───────────────────────────────┴──────────────────────────────────┘
//! ```
//!
//! Deploys run side by side, and calls and secrets come meanwhile: a chosen function is checked once more before it goes,
//! under the lock that a deploy needs to replace it.

use std::sync::Arc;

use engine::Handler;

use crate::access::Caller;
use crate::deploy::temporary::{self, Coming};
use crate::functions::{Function, Registry, RegistryError};
use crate::secrets::Vault;
use function::WholeName;
use store::Version;

/// Where a tenant's functions have room, and which give way to others.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) registry: Arc<Registry>,
    pub(crate) vault: Arc<Vault>,
    /// Most functions of the tenant.
    pub(crate) most: usize,
    /// Who asks for room: nothing gives way that this caller could not remove.
    pub(crate) by: Caller,
}

impl Room {
    /// Whether a function has room, or will when others have given way.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn check(&self, name: &WholeName) -> Result<(), RegistryError> {
        self.victims(Coming { name, hidden: false }).map(drop)
    }

    /// Records a version, and tells `gone` what has given way to it. Waits for the disk.
    ///
    /// # Errors
    /// When there is no room, and then nothing has given way in vain unless another deploy took its place; or the store
    /// refused.
    pub(crate) fn put(
        &self,
        version: Version,
        handler: Arc<Handler>,
        hidden: bool,
        mut gone: impl FnMut(Arc<Function>),
    ) -> Result<(Arc<Function>, Option<Arc<Function>>), RegistryError> {
        let (name, version) = (version.record.whole_name(), Arc::new(version));
        loop {
            let victims = self.victims(Coming { name: &name, hidden })?;
            if !self.remove(&victims, &mut gone)? {
                continue;
            }
            let (version, handler) = (Arc::clone(&version), Arc::clone(&handler));
            match self.registry.put(version, handler, hidden, self.most) {
                // It has had room: another deploy has taken it.
                Err(RegistryError::Full { .. }) => {}
                put => return put,
            }
        }
    }

    /// Removes what was chosen; says whether all of it could go.
    fn remove(
        &self,
        victims: &[Arc<Function>],
        gone: &mut impl FnMut(Arc<Function>),
    ) -> Result<bool, RegistryError> {
        for victim in victims {
            let may_go = |now: &Arc<Function>| Arc::ptr_eq(now, victim) && !self.is_kept(now);
            match self.registry.remove_if(&victim.whole_name(), may_go)? {
                Some(function) => gone(function),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn victims(&self, coming: Coming<'_>) -> Result<Vec<Arc<Function>>, RegistryError> {
        let functions = self.registry.list();
        let victims = temporary::victims(&functions, coming, self.most, |one| self.is_kept(one));
        victims.ok_or_else(|| RegistryError::full(coming.name, self.most))
    }

    fn is_kept(&self, function: &Function) -> bool {
        function.is_called()
            || !self.by.may_touch(function.name())
            || !self.vault.list(&function.whole_name()).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::OnceLock;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::thread;
    use std::time::{Duration, SystemTime};

    use function::{AliasName, BundleDigest, VersionId};
    use tempfile::TempDir;

    use super::*;
    use crate::deploy::temporary::tests::function;
    use crate::functions::tests::registry;
    use crate::secrets::SecretKey;
    use store::{AliasRow, FunctionRow, Functions, PastVersion, PublishedVersion, StoreError};

    /// Keeps nothing, and does something first whenever it is to write.
    struct Hooked<F>(F);

    impl<F> std::fmt::Debug for Hooked<F> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Hooked")
        }
    }

    impl<F: FnMut(&str) + Send> Functions for Hooked<F> {
        fn put(&mut self, function: &FunctionRow) -> Result<(), StoreError> {
            (self.0)(&format!("put {}", function.current.record.name));
            Ok(())
        }

        fn remove(&mut self, name: &WholeName) -> Result<bool, StoreError> {
            (self.0)(&format!("remove {}", name.name()));
            Ok(true)
        }

        fn list(&self) -> Result<Vec<FunctionRow>, StoreError> {
            Ok(Vec::new())
        }

        fn history(&self, _: &WholeName) -> Result<Vec<PastVersion>, StoreError> {
            Ok(Vec::new())
        }

        fn version(&self, _: &WholeName, _: &VersionId) -> Result<Option<Version>, StoreError> {
            Ok(None)
        }

        fn bundles(&self) -> Result<BTreeSet<BundleDigest>, StoreError> {
            Ok(BTreeSet::new())
        }

        fn publish(
            &mut self,
            _: &WholeName,
            _: SystemTime,
            _: &str,
        ) -> Result<Option<PublishedVersion>, StoreError> {
            Ok(None)
        }

        fn unpublish(&mut self, _: &WholeName, _: u32) -> Result<bool, StoreError> {
            Ok(false)
        }

        fn published(&self) -> Result<Vec<PublishedVersion>, StoreError> {
            Ok(Vec::new())
        }

        fn put_alias(&mut self, _: &WholeName, _: &AliasRow) -> Result<(), StoreError> {
            Ok(())
        }

        fn remove_alias(&mut self, _: &WholeName, _: &AliasName) -> Result<bool, StoreError> {
            Ok(false)
        }

        fn aliases(&self) -> Result<Vec<(WholeName, AliasRow)>, StoreError> {
            Ok(Vec::new())
        }
    }

    fn version(name: &str, second: u64) -> (Version, Arc<Handler>) {
        let function = function("acme", name, true, second);
        // A copy: only who calls it holds the registry's own.
        let handler = Handler::clone(function.handler.as_ref().unwrap());
        (function.current().clone(), Arc::new(handler))
    }

    fn put(registry: &Registry, name: &str, second: u64, hidden: bool, most: usize) {
        let (version, handler) = version(name, second);
        registry.put(version, handler, hidden, most).unwrap();
    }

    fn named(name: &str) -> WholeName {
        function("acme", name, true, 0).whole_name()
    }

    /// With three that `wool run` made, the first first.
    fn room(most: usize, hook: impl FnMut(&str) + Send + 'static) -> (Room, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let key = SecretKey::find(None, &directory.path().join("key")).unwrap();
        let secrets = Box::new(store::memory::Memory::default());
        let vault = Vault::open(secrets, &key).unwrap();
        let registry = registry(Box::new(Hooked(hook)), directory.path());
        for (name, second) in [("run-1", 1), ("run-2", 2), ("run-3", 3)] {
            put(&registry, name, second, true, usize::MAX);
        }
        let by = Caller::User { uid: 0 };
        (Room { registry: Arc::new(registry), vault: Arc::new(vault), most, by }, directory)
    }

    fn names(functions: &[Arc<Function>]) -> Vec<&str> {
        functions.iter().map(|function| function.name()).collect()
    }

    /// Deploys `coming`; returns what gave way.
    fn deploy(room: &Room) -> Result<Vec<Arc<Function>>, RegistryError> {
        let mut gone = Vec::new();
        let (version, handler) = version("coming", 9);
        room.put(version, handler, false, |function| gone.push(function))?;
        Ok(gone)
    }

    #[test]
    fn what_is_deployed_for_good_after_it_was_chosen_stays() {
        let (held, holds): (SyncSender<()>, Receiver<()>) = sync_channel(0);
        let (release, released): (SyncSender<()>, Receiver<()>) = sync_channel(0);
        let mut first = true;
        let (room, _directory) = room(3, move |what| {
            if what == "put run-1" && !std::mem::take(&mut first) {
                held.send(()).unwrap();
                released.recv().unwrap();
            }
        });
        thread::scope(|scope| {
            let other = scope.spawn(|| put(&room.registry, "run-1", 8, false, 3));
            holds.recv().unwrap();
            // As long as that one waits for the disk, run-1 is what may go.
            let this = scope.spawn(|| deploy(&room).unwrap());
            thread::sleep(Duration::from_millis(200));
            release.send(()).unwrap();
            other.join().unwrap();
            assert_eq!(names(&this.join().unwrap()), ["run-2"]);
        });
        assert_eq!(names(&room.registry.list()), ["coming", "run-1", "run-3"]);
    }

    /// A room for two, in which something happens while the first gives way.
    fn disturbed(event: impl Fn(&Room) + Send + 'static) -> (Arc<OnceLock<Room>>, TempDir) {
        let disturbed: Arc<OnceLock<Room>> = Arc::default();
        let seen = Arc::clone(&disturbed);
        let (room, directory) = room(2, move |what| {
            if what == "remove run-1" {
                event(seen.get().unwrap());
            }
        });
        disturbed.set(room).unwrap();
        (disturbed, directory)
    }

    #[test]
    fn what_is_called_after_it_was_chosen_stays() {
        let (calls, called) = sync_channel(1);
        let (room, _directory) = disturbed(move |room| {
            calls.send(room.registry.get(&named("run-2")).unwrap().handler.clone()).unwrap();
        });
        let room = room.get().unwrap();
        assert_eq!(names(&deploy(room).unwrap()), ["run-1", "run-3"]);
        assert_eq!(names(&room.registry.list()), ["coming", "run-2"]);
        drop(called);
    }

    #[test]
    fn what_is_given_a_secret_after_it_was_chosen_stays() {
        let (room, _directory) = disturbed(|room| {
            room.vault.set(&named("run-2"), "KEY", b"value", 9).unwrap();
        });
        let room = room.get().unwrap();
        assert_eq!(names(&deploy(room).unwrap()), ["run-1", "run-3"]);
        assert_eq!(names(&room.registry.list()), ["coming", "run-2"]);
    }

    #[test]
    fn where_it_would_not_help_nothing_gives_way() {
        let (room, _directory) = room(1, |_| ());
        for name in ["deployed-1", "deployed-2"] {
            put(&room.registry, name, 0, false, usize::MAX);
        }
        assert!(matches!(room.check(&named("coming")), Err(RegistryError::Full { most: 1, .. })));
        assert!(matches!(deploy(&room), Err(RegistryError::Full { most: 1, .. })));
        assert_eq!(room.registry.list().len(), 5);
        // What is there already takes no room.
        room.check(&named("run-1")).unwrap();
    }
}
