//! Which zygotes must go, as a plain function.

/// One zygote, as far as its eviction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) bytes: u64,
    /// When it was last forked from; greater is later, and no two are equal.
    pub(crate) used: u64,
    /// It has imported nothing, and all others of its Python come from it.
    pub(crate) root: bool,
}

/// The places in `held` of those that must go so that the rest fits into `budget`: the least recently used zygotes of
/// package sets first, then roots, but never the last root that was used.
pub(crate) fn evict(held: &[Held], budget: u64) -> Vec<usize> {
    let mut bytes: u64 = held.iter().map(|one| one.bytes).sum();
    let last_root = held.iter().filter(|one| one.root).map(|one| one.used).max();
    let mut order: Vec<usize> =
        (0..held.len()).filter(|at| !held[*at].root || Some(held[*at].used) != last_root).collect();
    order.sort_by_key(|at| (held[*at].root, held[*at].used));
    let mut victims = Vec::new();
    for at in order {
        if bytes <= budget {
            break;
        }
        bytes -= held[at].bytes;
        victims.push(at);
    }
    victims
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zygotes() -> impl Strategy<Value = Vec<Held>> {
        prop::collection::vec((0u64..100, any::<bool>()), 0..12).prop_map(|list| {
            let zygotes = list.into_iter().zip(0..);
            zygotes
                .map(|((bytes, root), used)| Held { bytes, used: (used * 7) % 13, root })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn the_rest_fits_or_is_only_the_last_root(held in zygotes(), budget in 0u64..500) {
            let victims = evict(&held, budget);
            let rest: Vec<_> = held.iter().enumerate().filter(|(at, _)| !victims.contains(at)).map(|(_, one)| one).collect();
            let bytes: u64 = rest.iter().map(|one| one.bytes).sum();
            prop_assert!(bytes <= budget || (rest.len() == 1 && rest[0].root));
        }

        #[test]
        fn the_last_root_stays(held in zygotes(), budget in 0u64..500) {
            let last = (0..held.len()).filter(|at| held[*at].root).max_by_key(|at| held[*at].used);
            prop_assert!(last.is_none_or(|last| !evict(&held, budget).contains(&last)));
        }

        #[test]
        fn nothing_goes_while_all_fits_and_no_root_before_a_package_set(held in zygotes(), budget in 0u64..500) {
            let victims = evict(&held, budget);
            let total: u64 = held.iter().map(|one| one.bytes).sum();
            prop_assert_eq!(victims.is_empty(), total <= budget || held.iter().all(|one| one.root) && held.len() == 1);
            if victims.iter().any(|at| held[*at].root) {
                prop_assert!((0..held.len()).filter(|at| !held[*at].root).all(|at| victims.contains(&at)));
            }
        }
    }
}
