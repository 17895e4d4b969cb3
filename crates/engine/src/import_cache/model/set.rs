//! Sets of small numbers: distributions, or pieces, as numbered by the
//! [`Catalog`](crate::import_cache::model::catalog::Catalog).

/// Sorted and unique, with a digest that rules out most non-subsets at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Set {
    members: Box<[u32]>,
    digest: u64,
}

impl Set {
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn contains(&self, member: u32) -> bool {
        self.members.binary_search(&member).is_ok()
    }

    /// Whether this is a subset of `other`: the trust rule.
    pub(crate) fn within(&self, other: &Self) -> bool {
        if self.digest & !other.digest != 0 || self.len() > other.len() {
            return false;
        }
        let mut rest = &*other.members;
        self.members.iter().all(|member| match rest.binary_search(member) {
            Ok(at) => {
                rest = &rest[at + 1..];
                true
            }
            Err(_) => false,
        })
    }

    /// Whether the sets intersect.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let (few, many) = if self.len() < other.len() { (self, other) } else { (other, self) };
        self.digest & other.digest != 0 && few.iter().any(|member| many.contains(member))
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        self.iter().filter(|member| other.contains(*member)).collect()
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        self.iter().filter(|member| !other.contains(*member)).collect()
    }
}

impl FromIterator<u32> for Set {
    fn from_iter<I: IntoIterator<Item = u32>>(members: I) -> Self {
        let mut members: Vec<u32> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        let digest = members.iter().fold(0, |digest, member| digest | 1 << (member % 64));
        Self { members: members.into(), digest }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn members() -> impl Strategy<Value = BTreeSet<u32>> {
        prop::collection::btree_set(0u32..150, 0..12)
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets(left in members(), right in members()) {
            let (a, b): (Set, Set) = (left.iter().copied().collect(), right.iter().copied().collect());
            let same = |set: Set, other: Vec<u32>| set.iter().eq(other);
            prop_assert_eq!(a.within(&b), left.is_subset(&right));
            prop_assert_eq!(a.meets(&b), !left.is_disjoint(&right));
            prop_assert!(a.within(&a.or(&b)) && a.and(&b).within(&a));
            prop_assert!(same(a.and(&b), left.intersection(&right).copied().collect()));
            prop_assert!(same(a.or(&b), left.union(&right).copied().collect()));
            prop_assert!(same(a.without(&b), left.difference(&right).copied().collect()));
        }
    }
}
