//! Copies of files that are put off until the guest could notice that they are missing.
//!
//! A dynamic linker maps the whole of a library once, to find room for it, takes the rights from
//! all but the first part, and maps the other parts over that: bytes that were copied first are
//! thrown away. So the bytes of a layer's file that is mapped for reading are copied when the guest
//! touches one of them, when it makes any other call, or when it pauses. Until then the memory is
//! hidden, so that a touch is a fault:
//!
//! ```text
//!   mmap(0, …) ──► hidden ──┬── mmap(MAP_FIXED) over a part ───────► the part is not owed any more
//!                           ├── mprotect(PROT_NONE) of a part ─────► owed, and hidden afterwards
//!                           └── a touch, any other call, a pause ──► copied, with the rights asked for
//! ```
//!
//! At most one mapping is owed at a time, in few parts, and none while a process pauses, so that no
//! snapshot sees one. Nothing is put off near the limit of regions: a hidden mapping counts as one
//! region, and may become as many as it has parts.

use std::ops::Range;

use rustix::io::Errno;

use crate::linux::abi::flags;
use crate::linux::mapped_files::bytes;
use crate::linux::state::deferred::DeferredCopy;
use crate::linux::state::process::Process;
use crate::memory::layout::page_up;
use crate::memory::rights::Rights;

const MMAP: u64 = libc::SYS_mmap.cast_unsigned();
const MPROTECT: u64 = libc::SYS_mprotect.cast_unsigned();

/// Parts of an owed mapping, each with a hole behind it: libraries have a handful.
const MAX_PARTS: usize = 16;

/// Whether there is room for all regions that an owed mapping can become.
pub(crate) fn has_room(process: &Process) -> bool {
    process.space.has_room_for(2 * MAX_PARTS)
}

/// Before a call is answered: copies what is owed, unless the call works without.
pub(crate) fn before_call(process: &mut Process, number: u64, arguments: [u64; 6]) {
    if process.deferred.is_none() {
        return;
    }
    let has_room = has_room(process);
    let Some(deferred) = &mut process.deferred else { return };
    let [start, length, protection, flags, ..] = arguments;
    let can_wait = has_room && deferred.parts.len() < MAX_PARTS;
    let can_do_without = match number {
        _ if !can_wait => false,
        MMAP => flags & flags::MAP_FIXED != 0,
        MPROTECT if protection == 0 => deferred.hide(start..start.saturating_add(page_up(length))),
        _ => false,
    };
    if !can_do_without {
        settle(process);
    }
}

/// Whether the guest may read an address whose bytes are owed.
pub(crate) fn is_owed(process: &Process, address: u64) -> bool {
    process.deferred.as_ref().is_some_and(|deferred| deferred.hold(address))
}

/// Copies what is owed. Bytes that cannot be read are unmapped, so that touching them sends a
/// signal.
pub(crate) fn settle(process: &mut Process) {
    let Some(DeferredCopy { parts, node, start, offset }) = process.deferred.take() else { return };
    for (part, rights) in parts {
        // A mapping over a part that failed may have left nothing there.
        let regions = process.space.regions().inside(part);
        let hidden: Vec<_> = regions.filter(|(_, now)| *now == Rights::HIDDEN).collect();
        for (part, _) in hidden {
            let copied = bytes::fill(process, part.clone(), node, offset + (part.start - start));
            if let Err(errno) = copied.and_then(|()| protect(process, &part, rights)) {
                tracing::warn!(%errno, "a guest's mapped file cannot be read: its pages are unmapped");
                let _ = process.space.unmap(part.start, part.end - part.start);
            }
        }
    }
}

fn protect(process: &mut Process, part: &Range<u64>, rights: Rights) -> Result<(), Errno> {
    process.space.protect(part.start, part.end - part.start, rights)
}
