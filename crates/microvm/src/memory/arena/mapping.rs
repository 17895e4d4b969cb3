//! The address space of the monitor's process that an arena occupies.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::memory::layout::{ARENA_BYTES, BLOCK};

/// Gives the address space back. Called once, by the arena that owns it.
pub(super) fn unmap(base: NonNull<u8>) {
    // SAFETY: called when the mapping's one owner is dropped; KVM's slots keep nothing mapped by
    // address.
    let gone = unsafe { munmap(base.as_ptr().cast(), length_of(&(0..ARENA_BYTES))) };
    debug_assert!(gone.is_ok());
}

/// Address space on a block boundary, so that the host can use huge pages where the guest does.
pub(super) fn reserve() -> io::Result<NonNull<u8>> {
    let length = length_of(&(0..ARENA_BYTES + BLOCK));
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that
    // exists.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::empty(), flags) }?;
    let before = start.align_offset(length_of(&(0..BLOCK)));
    // SAFETY: `before` is less than a block, and the mapping is a block longer than the arena.
    let base = unsafe { start.cast::<u8>().add(before) };
    if before > 0 {
        // SAFETY: the address space before the arena was just reserved, and no reference to it
        // exists.
        unsafe { munmap(start, before) }?;
    }
    let after = length_of(&(0..BLOCK)) - before;
    if after > 0 {
        // SAFETY: the end of the arena lies `after` bytes before the end of the mapping.
        let end = unsafe { base.add(length_of(&(0..ARENA_BYTES))) };
        // SAFETY: as for what lies before.
        unsafe { munmap(end.cast(), after) }?;
    }
    Ok(NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?)
}

/// Maps a file over reserved address space.
pub(super) fn map_file(
    base: NonNull<u8>,
    file: &File,
    sharing: MapFlags,
    rights: ProtFlags,
) -> io::Result<()> {
    let flags = sharing | MapFlags::NORESERVE | MapFlags::FIXED;
    let length = length_of(&(0..ARENA_BYTES));
    // SAFETY: the address space was reserved for this, and nothing else uses it.
    unsafe { mmap(base.as_ptr().cast(), length, rights, flags, file, 0) }?;
    Ok(())
}

/// Address in this process of a range's start.
///
/// # Panics
/// When the range leaves the arena.
pub(super) fn offset(base: NonNull<u8>, range: &Range<u64>) -> *mut u8 {
    assert!(range.start <= range.end && range.end <= ARENA_BYTES, "{range:x?} leaves the arena");
    // SAFETY: the offset was checked against the mapping's length.
    unsafe { base.as_ptr().add(length_of(&(0..range.start))) }
}

/// Bytes of a range of the arena, which fit into `usize` on x86-64.
#[expect(clippy::cast_possible_truncation, reason = "addresses of this machine")]
pub(crate) const fn length_of(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}
