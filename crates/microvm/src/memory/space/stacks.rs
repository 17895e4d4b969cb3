//! Stacks of threads, which get their memory as they grow.
//!
//! A C library reserves as much for each thread as it was told that stacks may have (`MAP_STACK`), and then makes all of it
//! writable. That would count eight megabytes for each, of which hardly one is touched. So only the upper end is made
//! writable; the rest is promised:
//!
//! ```text
//!   MAP_STACK, no rights ── mprotect ──► guard │ promised │ writable
//!                                              └─ a touch, or a call of a thread that has come as far ──► writable
//! ```
//! What is promised has no rights yet, and takes and counts nothing. The monitor itself finds a thread's variables there: before
//! it answers a call, the stack is writable as far as the thread's stack pointer has come ([`Space::reach`]).

use std::ops::Range;

use super::Space;
use crate::memory::layout::{PAGE, page_down};
use crate::memory::rights::Rights;

/// Bytes that a stack has at first, and grows by.
const STEP: u64 = 256 << 10;
/// What is noted of a stack that has no rights yet, and of what is promised of one.
pub(super) const RESERVED: Rights = Rights::NONE;
pub(super) const PROMISED: Rights = Rights::WRITE;
/// Bytes below the stack pointer that are used nevertheless.
const RED_ZONE: u64 = 128;

impl Space {
    /// Says that a range that was just mapped without rights is to be a thread's stack.
    pub(crate) fn reserve_stack(&mut self, range: Range<u64>) {
        self.state.stacks.set(range, RESERVED);
    }

    /// What of a range is to be promised alone, where it is a stack that gets its rights.
    pub(super) fn to_promise(&self, range: &Range<u64>, rights: Rights) -> Option<Range<u64>> {
        let (mut stacks, mut regions) =
            (self.state.stacks.inside(range.clone()), self.state.regions.inside(range.clone()));
        let is_stack = stacks.next() == Some((range.clone(), RESERVED))
            && regions.next() == Some((range.clone(), Rights::NONE));
        let promised = range.start..range.end.saturating_sub(STEP);
        (is_stack && rights == Rights::WRITE && !promised.is_empty()).then_some(promised)
    }

    /// Makes a stack writable that was promised, from an address on. Whether it was, and there is room for it.
    pub(crate) fn grow(&mut self, address: u64) -> bool {
        let page = page_down(address);
        let Some((stack, PROMISED)) = self.state.stacks.at(page) else { return false };
        // As much as there is room for.
        let ample = (page + PAGE).saturating_sub(STEP).max(stack.start);
        [ample, page]
            .into_iter()
            .any(|start| self.protect(start, stack.end - start, Rights::WRITE).is_ok())
    }

    /// Before a call is answered of a thread whose stack pointer this is.
    pub(crate) fn reach(&mut self, pointer: u64) {
        if self.state.stacks.count() > 0 {
            self.grow(pointer.wrapping_sub(RED_ZONE));
        }
    }

    /// Makes everything writable that is promised in a range.
    pub(super) fn keep_promises(&mut self, range: &Range<u64>) {
        let parts: Vec<_> = self.state.stacks.inside(range.clone()).collect();
        for (part, _) in parts {
            self.grow(part.start);
        }
    }
}
