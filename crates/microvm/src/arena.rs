//! The arena: all memory of a guest, in one mapping.
//!
//! It is mapped twice in the sense of the hardware: here, and through KVM's memory slots in the guest. The guest runs
//! only inside [`crate::vcpu::Vcpu::run`], which borrows the arena mutably; at any other time nobody else writes here, so
//! plain slices are sound, and an argument that was read once cannot change underneath the monitor.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::mm::{madvise, mmap, mmap_anonymous, mprotect, munmap};

use crate::layout::{ARENA_BYTES, BLOCK};

/// A guest's memory.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to this value alone and to no thread in particular.
unsafe impl Send for Arena {}

impl Arena {
    /// An empty one: zero everywhere, and no memory taken yet.
    ///
    /// # Errors
    /// When the host has no address space or no descriptors left.
    pub fn new() -> io::Result<Self> {
        let file =
            File::from(memfd_create("arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        ftruncate(&file, ARENA_BYTES)?;
        let arena = Self::reserve()?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        arena.place(0..ARENA_BYTES, &file, flags)?;
        Ok(arena)
    }

    /// Address space on a block boundary, so that the host can use huge pages where the guest does.
    fn reserve() -> io::Result<Self> {
        let length = length_of(&(0..ARENA_BYTES + BLOCK));
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let slack = start.align_offset(length_of(&(0..BLOCK)));
        // SAFETY: `slack` is less than a block, and the mapping is a block longer than the arena.
        let base = unsafe { start.cast::<u8>().add(slack) };
        if slack > 0 {
            // SAFETY: what lies before the arena is ours since a moment and referred to by nobody.
            unsafe { munmap(start, slack) }?;
        }
        let after = length_of(&(0..BLOCK)) - slack;
        if after > 0 {
            // SAFETY: the end of the arena lies `after` bytes before the end of the mapping.
            let end = unsafe { base.add(length_of(&(0..ARENA_BYTES))) };
            // SAFETY: as for what lies before.
            unsafe { munmap(end.cast(), after) }?;
        }
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base })
    }

    /// Maps `file` at the offsets that are the range's own.
    fn place(&self, range: Range<u64>, file: impl AsFd, flags: MapFlags) -> io::Result<()> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (at, length) = (self.at(&range), length_of(&range));
        // SAFETY: the range lies in the arena's address space, which nothing else uses.
        unsafe { mmap(at.cast(), length, protection, flags, file, range.start) }?;
        Ok(())
    }

    /// Where the monitor sees offset 0: what KVM's memory slots refer to.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// What is in the range.
    ///
    /// # Panics
    /// When the range leaves the arena: callers check what a guest says against its mappings first.
    #[must_use]
    pub fn bytes(&self, range: Range<u64>) -> &[u8] {
        let (at, length) = (self.at(&range), length_of(&range));
        // SAFETY: `at` checked the range; the guest does not run while the arena is borrowed.
        unsafe { std::slice::from_raw_parts(at, length) }
    }

    /// As [`Arena::bytes`], to be written.
    ///
    /// # Panics
    /// As for [`Arena::bytes`].
    pub fn bytes_mut(&mut self, range: Range<u64>) -> &mut [u8] {
        let (at, length) = (self.at(&range), length_of(&range));
        // SAFETY: as for reading, and the arena is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(at, length) }
    }

    /// The little-endian number at `address`.
    #[must_use]
    pub fn word(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.bytes(address..address + 8));
        u64::from_le_bytes(bytes)
    }

    /// Writes a little-endian number.
    pub fn set_word(&mut self, address: u64, word: u64) {
        self.bytes_mut(address..address + 8).copy_from_slice(&word.to_le_bytes());
    }

    /// Gives the memory of whole pages back: they read as zero from now on.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn discard(&mut self, range: Range<u64>) -> io::Result<()> {
        self.advise(range, Advice::LinuxRemove)
    }

    fn advise(&mut self, range: Range<u64>, advice: Advice) -> io::Result<()> {
        let (at, length) = (self.at(&range), length_of(&range));
        // SAFETY: the range lies in the arena, which is borrowed mutably: no slice of it is alive.
        unsafe { madvise(at.cast(), length, advice) }?;
        Ok(())
    }

    /// Makes KVM forget what it derived from the page tables for whole pages.
    ///
    /// Where it shadows the guest's tables it keeps using an entry that was present until the host's mapping of the page
    /// behind it changes; under nested paging the processor caches the entry. Neither a load of CR3 nor INVLPG helps the
    /// former; taking the host's own rights away for a moment helps both.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn flush(&mut self, range: Range<u64>) -> io::Result<()> {
        for rights in [MprotectFlags::empty(), MprotectFlags::READ | MprotectFlags::WRITE] {
            let (at, length) = (self.at(&range), length_of(&range));
            // SAFETY: the range lies in the arena, which is borrowed mutably: nobody looks at it in between.
            unsafe { mprotect(at.cast(), length, rights) }?;
        }
        Ok(())
    }

    fn at(&self, range: &Range<u64>) -> *mut u8 {
        assert!(
            range.start <= range.end && range.end <= ARENA_BYTES,
            "{range:x?} leaves the arena"
        );
        // SAFETY: the offset was checked against the mapping's length.
        unsafe { self.base.as_ptr().add(length_of(&(0..range.start))) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was this value's alone, and KVM's slots keep nothing mapped by address.
        let gone = unsafe { munmap(self.base.as_ptr().cast(), length_of(&(0..ARENA_BYTES))) };
        debug_assert!(gone.is_ok());
    }
}

/// Lengths inside the arena fit: this is an x86-64 monitor.
pub(crate) fn length_of(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(usize::MAX)
}
