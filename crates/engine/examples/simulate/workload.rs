//! Requirement sets and package costs, as Forklift recorded them (open-lambda/forklift, Apache-2.0).
//!
//! A *package* is `name==version`; it is distribution, module and recorded cost at once, since costs were recorded by
//! package. A function *uses* the packages whose modules it imports and all that those depend on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use engine::Distribution;
use flate2::read::GzDecoder;
use sandbox::fake::Recorded;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Fitted to what Forklift's trees of 40 and 160 nodes weigh (1.07 and 3.25 GB): bytes of a zygote by itself, and bytes
/// for each that a package's import was recorded to add.
pub(crate) const ZYGOTE_BYTES: u64 = 10_100_000;
const BYTES_PER_BYTE: f64 = 3.31;

/// One function of the trace.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// Everything that it locked.
    pub(crate) pins: Arc<[Distribution]>,
    /// What it names itself.
    pub(crate) direct: Vec<String>,
    /// What it imports, directly or not.
    pub(crate) used: BTreeSet<String>,
}

impl Function {
    /// Its requirement set.
    pub(crate) fn set(&self) -> Vec<&str> {
        self.pins.iter().map(|pin| &*pin.wheel).collect()
    }
}

/// Functions with the costs of their packages.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) train: Vec<Function>,
    pub(crate) test: Vec<Function>,
    pub(crate) costs: HashMap<String, Recorded>,
    /// Bytes on disk by package.
    pub(crate) disk: HashMap<String, u64>,
}

#[derive(Deserialize)]
struct Trace {
    w1: Half,
    w2: Half,
}

#[derive(Deserialize)]
struct Half {
    funcs: Vec<Listed>,
    calls: Vec<String>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    pins: Vec<String>,
    direct: Vec<String>,
    import_mods: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    versions: BTreeMap<String, Version>,
}

#[derive(Deserialize)]
struct Version {
    top: Vec<String>,
    cost: Option<Cost>,
}

#[derive(Clone, Copy, Deserialize)]
struct Cost {
    ms: f64,
    mb: f64,
}

#[derive(Deserialize)]
struct Installed {
    disk_size: u64,
}

/// Dependency sets of a package by version, each `a==1,b==2`, with how often it was resolved so.
type Resolved = BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>>;

impl Workload {
    /// Reads `trial0_train_test.json.gz` and the cost files beside it.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let trace: Trace = read(&directory.join("trial0_train_test.json.gz"))?;
        let packages: BTreeMap<String, Package> = read(&directory.join("package_costs.json"))?;
        let resolved: Resolved = read(&directory.join("deps.json"))?;
        let installed: BTreeMap<String, BTreeMap<String, Installed>> =
            read(&directory.join("reqbench_install_import.json"))?;
        let mut costs = HashMap::new();
        let mut tops: HashMap<String, Vec<String>> = HashMap::new();
        for (name, package) in packages {
            for (version, facts) in package.versions {
                let label = format!("{name}=={version}");
                let needs = needs(&resolved, &name, &version);
                let cost = facts.cost.unwrap_or(Cost { ms: 0.0, mb: 0.0 });
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "clamped"
                )]
                let bytes = (cost.mb.max(0.0) * f64::from(1 << 20) * BYTES_PER_BYTE) as u64;
                costs.insert(
                    label.clone(),
                    Recorded {
                        milliseconds: cost.ms.max(0.0),
                        bytes,
                        needs,
                        ..Recorded::default()
                    },
                );
                tops.insert(label, facts.top);
            }
        }
        let disk = installed.into_iter().flat_map(|(name, versions)| {
            let label = move |(version, one): (String, Installed)| {
                (format!("{name}=={version}"), one.disk_size)
            };
            versions.into_iter().map(label)
        });
        let half = |half: Half| -> Result<Vec<Function>> {
            let by_name: HashMap<&str, &Listed> =
                half.funcs.iter().map(|one| (&*one.name, one)).collect();
            let called = half.calls.iter().map(|name| {
                let listed = by_name.get(&**name).with_context(|| format!("no function {name}"))?;
                Ok(function(listed, &tops, &resolved))
            });
            called.collect()
        };
        let (train, test) = (half(trace.w1)?, half(trace.w2)?);
        Ok(Self { train, test, costs, disk: disk.collect() })
    }

    /// Milliseconds to import what the function uses beyond `had`.
    pub(crate) fn residual(&self, function: &Function, had: &BTreeSet<String>) -> f64 {
        let missing = function.used.iter().filter(|package| !had.contains(*package));
        missing.filter_map(|package| Some(self.costs.get(package)?.milliseconds)).sum()
    }
}

fn function(listed: &Listed, tops: &HashMap<String, Vec<String>>, resolved: &Resolved) -> Function {
    let pins: BTreeSet<String> = listed.pins.iter().map(|pin| plain(pin)).collect();
    let imports = |package: &&String| {
        tops.get(*package)
            .is_some_and(|tops| tops.iter().any(|top| listed.import_mods.contains(top)))
    };
    let mut used: BTreeSet<String> = pins.iter().filter(imports).cloned().collect();
    for package in used.clone() {
        let Some((name, version)) = package.split_once("==") else { continue };
        let sets = resolved.get(name).and_then(|versions| versions.get(version));
        for set in sets.into_iter().flat_map(BTreeMap::keys) {
            let members: Vec<String> = set.split(',').map(plain).collect();
            if members.iter().all(|member| pins.contains(member)) {
                used.extend(members);
            }
        }
    }
    let distribution = |pin: &String| distribution(pin, tops.contains_key(pin));
    let direct =
        listed.direct.iter().map(|pin| plain(pin)).filter(|pin| tops.contains_key(pin)).collect();
    Function { pins: pins.iter().map(distribution).collect(), direct, used }
}

/// A package as the lock of a function has it.
pub(crate) fn distribution(pin: &str, importable: bool) -> Distribution {
    let (name, version) = pin.split_once("==").unwrap_or((pin, ""));
    let modules = if importable { vec![pin.to_owned()] } else { Vec::new() };
    Distribution {
        name: name.to_owned(),
        version: version.to_owned(),
        wheel: pin.to_owned(),
        modules,
    }
}

/// What every resolution of the package needs, by name.
fn needs(resolved: &Resolved, name: &str, version: &str) -> Vec<String> {
    let Some(sets) = resolved.get(name).and_then(|versions| versions.get(version)) else {
        return Vec::new();
    };
    let names = |set: &String| -> BTreeSet<String> {
        let members =
            set.split(',').filter_map(|member| Some(plain(member).split_once("==")?.0.to_owned()));
        members.collect()
    };
    let common = sets.keys().map(names).reduce(|one, other| &one & &other).unwrap_or_default();
    common.into_iter().filter(|need| need != name).collect()
}

/// `name==version` without extras and conditions.
fn plain(pin: &str) -> String {
    let pin = pin.split(';').next().unwrap_or(pin).trim();
    match (pin.split_once('['), pin.split_once("==")) {
        (Some((name, _)), Some((_, version))) => format!("{name}=={version}"),
        _ => pin.to_owned(),
    }
}

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let open = || File::open(path).with_context(|| format!("read {}", path.display()));
    let parsed = if path.extension().is_some_and(|extension| extension == "gz") {
        serde_json::from_reader(GzDecoder::new(open()?))
    } else {
        serde_json::from_reader(std::io::BufReader::new(open()?))
    };
    parsed.with_context(|| format!("parse {}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One that locks these, says so, and imports them all.
    pub(crate) fn function(packages: &[&str]) -> Function {
        Function {
            pins: packages.iter().map(|pin| distribution(pin, true)).collect(),
            direct: packages.iter().map(|pin| (*pin).to_owned()).collect(),
            used: packages.iter().map(|pin| (*pin).to_owned()).collect(),
        }
    }
}
