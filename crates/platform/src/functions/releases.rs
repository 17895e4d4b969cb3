//! Publishing versions, and pointing aliases at them.
//!
//! ```text
//!   publish ──► the current version gets the next number, and is kept until that is removed
//!   alias   ──► a name for a number, or for the current version; a second number can get a share of a number's calls
//! ```

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use engine::Engine;
use function::{AliasName, LATEST, Qualifier, VersionId, WholeName};
use store::millis::truncate;
use store::{AliasRow, StoreError};
use thiserror::Error;

use super::known::{Known, Release};
use super::{Function, Registry};
use crate::access::{Permit, to};
use crate::packages::retention::Usage;

/// Most published versions of one function: the files of each stay on the disk.
const MAX_RELEASES: usize = 1000;

/// Most aliases of one function.
const MAX_ALIASES: usize = 100;

/// Longest description, in characters.
const MAX_DESCRIPTION: usize = 256;

/// Where an alias is to point.
#[derive(Clone, Debug, PartialEq)]
pub struct Alias {
    /// The number of a published version; none: the current version, whichever that is.
    pub number: Option<u32>,
    /// A second version, and the share of the calls that it gets.
    pub canary: Option<(u32, f64)>,
    /// What its author says of it, at most 256 characters.
    pub description: String,
}

/// Why versions and aliases stay as they are.
#[derive(Debug, Error)]
pub enum ReleaseError {
    /// There is no such function.
    #[error("no function {:?}: see `wool ls`", .0.name())]
    Unknown(WholeName),
    /// The function has as many as it may.
    #[error("{name} has {most} {what}, the most that a function may have: remove one first")]
    TooMany {
        /// The function's name.
        name: String,
        /// `published versions` or `aliases`.
        what: &'static str,
        /// How many it may have.
        most: usize,
    },
    /// An alias points to published versions alone.
    #[error("{name} has no published version {number}: see `wool versions {name}`")]
    Unpublished {
        /// The function's name.
        name: String,
        /// The version that is not there.
        number: u32,
    },
    /// A published version stays while an alias points to it.
    #[error(
        "the alias {alias} of {name} points to version {number}: point it to another version, or remove it, first"
    )]
    Aliased {
        /// The function's name.
        name: String,
        /// The version that stays.
        number: u32,
        /// The alias in its way.
        alias: AliasName,
    },
    /// An alias was to be made, and is there.
    #[error("{name} has an alias {alias} already")]
    AliasExists {
        /// The function's name.
        name: String,
        /// The alias that is there.
        alias: AliasName,
    },
    /// An alias was to be changed, and is not there.
    #[error("{name} has no alias {alias}: see `wool versions {name}`")]
    UnknownAlias {
        /// The function's name.
        name: String,
        /// The alias that is not there.
        alias: AliasName,
    },
    /// What was to be changed is no longer as the caller has seen it.
    #[error("{0} was changed meanwhile: look at it again")]
    Changed(String),
    /// The second version of an alias is no canary.
    #[error(
        "an alias shares its calls between two published versions: name another version than {}, and a share above 0 and at most 1",
        .0.map_or_else(|| LATEST.to_owned(), |number| number.to_string())
    )]
    Share(Option<u32>),
    /// A text is longer than is kept.
    #[error("the description has {0} characters: it may have {MAX_DESCRIPTION}")]
    Description(usize),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The work ended without a result.
    #[error("the change broke off: see the worker's log")]
    BrokeOff,
}

/// Publishes versions and keeps aliases, for callers with a permit.
#[derive(Clone, Debug)]
pub struct Releases {
    registry: Arc<Registry>,
    engine: Arc<Engine>,
    usage: Arc<Usage>,
}

impl Releases {
    /// Those of the functions of a registry, which run on an engine.
    #[must_use]
    pub fn new(registry: Arc<Registry>, engine: Arc<Engine>, usage: Arc<Usage>) -> Self {
        Self { registry, engine, usage }
    }

    /// Gives a function's current version the next number; a version that has the newest number keeps it. `version` is
    /// what the caller has seen as the current one.
    ///
    /// # Errors
    /// When there is no such function, or it has as many numbers as it may; nothing has changed then.
    pub async fn publish(
        &self,
        permit: &Permit<to::Publish>,
        description: String,
        version: Option<VersionId>,
    ) -> Result<Release, ReleaseError> {
        let name = permit.function().clone();
        self.blocking(move |registry| registry.publish(&name, &description, version.as_ref())).await
    }

    /// Removes a published version: calls that name its number fail from then on. The version stays current if it is.
    /// False: there is none.
    ///
    /// # Errors
    /// When an alias points to it; nothing has changed then.
    pub async fn unpublish(
        &self,
        permit: &Permit<to::Unpublish>,
        number: u32,
    ) -> Result<bool, ReleaseError> {
        let (name, usage) = (permit.function().clone(), Arc::clone(&self.usage));
        let removed = self.blocking(move |registry| {
            // Before it goes, so that its layers are in use all the while.
            let published = registry.resolve(&name, &Qualifier::Number(number), || 0.0);
            if let Some(handler) = published.and_then(|function| function.handler.clone()) {
                usage.leave(&handler);
            }
            registry.unpublish(&name, number)
        });
        let Some(function) = removed.await? else { return Ok(false) };
        let id = &function.current().id;
        if self.registry.find(permit.function(), id).is_none() {
            self.engine.forget(id).await;
        }
        Ok(true)
    }

    /// Adds an alias, or points it somewhere else. Calls that begin later follow it.
    ///
    /// # Errors
    /// When a version is not published, the share does not fit, or the function has as many aliases as it may; nothing
    /// has changed then.
    pub async fn set_alias(
        &self,
        permit: &Permit<to::SetAlias>,
        alias: AliasName,
        to: Alias,
    ) -> Result<AliasRow, ReleaseError> {
        self.change_alias(permit, alias, move |_| Ok(to)).await
    }

    /// Adds an alias, or changes it: `change` sees the alias as it is, and says what it is to be. Nothing comes between
    /// the two.
    ///
    /// # Errors
    /// Those of `change`, and of [`Releases::set_alias`].
    pub async fn change_alias(
        &self,
        permit: &Permit<to::SetAlias>,
        alias: AliasName,
        change: impl FnOnce(Option<&AliasRow>) -> Result<Alias, ReleaseError> + Send + 'static,
    ) -> Result<AliasRow, ReleaseError> {
        let name = permit.function().clone();
        self.blocking(move |registry| registry.change_alias(&name, alias, change)).await
    }

    /// Removes an alias. False: there is none.
    ///
    /// # Errors
    /// When there is no such function.
    pub async fn remove_alias(
        &self,
        permit: &Permit<to::RemoveAlias>,
        alias: AliasName,
    ) -> Result<bool, ReleaseError> {
        let name = permit.function().clone();
        self.blocking(move |registry| registry.remove_alias(&name, &alias)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Registry) -> Result<T, ReleaseError> + Send + 'static,
    ) -> Result<T, ReleaseError> {
        let registry = Arc::clone(&self.registry);
        let work = tokio::task::spawn_blocking(move || work(&registry));
        work.await.unwrap_or(Err(ReleaseError::BrokeOff))
    }
}

/// Each change holds the lock of the store: what it checked before the change still holds when it is made.
impl Registry {
    /// The published versions of a function, by number, and its aliases, by name.
    #[must_use]
    pub fn releases(&self, name: &WholeName) -> (Vec<Release>, Vec<AliasRow>) {
        let known = |known: &Known| (known.releases(), known.aliases());
        self.peek(name, known).unwrap_or_default()
    }

    fn publish(
        &self,
        name: &WholeName,
        description: &str,
        version: Option<&VersionId>,
    ) -> Result<Release, ReleaseError> {
        check_description(description)?;
        let mut store = self.store();
        let (id, releases) = self
            .peek(name, |known| (known.current().current().id.clone(), known.releases()))
            .ok_or_else(|| ReleaseError::Unknown(name.clone()))?;
        if version.is_some_and(|seen| *seen != id) {
            return Err(ReleaseError::Changed(name.name().to_owned()));
        }
        let has_newest = releases.last().is_some_and(|newest| newest.function.current().id == id);
        if releases.len() >= MAX_RELEASES && !has_newest {
            return Err(too_many(name, "published versions", MAX_RELEASES));
        }
        let published = store.publish(name, truncate(SystemTime::now()), description)?;
        let published = published.ok_or_else(|| ReleaseError::Unknown(name.clone()))?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let known = functions.get_mut(name).ok_or_else(|| ReleaseError::Unknown(name.clone()))?;
        let handler = known.find(&published.version.id).and_then(|one| one.handler.clone());
        Ok(known.publish(published, handler))
    }

    fn unpublish(
        &self,
        name: &WholeName,
        number: u32,
    ) -> Result<Option<Arc<Function>>, ReleaseError> {
        let mut store = self.store();
        let aliases = self.peek(name, Known::aliases);
        let aliases = aliases.ok_or_else(|| ReleaseError::Unknown(name.clone()))?;
        let points_to_it = |alias: &&AliasRow| {
            alias.number == Some(number) || alias.canary.is_some_and(|(canary, _)| canary == number)
        };
        if let Some(alias) = aliases.iter().find(points_to_it) {
            let (name, alias) = (name.name().to_owned(), alias.name.clone());
            return Err(ReleaseError::Aliased { name, number, alias });
        }
        self.detach_all(&mut **store, name, &Qualifier::Number(number))?;
        store.unpublish(name, number)?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let removed = functions.get_mut(name).and_then(|known| known.unpublish(number));
        Ok(removed.map(|release| release.function))
    }

    fn change_alias(
        &self,
        name: &WholeName,
        alias: AliasName,
        change: impl FnOnce(Option<&AliasRow>) -> Result<Alias, ReleaseError>,
    ) -> Result<AliasRow, ReleaseError> {
        let mut store = self.store();
        let aliases = self.peek(name, Known::aliases);
        let aliases = aliases.ok_or_else(|| ReleaseError::Unknown(name.clone()))?;
        let Alias { number, canary, description } =
            change(aliases.iter().find(|row| row.name == alias))?;
        check_description(&description)?;
        let named = [number, canary.map(|(other, _)| other)];
        let lacking = |known: &Known| {
            named.into_iter().flatten().find(|number| known.release(*number).is_none())
        };
        if let Some(number) = self.peek(name, lacking).flatten() {
            return Err(ReleaseError::Unpublished { name: name.name().to_owned(), number });
        }
        if let Some((other, share)) = canary
            && (number.is_none_or(|first| first == other) || !(share > 0.0 && share <= 1.0))
        {
            return Err(ReleaseError::Share(number));
        }
        if aliases.len() >= MAX_ALIASES && aliases.iter().all(|row| row.name != alias) {
            return Err(too_many(name, "aliases", MAX_ALIASES));
        }
        let updated = truncate(SystemTime::now());
        let row = AliasRow { name: alias, number, canary, updated, description };
        store.put_alias(name, &row)?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = functions.get_mut(name) {
            known.put_alias(row.clone());
        }
        Ok(row)
    }

    fn remove_alias(&self, name: &WholeName, alias: &AliasName) -> Result<bool, ReleaseError> {
        let mut store = self.store();
        self.peek(name, |_| ()).ok_or_else(|| ReleaseError::Unknown(name.clone()))?;
        self.detach_all(&mut **store, name, &Qualifier::Alias(alias.clone()))?;
        let removed = store.remove_alias(name, alias)?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = functions.get_mut(name) {
            known.remove_alias(alias);
        }
        Ok(removed)
    }

    pub(super) fn peek<T>(&self, name: &WholeName, what: impl FnOnce(&Known) -> T) -> Option<T> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(name).map(what)
    }
}

fn check_description(description: &str) -> Result<(), ReleaseError> {
    match description.chars().count() {
        0..=MAX_DESCRIPTION => Ok(()),
        long => Err(ReleaseError::Description(long)),
    }
}

fn too_many(name: &WholeName, what: &'static str, most: usize) -> ReleaseError {
    ReleaseError::TooMany { name: name.name().to_owned(), what, most }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use engine::Handler;
    use store::Version;
    use store::memory::Memory;

    use super::*;
    use crate::functions::Over;
    use crate::functions::tests::{record, registry};
    use crate::limits::concurrency::RESERVED;

    fn name() -> WholeName {
        record("t", "f").whole_name()
    }

    /// The version whose timeout is so many seconds, on a code layer of that name.
    fn version(number: u64, code: &str) -> (Version, Arc<Handler>) {
        let mut record = record("t", "f");
        record.manifest.timeout = Duration::from_secs(number);
        let (id, created, warnings) = (record.id(), SystemTime::UNIX_EPOCH, Vec::new());
        let none = sandbox::Network::None;
        let mut handler = crate::network_policy::tests::handler("t", "f", none, &[]);
        handler.code = serde_json::from_value(format!("code/{code}").into()).unwrap();
        let handler = Arc::new(Handler { id: id.clone(), ..handler });
        (Version { id, record, created, warnings }, handler)
    }

    /// Deploys it; returns the handlers that no version is run by any more.
    fn deploy_on(registry: &Registry, number: u64, code: &str) -> Vec<Arc<Handler>> {
        let (version, handler) = version(number, code);
        registry.put(version, handler, false, 9, &Over::Anything).unwrap().left
    }

    fn deploy(registry: &Registry, number: u64) {
        drop(deploy_on(registry, number, "c"));
    }

    /// With versions 1 and 2 published, and 3 current.
    fn published(store: &Memory, root: &Path) -> Registry {
        let registry = registry(Box::new(store.clone()), root);
        for number in [1, 2] {
            deploy(&registry, number);
            assert_eq!(u64::from(registry.publish(&name(), "", None).unwrap().number), number);
        }
        deploy(&registry, 3);
        registry
    }

    fn to(number: u32, canary: Option<(u32, f64)>) -> Alias {
        Alias { number: Some(number), canary, description: String::new() }
    }

    fn live() -> AliasName {
        "live".parse().unwrap()
    }

    fn timeout(registry: &Registry, qualifier: Qualifier) -> Option<u64> {
        let function = registry.resolve(&name(), &qualifier, || 0.5)?;
        Some(function.manifest().timeout.as_secs())
    }

    #[test]
    fn a_published_version_stays_when_others_are_deployed_and_after_a_restart() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let registry = published(&store, dir.path());
        registry.change_alias(&name(), live(), |_| Ok(to(1, None))).unwrap();
        for registry in [registry, super::super::tests::registry(Box::new(store), dir.path())] {
            assert_eq!(timeout(&registry, Qualifier::Latest), Some(3));
            assert_eq!(timeout(&registry, Qualifier::Number(2)), Some(2));
            assert_eq!(timeout(&registry, Qualifier::Alias(live())), Some(1));
            let (releases, aliases) = registry.releases(&name());
            assert_eq!((releases.len(), aliases.len()), (2, 1));
            // How each is run is remembered, too.
            assert!(registry.all().iter().all(|function| function.handler.is_some()));
        }
    }

    #[test]
    fn what_is_kept_for_a_version_or_an_alias_goes_with_it() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let first = published(&store, dir.path());
        first.change_alias(&name(), live(), |_| Ok(to(1, None))).unwrap();
        let attach = |kind, key: &str| {
            let text = |_: Option<&str>| Ok::<_, ()>(Some("kept".to_owned()));
            first.change_attachment(&name(), kind, key.to_owned(), text).unwrap();
        };
        for (kind, key) in
            [("policy", "live"), ("url", "live"), ("policy", "2"), ("policy", "1"), ("tags", "")]
        {
            attach(kind, key);
        }
        assert!(first.remove_alias(&name(), &live()).unwrap());
        assert!(first.unpublish(&name(), 2).unwrap().is_some());
        let second = super::super::tests::registry(Box::new(store), dir.path());
        for registry in [first, second] {
            let left =
                |kind: &str| registry.peek(&name(), |known| known.attachments(kind)).unwrap();
            let kept = |key: &str| vec![(key.to_owned(), "kept".to_owned())];
            assert_eq!((left("policy"), left("tags")), (kept("1"), kept("")));
            assert_eq!(left("url"), []);
        }
    }

    #[test]
    fn a_reserved_concurrency_is_of_all_versions_and_holds_after_a_restart() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let first = published(&store, dir.path());
        let reserve = |registry: &Registry, most: Option<&str>| {
            let most = most.map(str::to_owned);
            let text = |_: Option<&str>| Ok::<_, ()>(most);
            registry.change_attachment(&name(), RESERVED, String::new(), text).unwrap();
        };
        let of = |registry: &Registry, qualifier: Qualifier| {
            registry.resolve_for_call(&name(), &qualifier, || 0.0).unwrap().1
        };
        reserve(&first, Some("1"));
        deploy(&first, 4);
        let second = super::super::tests::registry(Box::new(store), dir.path());
        for registry in [&first, &second] {
            let running = of(registry, Qualifier::Number(1)).begin();
            assert!(running.is_some() && of(registry, Qualifier::Latest).begin().is_none());
            drop(running);
            assert!(of(registry, Qualifier::Latest).begin().is_some());
        }
        reserve(&second, None);
        assert_eq!(of(&second, Qualifier::Latest).most(), None);
    }

    #[test]
    fn what_an_alias_points_to_stays_published() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let registry = published(&store, dir.path());
        registry.change_alias(&name(), live(), |_| Ok(to(1, Some((2, 0.1))))).unwrap();
        for number in [1, 2] {
            let refused = registry.unpublish(&name(), number).unwrap_err();
            assert!(matches!(refused, ReleaseError::Aliased { .. }), "{refused}");
        }
        assert!(registry.unpublish(&name(), 3).unwrap().is_none());
        registry.change_alias(&name(), live(), |_| Ok(to(2, None))).unwrap();
        assert!(registry.unpublish(&name(), 1).unwrap().is_some());
        assert_eq!(timeout(&registry, Qualifier::Number(1)), None);
    }

    #[test]
    fn an_alias_points_to_published_versions_with_a_share_that_adds_up() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let registry = published(&store, dir.path());
        let refused = |to: Alias| registry.change_alias(&name(), live(), |_| Ok(to)).unwrap_err();
        assert!(matches!(refused(to(3, None)), ReleaseError::Unpublished { number: 3, .. }));
        assert!(matches!(
            refused(to(1, Some((3, 0.5)))),
            ReleaseError::Unpublished { number: 3, .. }
        ));
        for canary in [(1, 0.5), (2, 0.0), (2, -0.1), (2, 1.01), (2, f64::NAN)] {
            assert!(
                matches!(refused(to(1, Some(canary))), ReleaseError::Share(Some(1))),
                "{canary:?}"
            );
        }
        let long = Alias { description: "x".repeat(257), ..to(1, None) };
        assert!(matches!(refused(long), ReleaseError::Description(257)));
        assert!(registry.releases(&name()).1.is_empty());
        registry.change_alias(&name(), live(), |_| Ok(to(1, Some((2, 1.0))))).unwrap();
    }

    #[test]
    fn there_are_as_many_numbers_and_aliases_as_a_function_may_have() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let registry = registry(Box::new(store), dir.path());
        for number in 1..=MAX_RELEASES as u64 {
            deploy(&registry, number);
            registry.publish(&name(), "", None).unwrap();
        }
        // It has the newest number.
        registry.publish(&name(), "", None).unwrap();
        deploy(&registry, MAX_RELEASES as u64 + 1);
        let refused = registry.publish(&name(), "", None).unwrap_err();
        assert!(matches!(refused, ReleaseError::TooMany { .. }), "{refused}");
        for alias in 0..MAX_ALIASES {
            let alias = format!("a{alias}").parse().unwrap();
            registry.change_alias(&name(), alias, |_| Ok(to(1, None))).unwrap();
        }
        let refused = registry.change_alias(&name(), live(), |_| Ok(to(1, None))).unwrap_err();
        assert!(matches!(refused, ReleaseError::TooMany { .. }), "{refused}");
        registry.change_alias(&name(), "a7".parse().unwrap(), |_| Ok(to(2, None))).unwrap();
    }

    #[test]
    fn nothing_changes_when_the_store_fails() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let registry = published(&store, dir.path());
        registry.change_alias(&name(), live(), |_| Ok(to(1, None))).unwrap();
        store.set_broken(true);
        assert!(registry.publish(&name(), "", None).is_err());
        assert!(registry.unpublish(&name(), 2).is_err());
        assert!(registry.change_alias(&name(), live(), |_| Ok(to(2, None))).is_err());
        assert!(registry.remove_alias(&name(), &live()).is_err());
        assert_eq!(timeout(&registry, Qualifier::Alias(live())), Some(1));
        assert_eq!(timeout(&registry, Qualifier::Number(2)), Some(2));
        assert_eq!(timeout(&registry, Qualifier::Number(3)), None);
    }

    #[test]
    fn a_version_that_is_current_and_published_is_run_in_one_way() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let registry = published(&store, dir.path());
        deploy(&registry, 1);
        let current = registry.get(&name()).unwrap().handler.clone().unwrap();
        let numbered = registry.resolve(&name(), &Qualifier::Number(1), || 0.0).unwrap();
        assert!(Arc::ptr_eq(numbered.handler.as_ref().unwrap(), &current));
        registry.unmake(&current);
        assert!(registry.versions(&name()).iter().filter(|one| one.handler.is_none()).count() == 2);
    }

    #[test]
    fn a_deploy_leaves_the_handlers_that_no_version_is_run_by() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let registry = published(&store, dir.path());
        let left = |number, code| -> Vec<(u64, String)> {
            let left = deploy_on(&registry, number, code);
            let of = |handler: &Arc<Handler>| {
                let numbers = [1, 2, 3, 4];
                let number = numbers.into_iter().find(|n| version(*n, "c").0.id == handler.id);
                (number.unwrap(), handler.code.to_string())
            };
            left.iter().map(of).collect()
        };
        let on = |code: &str| format!("code/{code}");
        assert_eq!(left(3, "c"), [], "nothing has changed");
        assert_eq!(left(3, "d"), [(3, on("c"))], "the same version on another layer");
        assert_eq!(left(4, "c"), [(3, on("d"))], "another version");
        assert_eq!(left(1, "c"), [(4, on("c"))], "a published one");
        assert_eq!(left(2, "c"), [], "both are published");
        assert_eq!(left(1, "d"), [(1, on("c"))], "published on one layer, current on another");
        assert_eq!(left(1, "e"), [(1, on("d"))]);
    }

    #[test]
    fn a_function_that_was_removed_is_not_rolled_back() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let registry = published(&store, dir.path());
        let back = || {
            let (version, handler) = version(1, "c");
            registry.put_back(version, handler, SystemTime::now()).unwrap()
        };
        assert_eq!(back().unwrap().function.manifest().timeout, Duration::from_secs(1));
        registry.remove(&name(), |versions| assert_eq!(versions.len(), 3)).unwrap();
        assert!(back().is_none() && registry.get(&name()).is_none());
    }
}
