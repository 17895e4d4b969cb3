//! Provisioned concurrency: instances of published versions that are there before they are called.
//!
//! What was asked for is kept beside the function, under the version's number or the alias's name. An alias's instances are
//! of the version that it points to, and follow it. Once a second the engine is told what there is to be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Promise};
use function::{Qualifier, VersionId, WholeName};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::access::{Permit, to};
use crate::functions::{Function, Registry};
use crate::limits::quotas::Quotas;
use crate::network_policy::Networks;

/// What it is kept as, beside a function: [`Provisioned`], as JSON.
pub const PROVISIONED: &str = "provisioned-concurrency";

/// The engine hears so often what there is to be.
const PERIOD: Duration = Duration::from_secs(1);

/// Instances that a version or an alias is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provisioned {
    /// How many there are to be.
    pub instances: u32,
    /// Seconds since 1970 at which they were asked for.
    pub changed: u64,
}

/// How far a promise is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Instances that are there, whether a call has them or not.
    pub instances: u32,
    /// Why no further one could be made.
    pub failed: Option<String>,
}

/// Why so many instances cannot be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this worker can promise {left} more instances of this tenant's functions")]
pub struct TooMany {
    /// How many more can be.
    pub left: usize,
}

/// Keeps what was promised.
#[derive(Debug)]
pub struct Provisioner {
    registry: Arc<Registry>,
    engine: Arc<Engine>,
    networks: Arc<Networks>,
    quotas: Arc<Quotas>,
}

impl Provisioner {
    /// For the functions of a registry, on an engine.
    #[must_use]
    pub fn new(
        registry: Arc<Registry>,
        engine: Arc<Engine>,
        networks: Arc<Networks>,
        quotas: Arc<Quotas>,
    ) -> Self {
        Self { registry, engine, networks, quotas }
    }

    /// Whether a version or an alias may be promised so many instances. Half of the worker's sandboxes stay free of promises,
    /// and a tenant gets half of what others have left, as long as its own limit of calls at a time allows it.
    ///
    /// # Errors
    /// When there are too few left.
    pub fn check(
        &self,
        permit: &Permit<to::Configure>,
        qualifier: &Qualifier,
        instances: u32,
    ) -> Result<(), TooMany> {
        let (name, key) = (permit.function(), qualifier.to_string());
        let (mut own, mut others) = (0, 0);
        for (of, under, kept) in self.all() {
            let kept = kept.instances as usize;
            match () {
                () if of == *name && under == key => {}
                () if of.tenant() == name.tenant() => own += kept,
                () => others += kept,
            }
        }
        let limit = self.quotas.concurrency(name.tenant()).unwrap_or(usize::MAX);
        let left = left(self.engine.room(), own, others, limit);
        if instances as usize <= left { Ok(()) } else { Err(TooMany { left }) }
    }

    /// How far it is with a version or an alias; none: there is no such version.
    #[must_use]
    pub fn progress(
        &self,
        permit: &Permit<to::ShowFunction>,
        qualifier: &Qualifier,
    ) -> Option<Progress> {
        let function = self.registry.resolve(permit.function(), qualifier, || 1.0)?;
        let engine::Kept { instances, failed } = self.engine.kept(&function.current().id);
        Some(Progress { instances, failed })
    }

    /// The version that a qualifier means; none: there is none.
    #[must_use]
    pub fn version(&self, permit: &Permit<to::Configure>, qualifier: &Qualifier) -> Option<u32> {
        self.registry.resolve(permit.function(), qualifier, || 1.0)?.number
    }

    /// Keeps to it until the worker stops.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut every = tokio::time::interval(PERIOD);
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            self.engine.keep_promises(&self.promises());
        }
    }

    /// What there is to be now.
    fn promises(&self) -> Vec<Promise> {
        let mut all: BTreeMap<VersionId, Promise> = BTreeMap::new();
        for (name, key, kept) in self.all() {
            let Ok(qualifier) = key.parse::<Qualifier>() else { continue };
            let Some(function) = self.registry.resolve(&name, &qualifier, || 1.0) else { continue };
            let Some(promise) = self.promise(&function, kept.instances) else { continue };
            let id = function.current().id.clone();
            let more = |one: &mut Promise| one.instances += kept.instances;
            all.entry(id).and_modify(more).or_insert(promise);
        }
        all.into_values().collect()
    }

    /// None: the version is not made on this machine now, or the operator no longer allows it its network.
    fn promise(&self, function: &Function, instances: u32) -> Option<Promise> {
        let handler = Arc::clone(function.handler.as_ref()?);
        self.networks.check(&handler).ok()?;
        // An alias may point to the current version by now, for which nothing can be promised.
        let number = function.number?.to_string();
        Some(Promise { handler, number, instances })
    }

    fn all(&self) -> Vec<(WholeName, String, Provisioned)> {
        let all = self.registry.attached(PROVISIONED).into_iter();
        all.filter_map(|(name, key, text)| Some((name, key, serde_json::from_str(&text).ok()?)))
            .collect()
    }
}

/// How many instances a tenant may be promised at one place: `own` are those that it has at others.
fn left(room: usize, own: usize, others: usize, limit: usize) -> usize {
    let share = (room / 2).saturating_sub(others) / 2;
    share.min(limit).saturating_sub(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_sandboxes_can_be_promised_and_no_tenant_takes_anothers_part() {
        // What a tenant has is no more than what it leaves to others, whether it asks once or often.
        assert_eq!(left(100, 0, 0, usize::MAX), 25);
        assert_eq!(left(100, 10, 0, usize::MAX), 15);
        assert_eq!(left(100, 25, 0, usize::MAX), 0);
        assert_eq!(left(100, 0, 25, usize::MAX), 12);
        assert_eq!(left(100, 0, 50, usize::MAX), 0);
        assert_eq!(left(100, 2, 0, 5), 3);
        assert_eq!((left(0, 0, 0, 9), left(1, 0, 0, 9), left(100, 60, 60, 9)), (0, 0, 0));
    }
}
