//! SPECIFICATION.md, the threat model and the table of limits name tests: every one of them exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_test_that_the_specification_names_exists() {
    every_test_named_in("SPECIFICATION.md", 40);
}

#[test]
fn every_test_that_the_threat_model_names_exists() {
    every_test_named_in("docs/threat-model.md", 20);
}

#[test]
fn every_test_that_the_table_of_limits_names_exists() {
    every_test_named_in("docs/user/limits.md", 40);
}

fn every_test_named_in(page: &str, at_least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let specification = fs::read_to_string(root.join(page)).unwrap();
    // Names of tests are the backticked words of lower-case letters, digits and at least three underscores.
    let named: Vec<&str> = specification
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.matches('_').count() >= 3)
        .filter(|word| {
            word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect();
    assert!(named.len() > at_least, "only {} tests are named", named.len());
    let mut sources = String::new();
    for dir in ["crates", "fuzz", "guest/python/tests", "tests"] {
        read_all(&root.join(dir), &mut sources);
    }
    let tests = tests_in(&sources);
    let missing: Vec<&&str> = named.iter().filter(|name| !tests.contains(**name)).collect();
    assert!(missing.is_empty(), "no runner finds these: {missing:#?}");
}

/// The names of all tests that a runner finds: a helper function of tests is none.
fn tests_in(sources: &str) -> BTreeSet<&str> {
    let mut tests = BTreeSet::new();
    let mut is_test = false;
    // The suite of the stores makes a test of each of its functions for each back end.
    let mut in_suite = false;
    for line in sources.lines().map(str::trim) {
        let function = line.split_once("fn ").or_else(|| line.split_once("def "));
        let name = function.and_then(|(_, rest)| rest.split(['(', '<']).next());
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(name) = name {
            if is_test || name.starts_with("test_") {
                tests.insert(name);
            }
            is_test = false;
        }
        if in_suite && line != "}" {
            tests.insert(line);
        }
        in_suite = line.ends_with("conformance! { $backend:") || in_suite && line != "}";
        // A program without a runner of its own names its test itself.
        let named =
            line.strip_prefix("const TEST: &str = \"").and_then(|rest| rest.split_once('"'));
        tests.extend(named.map(|(name, _)| name));
    }
    tests
}

fn read_all(dir: &Path, sources: &mut String) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read_all(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "py") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
