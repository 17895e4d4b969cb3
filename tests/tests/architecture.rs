//! The arrows between the crates, and where what kind of code may stand.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::Value;

/// Each crate, with those of ours that it uses. A new crate needs a row here and in the design.
const ARROWS: [(&str, &[&str]); 23] = [
    // For tests alone.
    ("skips", &[]),
    ("aws", &[]),
    ("sys", &[]),
    ("function", &[]),
    ("lambda-api", &[]),
    ("sandbox", &["function"]),
    ("layers", &["sandbox", "sys"]),
    ("packages", &["layers", "sandbox"]),
    ("bundle", &["packages", "layers", "sandbox", "function"]),
    ("warden", &["sys"]),
    ("egress", &["sandbox", "warden", "sys"]),
    ("container", &["egress", "sandbox", "warden", "sys"]),
    ("microvm", &[]),
    ("vmm", &["microvm", "container", "warden", "sandbox", "sys"]),
    ("engine", &["function", "sandbox"]),
    ("store", &["function"]),
    ("store-sqlite", &["store", "function"]),
    (
        "platform",
        &[
            "aws", "store", "engine", "function", "bundle", "packages", "layers", "egress",
            "sandbox", "sys",
        ],
    ),
    (
        "doors",
        &[
            "platform",
            "store",
            "engine",
            "function",
            "lambda-api",
            "bundle",
            "packages",
            "sandbox",
            "aws",
        ],
    ),
    (
        "wool",
        &[
            "doors",
            "platform",
            "store",
            "store-sqlite",
            "engine",
            "function",
            "lambda-api",
            "vmm",
            "aws",
            "container",
            "egress",
            "bundle",
            "packages",
            "layers",
            "sandbox",
            "sys",
        ],
    ),
    // The harness measures parts by themselves, too.
    ("bench", &["container", "microvm"]),
    // The fuzzer feeds parts by themselves.
    (
        "fuzz",
        &[
            "skips",
            "sandbox",
            "layers",
            "packages",
            "bundle",
            "warden",
            "microvm",
            "vmm",
            "engine",
            "function",
            "lambda-api",
        ],
    ),
    // These tests know the worker as its users do.
    ("e2e", &["skips"]),
];

/// Where `unsafe` is forbidden by the compiler.
const SAFE: [&str; 17] = [
    "skips",
    "aws",
    "function",
    "lambda-api",
    "sandbox",
    "engine",
    "store",
    "store-sqlite",
    "egress",
    "layers",
    "packages",
    "bundle",
    "vmm",
    "platform",
    "doors",
    "wool",
    "bench",
];

#[test]
fn the_arrows_are_the_dependencies_and_none_points_back() {
    let packages = packages();
    let ours: BTreeSet<&str> = packages.iter().map(name).collect();
    for package in &packages {
        let known = ARROWS.iter().find(|(crate_name, _)| *crate_name == name(package));
        let (_, drawn) = known.unwrap_or_else(|| panic!("{} has no row here", name(package)));
        // Tests may use more: their kind is "dev".
        let dependencies = list(package, "dependencies").iter().filter(|one| one["kind"].is_null());
        let used = dependencies.map(name).filter(|target| ours.contains(target)).collect();
        // An arrow that is drawn and not used would let the next one through unseen.
        let drawn: BTreeSet<&str> = drawn.iter().copied().collect();
        assert_eq!(drawn, used, "{}: what is drawn here, and what it uses", name(package));
    }
    for (crate_name, drawn) in ARROWS {
        for target in drawn {
            let (from, to) = (place(crate_name), place(target));
            assert!(to < from, "{crate_name} → {target} points back");
        }
    }
}

/// Each folder of the import cache uses only those below it.
#[test]
fn the_floors_of_the_import_cache_point_downward() {
    const FLOORS: [&str; 4] = ["model", "policy", "state", "work"];
    let crates = e2e::machine::manifest_dir().join("../crates");
    let cache = crates.join("engine/src/import_cache");
    for (height, floor) in FLOORS.iter().enumerate() {
        let files = rust_files(&cache.join(floor));
        assert!(!files.is_empty(), "{floor} is gone");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            // Tests may look anywhere.
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for above in &FLOORS[height + 1..] {
                let names = [format!("import_cache::{above}::"), format!("super::{above}::")];
                let used = names.iter().find(|name| code.contains(*name));
                assert_eq!(used, None, "{} uses a floor above it", file.display());
            }
        }
    }
}

/// For aarch64 everything else compiles: `make check-aarch64`.
#[test]
fn what_is_shipped_needs_the_monitor_on_x86_64_alone() {
    for package in packages() {
        let needed = list(&package, "dependencies").iter().filter(|one| name(one) == "microvm");
        let targets: Vec<&Value> = needed.map(|one| &one["target"]).collect();
        match name(&package) {
            "bench" | "fuzz" => {}
            "vmm" => assert_eq!(targets, ["cfg(target_arch = \"x86_64\")"]),
            other => assert!(targets.is_empty(), "{other} needs it"),
        }
    }
}

#[test]
fn the_only_feature_of_any_crate_is_the_fake() {
    for package in packages() {
        let features: Vec<&String> = package["features"].as_object().unwrap().keys().collect();
        let has_double = ["sandbox", "store"].contains(&name(&package));
        let expected: &[&str] = if has_double { &["fake"] } else { &[] };
        assert_eq!(features, expected, "{}: an ablation is a setting", name(&package));
    }
}

#[test]
fn nothing_that_is_shipped_has_the_fake_in_it() {
    for package in packages() {
        for dependency in list(&package, "dependencies") {
            let fake = list(dependency, "features").iter().any(|feature| feature == "fake");
            let shipped = dependency["kind"].is_null() && name(&package) != "bench";
            assert!(
                !(fake && shipped),
                "{} ships the fake of {}",
                name(&package),
                name(dependency)
            );
        }
    }
}

/// A build with debug assertions can: `crates/warden/src/defence.rs`.
#[test]
fn the_warden_that_is_shipped_switches_no_defence_off() {
    let root = e2e::machine::manifest_dir().join("..");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--locked", "--quiet", "--package", "warden"]);
    let built = cargo.arg("--message-format=json").current_dir(&root).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = built.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut messages = messages.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let program = messages.find_map(|one| Some(one["executable"].as_str()?.to_owned())).unwrap();

    let isolation = "lean,unsafe-without=own-uid";
    let said = Command::new(&program).args(["--isolation", isolation]).output().unwrap();
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(words.contains("a release switches no defence off"), "{words}");

    let program = fs::read(program).unwrap();
    let program = String::from_utf8_lossy(&program);
    let source = fs::read_to_string(root.join("crates/warden/src/defence.rs")).unwrap();
    let table = source.split_once("defences! {\n").unwrap().1.split_once("\n}").unwrap().0;
    for line in table.lines() {
        let [_, name, _, without, _] = line.split('"').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        for text in [name, without].into_iter().filter(|text| text.contains(['-', ' '])) {
            assert!(!program.contains(text), "a release contains {text:?}");
        }
    }
}

#[test]
fn the_seam_needs_no_runtime() {
    let packages = packages();
    let sandbox = packages.iter().find(|package| name(package) == "sandbox").unwrap();
    for dependency in list(sandbox, "dependencies") {
        let needed = dependency["optional"] == false && dependency["kind"].is_null();
        assert!(!(needed && name(dependency) == "tokio"), "tokio belongs to the fake alone");
    }
}

#[test]
fn unsafe_code_is_forbidden_where_nobody_needs_it() {
    for package in packages().iter().filter(|package| SAFE.contains(&name(package))) {
        for target in list(package, "targets") {
            let kinds = list(target, "kind");
            if kinds.iter().any(|kind| kind == "lib" || kind == "bin") {
                let root = target["src_path"].as_str().unwrap();
                let source = fs::read_to_string(root).unwrap();
                assert!(
                    source.contains("#![forbid(unsafe_code)]"),
                    "{root} does not forbid unsafe"
                );
            }
        }
    }
}

/// What has methods without a permit stays with the worker: through it a door could do what no caller was granted.
#[test]
fn a_door_is_given_use_cases_and_no_stores() {
    let stores = ["Registry", "Vault", "Engine"];
    for file in rust_files(&e2e::machine::manifest_dir().join("../crates/doors/src")) {
        let text = fs::read_to_string(&file).unwrap();
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let found = words.find(|word| stores.contains(word));
        assert_eq!(found, None, "{} names a store", file.display());
    }
}

#[test]
fn all_crates_share_the_workspaces_lints() {
    for package in packages() {
        let manifest = package["manifest_path"].as_str().unwrap();
        let text = fs::read_to_string(Path::new(manifest)).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "{manifest}");
    }
}

/// The Rust files in a directory and below.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|kind| kind == "rs")).collect()
}

fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"]);
    let said = cargo.current_dir(e2e::machine::manifest_dir()).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let metadata: Value = serde_json::from_slice(&said.stdout).unwrap();
    list(&metadata, "packages").clone()
}

fn place(crate_name: &str) -> usize {
    ARROWS.iter().position(|(other, _)| *other == crate_name).unwrap()
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap()
}
