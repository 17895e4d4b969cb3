//! System calls about memory: mapping, protecting, resizing, and giving back.

use std::collections::BTreeSet;
use std::ops::Range;

use rustix::io::Errno;

use crate::image::Image;
use crate::linux::abi::flags;
use crate::linux::abi::registers::Answer;
use crate::linux::mapped_files::{bytes, deferred};
use crate::linux::state::deferred::DeferredCopy;
use crate::linux::state::files::Object;
use crate::linux::state::process::Process;
use crate::memory::file_mappings::FileMapping;
use crate::memory::layout::{BLOCK, BREAK_END, PAGE, USER_END, page_up};
use crate::memory::rights::Rights;
use crate::memory::space::{Pages, Place};
use crate::vfs::{Contents, Device, NodeId};

const KIND: u64 = 0xf;
const SHARED: u64 = 1;
const PRIVATE: u64 = 2;
const SHARED_VALIDATE: u64 = 3;

const ANONYMOUS: u64 = 0x20;
const LOW: u64 = 0x40;
const FIXED_NOREPLACE: u64 = 0x10_0000;
const STACK: u64 = 0x2_0000;
const WRITE: u64 = 2;

pub(crate) fn mmap(process: &mut Process, arguments: [u64; 6]) -> Answer {
    let start = map(process, arguments)?;
    let [_, length, _, flags, ..] = arguments;
    if flags & flags::MAP_FIXED != 0
        && let Some(deferred) = &mut process.deferred
    {
        deferred.cut(&(start..start + page_up(length)));
    }
    Ok(start)
}

fn map(process: &mut Process, arguments: [u64; 6]) -> Answer {
    let [address, length, protection, flags, fd, offset] = arguments;
    let rights = Rights::of_protection(protection);
    let place = if flags & FIXED_NOREPLACE != 0 {
        Place::FixedIfFree(address)
    } else if flags & flags::MAP_FIXED != 0 {
        Place::Fixed(address)
    } else if flags & LOW != 0 {
        Place::Low
    } else {
        Place::Hint(address)
    };
    let kind = flags & KIND;
    let shared = kind != PRIVATE;
    if flags & ANONYMOUS != 0 {
        if !matches!(kind, SHARED | PRIVATE) {
            return Err(Errno::INVAL);
        }
        let start = zeros(process, place, length, rights, shared)?;
        if flags & STACK != 0 && rights == Rights::NONE {
            process.space.reserve_stack(start..start + page_up(length));
        }
        return Ok(start);
    }
    if !offset.is_multiple_of(PAGE) {
        return Err(Errno::INVAL);
    }
    let open = process.kernel.files.get(fd & 0xffff_ffff)?;
    let access = open.flags & flags::ACCESS_MODE;
    if !matches!(kind, SHARED | PRIVATE | SHARED_VALIDATE) {
        return Err(Errno::INVAL);
    }
    let wants_to_write = shared && protection & WRITE != 0;
    if access == flags::WRITE_ONLY || wants_to_write && access == 0 {
        return Err(Errno::ACCESS);
    }
    let Object::Node(node, _) = open.object else { return Err(Errno::NODEV) };
    match process.kernel.tree.contents(node) {
        Contents::Sealed { .. } | Contents::Bytes(_) => {}
        Contents::Device(Device::Zero) => return zeros(process, place, length, rights, shared),
        _ => return Err(Errno::NODEV),
    }
    let length = page_up(length);
    if length > USER_END {
        return Err(Errno::NOMEM);
    }
    if offset.checked_add(length).is_none_or(|end| end > i64::MAX.cast_unsigned()) {
        return Err(Errno::OVERFLOW);
    }
    let place = match (place, huge_code(process, fd & 0xffff_ffff, length, offset)) {
        (Place::Hint(0), Some(code)) => Place::BlockAt(code),
        (place, _) => place,
    };
    let instead = match place {
        Place::Fixed(start) => start..start.saturating_add(length),
        _ => 0..0,
    };
    if shared && differ(process, node, offset..offset + length, wants_to_write, &instead) {
        return Err(Errno::NODEV);
    }
    bytes::take_over(process, node, offset..offset + length);
    let is_layers = matches!(process.kernel.tree.contents(node), Contents::Sealed { .. });
    let looks = rights.count() && !rights.allow(Rights::WRITE);
    let is_anywhere = flags & (flags::MAP_FIXED | FIXED_NOREPLACE) == 0;
    let is_late = is_layers && looks && !shared && is_anywhere && deferred::has_room(process);
    // It holds the file's bytes from the start, even while the guest may not read them.
    let now = if rights.count() && !is_late { rights } else { Rights::HIDDEN };
    let start = mapping(process, Pages::AtOnce, place, length, now)?;
    if is_late {
        process.deferred = Some(DeferredCopy::new(start..start + length, node, offset, rights));
    } else if let Err(errno) = bytes::fill(process, start..start + length, node, offset) {
        process.space.unmap(start, length)?;
        return Err(errno);
    }
    let (writable, written) = (access != 0, wants_to_write);
    let file = FileMapping { node, offset, shared, writable, written };
    process.space.show(start..start + length, file);
    Ok(start)
}

/// Maps memory without a file.
fn zeros(process: &mut Process, place: Place, length: u64, rights: Rights, shared: bool) -> Answer {
    let start = mapping(process, Pages::OnTouch, place, length, rights)?;
    if shared {
        process.space.share(start..start + page_up(length));
    }
    Ok(start)
}

/// Whether bytes of a file would be shared at two addresses, one of them writable: the other one
/// would not show what is written there. `instead` is a range that is replaced.
fn differ(
    process: &Process,
    node: NodeId,
    bytes: Range<u64>,
    written: bool,
    instead: &Range<u64>,
) -> bool {
    let elsewhere = |range: &Range<u64>| range.start < instead.start || instead.end < range.end;
    let files = process.space.files();
    if written {
        files.sharing(node, bytes).any(|(range, _)| elsewhere(&range))
    } else {
        files.written(node, bytes).any(|(range, _)| elsewhere(&range))
    }
}

/// Maps a range, and frees files without a name whose last mapping it replaces.
fn mapping(
    process: &mut Process,
    pages: Pages,
    place: Place,
    length: u64,
    rights: Rights,
) -> Answer {
    match place {
        Place::Fixed(start) => {
            let range = start..start.saturating_add(page_up(length));
            letting_go(process, range, |process| {
                process.space.map_for(pages, place, length, rights)
            })
        }
        _ => process.space.map_for(pages, place, length, rights),
    }
}

/// Makes a change that may unmap parts of a range. A file without a name lives until its last
/// mapping is gone.
fn letting_go<T>(
    process: &mut Process,
    range: Range<u64>,
    change: impl FnOnce(&mut Process) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let files = process.space.files().inside(range.clone()).map(|(_, file)| file.node);
    let files: BTreeSet<_> = files.filter(|node| node.is_scratch()).collect();
    bytes::take_over_range(process, range);
    let changed = change(process);
    for node in files {
        process.release(node);
    }
    changed
}

/// Bytes from a library's start to the code that fills a block. The dynamic linker maps the whole
/// library to find room for it, and then its parts over that.
fn huge_code(process: &Process, fd: u64, length: u64, offset: u64) -> Option<u64> {
    let Object::Node(node, Some(file)) = &process.kernel.files.get(fd).ok()?.object else {
        return None;
    };
    if offset != 0 || length < BLOCK {
        return None;
    }
    // Libraries have their headers in their first page.
    let mut start = [0; 4096];
    bytes::read_at(file, &mut start, 0).ok()?;
    let image = Image::parse_start(&start, process.kernel.tree.contents(*node).size()).ok()?;
    image.huge_code().filter(|code| *code < length)
}

pub(crate) fn mprotect(process: &mut Process, start: u64, length: u64, protection: u64) -> Answer {
    /// Reading, writing, executing, and PROT_SEM, which has no effect.
    const KNOWN: u64 = 0xf;
    if length != 0 && protection & !KNOWN != 0 {
        return Err(Errno::INVAL);
    }
    let rights = Rights::of_protection(protection);
    let range = start..start.saturating_add(page_up(length));
    if rights.allow(Rights::WRITE) && start.is_multiple_of(PAGE) {
        let files = process.space.files();
        let mut shared = files.around(&range);
        shared.retain(|(_, file)| file.shared);
        if shared.iter().any(|(_, file)| !file.writable) {
            return Err(Errno::ACCESS);
        }
        shared.retain(|(_, file)| !file.written);
        if files.overlap(&shared) {
            return Err(Errno::ACCESS);
        }
        process.space.write_to_files(&range);
    }
    process.space.protect(start, length, rights).map(|()| 0)
}

pub(crate) fn munmap(process: &mut Process, start: u64, length: u64) -> Answer {
    let range = start..start.saturating_add(page_up(length));
    letting_go(process, range, |process| process.space.unmap(start, length)).map(|()| 0)
}

pub(crate) fn brk(process: &mut Process, wanted: u64) -> Answer {
    // Mappings above the wanted break go together with the break's own memory.
    letting_go(process, wanted..BREAK_END.max(wanted), |process| {
        Ok(process.space.move_break(wanted))
    })
}

pub(crate) fn mremap(process: &mut Process, start: u64, old: u64, new: u64, flags: u64) -> Answer {
    const MAY_MOVE: u64 = 1;
    if flags & !MAY_MOVE != 0 {
        return Err(Errno::INVAL);
    }
    let range = start..start.saturating_add(page_up(old));
    if let Ok(Some(FileMapping { node, offset, shared: true, written, .. })) =
        process.space.files().whole(&range)
    {
        let more = [old, new].map(|length| offset.saturating_add(page_up(length)));
        if differ(process, node, more[0]..more[1], written, &range) {
            return Err(Errno::NOMEM);
        }
    }
    let moved = letting_go(process, range, |process| {
        process.space.remap(start, old, new, flags & MAY_MOVE != 0)
    })?;
    let (old, new) = (page_up(old), page_up(new));
    if new > old {
        let grown = moved + old..moved + new;
        let file = process.space.files().inside(grown.clone()).next();
        if let Some((_, FileMapping { node, offset, shared, .. })) = file {
            if !shared {
                bytes::take_over(process, node, offset..offset + (grown.end - grown.start));
            }
            bytes::fill(process, grown, node, offset)?;
        }
    }
    Ok(moved)
}

/// `msync`: no other process sees a scratch file; it is updated so that its time of change is
/// right.
pub(crate) fn msync(process: &mut Process, start: u64, length: u64) -> Answer {
    if !start.is_multiple_of(PAGE) {
        return Err(Errno::INVAL);
    }
    let end = start.checked_add(page_up(length)).ok_or(Errno::NOMEM)?;
    bytes::take_over_range(process, start..end);
    if process.space.regions().cover(start..end) { Ok(0) } else { Err(Errno::NOMEM) }
}

pub(crate) fn madvise(process: &mut Process, start: u64, length: u64, advice: u64) -> Answer {
    const DONT_NEED: u64 = 4;
    const FREE: u64 = 8;
    let range = start..start.saturating_add(page_up(length));
    match advice {
        DONT_NEED => forget(process, start, length),
        // Pages of a file or shared pages cannot be freed.
        FREE if process.space.files().inside(range.clone()).next().is_some() => Err(Errno::INVAL),
        FREE if process.space.is_shared(range) => Err(Errno::INVAL),
        FREE => process.space.forget(start, length).map(|()| 0),
        // Advice on read-ahead, huge pages and dumps, without effect.
        0..=3 | 14..=17 | 20 | 21 => Ok(0),
        _ => Err(Errno::INVAL),
    }
}

/// Gives pages back: those without a file read as zero from now on, others as their file.
fn forget(process: &mut Process, start: u64, length: u64) -> Answer {
    let range = start..start.saturating_add(page_up(length));
    let shown: Vec<_> = process.space.files().inside(range.clone()).collect();
    for (part, FileMapping { node, offset, .. }) in shown {
        bytes::take_over(process, node, offset..offset + (part.end - part.start));
    }
    let forgotten = process.space.forget(start, length);
    // With a hole in the range, the rest is forgotten all the same.
    if matches!(forgotten, Ok(()) | Err(Errno::NOMEM)) {
        let files: Vec<_> = process.space.files().inside(range).collect();
        for (part, FileMapping { node, offset, .. }) in files {
            bytes::fill(process, part, node, offset)?;
        }
    }
    forgotten.map(|()| 0)
}
