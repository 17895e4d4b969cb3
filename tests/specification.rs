//! SPECIFICATION.md names tests: every one of them exists.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_test_that_the_specification_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let specification = fs::read_to_string(root.join("SPECIFICATION.md")).unwrap();
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
    assert!(named.len() > 40, "only {} tests are named", named.len());
    let mut sources = String::new();
    for dir in ["crates", "tests"] {
        read_all(&root.join(dir), &mut sources);
    }
    let missing: Vec<&&str> =
        named.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

fn read_all(dir: &Path, sources: &mut String) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read_all(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
