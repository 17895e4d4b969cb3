//! Which handlers have begun which calls: each prints its call's number first of all, and the worker's logs keep it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use crate::history::History;

/// Calls that were answered well, with the number of their worker's life and the function.
#[derive(Debug, Default)]
pub(crate) struct Starts(Mutex<BTreeMap<u64, (u32, &'static str)>>);

impl Starts {
    pub(crate) fn answered(&self, call: u64, epoch: u32, kind: &'static str) {
        self.0.lock().unwrap().insert(call, (epoch, kind));
    }

    /// Reads the logs: no call has begun twice; whatever a worker answered that ended well has begun. How many began.
    pub(crate) fn check(&self, logs: &Path, ended_well: &[u32], history: &History) -> usize {
        let mut begun = BTreeMap::<u64, u32>::new();
        for file in fs::read_dir(logs).into_iter().flatten().flatten() {
            for file in fs::read_dir(file.path()).into_iter().flatten().flatten() {
                let bytes = fs::read(file.path()).unwrap_or_default();
                for line in String::from_utf8_lossy(&bytes).lines() {
                    let said =
                        line.split_once(" stdout begun ").and_then(|(_, call)| call.parse().ok());
                    if let Some(call) = said {
                        *begun.entry(call).or_default() += 1;
                    }
                }
            }
        }
        for (call, _) in begun.iter().filter(|(_, times)| **times > 1) {
            history.failure(format_args!("call {call} has begun more than once"));
        }
        let answered = self.0.lock().unwrap();
        // The last output of a killed worker may be lost with it.
        for (call, (epoch, kind)) in answered.iter() {
            if ended_well.contains(epoch) && !begun.contains_key(call) {
                history.failure(format_args!("{kind} {call} was answered and is in no log"));
            }
        }
        begun.len()
    }
}
