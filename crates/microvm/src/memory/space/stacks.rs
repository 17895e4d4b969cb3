//! Stacks of threads, which get their memory as they grow.
//!
//! A C library reserves the whole size of a thread's stack (`MAP_STACK`), and then makes all of it
//! writable. Eight megabytes would count for each thread, of which it touches hardly one. So only
//! the upper end is made writable; the rest is promised:
//!
//! ```text
//!   MAP_STACK, no rights ── mprotect ──► guard │ promised │ writable
//!                           a touch, or a call with the stack pointer there ──► writable
//! ```
//!
//! Promised memory has no rights yet, takes nothing and counts for nothing. The monitor finds a
//! thread's variables there, too: before it answers a call, it makes the stack writable as far down
//! as the stack pointer ([`Space::reach`]).

use std::ops::Range;

use super::Space;
use crate::memory::layout::{PAGE, page_down};
use crate::memory::rights::Rights;

/// Bytes that a stack has at first, and by which it grows.
const STEP: u64 = 256 << 10;
/// Marks of a stack without rights, and of the promised part of a stack.
pub(super) const RESERVED: Rights = Rights::NONE;
pub(super) const PROMISED: Rights = Rights::WRITE;
/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;

impl Space {
    /// Notes that a range just mapped without rights is a thread's stack.
    pub(crate) fn reserve_stack(&mut self, range: Range<u64>) {
        self.state.stacks.set(range, RESERVED);
    }

    /// The part of a stack that is only promised when the stack gets its rights; none if `range` is
    /// no such stack.
    pub(super) fn to_promise(&self, range: &Range<u64>, rights: Rights) -> Option<Range<u64>> {
        let (mut stacks, mut regions) =
            (self.state.stacks.inside(range.clone()), self.state.regions.inside(range.clone()));
        let is_stack = stacks.next() == Some((range.clone(), RESERVED))
            && regions.next() == Some((range.clone(), Rights::NONE));
        let promised = range.start..range.end.saturating_sub(STEP);
        (is_stack && rights == Rights::WRITE && !promised.is_empty()).then_some(promised)
    }

    /// Makes a promised stack writable from an address on. Returns whether it was promised, and
    /// there is room.
    pub(crate) fn grow(&mut self, address: u64) -> bool {
        let page = page_down(address);
        let Some((stack, PROMISED)) = self.state.stacks.at(page) else { return false };
        // A step if there is room for it, else one page.
        let ample = (page + PAGE).saturating_sub(STEP).max(stack.start);
        [ample, page]
            .into_iter()
            .any(|start| self.protect(start, stack.end - start, Rights::WRITE).is_ok())
    }

    /// Makes a stack writable down to a thread's stack pointer, before its call is answered.
    pub(crate) fn reach(&mut self, pointer: u64) {
        if self.state.stacks.count() > 0 {
            self.grow(pointer.wrapping_sub(RED_ZONE));
        }
    }

    /// Makes the promised memory of a range writable.
    pub(super) fn keep_promises(&mut self, range: &Range<u64>) {
        let parts: Vec<_> = self.state.stacks.inside(range.clone()).collect();
        for (part, _) in parts {
            self.grow(part.start);
        }
    }
}
