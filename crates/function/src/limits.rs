//! How much of the host an instance of a function may take.

use serde::{Deserialize, Serialize};

use crate::Cpu;

/// Limits of one sandbox. On a host that cannot enforce one, `wool doctor` says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory, page tables included, and as much scratch as is not asked for ([`Limits::SCRATCH`]).
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes that `/tmp` holds; `/dev/shm` holds as much again.
    pub scratch_bytes: u64,
    /// Files that `/tmp` holds; `/dev/shm` holds as many again.
    pub scratch_inodes: u32,
    /// Its part of the processors.
    #[serde(default, skip_serializing_if = "Cpu::is_unlimited")]
    pub cpu: Cpu,
}

impl Limits {
    /// Bytes of scratch that a sandbox has unless it asks for another number.
    pub const SCRATCH: u64 = 64 << 20;

    /// Bytes that a sandbox may cost the host: its memory, and the scratch that it asks for beyond what all have. A file in
    /// scratch is memory.
    #[must_use]
    pub fn charged_bytes(&self) -> u64 {
        self.memory_bytes.saturating_add(self.scratch_bytes.saturating_sub(Self::SCRATCH))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 512 << 20,
            pids: 64,
            scratch_bytes: Self::SCRATCH,
            scratch_inodes: 4096,
            cpu: Cpu::default(),
        }
    }
}
