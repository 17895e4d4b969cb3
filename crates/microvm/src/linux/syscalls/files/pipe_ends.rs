//! Takes bytes out of pipes, and of sockets that are two pipes each.

use std::collections::VecDeque;

use rustix::io::Errno;

use crate::linux::abi::registers::fd;
use crate::linux::state::files::Object;
use crate::linux::state::flow::Pause;
use crate::linux::state::process::Process;
use crate::memory::space::Space;

/// What became of one part of a transfer.
pub(crate) enum Progress {
    Bytes(u64),
    /// Nothing can be moved before another thread or the worker does something.
    Blocked(Pause),
}

/// Takes what is there. Only as much of the target is checked as is written.
pub(crate) fn drain(
    from: &mut VecDeque<u8>,
    space: &mut Space,
    target: u64,
    length: u64,
) -> Result<u64, Errno> {
    let target = space.write(target, length.min(from.len() as u64))?;
    let count = target.len();
    for (byte, taken) in target.iter_mut().zip(from.drain(..count)) {
        *byte = taken;
    }
    Ok(count as u64)
}

/// Whether a descriptor is one of a pair of sockets.
pub(crate) fn is_socket(process: &Process, fd_: u64) -> bool {
    ends(process, fd_).is_ok()
}

/// The pipe that a socket receives from, and the one that it sends into.
pub(crate) fn ends(process: &Process, fd_: u64) -> Result<(usize, usize), Errno> {
    match process.kernel.files.get(fd(fd_))?.object {
        Object::Socket { receives, sends } => Ok((receives, sends)),
        _ => Err(Errno::NOTSOCK),
    }
}

/// Whether the other side was closed with unread bytes; told once.
pub(crate) fn take_reset(process: &mut Process, fd_: u64) -> bool {
    let pipe = ends(process, fd_).and_then(|(pipe, _)| process.kernel.files.pipe_mut(pipe));
    pipe.is_ok_and(|pipe| std::mem::take(&mut pipe.reset))
}

/// Takes bytes; or copies them from `behind` on, and leaves them.
pub(crate) fn receive(
    process: &mut Process,
    pipe: usize,
    behind: Option<u64>,
    target: u64,
    length: u64,
) -> Result<Progress, Errno> {
    let pipe = process.kernel.files.pipe_mut(pipe)?;
    let seen = usize::try_from(behind.unwrap_or(0)).unwrap_or(usize::MAX).min(pipe.bytes.len());
    if seen == pipe.bytes.len() {
        return match () {
            () if pipe.reset => Err(Errno::CONNRESET),
            () if pipe.ends() => Ok(Progress::Bytes(0)),
            () => Ok(Progress::Blocked(Pause::Stuck)),
        };
    }
    if behind.is_none() {
        return drain(&mut pipe.bytes, &mut process.space, target, length).map(Progress::Bytes);
    }
    let rest = pipe.bytes.range(seen..);
    let target = process.space.write(target, length.min(rest.len() as u64))?;
    let count = target.len() as u64;
    for (place, byte) in target.iter_mut().zip(rest) {
        *place = *byte;
    }
    Ok(Progress::Bytes(count))
}
