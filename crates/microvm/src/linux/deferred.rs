//! Copies of files that are put off until somebody could see that they are missing.
//!
//! A dynamic linker maps all of a library once, to find room for it, takes the rights from what lies behind its first part, and
//! maps the parts over that: whatever was copied first is thrown away. So the bytes of a layer's file that is mapped to be looked
//! at come when the guest touches one of them, when it asks for anything but that, or when it pauses. Until then the memory is
//! hidden, so that a touch is a fault:
//!
//! ```text
//!   mmap(0, …) ──► hidden ──┬── mmap(MAP_FIXED) over a part ───────► that part is not owed any more
//!                           ├── mprotect(PROT_NONE) of a part ─────► owed, and hidden afterwards, too
//!                           └── a touch, any other call, a pause ──► copied, and as it was to be protected
//! ```
//! No more than one mapping is owed at a time, of few parts, and none while a process pauses: nobody else sees it so. Nothing is
//! put off where a limit is near: what is hidden counts as one region, and may come to be as many as it has parts.

use std::ops::Range;

use rustix::io::Errno;

use super::memory::{FIXED, fill};
use super::process::Process;
use crate::memory::layout::{PAGE, page_up};
use crate::memory::rights::Rights;
use crate::vfs::NodeId;

const MMAP: u64 = libc::SYS_mmap.cast_unsigned();
const MPROTECT: u64 = libc::SYS_mprotect.cast_unsigned();

/// Parts that what is owed has at most, each with a hole behind it: libraries have a handful.
const MOST_PARTS: usize = 16;

/// What of one mapping is owed.
#[derive(Debug)]
pub(super) struct Deferred {
    /// The parts that are, by address, and what the guest may do with them then.
    parts: Vec<(Range<u64>, Rights)>,
    /// The file, and what of it is at which address.
    node: NodeId,
    start: u64,
    offset: u64,
}

impl Deferred {
    pub(super) fn new(range: Range<u64>, node: NodeId, offset: u64, rights: Rights) -> Self {
        let start = range.start;
        Self { parts: vec![(range, rights)], node, start, offset }
    }

    /// Something else is mapped there now.
    pub(super) fn cut(&mut self, range: &Range<u64>) {
        let parts = std::mem::take(&mut self.parts).into_iter().flat_map(|(part, rights)| {
            let before = part.start..part.end.min(range.start);
            let behind = part.start.max(range.end)..part.end;
            [(before, rights), (behind, rights)]
        });
        self.parts = parts.filter(|(part, _)| part.start < part.end).collect();
    }

    /// Takes the rights from a range, if it lies in one part. Whether it does.
    fn hide(&mut self, range: Range<u64>) -> bool {
        let mut parts = self.parts.iter().map(|(part, _)| part);
        let is_in_one = parts.any(|part| part.start <= range.start && range.end <= part.end);
        let is_one = is_in_one && range.start.is_multiple_of(PAGE);
        if is_one && !range.is_empty() {
            self.cut(&range);
            self.parts.push((range, Rights::NONE));
        }
        is_one
    }

    fn hold(&self, address: u64) -> bool {
        self.parts.iter().any(|(part, rights)| part.contains(&address) && rights.count())
    }
}

/// Whether there is room for all regions that what is owed can come to be.
pub(super) fn has_room(process: &Process) -> bool {
    process.space.has_room_for(2 * MOST_PARTS)
}

/// Before a call is answered: copies what is owed, but for calls that can do without.
pub(super) fn before_call(process: &mut Process, number: u64, arguments: [u64; 6]) {
    if process.deferred.is_none() {
        return;
    }
    let has_room = has_room(process);
    let Some(deferred) = &mut process.deferred else { return };
    let [start, length, protection, flags, ..] = arguments;
    let can_wait = has_room && deferred.parts.len() < MOST_PARTS;
    let can_do_without = match number {
        _ if !can_wait => false,
        MMAP => flags & FIXED != 0,
        MPROTECT if protection == 0 => deferred.hide(start..start.saturating_add(page_up(length))),
        _ => false,
    };
    if !can_do_without {
        settle(process);
    }
}

/// Whether the guest may look at an address whose bytes are owed.
pub(super) fn is_owed(process: &Process, address: u64) -> bool {
    process.deferred.as_ref().is_some_and(|deferred| deferred.hold(address))
}

/// Copies what is owed. What cannot be read is unmapped, so that whoever touches it gets a signal.
pub(super) fn settle(process: &mut Process) {
    let Some(Deferred { parts, node, start, offset }) = process.deferred.take() else { return };
    for (part, rights) in parts {
        // What could not be mapped over a part may have left nothing there.
        let regions = process.space.regions().inside(part);
        let hidden: Vec<_> = regions.filter(|(_, now)| *now == Rights::HIDDEN).collect();
        for (part, _) in hidden {
            let copied = fill(process, part.clone(), node, offset + (part.start - start));
            if let Err(errno) = copied.and_then(|()| protect(process, &part, rights)) {
                tracing::warn!(%errno, "bytes of a file that a guest has mapped cannot be had");
                let _ = process.space.unmap(part.start, part.end - part.start);
            }
        }
    }
}

fn protect(process: &mut Process, part: &Range<u64>, rights: Rights) -> Result<(), Errno> {
    process.space.protect(part.start, part.end - part.start, rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten pages, from the tenth on.
    fn owed() -> Deferred {
        Deferred::new(pages(10..20), NodeId(1), 0, Rights::READ)
    }

    fn pages(numbers: Range<u64>) -> Range<u64> {
        numbers.start * PAGE..numbers.end * PAGE
    }

    fn numbers(deferred: &Deferred) -> Vec<u64> {
        let parts = deferred.parts.iter().map(|(part, _)| part.start / PAGE..part.end / PAGE);
        let mut all: Vec<u64> = parts.flatten().collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn what_is_mapped_over_is_not_owed_and_the_rest_is() {
        let left = |cuts: &[Range<u64>]| {
            let mut deferred = owed();
            cuts.iter().for_each(|cut| deferred.cut(&pages(cut.clone())));
            (deferred.parts.len(), numbers(&deferred))
        };
        assert_eq!(left(&[]), (1, (10..20).collect()));
        assert_eq!(left(&[0..10, 20..30]), (1, (10..20).collect()));
        assert_eq!(left(&[12..13, 13..14]), (2, [10, 11].into_iter().chain(14..20).collect()));
        assert_eq!(left(&[12..14, 13..16, 5..11]), (2, [11].into_iter().chain(16..20).collect()));
        assert_eq!(left(&[12..14, 0..30]), (0, vec![]));
    }

    #[test]
    fn what_is_hidden_stays_owed_and_is_not_to_be_touched() {
        let mut deferred = owed();
        let is_something_elses = [5..12, 18..21].map(|range| !deferred.hide(pages(range)));
        assert_eq!(is_something_elses, [true; 2]);
        assert!(deferred.hide(pages(12..18)));
        deferred.cut(&pages(14..16));
        let held = (8..22).filter(|page| deferred.hold(page * PAGE + 7)).collect::<Vec<u64>>();
        assert_eq!(held, [10, 11, 18, 19]);
        assert!(!deferred.hide(pages(13..15)) && deferred.hide(pages(16..18)));
        assert_eq!(numbers(&deferred), [10, 11, 12, 13, 16, 17, 18, 19]);
    }

    #[test]
    fn what_begins_within_a_page_is_not_hidden() {
        let mut deferred = owed();
        assert!(!deferred.hide(11 * PAGE + 16..13 * PAGE + 16));
        assert_eq!(deferred.parts.len(), 1);
    }
}
