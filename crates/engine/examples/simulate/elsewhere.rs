//! Functions that are not from the trace: made by a seeded generator from the twenty libraries of bench/libraries, with what
//! importing them was measured to cost here (`library_costs.json`, which `measure_libraries.py` wrote).
//!
//! A function imports one to four libraries, one by its popularity (Zipf, exponent 1) and each further one with a probability of
//! 0.4; one function in five locks a library more, which it does not import. It locks all that these need. Of each package
//! there are three versions, which cost the same: a lock has the newest with a probability of 0.7, then 0.2 and 0.1.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::{Context, Result};
use fastrand::Rng;
use sandbox::fake::Recorded;
use serde::Deserialize;

use crate::workload::{Function, Workload, distribution, read};

const FUNCTIONS: usize = 1000;
const MOST_LIBRARIES: usize = 4;
const FURTHER: f64 = 0.4;
const UNUSED: f64 = 0.2;
const VERSIONS: [(&str, f64); 3] = [("3", 0.7), ("2", 0.2), ("1", 0.1)];
const SEED: u64 = 20;

/// `library_costs.json`.
#[derive(Debug, Deserialize)]
struct Measured {
    /// The packages that functions name.
    libraries: Vec<String>,
    packages: BTreeMap<String, Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    milliseconds: f64,
    bytes: u64,
    /// What it imports of other packages, by name.
    needs: Vec<String>,
}

/// Functions of what `library_costs.json` in the directory tells.
pub(crate) fn workload(directory: &Path) -> Result<Workload> {
    made(&read(&directory.join("library_costs.json"))?, FUNCTIONS)
}

fn made(measured: &Measured, functions: usize) -> Result<Workload> {
    let mut random = Rng::with_seed(SEED);
    let mut popular = measured.libraries.clone();
    random.shuffle(&mut popular);
    let functions = (0..functions).map(|_| function(measured, &popular, &mut random));
    let train = functions.collect::<Result<_>>()?;
    let versions = measured.packages.iter().flat_map(|(name, package)| {
        VERSIONS.map(|(version, _)| {
            let Package { milliseconds, bytes, .. } = *package;
            let needs = package.needs.clone();
            let cost = Recorded { milliseconds, bytes, needs, ..Recorded::default() };
            (format!("{name}=={version}"), cost)
        })
    });
    Ok(Workload { train, test: Vec::new(), costs: versions.collect(), disk: HashMap::new() })
}

fn function(measured: &Measured, popular: &[String], random: &mut Rng) -> Result<Function> {
    let mut named = vec![library(popular, random)];
    while named.len() < MOST_LIBRARIES && random.f64() < FURTHER {
        let further = library(popular, random);
        if !named.contains(&further) {
            named.push(further);
        }
    }
    let used = closure(measured, &named)?;
    let mut locked = used.clone();
    if random.f64() < UNUSED {
        locked.extend(closure(measured, &[library(popular, random)])?);
    }
    let pins: BTreeMap<&str, String> =
        locked.iter().map(|name| (*name, format!("{name}=={}", version(random)))).collect();
    Ok(Function {
        pins: pins.values().map(|pin| distribution(pin, true)).collect(),
        direct: named.iter().map(|name| pins[*name].clone()).collect(),
        used: used.iter().map(|name| pins[*name].clone()).collect(),
    })
}

/// The nth most popular one with a probability in proportion to 1/n.
#[expect(clippy::cast_precision_loss, reason = "a rank")]
fn library<'a>(popular: &'a [String], random: &mut Rng) -> &'a str {
    let all: f64 = (1..=popular.len()).map(|rank| (rank as f64).recip()).sum();
    let mut left = random.f64() * all;
    let at = (1..=popular.len()).position(|rank| {
        left -= (rank as f64).recip();
        left <= 0.0
    });
    &popular[at.unwrap_or(0)]
}

fn version(random: &mut Rng) -> &'static str {
    let mut left = random.f64();
    let found = VERSIONS.iter().find(|(_, share)| {
        left -= share;
        left <= 0.0
    });
    found.unwrap_or(&VERSIONS[0]).0
}

/// These and all that they need.
fn closure<'a>(measured: &'a Measured, named: &[&'a str]) -> Result<BTreeSet<&'a str>> {
    let mut closed = BTreeSet::new();
    let mut open = named.to_vec();
    while let Some(name) = open.pop() {
        if closed.insert(name) {
            let package = measured.packages.get(name);
            let package = package.with_context(|| format!("{name} was not measured"))?;
            open.extend(package.needs.iter().map(String::as_str));
        }
    }
    Ok(closed)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn measured() -> Measured {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/workloads");
        read(&path.join("library_costs.json")).unwrap()
    }

    /// Sixty of its functions.
    pub(crate) fn small() -> Workload {
        made(&measured(), 60).unwrap()
    }

    #[test]
    fn the_same_functions_are_made_each_time_and_each_uses_no_more_than_it_locked() {
        let (one, other) = (small(), small());
        assert_eq!(measured().libraries.len(), 20);
        for (one, other) in one.train.iter().zip(&other.train) {
            assert_eq!((one.set(), &one.used), (other.set(), &other.used));
        }
        for function in &one.train {
            let set: BTreeSet<&str> = function.set().into_iter().collect();
            assert!(function.used.iter().all(|package| set.contains(&**package)), "{function:?}");
            assert!(function.direct.iter().all(|package| function.used.contains(package)));
            assert!(one.residual(function, &BTreeSet::new()) > 1.0, "{function:?}");
        }
        let sets: BTreeSet<Vec<&str>> = one.train.iter().map(Function::set).collect();
        assert!(sets.len() > 40, "{} sets", sets.len());
    }

    #[test]
    fn its_splits_share_no_set() {
        let workload = small();
        let all = crate::splits::splits(&workload, crate::splits::Protocol::Elsewhere);
        assert_eq!(all.len(), 3);
        for split in all {
            let sets = |half: &[&Function]| -> BTreeSet<Vec<String>> {
                let set = |one: &&Function| one.set().into_iter().map(str::to_owned).collect();
                half.iter().map(set).collect()
            };
            assert!(sets(&split.warm).is_disjoint(&sets(&split.judged)), "{}", split.name);
            assert!(!split.judged.is_empty());
        }
    }
}
