//! Which system calls functions have tried that micro-VMs do not have: kept in the state directory for `wool doctor
//! --microvm`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use warden::filter::{allowed, refused};

/// Kinds that are kept: a guest can try any number.
const MOST: usize = 256;

/// Where they are kept: a number a line.
#[must_use]
pub fn file(state: &Path) -> PathBuf {
    state.join("microvm-lacking")
}

/// A call's name with its number, as far as the filters of containers name it.
#[must_use]
pub fn named(call: u64) -> String {
    let allowed = allowed::GROUPS.iter().flat_map(|group| group.calls);
    let mut all = allowed.chain(refused::REFUSALS.iter().flat_map(|refusal| refusal.calls));
    match all.find(|(_, number)| u64::try_from(*number) == Ok(call)) {
        Some((name, _)) => format!("{} ({call})", name.trim_start_matches("SYS_")),
        None => call.to_string(),
    }
}

/// Those that are known.
#[derive(Debug)]
pub(crate) struct Lacking {
    file: PathBuf,
    calls: Mutex<BTreeSet<u64>>,
}

impl Lacking {
    /// Goes on from what a state directory holds.
    pub(crate) fn open(state: &Path) -> Self {
        let file = file(state);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let calls = text.lines().filter_map(|line| line.parse().ok()).take(MOST).collect();
        Self { file, calls: Mutex::new(calls) }
    }

    /// Notes one. Whether it is new: who tells of it again and again is not heard, and takes nobody's time.
    pub(crate) fn note(&self, call: u64) -> bool {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() >= MOST || !calls.insert(call) {
            return false;
        }
        let text: String = calls.iter().map(|call| format!("{call}\n")).collect();
        if let Err(error) = fs::write(&self.file, text) {
            tracing::warn!(%error, "what micro-VMs lack could not be written down");
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
        assert_eq!(named(9999), "9999");
    }

    #[test]
    fn what_was_missed_is_remembered_once_each_and_not_without_end() {
        let state = tempfile::tempdir().unwrap();
        let lacking = Lacking::open(state.path());
        assert_eq!([9, 7, 9].map(|call| lacking.note(call)), [true, true, false]);
        assert_eq!(fs::read_to_string(file(state.path())).unwrap(), "7\n9\n");
        let lacking = Lacking::open(state.path());
        let noted = (0..1000).filter(|call| lacking.note(*call)).count();
        assert_eq!(noted, MOST - 2);
        assert_eq!(fs::read_to_string(file(state.path())).unwrap().lines().count(), MOST);
    }
}
