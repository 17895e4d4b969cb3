//! System calls that functions tried and micro-VMs do not have: kept in the state directory for
//! `wool doctor --microvm`.

mod names;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Numbers that are kept: a guest can try any.
const MAX_CALLS: usize = 256;

/// The file in a state directory: a number a line.
#[must_use]
pub fn file(state: &Path) -> PathBuf {
    state.join("microvm-lacking")
}

/// Calls that libraries try and can do without.
#[cfg(target_arch = "x86_64")]
const OPTIONAL_CALLS: &[i64] = microvm::linux::OPTIONAL_CALLS;
/// No guests run on this processor.
#[cfg(not(target_arch = "x86_64"))]
const OPTIONAL_CALLS: &[i64] = &[];

/// The calls in the text of a file, by name and number: first those that programs may have failed
/// without, then those that libraries can do without.
#[must_use]
pub fn describe(text: &str) -> [Vec<String>; 2] {
    let (mut missed, mut spared) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let call = line.parse::<u64>();
        let is_spared =
            |call: &u64| OPTIONAL_CALLS.iter().any(|it| u64::try_from(*it) == Ok(*call));
        let list = if call.as_ref().is_ok_and(is_spared) { &mut spared } else { &mut missed };
        list.push(call.map_or_else(|_| line.to_owned(), named));
    }
    [missed, spared]
}

fn named(call: u64) -> String {
    names::name(call).map_or_else(|| call.to_string(), |name| format!("{name} ({call})"))
}

/// The numbers that are known, and their file.
#[derive(Debug)]
pub(crate) struct MissingCalls {
    file: PathBuf,
    calls: Mutex<BTreeSet<u64>>,
}

impl MissingCalls {
    /// Reads the file of a state directory.
    pub(crate) fn open(state: &Path) -> Self {
        let file = file(state);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let calls = text.lines().filter_map(|line| line.parse().ok()).take(MAX_CALLS).collect();
        Self { file, calls: Mutex::new(calls) }
    }

    /// Notes a call. Returns whether it is new: repeated calls are neither logged nor written.
    pub(crate) fn note(&self, call: u64) -> bool {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() >= MAX_CALLS || !calls.insert(call) {
            return false;
        }
        let text: String = calls.iter().map(|call| format!("{call}\n")).collect();
        if let Err(error) = fs::write(&self.file, text) {
            tracing::warn!(%error, "the list of missing system calls cannot be written");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_by_its_name_where_that_is_known() {
        assert_eq!(named(290), "eventfd2 (290)");
        assert_eq!(named(165), "mount (165)");
        assert_eq!(named(161), "chroot (161)");
        assert_eq!(named(334), "rseq (334)");
        assert_eq!(named(448), "process_mrelease (448)");
        assert_eq!(named(462), "mseal (462)");
        for none in [335, 423, 463, 9999, u64::MAX] {
            assert_eq!(named(none), none.to_string());
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn optional_calls_are_told_apart() {
        let told = describe("161\n291\n332\n435\n9999\nodd\n");
        assert_eq!(told[0], ["chroot (161)", "9999", "odd"]);
        assert_eq!(told[1], ["epoll_create1 (291)", "statx (332)", "clone3 (435)"]);
    }

    #[test]
    fn missing_calls_are_noted_once_each_up_to_a_limit() {
        let state = tempfile::tempdir().unwrap();
        let lacking = MissingCalls::open(state.path());
        assert_eq!([9, 7, 9].map(|call| lacking.note(call)), [true, true, false]);
        assert_eq!(fs::read_to_string(file(state.path())).unwrap(), "7\n9\n");
        let lacking = MissingCalls::open(state.path());
        let noted = (0..1000).filter(|call| lacking.note(*call)).count();
        assert_eq!(noted, MAX_CALLS - 2);
        assert_eq!(fs::read_to_string(file(state.path())).unwrap().lines().count(), MAX_CALLS);
    }
}
