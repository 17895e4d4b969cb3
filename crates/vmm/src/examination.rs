//! What `wool-vmm examine` finds, and `wool doctor --microvm` tells.

use serde::{Deserialize, Serialize};

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Examination {
    /// Microseconds from a guest to the monitor and back.
    pub call_us: f64,
    /// The kernel tells which pages are a clone's own (Linux ≥ 6.7).
    pub tells_pages: bool,
    /// The exception that `int 0x80` is: 13 by the processor, 6 where the hypervisor emulates it.
    pub interrupt: Option<u8>,
    /// Programs may use protection keys although their machine has none.
    pub keys: bool,
    /// Why guests cannot tell the time by themselves; none where they can.
    pub no_ticks: Option<String>,
}
