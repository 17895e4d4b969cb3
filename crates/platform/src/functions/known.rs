//! A function in memory: its current version, its published ones, and its aliases.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use engine::Handler;
use function::{AliasName, Qualifier, VersionId};
use store::{AliasRow, AttachmentRow, FunctionRow, PublishedVersion};

use super::Function;
use crate::limits::concurrency::{Concurrency, RESERVED};

/// A published version of a function.
#[derive(Clone, Debug)]
pub struct Release {
    /// The function at this version.
    pub function: Arc<Function>,
    /// The version's number.
    pub number: u32,
    /// When it was published.
    pub published: SystemTime,
    /// What its author says of it.
    pub description: String,
}

/// What a registry holds of one function.
#[derive(Debug)]
pub(super) struct Known {
    function: Arc<Function>,
    /// Versions before the current one that something still runs: as many as that at most, and those put since.
    earlier: Vec<Weak<Handler>>,
    releases: BTreeMap<u32, Release>,
    aliases: BTreeMap<AliasName, AliasRow>,
    /// Texts by kind and key.
    attachments: BTreeMap<(String, String), String>,
    /// Of calls, at all versions.
    concurrency: Arc<Concurrency>,
    /// When a temporary function was last used, by the registry's count of uses.
    used: AtomicU64,
}

impl Known {
    pub(super) fn new(function: Arc<Function>, used: u64) -> Self {
        Self {
            function,
            earlier: Vec::new(),
            releases: BTreeMap::new(),
            aliases: BTreeMap::new(),
            attachments: BTreeMap::new(),
            concurrency: Arc::default(),
            used: used.into(),
        }
    }

    pub(super) fn is_temporary(&self) -> bool {
        self.function.temporary
    }

    pub(super) fn is_called(&self) -> bool {
        self.function.is_called()
    }

    /// When it was last used, if it is temporary.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn set_used(&self, used: u64) {
        self.used.store(used, Ordering::Relaxed);
    }

    /// The function at its current version.
    pub(super) fn current(&self) -> Arc<Function> {
        Arc::clone(&self.function)
    }

    /// The function at its current version and at each published one.
    pub(super) fn versions(&self) -> Vec<Arc<Function>> {
        let published = self.releases.values().map(|release| &release.function);
        published.chain([&self.function]).map(Arc::clone).collect()
    }

    pub(super) fn releases(&self) -> Vec<Release> {
        self.releases.values().cloned().collect()
    }

    pub(super) fn release(&self, number: u32) -> Option<&Release> {
        self.releases.get(&number)
    }

    pub(super) fn aliases(&self) -> Vec<AliasRow> {
        self.aliases.values().cloned().collect()
    }

    /// Makes another version current; returns the handlers that no version is run by any more.
    pub(super) fn advance(&mut self, function: Arc<Function>) -> Vec<Arc<Handler>> {
        let published = self.find_published(&function.current().id);
        let published = published.and_then(|release| release.function.handler.clone());
        let before = std::mem::replace(&mut self.function, Arc::clone(&function)).handler.clone();
        if let Some(handler) = &function.handler {
            // A published version that becomes current again is run in one way.
            self.run_by(&handler.id, Some(handler));
        }
        self.note_earlier(before.as_ref());
        let mut left: Vec<_> = before.into_iter().chain(published).collect();
        left.dedup();
        left.retain(|handler| {
            let now = self.find(&handler.id).and_then(|function| function.handler.as_ref());
            // The same version may have other layers by now: of a newer Python, for example.
            now != Some(handler)
        });
        left
    }

    fn find_published(&self, version: &VersionId) -> Option<&Release> {
        self.releases.values().find(|release| release.function.current().id == *version)
    }

    fn note_earlier(&mut self, handler: Option<&Arc<Handler>>) {
        self.earlier.retain(|handler| handler.strong_count() > 0);
        self.earlier.extend(handler.map(Arc::downgrade));
    }

    /// Adds a published version; returns it.
    pub(super) fn publish(
        &mut self,
        version: PublishedVersion,
        handler: Option<Arc<Handler>>,
    ) -> Release {
        let PublishedVersion { number, version, published, description } = version;
        let stored = FunctionRow { current: version, updated: published };
        let (number_of_it, said) = (Some(number), Some(description.clone()));
        let function =
            Function { stored, temporary: false, handler, number: number_of_it, description: said };
        let function = Arc::new(function);
        let release = Release { function, number, published, description };
        self.releases.insert(number, release.clone());
        release
    }

    /// Removes a published version; returns it. Something may still run it.
    pub(super) fn unpublish(&mut self, number: u32) -> Option<Release> {
        let release = self.releases.remove(&number)?;
        self.note_earlier(release.function.handler.as_ref());
        Some(release)
    }

    pub(super) fn put_alias(&mut self, alias: AliasRow) {
        self.aliases.insert(alias.name.clone(), alias);
    }

    pub(super) fn remove_alias(&mut self, alias: &AliasName) {
        self.aliases.remove(alias);
    }

    pub(super) fn concurrency(&self) -> &Arc<Concurrency> {
        &self.concurrency
    }

    pub(super) fn attach(&mut self, attachment: AttachmentRow) {
        let AttachmentRow { kind, key, text } = attachment;
        if kind == RESERVED {
            self.concurrency.limit(text.parse().ok());
        }
        self.attachments.insert((kind, key), text);
    }

    pub(super) fn detach(&mut self, kind: &str, key: &str) {
        if kind == RESERVED {
            self.concurrency.limit(None);
        }
        self.attachments.remove(&(kind.to_owned(), key.to_owned()));
    }

    pub(super) fn attachment(&self, kind: &str, key: &str) -> Option<&str> {
        self.attachments.get(&(kind.to_owned(), key.to_owned())).map(String::as_str)
    }

    /// The kinds that have an attachment under this key.
    pub(super) fn kinds(&self, key: &str) -> Vec<String> {
        let under = self.attachments.keys().filter(|(_, one)| one == key);
        under.map(|(kind, _)| kind.clone()).collect()
    }

    pub(super) fn attachment_count(&self) -> usize {
        self.attachments.len()
    }

    /// All of a kind, by key.
    pub(super) fn attachments(&self, kind: &str) -> Vec<(String, String)> {
        let of_kind = self.attachments.iter().filter(|((one, _), _)| one == kind);
        of_kind.map(|((_, key), text)| (key.clone(), text.clone())).collect()
    }

    /// Finds the version that a qualifier means.
    pub(super) fn resolve(
        &self,
        qualifier: &Qualifier,
        draw: impl FnOnce() -> f64,
    ) -> Option<Arc<Function>> {
        let number = match qualifier {
            Qualifier::Latest => return Some(self.current()),
            Qualifier::Number(number) => *number,
            Qualifier::Alias(alias) => {
                let alias = self.aliases.get(alias)?;
                match alias.canary {
                    Some((canary, share)) if draw() < share => canary,
                    _ => match alias.number {
                        Some(number) => number,
                        None => return Some(self.current()),
                    },
                }
            }
        };
        self.release(number).map(|release| Arc::clone(&release.function))
    }

    /// Whether a version is current or published, or one before that something still runs.
    pub(super) fn has(&self, version: &VersionId) -> bool {
        let mut earlier = self.earlier.iter().filter_map(Weak::upgrade);
        self.find(version).is_some() || earlier.any(|handler| handler.id == *version)
    }

    /// The function at a version that is current or published.
    pub(super) fn find(&self, version: &VersionId) -> Option<&Arc<Function>> {
        let releases = self.releases.values().map(|release| &release.function);
        [&self.function].into_iter().chain(releases).find(|one| one.current().id == *version)
    }

    /// Says how a version is run from now on; returns how it was before.
    pub(super) fn run_by(
        &mut self,
        version: &VersionId,
        handler: Option<&Arc<Handler>>,
    ) -> Option<Arc<Handler>> {
        let before = self.find(version)?.handler.clone();
        let releases = self.releases.values_mut().map(|release| &mut release.function);
        for function in releases.chain([&mut self.function]) {
            if function.current().id == *version {
                let mut changed = Function::clone(function);
                changed.handler = handler.cloned();
                *function = Arc::new(changed);
            }
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::Version;

    use super::*;
    use crate::functions::tests::record;

    fn version(number: u64) -> Arc<Version> {
        let mut record = record("t", "f");
        record.manifest.timeout = Duration::from_secs(number);
        let (id, created) = (record.id(), SystemTime::UNIX_EPOCH);
        Arc::new(Version { id, record, created, warnings: Vec::new() })
    }

    /// With version 3 current, 1 published as number 1 and 2 as number 2.
    fn known() -> Known {
        let row =
            |number| FunctionRow { current: version(number), updated: SystemTime::UNIX_EPOCH };
        let current = Function {
            stored: row(3),
            temporary: false,
            handler: None,
            number: None,
            description: None,
        };
        let mut known = Known::new(Arc::new(current), 0);
        for number in [1, 2] {
            let (published, description) = (SystemTime::UNIX_EPOCH, String::new());
            let version = version(number.into());
            known.publish(PublishedVersion { number, version, published, description }, None);
        }
        known
    }

    fn alias(number: u32, canary: Option<(u32, f64)>) -> AliasRow {
        let (name, updated) = ("live".parse().unwrap(), SystemTime::UNIX_EPOCH);
        AliasRow { name, number: Some(number), canary, updated, description: String::new() }
    }

    fn found(known: &Known, qualifier: &str, draw: f64) -> Option<(Option<u32>, u64)> {
        let function = known.resolve(&qualifier.parse().unwrap(), || draw)?;
        Some((function.number, function.manifest().timeout.as_secs()))
    }

    #[test]
    fn a_qualifier_finds_its_version() {
        let mut known = known();
        known.put_alias(alias(1, None));
        assert_eq!(found(&known, "$LATEST", 0.0), Some((None, 3)));
        assert_eq!(found(&known, "2", 0.0), Some((Some(2), 2)));
        assert_eq!(found(&known, "live", 0.0), Some((Some(1), 1)));
        assert_eq!(found(&known, "3", 0.0), None);
        assert_eq!(found(&known, "Live", 0.0), None);
        known.remove_alias(&"live".parse().unwrap());
        assert_eq!(found(&known, "live", 0.0), None);
    }

    #[test]
    fn a_canary_gets_its_share() {
        let mut known = known();
        known.put_alias(alias(1, Some((2, 0.25))));
        for (draw, number) in [(0.0, 2), (0.249, 2), (0.25, 1), (0.999, 1)] {
            assert_eq!(found(&known, "live", draw).unwrap().0, Some(number), "{draw}");
        }
        known.put_alias(alias(1, Some((2, 1.0))));
        assert_eq!(found(&known, "live", 0.999).unwrap().0, Some(2));
    }

    #[test]
    fn a_version_that_is_not_published_any_more_is_not_found() {
        let mut known = known();
        assert!(known.find(&version(1).id).is_some());
        assert_eq!(known.unpublish(1).unwrap().number, 1);
        assert!(known.unpublish(1).is_none() && known.find(&version(1).id).is_none());
        assert_eq!(found(&known, "1", 0.0), None);
    }
}
