//! What a process takes of the monitor's memory, and how much it may.

use std::io;

use crate::linux::state::process::Process;
use crate::memory::layout::ARENA_BYTES;
use crate::memory::scan::Scanner;

impl Process {
    /// Bounds what it uses from now on: bytes of memory beyond what was mapped when the first machine was frozen that it comes
    /// from, or now, if it comes from none; bytes and files of scratch. A reset leaves the bounds as they are.
    pub fn limit(&mut self, memory: u64, scratch_bytes: u64, scratch_nodes: u32) {
        self.space.allow(memory);
        self.kernel.tree.set_room(scratch_bytes, scratch_nodes);
    }

    /// Bytes of the monitor's memory that its scratch files hold.
    #[doc(hidden)]
    #[must_use]
    pub fn scratch_held(&self) -> u64 {
        self.kernel.tree.held()
    }

    /// Bytes of memory that it does not share with what it was cloned from. The monitor's for it are included: scratch files,
    /// pipes, descriptors, waiting threads, and what was said and not taken. KVM's own for it are not.
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
