//! System calls that describe a name or a descriptor.

use rustix::io::Errno;

use crate::linux::abi::flags;
use crate::linux::abi::record::Record;
use crate::linux::abi::registers::{Answer, fd, mode, signed};
use crate::linux::state::files::Object;
use crate::linux::state::ids::USER;
use crate::linux::state::process::Process;
use crate::linux::syscalls::files::own_descriptors;
use crate::linux::syscalls::files::paths::{HERE, NO_FOLLOW, existing, find, path};
use crate::memory::layout::PAGE;
use crate::vfs::{Contents, Kind, Moment, NodeId, Times, Tree};

pub(crate) fn stat(
    process: &mut Process,
    directory: u64,
    at: u64,
    target: u64,
    flags: u64,
) -> Answer {
    if flags & flags::EMPTY_PATH != 0 && path(process, at)?.is_empty() && fd(directory) != HERE {
        return fstat(process, directory, target);
    }
    let follow = flags & NO_FOLLOW == 0;
    let found = find(process, directory, at, follow)?;
    if let Some(descriptor) = own_descriptors::found(process, &found) {
        if follow {
            return fstat(process, descriptor, target);
        }
        let record = own_descriptors::describe_link(descriptor);
        process.space.write(target, 144)?.copy_from_slice(record.bytes());
        return Ok(0);
    }
    let node = found.node.ok_or(Errno::NOENT)?;
    let record = describe(&process.kernel.tree, node);
    process.space.write(target, 144)?.copy_from_slice(record.bytes());
    Ok(0)
}

pub(crate) fn fstat(process: &mut Process, descriptor: u64, target: u64) -> Answer {
    const FIFO: u32 = 0o010_600;
    const SOCKET: u32 = 0o140_777;
    let record = match process.kernel.files.place(fd(descriptor))?.object {
        Object::Node(node, _) => describe(&process.kernel.tree, node),
        Object::Channel | Object::Inet(_) | Object::Socket { .. } => Record::new().int(24, SOCKET),
        Object::PipeReader(_) | Object::PipeWriter(_) | Object::Output(_) => {
            Record::new().int(24, FIFO)
        }
    };
    process.space.write(target, 144)?.copy_from_slice(record.bytes());
    Ok(0)
}

/// The owner of files that a guest cannot write, as of files whose owner is not in a user
/// namespace.
const UNMAPPED_OWNER: u64 = 65534;

/// `struct stat` of a node.
fn describe(tree: &Tree, node: NodeId) -> Record<144> {
    let contents = tree.contents(node);
    let (bits, Times { accessed, modified }, is_own) = tree.status(node);
    let format = match contents.kind() {
        Kind::Directory => 0o040_000,
        Kind::File => 0o100_000,
        Kind::Link => 0o120_000,
        Kind::Device => 0o020_000,
    };
    let size = contents.size();
    let user = if is_own { USER } else { UNMAPPED_OWNER };
    let user = u32::try_from(user).unwrap_or(0);
    let time = |record: Record<144>, at: usize, Moment { seconds, nanoseconds }: Moment| {
        record.long(at, seconds.cast_unsigned()).long(at + 8, u64::from(nanoseconds))
    };
    let record = Record::new()
        .long(0, 1)
        .long(8, node.inode())
        .long(16, u64::from(tree.links(node)))
        .int(24, format | bits)
        .int(28, user)
        .int(32, user)
        .long(48, size)
        .long(56, PAGE)
        .long(64, size.div_ceil(512));
    // Times of access, writing and change; renaming does not set the last one.
    let record = time(record, 72, accessed);
    time(time(record, 88, modified), 104, modified)
}

pub(crate) fn access(process: &mut Process, directory: u64, at: u64, wanted: u64) -> Answer {
    const WRITE: u64 = 2;
    const EXECUTE: u64 = 1;
    const ALL: u64 = 7;
    if fd(wanted) & !ALL != 0 {
        return Err(Errno::INVAL);
    }
    let found = find(process, directory, at, true)?;
    if own_descriptors::found(process, &found).is_some() {
        return Ok(0);
    }
    let node = found.node.ok_or(Errno::NOENT)?;
    process.kernel.tree.permit(node, mode(wanted))?;
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

pub(crate) fn readlink(
    process: &mut Process,
    directory: u64,
    at: u64,
    target: u64,
    room: u64,
) -> Answer {
    if signed(room) <= 0 {
        return Err(Errno::INVAL);
    }
    // An empty path means the link behind the descriptor.
    let itself = path(process, at)?
        .is_empty()
        .then(|| process.kernel.files.node_of(fd(directory)))
        .flatten();
    let is_link = |node: &NodeId| process.kernel.tree.contents(*node).kind() == Kind::Link;
    let itself = itself.filter(is_link);
    let (node, descriptor) = match itself {
        Some(node) => (Some(node), None),
        None => {
            let found = find(process, directory, at, false)?;
            (found.node, own_descriptors::found(process, &found))
        }
    };
    let text = match descriptor {
        Some(descriptor) => own_descriptors::target(process, descriptor)?,
        None => match process.kernel.tree.contents(node.ok_or(Errno::NOENT)?) {
            Contents::Link(text) => text.clone(),
            _ => return Err(Errno::INVAL),
        },
    };
    let length = (text.len() as u64).min(room);
    let target = process.space.write(target, length)?;
    target.copy_from_slice(&text[..target.len()]);
    Ok(length)
}

/// `struct linux_dirent64`, one after the other: `.`, `..`, and all other names by their places.
///
/// The offset is 0 at first, 1 and 2 behind the two, and then that of the last name told. So a name
/// that stays is told once, whatever is made or removed meanwhile, and an offset that was kept
/// (`telldir`) leads to the same place. A listing notes its end when it begins.
pub(crate) fn getdents(process: &mut Process, descriptor: u64, target: u64, room: u64) -> Answer {
    const HEAD: usize = 19;
    const DOTS: u64 = 2;
    const LINK: u8 = 10;
    let open = process.kernel.files.get(fd(descriptor))?;
    let Object::Node(node, _) = open.object else { return Err(Errno::NOTDIR) };
    let before = open.offset;
    let is_own = matches!(process.kernel.tree.contents(node), Contents::Descriptors);
    let numbers = if is_own { own_names(process) } else { Vec::new() };
    let entries = process.kernel.tree.entries(node)?;
    let kind = |node: NodeId| match process.kernel.tree.contents(node).kind() {
        Kind::Directory => 4,
        Kind::File => 8,
        Kind::Link => LINK,
        Kind::Device => 2,
    };
    let dot = |offset, name: &'static [u8], node: NodeId| (offset, name, node.inode(), 4);
    let dots = [dot(1, b".", node), dot(DOTS, b"..", process.kernel.tree.parent(node))];
    let named = entries
        .iter()
        .map(|(name, it)| (DOTS + 1 + it.place, &name[..], it.node.inode(), kind(it.node)));
    let owned = numbers.iter().map(|(number, name)| {
        (DOTS + 1 + number, &name[..], own_descriptors::FIRST_INODE + number, LINK)
    });
    let own = process.pid.to_string();
    let own = own_number(process, node).map(|(offset, inode)| (offset, own.as_bytes(), inode, 4));
    let all: Vec<_> = named.chain(owned).chain(own).collect();
    let end = open.end.filter(|_| before > 0);
    let end = end.unwrap_or_else(|| all.iter().map(|it| it.0).max().unwrap_or(DOTS));
    let mut rest: Vec<_> = dots
        .into_iter()
        .chain(all)
        .filter(|(offset, ..)| before < *offset && *offset <= end)
        .collect();
    rest.sort_unstable();
    let room = usize::try_from(room.min(1 << 20)).unwrap_or(0);
    let (mut bytes, mut last) = (Vec::new(), before);
    let mut fits = true;
    for (offset, name, inode, kind) in rest {
        let length = (HEAD + name.len() + 1).next_multiple_of(8);
        fits = bytes.len() + length <= room;
        if !fits {
            break;
        }
        last = offset;
        let end = bytes.len() + length;
        bytes.extend_from_slice(&inode.to_le_bytes());
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
    let open = process.kernel.files.get_mut(fd(descriptor))?;
    (open.offset, open.end) = (last, Some(end));
    Ok(bytes.len() as u64)
}

/// In `/proc` the process also has its number as a name, which leads where `self` does
/// ([`of_own`](crate::linux::syscalls::files::proc::of_own)): the offset of that name, and its
/// inode.
fn own_number(process: &Process, node: NodeId) -> Option<(u64, u64)> {
    /// Behind all names with places.
    const LAST: u64 = 1 << 62;
    let tree = &process.kernel.tree;
    let own = tree.existing(Tree::ROOT, b"/proc/self", false).ok()?;
    (tree.parent(own) == node).then(|| (LAST, own.inode()))
}

/// Names in `/proc/self/fd`.
fn own_names(process: &Process) -> Vec<(u64, Vec<u8>)> {
    process.kernel.files.numbers().map(|number| (number, number.to_string().into())).collect()
}

pub(crate) fn statfs(process: &mut Process, at: u64, target: u64) -> Answer {
    let node = existing(process, HERE, at, true)?;
    let record = describe_system(&process.kernel.tree, node);
    process.space.write(target, 120)?.copy_from_slice(record.bytes());
    Ok(0)
}

pub(crate) fn fstatfs(process: &mut Process, descriptor: u64, target: u64) -> Answer {
    const PIPES: u64 = 0x5049_5045;
    const SOCKETS: u64 = 0x534f_434b;
    let nowhere =
        |kind: u64| Record::new().long(0, kind).long(8, PAGE).long(64, 255).long(72, PAGE);
    let record = match process.kernel.files.place(fd(descriptor))?.object {
        Object::Node(node, _) => describe_system(&process.kernel.tree, node),
        Object::Channel | Object::Inet(_) | Object::Socket { .. } => nowhere(SOCKETS),
        Object::PipeReader(_) | Object::PipeWriter(_) | Object::Output(_) => nowhere(PIPES),
    };
    process.space.write(target, 120)?.copy_from_slice(record.bytes());
    Ok(0)
}

/// `struct statfs`: scratch is one file system, and all layers are another one, of a gigabyte and
/// full.
fn describe_system(tree: &Tree, node: NodeId) -> Record<120> {
    const TMPFS: u64 = 0x0102_1994;
    const OVERLAY: u64 = 0x794c_7630;
    const READ_ONLY: u64 = 1;
    /// Bytes of all layers, not zero, because programs divide by it.
    const LAYERS: u64 = 1 << 30;
    /// ST_VALID: the flags are set.
    const VALID: u64 = 0x20;
    let (_, _, writable) = tree.status(node);
    let record = Record::new().long(8, PAGE).long(64, 255).long(72, PAGE);
    if !writable {
        return record.long(0, OVERLAY).long(16, LAYERS / PAGE).long(80, VALID | READ_ONLY);
    }
    let ((bytes, nodes), (_, made)) = (tree.room(), tree.used());
    let free = tree.free() / PAGE;
    record
        .long(0, TMPFS)
        .long(16, bytes / PAGE)
        .long(24, free)
        .long(32, free)
        .long(40, u64::from(nodes))
        .long(48, u64::from(nodes).saturating_sub(made as u64))
        .long(80, VALID)
}
