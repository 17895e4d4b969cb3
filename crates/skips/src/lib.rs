//! Counts the tests that a machine cannot run. For tests alone; every crate's tests may use it.
//!
//! A test that needs root, a cgroup, KVM or a compiler calls [`skip`] and returns when the machine
//! lacks it. A skip must never go unnoticed, so two environment variables watch over it:
//!
//! | variable | effect |
//! | --- | --- |
//! | `LAMBSWOOL_REQUIRE` | names of what this machine has, separated by commas: skipping for one of them fails the test |
//! | `LAMBSWOOL_SKIPPED` | a file that gets one line per skip, because the harness hides the output of tests that pass |
//!
//! `make test` prints and counts the lines of that file; `.ci/run` sets what its machine has.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;

/// The names of what a machine may lack.
const KNOWN: [&str; 23] = [
    "awscli",
    "awslambdaric",
    "boto3",
    "cgroup",
    "cgroup-v1",
    "cgroup2",
    "compiler",
    "faults",
    "go",
    "guest_clock",
    "huge_pages",
    "kvm",
    "lambda_runtime",
    "network",
    "node",
    "pagemap_scan",
    "python_tests",
    "pythons",
    "root",
    "schemathesis",
    "stale_rights",
    "sudo",
    "swap",
];

/// Reports that the calling test is skipped because the machine lacks `name`; `why` explains it.
///
/// # Panics
/// When `LAMBSWOOL_REQUIRE` contains `name`, when `name` is unknown, or when the file that
/// `LAMBSWOOL_SKIPPED` names cannot be written.
pub fn skip(name: &str, why: &str) {
    let required = std::env::var("LAMBSWOOL_REQUIRE").unwrap_or_default();
    assert!(KNOWN.contains(&name), "{name} is not among what a machine may lack");
    assert!(
        !names(&required).any(|required| required == name),
        "{why}, and LAMBSWOOL_REQUIRE says that this machine has {name}"
    );
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("SKIPPED: {test}: {why}");
    if let Some(list) = std::env::var_os("LAMBSWOOL_SKIPPED") {
        let list = File::options().create(true).append(true).open(list);
        // A single write: other tests append at the same time.
        let written =
            list.and_then(|mut list| list.write_all(format!("{name}: {test}: {why}\n").as_bytes()));
        written.expect("the file that LAMBSWOOL_SKIPPED names can be written");
    }
}

fn names(required: &str) -> impl Iterator<Item = &str> {
    required.split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a misspelt name would require nothing.
    #[test]
    fn what_this_run_requires_is_known() {
        let required = std::env::var("LAMBSWOOL_REQUIRE").unwrap_or_default();
        let unknown = names(&required).find(|name| !KNOWN.contains(name));
        assert_eq!(unknown, None, "known are {KNOWN:?}");
    }
}
