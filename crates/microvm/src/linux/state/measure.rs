//! The monitor's memory that a process takes, and its limits.

use std::io;

use crate::linux::state::process::Process;
use crate::memory::layout::ARENA_BYTES;
use crate::memory::scan::Scanner;

impl Process {
    /// Limits a process: bytes of memory beyond those that counted when the first machine of its
    /// line was frozen, or that count now if none was; bytes and files of scratch. A reset leaves
    /// the limits as they are.
    pub fn limit(&mut self, memory: u64, scratch_bytes: u64, scratch_nodes: u32) {
        self.space.allow(memory);
        self.kernel.tree.set_room(scratch_bytes, scratch_nodes);
    }

    /// Lets its memory take `bytes` of the room for scratch while no file does: beyond its limit,
    /// page by page as it touches them.
    pub fn share_scratch(&mut self, bytes: u64) {
        self.kernel.tree.share_room(bytes);
    }

    /// Has it tell which of its pages count, by a scanner of the monitor's: without one, all memory
    /// that it maps within its limit does, touched or not.
    pub fn measure_by(&mut self, scanner: &Scanner) {
        self.space.measure_by(scanner.clone());
    }

    /// Bytes of the monitor's memory that its scratch files hold.
    #[doc(hidden)]
    #[must_use]
    pub fn scratch_held(&self) -> u64 {
        self.kernel.tree.held()
    }

    /// Bytes of memory that it does not share with its origin. The monitor's memory for it counts:
    /// scratch, pipes, descriptors, waiting threads, and untaken bytes. KVM's own does not.
    ///
    /// # Errors
    /// Before Linux 6.7.
    pub fn weigh(&self, scanner: &Scanner) -> io::Result<u64> {
        let base = self.space.arena().address();
        let own = scanner.private(base..base + ARENA_BYTES)?;
        let own: u64 = own.iter().map(|range| range.end - range.start).sum();
        let kernel = &self.kernel;
        let held = kernel.tree.held() + kernel.files.held() + kernel.threads.held();
        Ok(own + held + self.untaken_held())
    }
}
