//! System calls about memory.

use rustix::io::Errno;

use super::Answer;
use super::files::Object;
use super::process::Process;
use crate::image::Image;
use crate::layout::{BLOCK, page_up};
use crate::rights::Rights;
use crate::space::Place;
use crate::vfs::{Contents, Device};

const SHARED: u64 = 1;
const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x20;
const LOW: u64 = 0x40;
const FIXED_NOREPLACE: u64 = 0x10_0000;
const WRITE: u64 = 2;
/// How a file is open.
const WRITE_ONLY: u64 = 1;

pub(super) fn mmap(process: &mut Process, arguments: [u64; 6]) -> Answer {
    let [address, length, protection, flags, fd, offset] = arguments;
    let rights = Rights::of_protection(protection);
    let place = if flags & FIXED_NOREPLACE != 0 {
        Place::FixedIfFree(address)
    } else if flags & FIXED != 0 {
        Place::Fixed(address)
    } else if flags & LOW != 0 {
        Place::Low
    } else {
        Place::Hint(address)
    };
    if flags & ANONYMOUS != 0 {
        return process.space.map(place, length, rights);
    }
    if !offset.is_multiple_of(crate::layout::PAGE) {
        return Err(Errno::INVAL);
    }
    let open = process.kernel.files.get(fd & 0xffff_ffff)?;
    let access = open.flags & 3;
    let wants_to_write = flags & 3 == SHARED && protection & WRITE != 0;
    if access == WRITE_ONLY || wants_to_write && access == 0 {
        return Err(Errno::ACCESS);
    }
    let Object::Node(node, _) = open.object else { return Err(Errno::NODEV) };
    match process.kernel.tree.contents(node) {
        Contents::Sealed { .. } | Contents::Bytes(_) => {}
        Contents::Device(Device::Zero) => return process.space.map(place, length, rights),
        _ => return Err(Errno::NODEV),
    }
    // A file's pages are copied: nobody else could see what is written to a shared mapping.
    if wants_to_write {
        return Err(Errno::NODEV);
    }
    let place = match (place, huge_code(process, fd & 0xffff_ffff, length, offset)) {
        (Place::Hint(0), Some(code)) => Place::BlockAt(code),
        (place, _) => place,
    };
    // It holds the file's bytes from the start, whoever may look at them.
    let rights = if rights.count() { rights } else { Rights::HIDDEN };
    let start = process.space.map(place, length, rights)?;
    let filled = fill(process, fd & 0xffff_ffff, start, length, offset);
    if let Err(errno) = filled {
        process.space.unmap(start, length)?;
        return Err(errno);
    }
    Ok(start)
}

/// Where, behind its start, the code of a library begins that fills a block. The dynamic linker maps all of a library to
/// find room for it, and then its parts in their places.
fn huge_code(process: &Process, fd: u64, length: u64, offset: u64) -> Option<u64> {
    let Object::Node(node, Some(file)) = &process.kernel.files.get(fd).ok()?.object else {
        return None;
    };
    if offset != 0 || length < BLOCK {
        return None;
    }
    // Libraries have their headers in their first page.
    let mut start = [0; 4096];
    super::transfer::read_at(file, &mut start, 0).ok()?;
    let image = Image::parse_start(&start, process.kernel.tree.contents(*node).size()).ok()?;
    image.huge_code().filter(|code| *code < length)
}

/// Copies a file into a fresh mapping; what lies behind its end stays zero.
fn fill(process: &mut Process, fd: u64, start: u64, length: u64, offset: u64) -> Result<(), Errno> {
    let object = &process.kernel.files.get(fd)?.object;
    let target = process.space.arena_mut().bytes_mut(start..start + page_up(length));
    match object {
        Object::Node(_, Some(file)) => super::transfer::read_at(file, target, offset).map(drop),
        Object::Node(node, None) => {
            if let Contents::Bytes(bytes) = process.kernel.tree.contents(*node) {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let count = (bytes.len() - from).min(target.len());
                target[..count].copy_from_slice(&bytes[from..from + count]);
            }
            Ok(())
        }
        _ => Err(Errno::NODEV),
    }
}

pub(super) fn mprotect(process: &mut Process, start: u64, length: u64, protection: u64) -> Answer {
    process.space.protect(start, length, Rights::of_protection(protection)).map(|()| 0)
}

pub(super) fn munmap(process: &mut Process, start: u64, length: u64) -> Answer {
    process.space.unmap(start, length).map(|()| 0)
}

pub(super) fn mremap(process: &mut Process, start: u64, old: u64, new: u64, flags: u64) -> Answer {
    const MAY_MOVE: u64 = 1;
    if flags & !MAY_MOVE != 0 {
        return Err(Errno::INVAL);
    }
    process.space.remap(start, old, new, flags & MAY_MOVE != 0)
}

/// No mapping is anybody else's too: there is nothing to write back.
pub(super) fn msync(process: &mut Process, start: u64, length: u64) -> Answer {
    if !start.is_multiple_of(crate::layout::PAGE) {
        return Err(Errno::INVAL);
    }
    let end = start.checked_add(page_up(length)).ok_or(Errno::NOMEM)?;
    if process.space.regions().cover(start..end) { Ok(0) } else { Err(Errno::NOMEM) }
}

pub(super) fn madvise(process: &mut Process, start: u64, length: u64, advice: u64) -> Answer {
    const DONT_NEED: u64 = 4;
    const FREE: u64 = 8;
    match advice {
        DONT_NEED | FREE => process.space.forget(start, length).map(|()| 0),
        // Wishes about read-ahead, huge pages and dumps: nothing has to follow from them.
        0..=3 | 14..=17 | 20 | 21 => Ok(0),
        _ => Err(Errno::INVAL),
    }
}
