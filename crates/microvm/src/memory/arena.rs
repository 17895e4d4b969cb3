//! The arena: all memory of a guest, in one mapping.
//!
//! The same bytes are visible in two places: here, and through KVM's memory slots in the guest. The
//! guest runs only inside [`crate::machine::Vcpu::run`], which borrows the arena mutably. At any
//! other time only the monitor accesses it, so plain slices are sound, and an argument that was
//! read once cannot change underneath the monitor.

mod holes;
mod huge;
mod mapping;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, ftruncate, memfd_create, seek};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::mm::{madvise, mmap_anonymous, mprotect};

use crate::memory::layout::{ARENA_BYTES, BLOCK};
use holes::Holes;
use huge::HugeBlocks;
pub(crate) use mapping::length_of;
use mapping::{map_file, offset, reserve, unmap};

/// Bytes of the host that huge pages may take beyond what counts as memory, in a machine that
/// others are cloned from.
const COLLAPSE_SPARE: u64 = 32 << 20;

/// A guest's memory.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    backing: Backing,
    huge: HugeBlocks,
}

/// The kind of memory, which decides how a guest can be cloned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryKind {
    /// A file, which is sealed and then mapped by each clone: [`crate::linux::Template`].
    #[default]
    File,
    /// Anonymous pages, which `fork` copies when they are written: [`crate::linux::Process::fork`].
    Anonymous,
    /// Anonymous pages, huge where the host allows programs to ask for them.
    AnonymousHuge,
}

/// The source of the bytes.
#[derive(Debug)]
enum Backing {
    /// A file of the arena's own.
    Own(File),
    /// No source: pages begin as zeros and belong to this process alone.
    Anonymous,
    /// A frozen arena, whose pages are copied when they are written.
    Clone(Arc<FrozenArena>),
}

// SAFETY: the mapping belongs to this value alone and to no thread in particular.
unsafe impl Send for Arena {}

impl Arena {
    /// An empty arena: zero everywhere, with no memory taken yet.
    ///
    /// # Errors
    /// When the host has no address space or no descriptors left.
    pub fn new() -> io::Result<Self> {
        let file =
            File::from(memfd_create("arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        ftruncate(&file, ARENA_BYTES)?;
        let base = reserve()?;
        map_file(base, &file, MapFlags::SHARED, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { base, backing: Backing::Own(file), huge: HugeBlocks::default() })
    }

    /// As [`Arena::new`], of this kind.
    ///
    /// # Errors
    /// As for [`Arena::new`].
    pub fn made_of(memory: MemoryKind) -> io::Result<Self> {
        if memory == MemoryKind::File {
            return Self::new();
        }
        let arena =
            Self { base: reserve()?, backing: Backing::Anonymous, huge: HugeBlocks::default() };
        let all = 0..ARENA_BYTES;
        let (at, length) = (arena.at(&all), length_of(&all));
        // SAFETY: the address space is the arena's, and nothing was there yet.
        unsafe { mprotect(at.cast(), length, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        if memory == MemoryKind::AnonymousHuge {
            // SAFETY: says how the range is to be held, and changes nothing in it. A host without
            // huge pages refuses: then they are small.
            let _ = unsafe { madvise(at.cast(), length, Advice::LinuxHugepage) };
        }
        Ok(arena)
    }

    /// Whether `fork` copies the memory: a file of its own would be shared by both sides.
    #[must_use]
    pub fn is_copied_by_fork(&self) -> bool {
        !matches!(self.backing, Backing::Own(_))
    }

    /// A clone of a frozen arena, which shares each page until it writes to it.
    ///
    /// # Errors
    /// As for [`Arena::new`].
    pub fn clone_of(frozen: &Arc<FrozenArena>) -> io::Result<Self> {
        let base = reserve()?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        map_file(base, &frozen.file, MapFlags::PRIVATE, rights)?;
        let backing = Backing::Clone(Arc::clone(frozen));
        let arena = Self { base, backing, huge: HugeBlocks::default() };
        for zone in &frozen.own {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            // SAFETY: the zone lies in the new arena's address space, which nothing else uses.
            unsafe { mmap_anonymous(arena.at(zone).cast(), length_of(zone), rights, flags) }?;
        }
        arena.begin_on_small(frozen);
        Ok(arena)
    }

    /// Has the host collapse blocks of a range that are at least half full into huge pages: a clone
    /// then takes one fault for each. Where the host cannot (before Linux 6.1) nothing happens.
    /// `counted` tells how many bytes of a block count as memory: huge pages take no more than
    /// that, and [`COLLAPSE_SPARE`].
    ///
    /// # Errors
    /// When the host does not tell which parts are full.
    pub(crate) fn collapse(
        &mut self,
        range: Range<u64>,
        counted: impl Fn(Range<u64>) -> u64,
    ) -> io::Result<()> {
        let Backing::Own(file) = &self.backing else { return Ok(()) };
        let mut spare = COLLAPSE_SPARE;
        for block in (range.start / BLOCK..range.end.div_ceil(BLOCK)).map(|block| block * BLOCK) {
            let block = block..block + BLOCK;
            let full: u64 = filled(file, block.clone())?.iter().map(|it| it.end - it.start).sum();
            if full < BLOCK / 2 {
                continue;
            }
            let beyond = BLOCK - counted(block.clone());
            if let Some(left) = spare.checked_sub(beyond) {
                spare = left;
                let (at, length) = (self.at(&block), length_of(&block));
                // SAFETY: the range lies in the arena, and its contents stay what they are.
                unsafe { libc::madvise(at.cast(), length, libc::MADV_COLLAPSE) };
            }
        }
        Ok(())
    }

    /// Makes it the origin of clones, never to be written again. `own` are zones that hold nothing,
    /// by address: clones have memory of their own there, from `huge` on in huge pages where a
    /// whole block counts. `holes` hold nothing either, and clones share them.
    ///
    /// # Errors
    /// When the host refuses; the arena is lost.
    pub fn freeze(
        self,
        own: Vec<Range<u64>>,
        huge: u64,
        holes: Vec<Range<u64>>,
    ) -> io::Result<Arc<FrozenArena>> {
        let Backing::Own(file) = &self.backing else {
            return Err(io::Error::other("only memory that is a file of its own can be frozen"));
        };
        let file = file.try_clone()?;
        // No mapping through which it could be written may be left.
        drop(self);
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW)?;
        fcntl_add_seals(&file, SealFlags::SEAL)?;
        let base = reserve()?;
        // Private because kernels before 6.7 cannot map a sealed file as shared. Nothing writes, so
        // nothing is copied.
        map_file(base, &file, MapFlags::PRIVATE, ProtFlags::READ)?;
        Ok(Arc::new(FrozenArena { base, file, own, huge, holes: Holes::new(holes) }))
    }

    /// Address in this process of offset 0, to which KVM's memory slots refer.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// The bytes of a range.
    ///
    /// # Panics
    /// When the range leaves the arena: callers check a guest's addresses against its mappings
    /// first.
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

    /// Has the host map whole pages that will be touched soon, in a fraction of the time that
    /// single faults take. `write` copies them for a clone. Where the host cannot (before Linux
    /// 5.14) nothing happens.
    pub fn expect(&mut self, range: Range<u64>, write: bool) {
        let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        let (at, length) = (self.at(&range), length_of(&range));
        // SAFETY: the range lies in the arena, and its contents stay what they are.
        let _ = unsafe { madvise(at.cast(), length, advice) };
    }

    /// Gives whole pages back. They read as zero from now on, but for those of
    /// [`Arena::zero_on_reuse`].
    ///
    /// # Errors
    /// When the host refuses.
    pub fn discard(&mut self, range: Range<u64>) -> io::Result<()> {
        let advice = match self.backing {
            Backing::Own(_) => Advice::LinuxRemove,
            Backing::Anonymous | Backing::Clone(_) => Advice::LinuxDontNeed,
        };
        let (at, length) = (self.at(&range), length_of(&range));
        // SAFETY: the range lies in the arena, which is borrowed mutably: no slice of it is alive.
        unsafe { madvise(at.cast(), length, advice) }?;
        Ok(())
    }

    /// Fills given-back pages with zeros where they are the frozen arena's again, in a clone: a
    /// later mapping of the address must not show the template's bytes.
    pub(crate) fn zero_on_reuse(&mut self, range: Range<u64>) {
        for part in self.stale(range) {
            self.bytes_mut(part).fill(0);
        }
    }

    /// The parts of a range in which a clone shows bytes of its origin's, unless it wrote there.
    /// Elsewhere the origin is zero.
    pub(crate) fn stale(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let Some(origin) = self.origin() else { return Vec::new() };
        let parts = self.inherited(range).into_iter();
        let filled = |part: Range<u64>| origin.filled(part.clone()).unwrap_or_else(|_| vec![part]);
        parts.flat_map(filled).flat_map(|part| origin.holes.between(part)).collect()
    }

    /// Puts a clone's pages in a range back to what they are in its origin. What lies in holes is
    /// given back: it was not there. Returns the bytes that were copied.
    ///
    /// # Errors
    /// When the host refuses.
    pub(crate) fn put_back(&mut self, range: Range<u64>) -> io::Result<u64> {
        let Some(origin) = self.origin().cloned() else { return Ok(0) };
        for part in origin.holes.inside(range.clone()) {
            self.discard(part)?;
        }
        let mut copied = 0;
        for part in origin.holes.between(range) {
            copied += part.end - part.start;
            self.bytes_mut(part.clone()).copy_from_slice(origin.bytes(part));
        }
        Ok(copied)
    }

    /// The parts of a range in which a clone shares pages with its origin.
    #[must_use]
    pub fn inherited(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let Backing::Clone(frozen) = &self.backing else { return Vec::new() };
        let ends = std::iter::once(0).chain(frozen.own.iter().map(|zone| zone.end));
        let starts = frozen.own.iter().map(|zone| zone.start).chain([ARENA_BYTES]);
        let cut = ends.zip(starts).map(|(start, end)| start.max(range.start)..end.min(range.end));
        cut.filter(|part| !part.is_empty()).collect()
    }

    /// The parts of a range between the holes of a clone's origin.
    pub(crate) fn between_holes(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let Some(origin) = self.origin() else { return vec![range] };
        origin.holes.between(range)
    }

    /// Before a clone gets rights to a range, or memory that is promised there is read or written:
    /// notes that it uses the holes of its origin. Returns whether it may: see [`Holes`].
    pub(crate) fn open_holes(&self, range: &Range<u64>) -> bool {
        self.sharing(range).is_none_or(|origin| origin.holes.open(range))
    }

    /// Bytes that this would take of what all clones may use; none where it would be refused.
    pub(crate) fn cost_of_holes(&self, range: &Range<u64>) -> Option<u64> {
        self.sharing(range).map_or(Some(0), |origin| origin.holes.cost(range))
    }

    /// The origin, if any page of a range is shared with it: others need no look at what all clones
    /// use.
    fn sharing(&self, range: &Range<u64>) -> Option<&Arc<FrozenArena>> {
        self.origin().filter(|_| !self.inherited(range.clone()).is_empty())
    }

    /// The frozen arena that it was cloned from.
    #[must_use]
    pub fn origin(&self) -> Option<&Arc<FrozenArena>> {
        match &self.backing {
            Backing::Own(_) | Backing::Anonymous => None,
            Backing::Clone(frozen) => Some(frozen),
        }
    }

    /// Makes KVM and the processor forget what they derived from the page tables for whole pages.
    ///
    /// A KVM that shadows the guest's tables keeps using an entry until the host's mapping of the
    /// page behind it changes; under nested paging the processor caches the entry. A load of CR3 or
    /// INVLPG does not help the former; taking the host's own rights away for a moment helps both.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn flush(&mut self, range: Range<u64>) -> io::Result<()> {
        for rights in [MprotectFlags::empty(), MprotectFlags::READ | MprotectFlags::WRITE] {
            let (at, length) = (self.at(&range), length_of(&range));
            // SAFETY: the range lies in the arena, which is borrowed mutably: no access comes in
            // between.
            unsafe { mprotect(at.cast(), length, rights) }?;
        }
        Ok(())
    }

    fn at(&self, range: &Range<u64>) -> *mut u8 {
        offset(self.base, range)
    }
}

/// An arena that is sealed: no process can write to it.
#[derive(Debug)]
pub struct FrozenArena {
    base: NonNull<u8>,
    file: File,
    own: Vec<Range<u64>>,
    huge: u64,
    holes: Holes,
}

// SAFETY: the mapping belongs to this value alone, and is read only.
unsafe impl Send for FrozenArena {}
// SAFETY: as above.
unsafe impl Sync for FrozenArena {}

impl FrozenArena {
    /// The bytes of a range.
    ///
    /// # Panics
    /// When the range leaves the arena.
    #[must_use]
    pub fn bytes(&self, range: Range<u64>) -> &[u8] {
        let (at, length) = (offset(self.base, &range), length_of(&range));
        // SAFETY: `offset` checked the range; the file is sealed, so its bytes do not change.
        unsafe { std::slice::from_raw_parts(at, length) }
    }

    /// The parts of a range that hold data; elsewhere it is zero. To read it there would take
    /// memory.
    ///
    /// # Errors
    /// When the host does not tell them.
    pub fn filled(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        filled(&self.file, range)
    }

    /// The zones in which clones have memory of their own from the start, by address. It holds
    /// nothing there.
    #[must_use]
    pub fn own(&self) -> &[Range<u64>] {
        &self.own
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        unmap(self.base);
    }
}

impl Drop for FrozenArena {
    fn drop(&mut self) {
        unmap(self.base);
    }
}

/// The parts of a file that hold data.
fn filled(file: &File, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut from = range.start;
    while from < range.end {
        let start = match seek(file, SeekFrom::Data(from)) {
            Ok(start) => start,
            // No data behind this offset.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?.min(range.end);
        if start >= end {
            break;
        }
        found.push(start..end);
        from = end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout::PAGE;

    #[test]
    fn huge_pages_of_an_origin_take_little_more_than_what_counts() {
        const BLOCKS: u64 = 40;
        // More than half of each.
        const FULL: u64 = BLOCK / 2 + PAGE;
        let taken = |counted: u64| {
            let mut arena = Arena::new().unwrap();
            for block in 0..BLOCKS {
                arena.bytes_mut(block * BLOCK..block * BLOCK + FULL).fill(1);
            }
            arena.collapse(0..BLOCKS * BLOCK, |_| counted).unwrap();
            let Backing::Own(file) = &arena.backing else { panic!("it has a file") };
            let filled = filled(file, 0..BLOCKS * BLOCK).unwrap();
            filled.iter().map(|range| range.end - range.start).sum::<u64>()
        };
        let own = BLOCKS * FULL;
        assert!((own..=own + COLLAPSE_SPARE).contains(&taken(FULL)));
        // A host that cannot leaves them as they are.
        assert!([own, BLOCKS * BLOCK].contains(&taken(BLOCK)));
    }
}
