//! Floating point and vectors in a signal's frame, where a handler finds them and may change them:
//! in the format of `XSAVE`, with the kernel's additions (`struct _fpx_sw_bytes` of
//! `<asm/sigcontext.h>`).
//!
//! ```text
//!   0      x87 and SSE, as FXSAVE has them
//!   464      a magic number, bytes with the last four, which states there are, bytes without them
//!   512    which of the states differ from their initial values; nothing else
//!   576    AVX and what came after it, at the processor's own offsets
//!   …      another magic number
//! ```
//!
//! The guest may have written anything into a frame that comes back. The monitor takes from it what
//! KVM takes of any guest: the states that the guest has, and the defined bits of MXCSR. Without
//! both magic numbers it takes x87 and SSE alone.

use kvm_bindings::kvm_xsave;

use crate::machine::exit::{VcpuError, step};
use crate::machine::extended_states::{ExtendedStates, HEADER_END, LEGACY_BYTES};
use crate::machine::vcpu::Vcpu;

/// Offsets of x87's control word, of MXCSR, of the kernel's additions, and of XSTATE_BV.
const CONTROL: usize = 0;
const MXCSR: usize = 24;
const SOFTWARE: usize = 464;
const IN_USE: usize = LEGACY_BYTES;
/// Bytes that FXSAVE writes; the rest up to 512 is the kernel's.
const OF_PROCESSOR: usize = 416;
const FIRST_MAGIC: u32 = 0x4650_5853;
const LAST_MAGIC: u32 = 0x4650_5845;
/// x87 and SSE, which every frame has.
const LEAST: u64 = 3;
/// The defined bits of MXCSR.
const MXCSR_BITS: u32 = 0xffff;

/// Bytes of a guest's frame without the last magic number, by its first 512 bytes `head`.
pub(crate) fn claimed(states: ExtendedStates, head: &[u8]) -> usize {
    let [first, all, _, _, bytes] = std::array::from_fn(|at| word(head, SOFTWARE + at * 4));
    let length = usize::try_from(bytes).unwrap_or(0);
    let is_whole = first == FIRST_MAGIC && all == bytes.wrapping_add(4);
    if is_whole && (HEADER_END..=states.bytes).contains(&length) { length } else { LEGACY_BYTES }
}

/// The processor's states as they stand, in a frame.
///
/// # Errors
/// When KVM does not tell them.
pub(crate) fn save(vcpu: &Vcpu) -> Result<Vec<u8>, VcpuError> {
    let ExtendedStates { allowed, bytes: length } = vcpu.states();
    let xsave = vcpu.fd().get_xsave().map_err(step("read extended states"))?;
    let words = xsave.region.iter().flat_map(|word| word.to_le_bytes());
    let mut bytes: Vec<u8> = words.take(length).collect();
    bytes[IN_USE] |= LEAST.to_le_bytes()[0];
    let count = u32::try_from(length).unwrap_or(0);
    let [low, high] = [allowed, allowed >> 32].map(|half| u32::try_from(half & 0xffff_ffff));
    let software = [FIRST_MAGIC, count + 4, low.unwrap_or(0), high.unwrap_or(0), count];
    for (at, value) in software.into_iter().enumerate() {
        let at = SOFTWARE + at * 4;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes.extend_from_slice(&LAST_MAGIC.to_le_bytes());
    Ok(bytes)
}

/// Sets the states that a program starts with, and each handler.
///
/// # Errors
/// When KVM refuses.
pub(crate) fn begin(vcpu: &Vcpu) -> Result<(), VcpuError> {
    const MASKED: u16 = 0x37f;
    const MASKED_SSE: u32 = 0x1f80;
    let mut bytes = [0; LEGACY_BYTES];
    bytes[CONTROL..CONTROL + 2].copy_from_slice(&MASKED.to_le_bytes());
    bytes[MXCSR..MXCSR + 4].copy_from_slice(&MASKED_SSE.to_le_bytes());
    restore(vcpu, &bytes)
}

/// Loads the states of a frame: [`claimed`] bytes, and the last magic number behind them.
///
/// # Errors
/// When KVM refuses.
pub(crate) fn restore(vcpu: &Vcpu, frame: &[u8]) -> Result<(), VcpuError> {
    let xsave = image(vcpu.states(), frame);
    // SAFETY: as in `CpuState::restore`.
    unsafe { vcpu.fd().set_xsave(&xsave) }.map_err(step("put extended states back"))
}

/// The area for KVM_SET_XSAVE, valid whatever the frame says.
fn image(states: ExtendedStates, frame: &[u8]) -> Box<kvm_xsave> {
    let end = frame.len().saturating_sub(4);
    let is_whole = end >= HEADER_END && end <= states.bytes && word(frame, end) == LAST_MAGIC;
    let wide = |at: usize| u64::from(word(frame, at)) | u64::from(word(frame, at + 4)) << 32;
    let in_use = if is_whole { wide(IN_USE) & wide(SOFTWARE + 8) & states.allowed } else { LEAST };
    let mut xsave = Box::new(kvm_xsave::default());
    for (at, place) in xsave.region.iter_mut().enumerate() {
        let at = at * 4;
        *place = match at {
            MXCSR => word(frame, at) & MXCSR_BITS,
            0..OF_PROCESSOR => word(frame, at),
            IN_USE => u32::try_from(in_use & 0xffff_ffff).unwrap_or(0),
            HEADER_END.. if is_whole && at < end => word(frame, at),
            _ => 0,
        };
    }
    xsave
}

/// The four bytes at an offset; 0 behind the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// x87, SSE and AVX.
    const STATES: ExtendedStates = ExtendedStates { allowed: 7, bytes: 832 };

    #[test]
    fn without_its_magic_numbers_a_frame_is_x87_and_sse() {
        let mut frame = vec![0x55; STATES.bytes + 4];
        assert_eq!(claimed(STATES, &frame[..LEGACY_BYTES]), LEGACY_BYTES);
        frame[SOFTWARE..SOFTWARE + 4].copy_from_slice(&FIRST_MAGIC.to_le_bytes());
        frame[SOFTWARE + 4..SOFTWARE + 8].copy_from_slice(&836_u32.to_le_bytes());
        frame[SOFTWARE + 16..SOFTWARE + 20].copy_from_slice(&832_u32.to_le_bytes());
        assert_eq!(claimed(STATES, &frame[..LEGACY_BYTES]), 832);
        assert_eq!(image(STATES, &frame).region[IN_USE / 4], 3, "the last one is missing");
        frame[832..].copy_from_slice(&LAST_MAGIC.to_le_bytes());
        let whole = image(STATES, &frame);
        assert_eq!((whole.region[IN_USE / 4], whole.region[HEADER_END / 4]), (5, 0x5555_5555));
    }

    proptest! {
        #[test]
        fn saved_registers_are_masked_to_what_a_guest_can_have(
            frame in prop::collection::vec(any::<u8>(), 0..900), whole in any::<bool>(),
        ) {
            let mut frame = frame;
            if whole {
                frame.extend_from_slice(&LAST_MAGIC.to_le_bytes());
            }
            let region = image(STATES, &frame).region;
            prop_assert_eq!(region[MXCSR / 4] & !MXCSR_BITS, 0);
            prop_assert_eq!(u64::from(region[IN_USE / 4]) & !STATES.allowed, 0);
            prop_assert!(region[IN_USE / 4 + 1..HEADER_END / 4].iter().all(|word| *word == 0));
            prop_assert!(claimed(STATES, &frame) <= STATES.bytes);
        }
    }
}
