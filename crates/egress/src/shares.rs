//! A limited resource that all sandboxes share, and how much of it each tenant and function may
//! have.
//!
//! A tenant may have three times as many as are free; a function may have as many as that leaves
//! its tenant. So nothing is reserved for absent tenants and nothing is taken back, yet the next
//! tenant always finds some, however many sandboxes one function has. Alone, a tenant can take
//! three quarters of all, and a function three eighths.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The function that owns a sandbox: `tenant/function`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner(Arc<str>);

impl Owner {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.into())
    }

    fn function(&self) -> &str {
        &self.0
    }

    fn tenant(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(tenant, _)| tenant)
    }
}

/// A fixed number of units, divided among owners.
#[derive(Debug)]
pub(crate) struct Shares {
    most: usize,
    taken: Mutex<Usage>,
}

/// Units in use: of all, and by owner. Owners without any are not listed.
#[derive(Debug, Default)]
struct Usage {
    all: usize,
    tenants: HashMap<String, usize>,
    functions: HashMap<String, usize>,
}

impl Usage {
    /// Whether `owner` may have one more of `most`.
    fn admits(&self, most: usize, owner: &Owner) -> bool {
        let of = |counts: &HashMap<String, usize>, name| counts.get(name).copied().unwrap_or(0);
        let (tenant, function) =
            (of(&self.tenants, owner.tenant()), of(&self.functions, owner.function()));
        // Each unit that the tenant takes is one more of its own and one less that is free.
        let left = (3 * (most - self.all)).saturating_sub(tenant) / 4;
        function < left
    }
}

impl Shares {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Takes one unit, if the owner may have one more.
    pub(crate) fn take(self: &Arc<Self>, owner: &Owner) -> Option<Share> {
        let mut taken = self.lock();
        if !taken.admits(self.most, owner) {
            return None;
        }
        taken.all += 1;
        *taken.tenants.entry(owner.tenant().to_owned()).or_default() += 1;
        *taken.functions.entry(owner.function().to_owned()).or_default() += 1;
        Some(Share { of: Arc::clone(self), owner: owner.clone() })
    }

    /// Number of units in use.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One unit. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Shares>,
    owner: Owner,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.of.lock();
        taken.all -= 1;
        one_less(&mut taken.tenants, self.owner.tenant());
        one_less(&mut taken.functions, self.owner.function());
    }
}

fn one_less(counts: &mut HashMap<String, usize>, name: &str) {
    match counts.get_mut(name) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes units for one owner until none is left.
    fn greedy(shares: &Arc<Shares>, owner: &str) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(&Owner::new(owner))).collect()
    }

    #[test]
    fn a_function_that_takes_all_it_gets_leaves_some_to_every_other() {
        let shares = Shares::new(4096);
        let first = greedy(&shares, "acme/first");
        assert_eq!(first.len(), 1536);
        let others = ["acme/second", "acme/third", "zeta/first"];
        let others = others.map(|other| greedy(&shares, other));
        assert!(others.iter().all(|other| other.len() >= 100), "{:?}", shares.lock());
        // Returned units can be taken again.
        drop((first, others));
        assert_eq!(greedy(&shares, "acme/second").len(), 1536);
    }

    #[test]
    fn a_tenant_of_many_greedy_functions_leaves_a_quarter_to_the_others() {
        let shares = Shares::new(256);
        let all: Vec<_> = (0..100).map(|n| greedy(&shares, &format!("acme/{n}"))).collect();
        let taken: usize = all.iter().map(Vec::len).sum();
        assert!(taken <= 192 && shares.taken() == taken, "{taken}");
        assert!(greedy(&shares, "zeta/first").len() >= 16);
    }

    #[test]
    fn nothing_is_kept_of_a_sandbox_that_is_gone() {
        let shares = Shares::new(8);
        let (one, two) = (greedy(&shares, "acme/a"), greedy(&shares, "acme/b"));
        assert!(!one.is_empty() && !two.is_empty());
        drop((one, two));
        let taken = shares.lock();
        assert!(
            taken.all == 0 && taken.tenants.is_empty() && taken.functions.is_empty(),
            "{taken:?}"
        );
    }
}
