//! What a long operation tells the client that waits for it.

use std::fmt::Debug;

/// Hears what is going on. Called from the thread that works, and from one that reads an installer's output.
pub trait Progress: Sync + Debug {
    /// A new step begins: `building a base from Python 3.12.1`.
    fn step(&self, text: &str);

    /// A line of an installer's own output.
    fn line(&self, text: &str);

    /// Bytes moved so far in this step, and in all when that is known.
    fn bytes(&self, done: u64, total: Option<u64>);
}

/// Drops what it hears.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&self, _: &str) {}
    fn line(&self, _: &str) {}
    fn bytes(&self, _: u64, _: Option<u64>) {}
}
