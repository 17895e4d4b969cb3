//! Finding the version to go back to.

use std::sync::Arc;

use function::{VersionId, WholeName};
use store::{PastVersion, StoreError, Version};
use thiserror::Error;

use super::Deployer;
use crate::access::{Permit, to};
use crate::functions::Registry;

/// Shortest beginning of a version's id that names it.
const MIN_DIGITS: usize = 8;

/// Which version is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// The one that was first deployed before the current one.
    Previous,
    /// A published version, by its number, or any kept version by the first eight digits of its id or more.
    Named(String),
}

/// Why there is no version to go back to.
#[derive(Debug, Error)]
pub enum RollBackError {
    /// There is no such function.
    #[error("no function {:?}: see `wool ls`", .0.name())]
    Unknown(WholeName),
    /// The current version is the oldest that is kept.
    #[error("no version of {0} was first deployed before its current one: see `wool versions {0}`")]
    NoEarlier(String),
    /// No kept version is called that.
    #[error("{name} has no version {wanted:?}: see `wool versions {name}`")]
    NoSuchVersion {
        /// The function's name.
        name: String,
        /// The text that names no version.
        wanted: String,
    },
    /// The version's files went before versions could be rolled back to.
    #[error("the files of version {0} are not kept any more: deploy them again")]
    NoFiles(VersionId),
    /// Several ids begin like that.
    #[error("{name} has several versions that begin with {wanted:?}: give more of the id")]
    Ambiguous {
        /// The function's name.
        name: String,
        /// The beginning of an id.
        wanted: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The work ended without a result.
    #[error("the search broke off: see the worker's log")]
    BrokeOff,
}

impl Deployer {
    /// Finds a version of a function to make current again: [`Order::roll_back`](super::Order::roll_back).
    ///
    /// # Errors
    /// When it is not kept, or the store cannot be read.
    pub async fn earlier(
        &self,
        permit: &Permit<to::RollBack>,
        wanted: Earlier,
    ) -> Result<Version, RollBackError> {
        let (registry, name) = (Arc::clone(&self.registry), permit.function().clone());
        let work = tokio::task::spawn_blocking(move || find(&registry, &name, wanted));
        work.await.unwrap_or(Err(RollBackError::BrokeOff))
    }
}

fn find(registry: &Registry, name: &WholeName, wanted: Earlier) -> Result<Version, RollBackError> {
    let function = registry.get(name).ok_or_else(|| RollBackError::Unknown(name.clone()))?;
    let history = registry.history(name)?;
    let id = match wanted {
        Earlier::Previous => previous(&history, &function.current().id)
            .ok_or_else(|| RollBackError::NoEarlier(name.name().to_owned()))?,
        Earlier::Named(wanted) => {
            let (releases, _) = registry.releases(name);
            let numbered = releases.iter().find(|release| release.number.to_string() == wanted);
            match numbered {
                Some(release) => release.function.current().id.clone(),
                None => named(&history, name.name(), wanted)?,
            }
        }
    };
    let version = registry.version(name, &id)?;
    let version = version.ok_or_else(|| RollBackError::Unknown(name.clone()))?;
    match registry.has_files(&version)? {
        true => Ok(version),
        false => Err(RollBackError::NoFiles(id)),
    }
}

/// The version after the current one in a history that begins with the newest.
fn previous(history: &[PastVersion], current: &VersionId) -> Option<VersionId> {
    let at = history.iter().position(|past| past.id == *current)?;
    history.get(at + 1).map(|past| past.id.clone())
}

/// The one version whose id begins like that.
fn named(history: &[PastVersion], name: &str, wanted: String) -> Result<VersionId, RollBackError> {
    let name = || name.to_owned();
    let mut found = history.iter().filter(|past| past.id.0.starts_with(&wanted));
    // Fewer could be the number of a version that is not published any more.
    match (found.next().filter(|_| wanted.len() >= MIN_DIGITS), found.next()) {
        (Some(past), None) => Ok(past.id.clone()),
        (Some(_), Some(_)) => Err(RollBackError::Ambiguous { name: name(), wanted }),
        (None, _) => Err(RollBackError::NoSuchVersion { name: name(), wanted }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn history(ids: &[&str]) -> Vec<PastVersion> {
        let created = SystemTime::UNIX_EPOCH;
        ids.iter().map(|id| PastVersion { id: VersionId(Arc::from(*id)), created }).collect()
    }

    #[test]
    fn the_previous_version_is_the_one_that_was_deployed_before() {
        let all = history(&["c3", "b2", "a1"]);
        let before = |id: &str| previous(&all, &VersionId(Arc::from(id))).map(|id| id.to_string());
        assert_eq!(before("c3").as_deref(), Some("b2"));
        assert_eq!(before("b2").as_deref(), Some("a1"));
        assert_eq!(before("a1"), None);
        assert_eq!(before("d4"), None);
    }

    #[test]
    fn a_version_is_found_by_the_beginning_of_its_id() {
        let all = history(&["3000000000", "1234567892", "1234567891"]);
        let found = |wanted: &str| named(&all, "f", wanted.to_owned());
        assert_eq!(found("30000000").unwrap().to_string(), "3000000000");
        assert_eq!(found("1234567891").unwrap().to_string(), "1234567891");
        assert!(matches!(found("12345678"), Err(RollBackError::Ambiguous { .. })));
        for none in ["", "3", "3000000", "x", "12345678910"] {
            assert!(matches!(found(none), Err(RollBackError::NoSuchVersion { .. })), "{none}");
        }
    }
}
