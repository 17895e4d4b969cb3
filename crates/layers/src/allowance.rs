//! Limits for our own programs that parse strangers' sources outside any sandbox.
//!
//! Nothing of a source is run, but a parser or a compiler can be made to take all of a machine:
//! four megabytes of `x` ask a parser for 3.5 gigabytes, and 4 kB of nested `finally` a compiler
//! for more.

use std::process::Command;

use rustix::process::Resource;

/// What each process of such a program may take.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Bytes of address space. The largest sources known (two megabytes, generated) take a quarter
    /// of it.
    pub memory: u64,
    /// Bytes of one file that it writes.
    pub file: u64,
    /// Seconds of CPU time for one source.
    pub seconds: u64,
}

/// What parsing or compiling the sources of one directory may take: 1 GiB of memory, 256 MiB a
/// file, 30 s a source.
pub const ALLOWANCE: Allowance = Allowance { memory: 1 << 30, file: 256 << 20, seconds: 30 };

impl Allowance {
    /// Limits a program's memory and files. The program counts its time itself, as it may have many
    /// sources.
    pub(crate) fn hold(&self, command: &mut Command) {
        let none = (Resource::Core, 0);
        sys::process::limit(
            command,
            &[(Resource::As, self.memory), (Resource::Fsize, self.file), none],
        );
    }

    /// The same for a program that has one source: its time is limited, too.
    pub fn hold_one(&self, command: &mut Command) {
        self.hold(command);
        sys::process::limit(command, &[(Resource::Cpu, self.seconds)]);
    }
}
