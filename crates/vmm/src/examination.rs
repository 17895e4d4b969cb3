//! The findings of `wool-vmm examine`, which `wool doctor --microvm` shows.

use serde::{Deserialize, Serialize};

/// Properties of this machine's KVM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Examination {
    /// Microseconds from a guest to the monitor and back.
    pub call_us: f64,
    /// Whether the kernel tells which pages a clone has written (Linux ≥ 6.7).
    pub tells_pages: bool,
    /// The exception of `int 0x80`: 13 by the processor, 6 where the hypervisor emulates it.
    pub interrupt: Option<u8>,
    /// Whether programs may use protection keys although their machine has none.
    pub keys: bool,
    /// Why guests cannot tell the time by themselves; none where they can.
    pub no_ticks: Option<String>,
}
