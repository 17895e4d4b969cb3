//! What no choice of zygotes can do better, if it is made once and for all: a bound, and not a plan.

use std::collections::HashMap;

use crate::workload::{Function, Workload, ZYGOTE_BYTES};

/// Milliseconds of imports that a start waits for at least, on the average, whatever zygotes of `budget` bytes together stand
/// there from before the first start to the last. An online policy may exchange its zygotes, and is not bound by it.
///
/// Every start is granted what would suit it best, a zygote of all those of its packages that any zygote has; a package's bytes
/// count once, however many zygotes it is in, and a zygote's own once for all. What is left to choose is which packages to have,
/// whole or in part, by what they save for each byte (the fractional knapsack). Each of these steps lets more be saved.
#[expect(clippy::cast_precision_loss, reason = "bytes and counts")]
pub(crate) fn least_residual(workload: &Workload, judged: &[&Function], budget: u64) -> f64 {
    let mut uses: HashMap<&str, f64> = HashMap::new();
    for package in judged.iter().flat_map(|function| &function.used) {
        *uses.entry(package).or_default() += 1.0;
    }
    let costed = uses.into_iter().filter_map(|(package, uses)| {
        let cost = workload.costs.get(package)?;
        Some((uses * cost.milliseconds, cost.bytes as f64))
    });
    let mut packages: Vec<(f64, f64)> = costed.collect();
    // The most for a byte first; what takes none before all others.
    packages.sort_by(|one, other| (other.0 * one.1).total_cmp(&(one.0 * other.1)));
    let (mut left, mut waited) = (budget.saturating_sub(ZYGOTE_BYTES) as f64, 0.0);
    for (milliseconds, bytes) in packages {
        let part = if bytes > left { left / bytes } else { 1.0 };
        left -= part * bytes;
        waited += (1.0 - part) * milliseconds;
    }
    waited / judged.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use sandbox::fake::Recorded;

    use super::*;
    use crate::workload::tests::function;

    #[test]
    fn what_saves_most_for_its_bytes_is_had_first_and_the_last_in_part() {
        let cost = |(name, milliseconds, bytes): (&str, f64, u64)| {
            (name.to_owned(), Recorded { milliseconds, bytes, ..Recorded::default() })
        };
        let costs = [("a==1", 100.0, 1000), ("b==1", 60.0, 100), ("c==1", 8.0, 0)].map(cost);
        let workload =
            Workload { train: vec![], test: vec![], costs: costs.into(), disk: HashMap::new() };
        let both = function(&["a==1", "b==1", "c==1"]);
        let first = function(&["a==1"]);
        let least =
            |room: u64| least_residual(&workload, &[&both, &first], ZYGOTE_BYTES + room) * 2.0;
        assert_eq!(
            [0, 50, 100, 600, 1100, 5000].map(least),
            [260.0, 230.0, 200.0, 100.0, 0.0, 0.0]
        );
        assert_eq!(least_residual(&workload, &[&both], 0), 160.0);
    }
}
