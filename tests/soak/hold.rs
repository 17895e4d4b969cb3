//! The worker's fault points (`engine::fault`), from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Every stage of a call, what comes before and after them, and what happens off its path.
pub(crate) const POINTS: [&str; 12] = [
    "invoke",
    "resolve",
    "admit",
    "handler_cache",
    "install_cache",
    "import_cache",
    "fork",
    "load",
    "call",
    "park",
    "reply",
    "reap",
];

/// How long a point may take to be reached: rare ones wait for a deploy.
const PATIENCE: Duration = Duration::from_secs(2);

/// The directory where points are asked for.
#[derive(Debug)]
pub(crate) struct Holds(PathBuf);

/// Whoever came to a point waits there until this is dropped.
#[derive(Debug)]
pub(crate) struct Held(PathBuf);

impl Holds {
    pub(crate) fn in_dir(dir: &Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        Self(dir.to_owned())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    /// Holds the next that comes to a point; none when nobody came in time.
    pub(crate) fn hold(&self, point: &str) -> Option<Held> {
        let (asked, held) = (self.0.join(point), self.0.join(point).with_extension("held"));
        fs::write(&asked, "").unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if held.exists() {
                return Some(Held(held));
            }
            if Instant::now() > deadline && fs::remove_file(&asked).is_ok() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}
