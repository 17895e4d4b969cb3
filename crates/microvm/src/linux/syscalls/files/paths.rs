//! System calls that look up, make, rename and remove names.

use rustix::io::Errno;

use crate::linux::abi::flags;
use crate::linux::abi::record::long_at;
use crate::linux::abi::registers::{Answer, fd, mode, signed};
use crate::linux::mapped_files::bytes;
use crate::linux::state::files::Object;
use crate::linux::state::host_clock;
use crate::linux::state::ids::USER;
use crate::linux::state::process::Process;
use crate::linux::syscalls::files::{own_descriptors, proc};
use crate::memory::layout::PAGE;
use crate::vfs::{Contents, Kind, Lookup, Moment, NodeId, READ, SEARCH, Times, Tree, WRITE};

/// AT_FDCWD: relative paths start at the current directory.
pub(crate) const HERE: u64 = 0xffff_ff9c;
/// AT_SYMLINK_NOFOLLOW.
pub(crate) const NO_FOLLOW: u64 = 0x100;
/// AT_REMOVEDIR: remove a directory.
pub(crate) const REMOVE_DIRECTORY: u64 = 0x200;
/// The flags of `creat`.
pub(crate) const CREAT_FLAGS: u64 = CREATE | TRUNCATE | flags::WRITE_ONLY;
const PATH_MAX: u64 = 4096;

const CREATE: u64 = 0o100;
const EXCLUSIVE: u64 = 0o200;
const TRUNCATE: u64 = 0o1000;
const DIRECTORY: u64 = 0o200_000;
const OPEN_NO_FOLLOW: u64 = 0o400_000;
const NAMELESS: u64 = 0o20_000_000;

/// A string of the guest's, copied once.
pub(crate) fn path(process: &Process, at: u64) -> Result<Vec<u8>, Errno> {
    let mut path = Vec::new();
    let mut from = at;
    while (path.len() as u64) < PATH_MAX {
        // Page by page: the string may end before memory that is not mapped.
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

/// The directory where a relative path starts.
fn start(process: &Process, directory: u64, path: &[u8]) -> Result<NodeId, Errno> {
    if path.first() == Some(&b'/') {
        return Ok(Tree::ROOT);
    }
    if fd(directory) == HERE {
        return Ok(process.kernel.directory);
    }
    match process.kernel.files.place(fd(directory))?.object {
        Object::Node(node, _) => process.kernel.tree.entries(node).map(|_| node),
        _ => Err(Errno::NOTDIR),
    }
}

/// Looks a path up, those of the process's descriptors included.
pub(crate) fn find(
    process: &Process,
    directory: u64,
    at: u64,
    follow: bool,
) -> Result<Lookup, Errno> {
    let path = path(process, at)?;
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    let path = proc::of_own(process, &path).unwrap_or(path);
    if let Some((descriptor, rest)) = own_descriptors::beyond(&path) {
        let from = process.kernel.files.node_of(descriptor);
        process.kernel.files.place(descriptor).map_err(|_| Errno::NOENT)?;
        return process.kernel.tree.find(from.ok_or(Errno::NOTDIR)?, rest, follow);
    }
    let mut found = process.kernel.tree.find(start(process, directory, &path)?, &path, follow)?;
    if follow && let Some(descriptor) = own_descriptors::found(process, &found) {
        found.node = process.kernel.files.node_of(descriptor);
    }
    Ok(found)
}

/// Looks up a name to be made, removed or renamed, without following a link. Returns whether a
/// slash follows it, which only a directory may have.
fn find_name(process: &Process, directory: u64, at: u64) -> Result<(Lookup, bool), Errno> {
    let path = path(process, at)?;
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let name = if end == 0 { &path[..] } else { &path[..end] };
    let found = process.kernel.tree.find(start(process, directory, &path)?, name, false)?;
    Ok((found, end < path.len()))
}

/// Whether a name cannot be removed or renamed.
fn is_dots(found: &Lookup) -> bool {
    matches!(found.name.as_slice(), b"" | b"." | b"..")
}

pub(crate) fn existing(
    process: &Process,
    directory: u64,
    at: u64,
    follow: bool,
) -> Result<NodeId, Errno> {
    find(process, directory, at, follow)?.node.ok_or(Errno::NOENT)
}

pub(crate) fn open(
    process: &mut Process,
    directory: u64,
    at: u64,
    flags: u64,
    bits: u64,
) -> Answer {
    if flags & flags::PATH != 0 {
        return open_place(process, directory, at, flags);
    }
    if flags & NAMELESS == NAMELESS {
        return Err(Errno::OPNOTSUPP);
    }
    let follow = flags & OPEN_NO_FOLLOW == 0 && flags & (CREATE | EXCLUSIVE) != CREATE | EXCLUSIVE;
    if flags & CREATE != 0 && find_name(process, directory, at)?.1 {
        return Err(Errno::ISDIR);
    }
    let found = find(process, directory, at, follow)?;
    if let Some(descriptor) = own_descriptors::found(process, &found) {
        return match follow {
            true => own_descriptors::reopen(process, descriptor, flags),
            false if flags & CREATE != 0 => Err(Errno::EXIST),
            false => Err(Errno::LOOP),
        };
    }
    let writes = flags & flags::ACCESS_MODE != 0;
    let (is_new, reads) = (found.node.is_none(), flags & flags::ACCESS_MODE != flags::WRITE_ONLY);
    let node = match found.node {
        Some(_) if flags & CREATE != 0 && flags & EXCLUSIVE != 0 => return Err(Errno::EXIST),
        Some(node) => node,
        None if flags & CREATE == 0 => return Err(Errno::NOENT),
        // A link whose target ends with a slash.
        None if found.slash => return Err(Errno::ISDIR),
        None => {
            let bits = mode(bits) & !process.kernel.umask;
            let (contents, now) = (Contents::Bytes(Vec::new()), host_clock::now());
            process.kernel.tree.create(found.directory, &found.name, contents, bits, now)?
        }
    };
    let (_, _, writable) = process.kernel.tree.status(node);
    match process.kernel.tree.contents(node) {
        Contents::Link(_) => return Err(Errno::LOOP),
        Contents::Directory(_) | Contents::Descriptors
            if writes || flags & (CREATE | TRUNCATE) != 0 =>
        {
            return Err(Errno::ISDIR);
        }
        Contents::Directory(_) | Contents::Descriptors => {}
        _ if flags & DIRECTORY != 0 => return Err(Errno::NOTDIR),
        Contents::Generated(_) if writes => return Err(Errno::ACCESS),
        Contents::Sealed { .. } | Contents::Bytes(_)
            if (writes || flags & TRUNCATE != 0) && !writable =>
        {
            return Err(Errno::ROFS);
        }
        _ => {}
    }
    // The maker of a file may open it as it asks, whatever the permission bits are.
    if !is_new {
        let wanted = [(reads, READ), (writes || flags & TRUNCATE != 0, WRITE)];
        let wanted = wanted.iter().filter(|(wanted, _)| *wanted).map(|(_, what)| what).sum();
        process.kernel.tree.permit(node, wanted)?;
    }
    let is_stream = !is_new && own_descriptors::is_stream(process, node);
    let flags = if is_stream { flags & !TRUNCATE | flags::APPEND } else { flags };
    match process.kernel.tree.contents(node) {
        Contents::Bytes(_) if flags & TRUNCATE != 0 => {
            bytes::set_length(process, node, 0)?;
        }
        _ => {}
    }
    let file = process.kernel.tree.open(node)?;
    process.kernel.files.open(Object::Node(node, file), flags)
}

/// `O_PATH`: opens the node that a path leads to, a link itself with `O_NOFOLLOW`. Other flags have
/// no meaning then.
fn open_place(process: &mut Process, directory: u64, at: u64, flags: u64) -> Answer {
    let node = existing(process, directory, at, flags & OPEN_NO_FOLLOW == 0)?;
    if flags & DIRECTORY != 0 {
        process.kernel.tree.entries(node)?;
    }
    let known = flags::PATH | DIRECTORY | OPEN_NO_FOLLOW | flags::CLOSE_ON_EXEC;
    process.kernel.files.open(Object::Node(node, None), flags & known)
}

pub(crate) fn getcwd(process: &mut Process, target: u64, room: u64) -> Answer {
    // The directory was removed, and has no name.
    if process.kernel.tree.links(process.kernel.directory) == 0 {
        return Err(Errno::NOENT);
    }
    let mut path = process.kernel.tree.path(process.kernel.directory);
    path.push(0);
    let length = path.len() as u64;
    if length > room {
        return Err(Errno::RANGE);
    }
    process.space.write(target, length)?.copy_from_slice(&path);
    Ok(length)
}

pub(crate) fn chdir(process: &mut Process, at: u64) -> Answer {
    let node = existing(process, HERE, at, true)?;
    enter(process, node)
}

/// Sets the current directory, and frees the previous one if it has no name.
fn enter(process: &mut Process, node: NodeId) -> Answer {
    process.kernel.tree.entries(node)?;
    process.kernel.tree.permit(node, SEARCH)?;
    let left = std::mem::replace(&mut process.kernel.directory, node);
    process.release(left);
    Ok(0)
}

pub(crate) fn fchdir(process: &mut Process, descriptor: u64) -> Answer {
    let Object::Node(node, _) = process.kernel.files.place(fd(descriptor))?.object else {
        return Err(Errno::NOTDIR);
    };
    enter(process, node)
}

pub(crate) fn mkdir(process: &mut Process, directory: u64, at: u64, bits: u64) -> Answer {
    let (found, _) = find_name(process, directory, at)?;
    let contents = Contents::Directory(std::collections::BTreeMap::new());
    make(process, &found, contents, mode(bits) & !process.kernel.umask)
}

/// `mknod` of a regular file. Named pipes, sockets and devices cannot be made.
pub(crate) fn mknod(process: &mut Process, directory: u64, at: u64, bits: u64) -> Answer {
    const KIND: i32 = 0o170_000;
    const PLAIN: i32 = 0o100_000;
    if !matches!(signed(bits) & KIND, 0 | PLAIN) {
        return Err(Errno::PERM);
    }
    let (found, slash) = find_name(process, directory, at)?;
    if slash && found.node.is_none() {
        return Err(Errno::NOENT);
    }
    make(process, &found, Contents::Bytes(Vec::new()), mode(bits) & !process.kernel.umask)
}

fn make(process: &mut Process, found: &Lookup, contents: Contents, bits: u32) -> Answer {
    if found.node.is_some() {
        return Err(Errno::EXIST);
    }
    let now = host_clock::now();
    process.kernel.tree.create(found.directory, &found.name, contents, bits, now)?;
    Ok(0)
}

pub(crate) fn unlink(process: &mut Process, directory: u64, at: u64, flags: u64) -> Answer {
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
    process.release(node);
    Ok(0)
}

pub(crate) fn rename(
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
        process.release(replaced);
    }
    Ok(0)
}

pub(crate) fn link(
    process: &mut Process,
    from_directory: u64,
    from: u64,
    directory: u64,
    at: u64,
    flags: u64,
) -> Answer {
    const FOLLOW: u64 = 0x400;
    if flags & !FOLLOW != 0 {
        return Err(Errno::INVAL);
    }
    let node = existing(process, from_directory, from, flags & FOLLOW != 0)?;
    let (found, slash) = find_name(process, directory, at)?;
    if found.node.is_some() {
        return Err(Errno::EXIST);
    }
    if slash {
        return Err(Errno::NOENT);
    }
    process.kernel.tree.link(node, found.directory, &found.name).map(|()| 0)
}

pub(crate) fn symlink(process: &mut Process, target: u64, directory: u64, at: u64) -> Answer {
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

/// `fchmodat2`, and without flags the calls before it. A link's own bits cannot be changed.
pub(crate) fn chmod(
    process: &mut Process,
    directory: u64,
    at: u64,
    bits: u64,
    flags: u64,
) -> Answer {
    if flags & !(NO_FOLLOW | flags::EMPTY_PATH) != 0 {
        return Err(Errno::INVAL);
    }
    let name = path(process, at)?;
    let by_descriptor = name.is_empty() && flags & flags::EMPTY_PATH != 0;
    let of_descriptor =
        by_descriptor.then(|| process.kernel.files.node_of(fd(directory))).flatten();
    let node = match of_descriptor {
        Some(node) => node,
        None => existing(process, directory, at, flags & NO_FOLLOW == 0)?,
    };
    if process.kernel.tree.contents(node).kind() == Kind::Link {
        return Err(Errno::OPNOTSUPP);
    }
    process.kernel.tree.set_mode(node, mode(bits)).map(|()| 0)
}

pub(crate) fn fchmod(process: &mut Process, descriptor: u64, bits: u64) -> Answer {
    let Object::Node(node, _) = process.kernel.files.get(fd(descriptor))?.object else {
        return Err(Errno::INVAL);
    };
    process.kernel.tree.set_mode(node, mode(bits)).map(|()| 0)
}

/// `chown`: the only user owns everything, and cannot give it away.
pub(crate) fn chown(
    process: &mut Process,
    directory: u64,
    at: u64,
    owners: [u64; 2],
    flags: u64,
) -> Answer {
    if flags & !(NO_FOLLOW | flags::EMPTY_PATH) != 0 {
        return Err(Errno::INVAL);
    }
    if flags & flags::EMPTY_PATH != 0 && path(process, at)?.is_empty() && fd(directory) != HERE {
        let node = process.kernel.files.node_of(fd(directory)).ok_or(Errno::BADF)?;
        return keep_owners(process, node, owners);
    }
    let node = existing(process, directory, at, flags & NO_FOLLOW == 0)?;
    keep_owners(process, node, owners)
}

pub(crate) fn fchown(process: &mut Process, descriptor: u64, owners: [u64; 2]) -> Answer {
    match process.kernel.files.get(fd(descriptor))?.object {
        Object::Node(node, _) => keep_owners(process, node, owners),
        _ => Ok(0),
    }
}

fn keep_owners(process: &Process, node: NodeId, owners: [u64; 2]) -> Answer {
    const LEAVE: u64 = 0xffff_ffff;
    if !process.kernel.tree.status(node).2 {
        return Err(Errno::ROFS);
    }
    let keeps = |owner: u64| matches!(fd(owner), LEAVE | USER);
    if owners.into_iter().all(keeps) { Ok(0) } else { Err(Errno::PERM) }
}

pub(crate) fn umask(process: &mut Process, new: u32) -> u32 {
    std::mem::replace(&mut process.kernel.umask, new & 0o777)
}

pub(crate) fn truncate(process: &mut Process, at: u64, length: u64) -> Answer {
    if length > i64::MAX.cast_unsigned() {
        return Err(Errno::INVAL);
    }
    let node = existing(process, HERE, at, true)?;
    match process.kernel.tree.contents(node).kind() {
        Kind::Directory => Err(Errno::ISDIR),
        Kind::File => {
            process.kernel.tree.permit(node, WRITE)?;
            bytes::set_length(process, node, length)
        }
        Kind::Link | Kind::Device => Err(Errno::INVAL),
    }
}

/// `utimensat`: sets the times of a scratch node.
pub(crate) fn set_times(
    process: &mut Process,
    directory: u64,
    at: u64,
    times: u64,
    flags: u64,
) -> Answer {
    const OMIT: u64 = 0x3fff_fffe;
    const NOW: u64 = 0x3fff_ffff;
    if flags & !NO_FOLLOW != 0 {
        return Err(Errno::INVAL);
    }
    let now = host_clock::now();
    let [accessed, modified] = match times {
        0 => [NOW; 2].map(|parts| (0, parts)),
        _ => {
            let bytes = process.space.read(times, 32)?;
            [0, 16].map(|at| (long_at(bytes, at).cast_signed(), long_at(bytes, at + 8)))
        }
    };
    if (accessed.1, modified.1) == (OMIT, OMIT) {
        return Ok(0);
    }
    let node = if at == 0 {
        match process.kernel.files.get(fd(directory))?.object {
            Object::Node(node, _) => Some(node),
            _ => None,
        }
    } else {
        Some(existing(process, directory, at, flags & NO_FOLLOW == 0)?)
    };
    let is_valid = |(_, parts): (i64, u64)| parts < 1_000_000_000 || matches!(parts, OMIT | NOW);
    if !is_valid(accessed) || !is_valid(modified) {
        return Err(Errno::INVAL);
    }
    let moment = |wanted: (i64, u64), before: Moment| match wanted {
        (_, OMIT) => before,
        (_, NOW) => now,
        (seconds, parts) => Moment { seconds, nanoseconds: u32::try_from(parts).unwrap_or(0) },
    };
    if let Some(node) = node {
        let (_, before, _) = process.kernel.tree.status(node);
        let times = Times {
            accessed: moment(accessed, before.accessed),
            modified: moment(modified, before.modified),
        };
        process.kernel.tree.set_times(node, times)?;
    }
    Ok(0)
}
