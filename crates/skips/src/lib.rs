//! What tests say when the machine lacks what they need: for tests alone.
//!
//! `LAMBSWOOL_REQUIRE` names what the machine has, with commas between: what is named there is not skipped but fails. The file
//! that `LAMBSWOOL_SKIPPED` names gets a line for each skip, since a test harness keeps to itself what a passing test says;
//! `make test` prints and counts them.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Write;

/// What a machine may lack.
const KNOWN: [&str; 17] = [
    "cgroup",
    "cgroup-v1",
    "cgroup2",
    "compiler",
    "faults",
    "guest_clock",
    "huge_pages",
    "kvm",
    "network",
    "pagemap_scan",
    "python_tests",
    "pythons",
    "root",
    "schemathesis",
    "stale_rights",
    "sudo",
    "swap",
];

/// Says that a test has nothing to do here: the machine lacks `name`, as `why` explains.
///
/// # Panics
/// Where `LAMBSWOOL_REQUIRE` says that the machine has it, or names what nobody knows; where the line cannot be written.
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
        // One write: other tests append at the same time.
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

    /// Else a misspelt name would require nothing.
    #[test]
    fn what_this_run_requires_is_known() {
        let required = std::env::var("LAMBSWOOL_REQUIRE").unwrap_or_default();
        let unknown = names(&required).find(|name| !KNOWN.contains(name));
        assert_eq!(unknown, None, "known are {KNOWN:?}");
    }
}
