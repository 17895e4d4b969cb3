//! The extended states that a guest has: x87, SSE, and what XCR0 allows beyond them.

use kvm_bindings::kvm_xsave;

/// Bytes of x87 and SSE, as FXSAVE writes them.
pub(crate) const LEGACY_BYTES: usize = 512;
/// Offset of the first state beyond them: a header of 64 bytes comes between (SDM 13.4).
pub(crate) const HEADER_END: usize = LEGACY_BYTES + 64;

/// The extended states of a guest, and their size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtendedStates {
    /// A bit for each, as in XCR0.
    pub(crate) allowed: u64,
    /// Bytes up to the end of the last of them.
    pub(crate) bytes: usize,
}

impl ExtendedStates {
    /// The allowed states, with each part's number, bytes and offset from CPUID leaf 0xd.
    pub(crate) fn of(allowed: u64, parts: impl Iterator<Item = (u32, u32, u32)>) -> Self {
        let has = |number: u32| number < 64 && allowed >> number & 1 != 0;
        let ends = parts.filter(|(number, ..)| *number >= 2 && has(*number));
        let ends = ends.map(|(_, bytes, at)| bytes.saturating_add(at) as usize);
        let bytes = ends.max().unwrap_or(0).clamp(HEADER_END, size_of::<kvm_xsave>());
        Self { allowed, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_with_its_last_allowed_state() {
        let parts = [(2, 256, 576), (5, 64, 1088), (9, 8, 2688), (17, 64, 4032)];
        let of = |allowed: u64| ExtendedStates::of(allowed, parts.into_iter()).bytes;
        assert_eq!([of(3), of(7), of(0x27), of(0x207)], [576, 832, 1152, 2696]);
        assert_eq!(ExtendedStates::of(7, [(2, u32::MAX, 576)].into_iter()).bytes, 4096);
    }
}
