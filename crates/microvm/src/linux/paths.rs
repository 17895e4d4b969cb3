//! System calls about names and what stands behind them.

use std::sync::Arc;

use rustix::io::Errno;

use super::Answer;
use super::call::{fd, mode, signed};
use super::files::Object;
use super::process::Process;
use super::record::Record;
use super::start::USER;
use crate::layout::PAGE;
use crate::vfs::{Contents, Found, Kind, NodeId, Tree};

/// AT_FDCWD: relative paths start at the current directory.
pub(super) const HERE: u64 = 0xffff_ff9c;
/// AT_SYMLINK_NOFOLLOW.
pub(super) const NO_FOLLOW: u64 = 0x100;
/// AT_REMOVEDIR.
pub(super) const REMOVE_DIRECTORY: u64 = 0x200;
/// What `creat` opens with.
pub(super) const CREAT_FLAGS: u64 = CREATE | TRUNCATE | 1;
const EMPTY_PATH: u64 = 0x1000;
const PATH_MAX: u64 = 4096;

const CREATE: u64 = 0o100;
const EXCLUSIVE: u64 = 0o200;
const TRUNCATE: u64 = 0o1000;
const DIRECTORY: u64 = 0o200_000;
const OPEN_NO_FOLLOW: u64 = 0o400_000;
const NAMELESS: u64 = 0o20_000_000;

/// A string of the guest's, copied once.
fn path(process: &Process, at: u64) -> Result<Vec<u8>, Errno> {
    let mut path = Vec::new();
    let mut from = at;
    while (path.len() as u64) < PATH_MAX {
        // Page by page: the string may end before memory that is not there.
        let length = PAGE - from % PAGE;
        let bytes = process.space.read(from, length)?;
        match bytes.iter().position(|byte| *byte == 0) {
            Some(end) => {
                path.extend_from_slice(&bytes[..end]);
                return if (path.len() as u64) < PATH_MAX {
                    Ok(path)
                } else {
                    Err(Errno::NAMETOOLONG)
                };
            }
            None => path.extend_from_slice(bytes),
        }
        from += length;
    }
    Err(Errno::NAMETOOLONG)
}

/// Where a relative path starts.
fn start(process: &Process, directory: u64, path: &[u8]) -> Result<NodeId, Errno> {
    if path.first() == Some(&b'/') {
        return Ok(Tree::ROOT);
    }
    if fd(directory) == HERE {
        return Ok(process.kernel.directory);
    }
    match process.kernel.files.get(fd(directory))?.object {
        Object::Node(node, _) => process.kernel.tree.entries(node).map(|_| node),
        _ => Err(Errno::NOTDIR),
    }
}

fn find(process: &Process, directory: u64, at: u64, follow: bool) -> Result<Found, Errno> {
    let path = path(process, at)?;
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    process.kernel.tree.find(start(process, directory, &path)?, &path, follow)
}

/// A name that is to be made, taken away or moved: the name itself, whatever it links to. Says whether a slash follows it:
/// then only a directory will do.
fn find_name(process: &Process, directory: u64, at: u64) -> Result<(Found, bool), Errno> {
    let path = path(process, at)?;
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let name = if end == 0 { &path[..] } else { &path[..end] };
    let found = process.kernel.tree.find(start(process, directory, &path)?, name, false)?;
    Ok((found, end < path.len()))
}

/// Whether a name cannot be taken away or moved.
fn is_dots(found: &Found) -> bool {
    matches!(found.name.as_slice(), b"" | b"." | b"..")
}

fn existing(process: &Process, directory: u64, at: u64, follow: bool) -> Result<NodeId, Errno> {
    find(process, directory, at, follow)?.node.ok_or(Errno::NOENT)
}

pub(super) fn open(
    process: &mut Process,
    directory: u64,
    at: u64,
    flags: u64,
    bits: u64,
) -> Answer {
    if flags & NAMELESS == NAMELESS {
        return Err(Errno::OPNOTSUPP);
    }
    let follow = flags & OPEN_NO_FOLLOW == 0 && flags & (CREATE | EXCLUSIVE) != CREATE | EXCLUSIVE;
    if flags & CREATE != 0 && find_name(process, directory, at)?.1 {
        return Err(Errno::ISDIR);
    }
    let found = find(process, directory, at, follow)?;
    let writes = flags & 3 != 0;
    let node = match found.node {
        Some(_) if flags & CREATE != 0 && flags & EXCLUSIVE != 0 => return Err(Errno::EXIST),
        Some(node) => node,
        None if flags & CREATE == 0 => return Err(Errno::NOENT),
        None => {
            let bits = mode(bits) & !process.kernel.umask;
            let (contents, now) = (Contents::Bytes(Vec::new()), super::clock::now());
            process.kernel.tree.create(found.directory, &found.name, contents, bits, now)?
        }
    };
    let (_, _, writable) = process.kernel.tree.status(node);
    match process.kernel.tree.contents(node) {
        Contents::Link(_) => return Err(Errno::LOOP),
        Contents::Directory(_) if writes || flags & CREATE != 0 => return Err(Errno::ISDIR),
        Contents::Directory(_) => {}
        _ if flags & DIRECTORY != 0 => return Err(Errno::NOTDIR),
        Contents::Sealed { .. } | Contents::Bytes(_)
            if (writes || flags & TRUNCATE != 0) && !writable =>
        {
            return Err(Errno::ROFS);
        }
        Contents::Bytes(_) if flags & TRUNCATE != 0 => {
            process.kernel.tree.bytes_mut(node, 0, super::clock::now())?.clear();
        }
        _ => {}
    }
    let file = process.kernel.tree.open(node)?.map(Arc::new);
    process.kernel.files.open(Object::Node(node, file), flags)
}

pub(super) fn stat(
    process: &mut Process,
    directory: u64,
    at: u64,
    target: u64,
    flags: u64,
) -> Answer {
    if flags & EMPTY_PATH != 0 && path(process, at)?.is_empty() && fd(directory) != HERE {
        return fstat(process, directory, target);
    }
    let node = existing(process, directory, at, flags & NO_FOLLOW == 0)?;
    let record = describe(&process.kernel.tree, node);
    process.space.write(target, 144)?.copy_from_slice(record.bytes());
    Ok(0)
}

pub(super) fn fstat(process: &mut Process, descriptor: u64, target: u64) -> Answer {
    const FIFO: u32 = 0o010_600;
    const SOCKET: u32 = 0o140_777;
    let record = match process.kernel.files.get(fd(descriptor))?.object {
        Object::Node(node, _) => describe(&process.kernel.tree, node),
        Object::Channel => Record::new().int(24, SOCKET),
        Object::PipeReader(_) | Object::PipeWriter(_) | Object::Output(_) => {
            Record::new().int(24, FIFO)
        }
    };
    process.space.write(target, 144)?.copy_from_slice(record.bytes());
    Ok(0)
}

/// `struct stat`.
fn describe(tree: &Tree, node: NodeId) -> Record<144> {
    let contents = tree.contents(node);
    let (bits, modified, _) = tree.status(node);
    let format = match contents.kind() {
        Kind::Directory => 0o040_000,
        Kind::File => 0o100_000,
        Kind::Link => 0o120_000,
        Kind::Device => 0o020_000,
    };
    let size = contents.size();
    let user = u32::try_from(USER).unwrap_or(0);
    let time = modified.cast_unsigned();
    Record::new()
        .long(0, 1)
        .long(8, node.inode())
        .long(16, 1)
        .int(24, format | bits)
        .int(28, user)
        .int(32, user)
        .long(48, size)
        .long(56, PAGE)
        .long(64, size.div_ceil(512))
        .long(72, time)
        .long(88, time)
        .long(104, time)
}

pub(super) fn access(process: &mut Process, directory: u64, at: u64, wanted: u64) -> Answer {
    const WRITE: u64 = 2;
    const EXECUTE: u64 = 1;
    let node = existing(process, directory, at, true)?;
    let (bits, _, writable) = process.kernel.tree.status(node);
    let kind = process.kernel.tree.contents(node).kind();
    if fd(wanted) & WRITE != 0 && !writable && kind != Kind::Device {
        return Err(Errno::ROFS);
    }
    if fd(wanted) & EXECUTE != 0 && bits & 0o111 == 0 {
        return Err(Errno::ACCESS);
    }
    Ok(0)
}

pub(super) fn readlink(
    process: &mut Process,
    directory: u64,
    at: u64,
    target: u64,
    room: u64,
) -> Answer {
    if signed(room) <= 0 {
        return Err(Errno::INVAL);
    }
    let node = existing(process, directory, at, false)?;
    let Contents::Link(text) = process.kernel.tree.contents(node) else { return Err(Errno::INVAL) };
    let length = (text.len() as u64).min(room);
    let target = process.space.write(target, length)?;
    target.copy_from_slice(&text[..target.len()]);
    Ok(length)
}

/// `struct linux_dirent64`, one behind the other. The offset counts entries, with `.` and `..` first.
pub(super) fn getdents(process: &mut Process, descriptor: u64, target: u64, room: u64) -> Answer {
    const HEAD: usize = 19;
    let open = process.kernel.files.get(fd(descriptor))?;
    let Object::Node(node, _) = open.object else { return Err(Errno::NOTDIR) };
    let entries = process.kernel.tree.entries(node)?;
    let dots = [(&b"."[..], node), (&b".."[..], process.kernel.tree.parent(node))];
    let all = dots.into_iter().chain(entries.iter().map(|(name, node)| (&name[..], *node)));
    let room = usize::try_from(room.min(1 << 20)).unwrap_or(0);
    let (mut bytes, mut offset) = (Vec::new(), open.offset);
    let mut fits = true;
    for (name, node) in all.skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
        let length = (HEAD + name.len() + 1).next_multiple_of(8);
        fits = bytes.len() + length <= room;
        if !fits {
            break;
        }
        offset += 1;
        let kind = match process.kernel.tree.contents(node).kind() {
            Kind::Directory => 4,
            Kind::File => 8,
            Kind::Link => 10,
            Kind::Device => 2,
        };
        let end = bytes.len() + length;
        bytes.extend_from_slice(&node.inode().to_le_bytes());
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&u16::try_from(length).unwrap_or(0).to_le_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(name);
        bytes.resize(end, 0);
    }
    if bytes.is_empty() && !fits {
        return Err(Errno::INVAL);
    }
    process.space.write(target, bytes.len() as u64)?.copy_from_slice(&bytes);
    process.kernel.files.get_mut(fd(descriptor))?.offset = offset;
    Ok(bytes.len() as u64)
}

pub(super) fn getcwd(process: &mut Process, target: u64, room: u64) -> Answer {
    let mut path = process.kernel.tree.path(process.kernel.directory);
    path.push(0);
    let length = path.len() as u64;
    if length > room {
        return Err(Errno::RANGE);
    }
    process.space.write(target, length)?.copy_from_slice(&path);
    Ok(length)
}

pub(super) fn chdir(process: &mut Process, at: u64) -> Answer {
    let node = existing(process, HERE, at, true)?;
    process.kernel.tree.entries(node)?;
    process.kernel.directory = node;
    Ok(0)
}

pub(super) fn fchdir(process: &mut Process, descriptor: u64) -> Answer {
    let Object::Node(node, _) = process.kernel.files.get(fd(descriptor))?.object else {
        return Err(Errno::NOTDIR);
    };
    process.kernel.tree.entries(node)?;
    process.kernel.directory = node;
    Ok(0)
}

pub(super) fn mkdir(process: &mut Process, directory: u64, at: u64, bits: u64) -> Answer {
    let (found, _) = find_name(process, directory, at)?;
    let contents = Contents::Directory(std::collections::BTreeMap::new());
    make(process, &found, contents, mode(bits) & !process.kernel.umask)
}

fn make(process: &mut Process, found: &Found, contents: Contents, bits: u32) -> Answer {
    if found.node.is_some() {
        return Err(Errno::EXIST);
    }
    let now = super::clock::now();
    process.kernel.tree.create(found.directory, &found.name, contents, bits, now)?;
    Ok(0)
}

pub(super) fn unlink(process: &mut Process, directory: u64, at: u64, flags: u64) -> Answer {
    let is_directory = flags & REMOVE_DIRECTORY != 0;
    let (found, slash) = find_name(process, directory, at)?;
    match found.name.as_slice() {
        _ if !is_dots(&found) => {}
        _ if !is_directory => return Err(Errno::ISDIR),
        b"." => return Err(Errno::INVAL),
        b".." => return Err(Errno::NOTEMPTY),
        _ => return Err(Errno::BUSY),
    }
    let node = found.node.ok_or(Errno::NOENT)?;
    if slash && !is_directory {
        let kind = process.kernel.tree.contents(node).kind();
        return Err(if kind == Kind::Directory { Errno::ISDIR } else { Errno::NOTDIR });
    }
    let node = process.kernel.tree.remove(&found, is_directory)?;
    forget(process, node);
    Ok(0)
}

fn forget(process: &mut Process, node: NodeId) {
    if !process.kernel.files.has_open(node) && process.kernel.directory != node {
        process.kernel.tree.release(node);
    }
}

pub(super) fn rename(
    process: &mut Process,
    from_directory: u64,
    from: u64,
    to_directory: u64,
    to: u64,
    flags: u64,
) -> Answer {
    const NO_REPLACE: u64 = 1;
    if flags & !NO_REPLACE != 0 {
        return Err(Errno::INVAL);
    }
    let (from, from_slash) = find_name(process, from_directory, from)?;
    let (to, to_slash) = find_name(process, to_directory, to)?;
    if is_dots(&from) || is_dots(&to) {
        return Err(if flags & NO_REPLACE != 0 && is_dots(&to) {
            Errno::EXIST
        } else {
            Errno::BUSY
        });
    }
    let node = from.node.ok_or(Errno::NOENT)?;
    if flags & NO_REPLACE != 0 && to.node.is_some() {
        return Err(Errno::EXIST);
    }
    let is_directory = process.kernel.tree.contents(node).kind() == Kind::Directory;
    if (from_slash || to_slash) && !is_directory {
        return Err(Errno::NOTDIR);
    }
    if let Some(replaced) = process.kernel.tree.rename(&from, &to)? {
        forget(process, replaced);
    }
    Ok(0)
}

pub(super) fn symlink(process: &mut Process, target: u64, directory: u64, at: u64) -> Answer {
    let target = path(process, target)?;
    if target.is_empty() {
        return Err(Errno::NOENT);
    }
    let (found, slash) = find_name(process, directory, at)?;
    if slash && found.node.is_none() {
        return Err(Errno::NOENT);
    }
    make(process, &found, Contents::Link(target), 0o777)
}

pub(super) fn chmod(process: &mut Process, directory: u64, at: u64, bits: u64) -> Answer {
    let node = existing(process, directory, at, true)?;
    process.kernel.tree.set_mode(node, mode(bits)).map(|()| 0)
}

pub(super) fn fchmod(process: &mut Process, descriptor: u64, bits: u64) -> Answer {
    let Object::Node(node, _) = process.kernel.files.get(fd(descriptor))?.object else {
        return Err(Errno::INVAL);
    };
    process.kernel.tree.set_mode(node, mode(bits)).map(|()| 0)
}

pub(super) fn umask(process: &mut Process, new: u32) -> u32 {
    std::mem::replace(&mut process.kernel.umask, new & 0o777)
}
