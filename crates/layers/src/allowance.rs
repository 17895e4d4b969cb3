//! What a program of ours may take that parses strangers' sources, outside any sandbox.
//!
//! Nothing of a source is run, but a parser or a compiler can be made to take all of a machine: four megabytes of `x` ask a
//! parser for 3.5 gigabytes, and 4 kB of nested `finally` a compiler for more.

use std::process::Command;

use rustix::process::Resource;

/// What each of its processes may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Bytes of address space. The largest sources known (two megabytes, generated) take a quarter of it.
    pub(crate) memory: u64,
    /// Bytes of one file that it writes.
    pub(crate) file: u64,
    /// Seconds of CPU time for one source.
    pub(crate) seconds: u64,
}

pub(crate) const ALLOWANCE: Allowance = Allowance { memory: 1 << 30, file: 256 << 20, seconds: 30 };

impl Allowance {
    /// Holds a program to its memory and its files. Its time it counts itself, as it may have many sources.
    pub(crate) fn hold(&self, command: &mut Command) {
        let none = (Resource::Core, 0);
        sys::process::limit(
            command,
            &[(Resource::As, self.memory), (Resource::Fsize, self.file), none],
        );
    }

    /// The same for a program that has one source, its time included.
    pub(crate) fn hold_one(&self, command: &mut Command) {
        self.hold(command);
        sys::process::limit(command, &[(Resource::Cpu, self.seconds)]);
    }
}
