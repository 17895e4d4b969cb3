//! What one tenant may take of the machine, by the operator's word: `[tenants.acme]` in the worker's TOML file, and
//! `[tenants."*"]` for each tenant that has no table of its own.
//!
//! Calls are counted from their admission to their answer. Idle instances are not: they are the worker's cache, which its
//! own memory budget bounds.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::limits::bucket::{Bucket, Rate};
use function::quantity::Bytes;

/// The name of the table for tenants that have none of their own.
const OTHERS: &str = "*";

/// Functions of a tenant that may have secrets, those included that are not deployed yet, where it is not said how many
/// functions it may have.
const WITH_SECRETS: usize = 4096;

/// When a call may find that another has ended.
const SOON: Duration = Duration::from_secs(1);

/// Limits of one tenant; what is not said is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantLimits {
    /// Functions that are deployed, and as many that have secrets.
    pub functions: Option<usize>,
    /// Calls at a time, of all its functions together.
    pub concurrency: Option<usize>,
    /// Calls a second on the average; a second's worth at once.
    pub calls_per_second: Option<NonZeroU32>,
    /// Memory that the calls at a time may have by their functions' own limits, together.
    pub memory: Option<Bytes>,
}

/// The limits of all tenants, and what is taken of them.
#[derive(Debug)]
pub struct Quotas {
    limits: BTreeMap<String, TenantLimits>,
    taken: Mutex<HashMap<String, Taken>>,
}

/// What a tenant's calls take now.
#[derive(Debug, Default)]
struct Taken {
    calls: usize,
    memory: u64,
    bucket: Option<Bucket>,
}

/// A call's part of its tenant's limits; given back when it is dropped.
#[derive(Debug)]
pub struct Part {
    quotas: Arc<Quotas>,
    tenant: String,
    memory: u64,
}

/// Why a call has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// Which of the tenant's limits.
    pub limit: &'static str,
    /// When it may come back.
    pub retry_after: Duration,
}

impl Quotas {
    /// Nothing is taken yet.
    #[must_use]
    pub fn new(limits: BTreeMap<String, TenantLimits>) -> Self {
        Self { limits, taken: Mutex::default() }
    }

    fn of(&self, tenant: &str) -> TenantLimits {
        self.limits.get(tenant).or_else(|| self.limits.get(OTHERS)).copied().unwrap_or_default()
    }

    /// Most functions of a tenant.
    #[must_use]
    pub fn functions(&self, tenant: &str) -> usize {
        self.of(tenant).functions.unwrap_or(usize::MAX)
    }

    /// Most calls of a tenant at a time, where there is a limit.
    #[must_use]
    pub fn concurrency(&self, tenant: &str) -> Option<usize> {
        self.of(tenant).concurrency
    }

    /// Most functions of a tenant that may have secrets, whether they are deployed or not.
    #[must_use]
    pub fn functions_with_secrets(&self, tenant: &str) -> usize {
        self.of(tenant).functions.unwrap_or(WITH_SECRETS)
    }

    /// Lets a call in whose function may take so much memory. None: its tenant has no limits.
    ///
    /// # Errors
    /// When the tenant's calls take all that they may.
    pub fn admit(
        self: &Arc<Self>,
        tenant: &str,
        memory: u64,
        now: Instant,
    ) -> Result<Option<Part>, Exhausted> {
        let limits = self.of(tenant);
        if limits == TenantLimits::default() {
            return Ok(None);
        }
        let mut all = self.taken();
        let taken = all.entry(tenant.to_owned()).or_default();
        taken.take(limits, memory, now)?;
        let quotas = Arc::clone(self);
        Ok(Some(Part { quotas, tenant: tenant.to_owned(), memory }))
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, Taken>> {
        // Numbers, whole between any two changes.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn take(&mut self, limits: TenantLimits, memory: u64, now: Instant) -> Result<(), Exhausted> {
        let soon = |limit| Exhausted { limit, retry_after: SOON };
        if limits.concurrency.is_some_and(|most| self.calls >= most) {
            return Err(soon("concurrency"));
        }
        let together = self.memory.saturating_add(memory);
        if limits.memory.is_some_and(|most| together > most.0) {
            return Err(soon("memory"));
        }
        // Last: a call that is refused for another reason takes nothing from the rate.
        if let Some(calls) = limits.calls_per_second {
            let calls = f64::from(calls.get());
            let rate = Rate { each_second: calls, burst: calls };
            let bucket = self.bucket.get_or_insert_with(|| Bucket::full(rate, now));
            let taken = bucket.take(1.0, rate, now);
            taken.map_err(|retry_after| Exhausted { limit: "calls_per_second", retry_after })?;
        }
        (self.calls, self.memory) = (self.calls + 1, together);
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(taken) = self.quotas.taken().get_mut(&self.tenant) {
            taken.calls -= 1;
            taken.memory -= self.memory;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(tables: &str) -> Arc<Quotas> {
        Arc::new(Quotas::new(toml::from_str(tables).unwrap()))
    }

    #[test]
    fn calls_and_their_memory_are_given_back() {
        let quotas = quotas("[acme]\nconcurrency = 2\nmemory = '1GiB'");
        let now = Instant::now();
        let admit = |memory: u64| quotas.admit("acme", memory << 20, now);
        let limit = |refused: Result<_, Exhausted>| refused.unwrap_err().limit;
        let first = admit(600).unwrap();
        assert_eq!(limit(admit(600)), "memory");
        let second = admit(424).unwrap();
        assert_eq!(limit(admit(1)), "concurrency");
        drop(first);
        let third = admit(600).unwrap();
        drop((second, third));
        assert!(admit(1024).unwrap().is_some());
    }

    #[test]
    fn a_tenant_without_a_table_has_that_of_the_others_and_each_its_own_count() {
        let quotas = quotas("['*']\nconcurrency = 1\nfunctions = 3\n[acme]");
        let now = Instant::now();
        assert!(quotas.admit("acme", 1, now).unwrap().is_none());
        let _first = quotas.admit("one", 1, now).unwrap().unwrap();
        let _second = quotas.admit("two", 1, now).unwrap().unwrap();
        assert!(quotas.admit("one", 1, now).is_err());
        assert_eq!((quotas.functions("one"), quotas.functions("acme")), (3, usize::MAX));
        assert_eq!(quotas.functions_with_secrets("one"), 3);
        assert_eq!(quotas.functions_with_secrets("acme"), WITH_SECRETS);
    }

    #[test]
    fn calls_a_second_are_told_when_to_come_back() {
        let quotas = quotas("[acme]\ncalls_per_second = 2");
        let now = Instant::now();
        for _ in 0..2 {
            drop(quotas.admit("acme", 1, now).unwrap());
        }
        let refused = quotas.admit("acme", 1, now).unwrap_err();
        let half = Duration::from_millis(500);
        assert_eq!(refused, Exhausted { limit: "calls_per_second", retry_after: half });
        drop(quotas.admit("acme", 1, now + half).unwrap());
        assert!(quotas.admit("acme", 1, now + half).is_err());
    }

    #[test]
    fn an_unknown_limit_is_an_error() {
        assert!(toml::from_str::<TenantLimits>("concurency = 2").is_err());
    }
}
