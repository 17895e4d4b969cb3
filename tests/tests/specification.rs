//! SPECIFICATION.md, the threat model and the table of limits name tests: every one of them exists.

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
    every_test_named_in("docs/limits.md", 40);
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
    let missing: Vec<&&str> = named.iter().filter(|name| !is_test(&sources, name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Whether a runner finds a test of this name: a helper function of tests does not count.
fn is_test(sources: &str, name: &str) -> bool {
    if sources.contains(&format!("def {name}(")) && name.starts_with("test_") {
        return true;
    }
    // A program without a runner of its own names its test itself.
    if sources.contains(&format!("const TEST: &str = \"{name}\";")) {
        return true;
    }
    sources.match_indices(&format!("fn {name}(")).any(|(place, _)| {
        let above = sources[..place].lines().rev().skip(1);
        let mut attributes = above.map(str::trim).take_while(|line| {
            line.starts_with("#[") || line.starts_with("//") || line.ends_with(")]")
        });
        attributes.any(|line| line == "#[test]" || line.starts_with("#[tokio::test"))
    })
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
