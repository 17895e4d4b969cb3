//! `/proc/self/fd`: the process's descriptors as names. `/dev/stdin` and its like, and `/dev/fd`,
//! lead there.
//!
//! A descriptor of a node is opened anew by its node, one of a pipe by the pipe's end. Sockets
//! cannot be opened anew (ENXIO, as on Linux).

use rustix::io::Errno;

use crate::linux::abi::flags;
use crate::linux::abi::record::Record;
use crate::linux::abi::registers::Answer;
use crate::linux::state::files::{Object, Stream};
use crate::linux::state::ids::USER;
use crate::linux::state::process::Process;
use crate::vfs::{Contents, Lookup, NodeId};

/// The descriptor that a path leads to, if it is open.
pub(crate) fn found(process: &Process, found: &Lookup) -> Option<u64> {
    let is_there = found.node.is_none()
        && matches!(process.kernel.tree.contents(found.directory), Contents::Descriptors);
    let name = is_there.then(|| std::str::from_utf8(&found.name).ok())??;
    // As on Linux: without leading zeros.
    let number = name.parse::<u64>().ok().filter(|number| number.to_string() == name)?;
    process.kernel.files.place(number).ok().map(|_| number)
}

/// A path that goes on behind a descriptor: the descriptor, and the rest of the path.
pub(crate) fn beyond(path: &[u8]) -> Option<(u64, &[u8])> {
    const WAYS: [&[u8]; 3] = [b"/proc/self/fd/", b"/dev/fd/", b"/proc/thread-self/fd/"];
    let path = WAYS.iter().find_map(|way| path.strip_prefix(*way))?;
    let end = path.iter().position(|byte| *byte == b'/')?;
    let rest = &path[end..];
    let begins = rest.iter().position(|byte| *byte != b'/')?;
    Some((std::str::from_utf8(&path[..end]).ok()?.parse().ok()?, &rest[begins..]))
}

/// Opens a descriptor's object once more, where that is no node.
pub(crate) fn reopen(process: &mut Process, descriptor: u64, wanted: u64) -> Answer {
    let access = wanted & flags::ACCESS_MODE;
    let object = match process.kernel.files.place(descriptor)?.object {
        Object::Output(stream) if access != 0 => Object::Output(stream),
        Object::Output(_) => return Err(Errno::ACCESS),
        Object::PipeReader(pipe) | Object::PipeWriter(pipe) => match access {
            0 => Object::PipeReader(pipe),
            flags::WRITE_ONLY => Object::PipeWriter(pipe),
            // No object has both ends of a pipe.
            _ => return Err(Errno::ACCESS),
        },
        _ => return Err(Errno::NXIO),
    };
    process.kernel.files.open(object, wanted)
}

/// Whether a node is the nameless file that collects a standard stream. A program that opens
/// `/dev/stdout` to write means the stream; opening the file anew would empty it.
pub(crate) fn is_stream(process: &Process, node: NodeId) -> bool {
    let is = |number| process.kernel.files.node_of(number) == Some(node);
    node.is_scratch() && process.kernel.tree.links(node) == 0 && (is(1) || is(2))
}

/// The target of a descriptor's link.
pub(crate) fn target(process: &Process, descriptor: u64) -> Result<Vec<u8>, Errno> {
    let text = match process.kernel.files.place(descriptor)?.object {
        Object::Node(node, _) => {
            let mut path = process.kernel.tree.path(node);
            if process.kernel.tree.links(node) == 0 {
                path = format!("/tmp/#{} (deleted)", node.inode()).into_bytes();
            }
            return Ok(path);
        }
        Object::PipeReader(pipe) | Object::PipeWriter(pipe) => format!("pipe:[{}]", 16 + pipe),
        Object::Output(Stream::Stdout) => "pipe:[1]".to_owned(),
        Object::Output(Stream::Stderr) => "pipe:[2]".to_owned(),
        Object::Channel => "socket:[3]".to_owned(),
        Object::Socket { receives, .. } => format!("socket:[{}]", 16 + receives),
        Object::Inet(_) => "socket:[4]".to_owned(),
    };
    Ok(text.into_bytes())
}

/// `struct stat` of a descriptor's link.
pub(crate) fn describe_link(descriptor: u64) -> Record<144> {
    const LINK: u32 = 0o120_700;
    let user = u32::try_from(USER).unwrap_or(0);
    Record::new()
        .long(0, 1)
        .long(8, FIRST_INODE + descriptor)
        .long(16, 1)
        .int(24, LINK)
        .int(28, user)
        .int(32, user)
        .long(48, 64)
        .long(56, crate::memory::layout::PAGE)
}

/// The inode of the first link, above those of all nodes.
pub(crate) const FIRST_INODE: u64 = 1 << 33;
