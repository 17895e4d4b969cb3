//! System calls that move bytes, and those about descriptors.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use super::Answer;
use super::call::{Flow, fd, signed};
use super::files::{Object, PIPE_BYTES};
use super::identity::fill_random;
use super::process::{Pause, Process};
use super::record::long_at;
use super::signals;
use crate::space::Space;
use crate::vfs::{Contents, Device, NodeId};

const ACCESS_MODE: u64 = 3;
const WRITE_ONLY: u64 = 1;
const APPEND: u64 = 0o2000;
const NONBLOCK: u64 = 0o4000;
/// Most bytes that one call moves.
const MOST: u64 = 0x7fff_f000;
const MOST_PARTS: u64 = 1024;

pub(super) fn read(process: &mut Process, fd_: u64, target: u64, length: u64) -> Flow {
    transfer(process, fd_, &[(target, length)], receive)
}

pub(super) fn readv(process: &mut Process, fd_: u64, parts: u64, count: u64) -> Flow {
    match vector(process, parts, count) {
        Ok(parts) => transfer(process, fd_, &parts, receive),
        Err(errno) => Flow::Answer(Err(errno)),
    }
}

pub(super) fn write(process: &mut Process, fd_: u64, source: u64, length: u64) -> Flow {
    transfer(process, fd_, &[(source, length)], send)
}

pub(super) fn writev(process: &mut Process, fd_: u64, parts: u64, count: u64) -> Flow {
    match vector(process, parts, count) {
        Ok(parts) => transfer(process, fd_, &parts, send),
        Err(errno) => Flow::Answer(Err(errno)),
    }
}

/// What a single part comes to.
enum Moved {
    Bytes(u64),
    /// Nothing can be moved until somebody else does something.
    Blocked(Pause),
}

type Step = fn(&mut Process, u64, u64, u64) -> Result<Moved, Errno>;

/// Moves part by part, until one is moved in part only. An error after the first bytes is not lost: the next call finds it.
fn transfer(process: &mut Process, fd_: u64, parts: &[(u64, u64)], step: Step) -> Flow {
    let mut total = 0;
    // An empty part moves nothing, but if all are empty the descriptor is checked all the same.
    let mut some = parts.iter().filter(|(_, length)| *length > 0).peekable();
    let none = some.peek().is_none().then_some(&(0, 0));
    for &(address, length) in some.chain(none) {
        match step(process, fd(fd_), address, length.min(MOST)) {
            Ok(Moved::Bytes(count)) => {
                total += count;
                if count < length {
                    break;
                }
            }
            Ok(Moved::Blocked(pause)) if total == 0 => return blocked(process, fd_, pause),
            Err(Errno::PIPE) => {
                let answer = if total == 0 { Err(Errno::PIPE) } else { Ok(total) };
                return signals::raise(process, signals::PIPE, answer);
            }
            Err(errno) if total == 0 => return Flow::Answer(Err(errno)),
            Ok(Moved::Blocked(_)) | Err(_) => break,
        }
    }
    Flow::Answer(Ok(total))
}

fn blocked(process: &Process, fd_: u64, pause: Pause) -> Flow {
    let never = process.kernel.files.get(fd(fd_)).is_ok_and(|open| open.flags & NONBLOCK != 0);
    if never { Flow::Answer(Err(Errno::AGAIN)) } else { Flow::Again(pause) }
}

/// The parts of an `iovec` array, copied once.
fn vector(process: &Process, parts: u64, count: u64) -> Result<Vec<(u64, u64)>, Errno> {
    if count > MOST_PARTS {
        return Err(Errno::INVAL);
    }
    let bytes = process.space.read(parts, count * 16)?;
    let parts: Vec<_> =
        bytes.chunks_exact(16).map(|part| (long_at(part, 0), long_at(part, 8))).collect();
    let total = parts.iter().try_fold(0_u64, |total, (_, length)| total.checked_add(*length));
    match total {
        Some(total) if total <= i64::MAX.cast_unsigned() => Ok(parts),
        _ => Err(Errno::INVAL),
    }
}

fn receive(process: &mut Process, fd_: u64, target: u64, length: u64) -> Result<Moved, Errno> {
    let open = process.kernel.files.get(fd_)?;
    if open.flags & ACCESS_MODE == WRITE_ONLY {
        return Err(Errno::BADF);
    }
    let offset = open.offset;
    let count = match open.object {
        Object::Node(..) => {
            let count = read_node(process, fd_, target, length, offset)?;
            process.kernel.files.get_mut(fd_)?.offset = offset + count;
            count
        }
        Object::PipeReader(pipe) => {
            let pipe = process.kernel.files.pipe_mut(pipe)?;
            if pipe.bytes.is_empty() && pipe.writers > 0 && length > 0 {
                return Ok(Moved::Blocked(Pause::Stuck));
            }
            drain(&mut pipe.bytes, &mut process.space, target, length)?
        }
        Object::Channel => {
            if process.incoming.is_empty() && process.open && length > 0 {
                return Ok(Moved::Blocked(Pause::Idle));
            }
            drain(&mut process.incoming, &mut process.space, target, length)?
        }
        Object::PipeWriter(_) | Object::Output(_) => return Err(Errno::BADF),
    };
    Ok(Moved::Bytes(count))
}

/// Takes what is there; no more of the target is looked at than is written.
fn drain(
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

fn read_node(
    process: &mut Process,
    fd_: u64,
    target: u64,
    length: u64,
    offset: u64,
) -> Result<u64, Errno> {
    let Object::Node(node, file) = &process.kernel.files.get(fd_)?.object else {
        return Err(Errno::BADF);
    };
    match process.kernel.tree.contents(*node) {
        Contents::Directory(_) => return Err(Errno::ISDIR),
        Contents::Link(_) => return Err(Errno::BADF),
        Contents::Sealed { size, .. } => {
            // No more is checked, and written, than there is to read.
            let target = process.space.write(target, length.min(size.saturating_sub(offset)))?;
            let file = file.as_ref().ok_or(Errno::BADF)?;
            return read_at(file, target, offset);
        }
        Contents::Bytes(bytes) => {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let rest = &bytes[from..];
            let target = process.space.write(target, length.min(rest.len() as u64))?;
            target.copy_from_slice(&rest[..target.len()]);
            return Ok(target.len() as u64);
        }
        Contents::Device(Device::Null) => return Ok(0),
        Contents::Device(Device::Zero | Device::Full) => {
            process.space.write(target, length)?.fill(0);
        }
        Contents::Device(Device::Random) => fill_random(process.space.write(target, length)?)?,
    }
    Ok(length)
}

/// Reads a file of a layer until the target is full or the file ends.
pub(super) fn read_at(file: &File, target: &mut [u8], offset: u64) -> Result<u64, Errno> {
    let mut done = 0;
    while done < target.len() {
        match file.read_at(&mut target[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Errno::IO),
        }
    }
    Ok(done as u64)
}

fn send(process: &mut Process, fd_: u64, source: u64, length: u64) -> Result<Moved, Errno> {
    let open = process.kernel.files.get(fd_)?;
    if open.flags & ACCESS_MODE == 0 {
        return Err(Errno::BADF);
    }
    let (offset, append) = (open.offset, open.flags & APPEND != 0);
    let count = match open.object {
        Object::Node(node, _) => {
            let end = process.kernel.tree.contents(node).size();
            let offset = if append { end } else { offset };
            let count = write_node(process, node, source, length, offset)?;
            process.kernel.files.get_mut(fd_)?.offset = offset + count;
            count
        }
        Object::PipeWriter(pipe) => {
            let state = process.kernel.files.pipe_mut(pipe)?;
            if length == 0 {
                return Ok(Moved::Bytes(0));
            }
            if state.readers == 0 {
                return Err(Errno::PIPE);
            }
            let room = (PIPE_BYTES - state.bytes.len()) as u64;
            if room == 0 {
                return Ok(Moved::Blocked(Pause::Stuck));
            }
            let bytes = process.space.read(source, length.min(room))?;
            state.bytes.extend(bytes);
            bytes.len() as u64
        }
        Object::Channel => {
            let bytes = process.space.read(source, length)?.to_vec();
            process.say(&bytes)?
        }
        Object::Output(stream) => {
            let bytes = process.space.read(source, length)?.to_vec();
            process.print(stream, &bytes)?
        }
        Object::PipeReader(_) => return Err(Errno::BADF),
    };
    Ok(Moved::Bytes(count))
}

fn write_node(
    process: &mut Process,
    node: NodeId,
    source: u64,
    length: u64,
    offset: u64,
) -> Result<u64, Errno> {
    match process.kernel.tree.contents(node) {
        Contents::Device(Device::Full) => return Err(Errno::NOSPC),
        // They look at nothing, not even at whether it is there.
        Contents::Device(_) => {}
        // Nothing written makes no file longer.
        Contents::Bytes(_) if length == 0 => {}
        Contents::Bytes(bytes) => {
            let source = process.space.read(source, length)?;
            let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
            let grow = end.saturating_sub(bytes.len() as u64);
            let bytes = process.kernel.tree.bytes_mut(node, grow, super::clock::now())?;
            // The tree's room bounds what fits into memory.
            let (start, end) = (place(offset)?, place(end)?);
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[start..end].copy_from_slice(source);
        }
        Contents::Sealed { .. } => return Err(Errno::ROFS),
        Contents::Directory(_) | Contents::Link(_) => return Err(Errno::BADF),
    }
    Ok(length)
}

fn place(offset: u64) -> Result<usize, Errno> {
    usize::try_from(offset).map_err(|_| Errno::FBIG)
}

pub(super) fn pread(
    process: &mut Process,
    fd_: u64,
    target: u64,
    length: u64,
    offset: u64,
) -> Answer {
    if offset > i64::MAX.cast_unsigned() {
        return Err(Errno::INVAL);
    }
    let open = process.kernel.files.get(fd(fd_))?;
    match open.object {
        Object::Node(..) if open.flags & ACCESS_MODE == WRITE_ONLY => Err(Errno::BADF),
        Object::Node(..) => read_node(process, fd(fd_), target, length.min(MOST), offset),
        _ => Err(Errno::SPIPE),
    }
}

pub(super) fn pwrite(
    process: &mut Process,
    fd_: u64,
    source: u64,
    length: u64,
    offset: u64,
) -> Answer {
    if offset > i64::MAX.cast_unsigned() {
        return Err(Errno::INVAL);
    }
    let open = process.kernel.files.get(fd(fd_))?;
    match open.object {
        Object::Node(..) if open.flags & ACCESS_MODE == 0 => Err(Errno::BADF),
        Object::Node(node, _) => write_node(process, node, source, length.min(MOST), offset),
        _ => Err(Errno::SPIPE),
    }
}

pub(super) fn lseek(process: &mut Process, fd_: u64, offset: u64, whence: u64) -> Answer {
    let open = process.kernel.files.get(fd(fd_))?;
    if whence > 2 {
        return Err(Errno::INVAL);
    }
    let Object::Node(node, _) = open.object else { return Err(Errno::SPIPE) };
    if matches!(process.kernel.tree.contents(node), Contents::Device(_)) {
        return Ok(0);
    }
    let base = match whence {
        0 => 0,
        1 => open.offset,
        _ => process.kernel.tree.contents(node).size(),
    };
    let target = base.checked_add_signed(offset.cast_signed()).ok_or(Errno::INVAL)?;
    if target > i64::MAX.cast_unsigned() {
        return Err(Errno::INVAL);
    }
    process.kernel.files.get_mut(fd(fd_))?.offset = target;
    Ok(target)
}

pub(super) fn ftruncate(process: &mut Process, fd_: u64, length: u64) -> Answer {
    if length > i64::MAX.cast_unsigned() {
        return Err(Errno::INVAL);
    }
    let open = process.kernel.files.get(fd(fd_))?;
    let Object::Node(node, _) = open.object else { return Err(Errno::INVAL) };
    if open.flags & ACCESS_MODE == 0 {
        return Err(Errno::INVAL);
    }
    let Contents::Bytes(bytes) = process.kernel.tree.contents(node) else {
        return Err(Errno::INVAL);
    };
    let grow = length.saturating_sub(bytes.len() as u64);
    process.kernel.tree.bytes_mut(node, grow, super::clock::now())?.resize(place(length)?, 0);
    Ok(0)
}

pub(super) fn close(process: &mut Process, fd_: u64) -> Answer {
    let gone = process.kernel.files.close(fd(fd_))?;
    forget(process, gone);
    Ok(0)
}

pub(super) fn close_range(process: &mut Process, first: u64, last: u64, flags: u64) -> Answer {
    const UNSHARE: u64 = 2;
    const CLOSE_ON_EXEC: u64 = 4;
    let (first, last) = (fd(first), fd(last));
    if flags & !(UNSHARE | CLOSE_ON_EXEC) != 0 || first > last {
        return Err(Errno::INVAL);
    }
    for number in first..=last.min(crate::linux::files::MOST as u64) {
        if process.kernel.files.descriptor(number).is_err() {
            continue;
        }
        if flags & CLOSE_ON_EXEC != 0 {
            process.kernel.files.set_close_on_exec(number, true)?;
        } else {
            close(process, number)?;
        }
    }
    Ok(0)
}

/// A file that no name leads to lives until its last descriptor is closed.
fn forget(process: &mut Process, gone: Option<Object>) {
    if let Some(Object::Node(node, _)) = gone
        && !process.kernel.files.has_open(node)
    {
        process.kernel.tree.release(node);
    }
}

pub(super) fn dup(process: &mut Process, from: u64, to: u64, flags: u64) -> Answer {
    let close_on_exec = u64::from(libc::O_CLOEXEC.cast_unsigned());
    if flags & !close_on_exec != 0 {
        return Err(Errno::INVAL);
    }
    let gone = process.kernel.files.duplicate_to(fd(from), fd(to), flags != 0)?;
    forget(process, gone);
    Ok(fd(to))
}

pub(super) fn pipe(process: &mut Process, target: u64, flags: u64) -> Answer {
    let known = u64::from((libc::O_CLOEXEC | libc::O_NONBLOCK).cast_unsigned());
    if flags & !known != 0 {
        return Err(Errno::INVAL);
    }
    process.space.write(target, 8)?;
    let pipe = process.kernel.files.new_pipe();
    let reader = process.kernel.files.open(Object::PipeReader(pipe), flags)?;
    let writer = process.kernel.files.open(Object::PipeWriter(pipe), flags | WRITE_ONLY);
    let writer = match writer {
        Ok(writer) => writer,
        Err(errno) => {
            process.kernel.files.close(reader)?;
            return Err(errno);
        }
    };
    let both = reader | writer << 32;
    process.space.write(target, 8)?.copy_from_slice(&both.to_le_bytes());
    Ok(0)
}

pub(super) fn fcntl(process: &mut Process, fd_: u64, command: u64, argument: u64) -> Answer {
    let changeable = APPEND | NONBLOCK;
    let files = &mut process.kernel.files;
    match signed(command) {
        libc::F_DUPFD => files.duplicate(fd(fd_), argument, false),
        libc::F_DUPFD_CLOEXEC => files.duplicate(fd(fd_), argument, true),
        libc::F_GETFD => Ok(u64::from(files.descriptor(fd(fd_))?.close_on_exec)),
        libc::F_SETFD => files.set_close_on_exec(fd(fd_), argument & 1 != 0).map(|()| 0),
        libc::F_GETFL => Ok(files.get(fd(fd_))?.flags),
        libc::F_SETFL => {
            let open = files.get_mut(fd(fd_))?;
            open.flags = open.flags & !changeable | argument & changeable;
            Ok(0)
        }
        // Nobody else could hold a lock.
        libc::F_SETLK | libc::F_SETLKW => files.get(fd(fd_)).map(|_| 0),
        _ => files.get(fd(fd_)).and(Err(Errno::INVAL)),
    }
}

/// No descriptor of a guest's is a terminal or another device with wishes of its own: what is left holds for all.
pub(super) fn ioctl(process: &mut Process, fd_: u64, request: u64, argument: u64) -> Answer {
    const CLOSE_ON_EXEC: u64 = 0x5451;
    const KEEP_ON_EXEC: u64 = 0x5450;
    const NON_BLOCKING: u64 = 0x5421;
    process.kernel.files.get(fd(fd_))?;
    match fd(request) {
        CLOSE_ON_EXEC => process.kernel.files.set_close_on_exec(fd(fd_), true)?,
        KEEP_ON_EXEC => process.kernel.files.set_close_on_exec(fd(fd_), false)?,
        NON_BLOCKING => {
            let wanted = process.space.read(argument, 4)? != [0; 4];
            let open = process.kernel.files.get_mut(fd(fd_))?;
            open.flags = if wanted { open.flags | NONBLOCK } else { open.flags & !NONBLOCK };
        }
        _ => return Err(Errno::NOTTY),
    }
    Ok(0)
}

/// Ready or not: without other processes and threads, waiting makes sense for the channel alone.
pub(super) fn poll(process: &mut Process, entries: u64, count: u64, timeout: i32) -> Flow {
    match poll_now(process, entries, count) {
        Ok(0) if timeout == 0 => Flow::Answer(Ok(0)),
        Ok(0) if timeout > 0 => {
            let length = std::time::Duration::from_millis(u64::from(timeout.unsigned_abs()));
            Flow::Answer(super::clock::sleep(process, length).map(|_| 0))
        }
        Ok(0) => Flow::Again(if process.open { Pause::Idle } else { Pause::Stuck }),
        answer => Flow::Answer(answer),
    }
}

fn poll_now(process: &mut Process, entries: u64, count: u64) -> Answer {
    const IN: u8 = 1;
    const OUT: u8 = 4;
    const ERROR: u8 = 8;
    const HANG_UP: u8 = 16;
    const INVALID: u8 = 32;
    if count > MOST_PARTS {
        return Err(Errno::INVAL);
    }
    let mut bytes = process.space.read(entries, count * 8)?.to_vec();
    let mut ready = 0;
    for entry in bytes.chunks_exact_mut(8) {
        let number = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let state = match u64::try_from(number).map(|number| process.kernel.files.get(number)) {
            Err(_) => 0,
            Ok(Err(_)) => INVALID,
            Ok(Ok(open)) => match open.object {
                Object::Node(..) => IN | OUT,
                Object::Output(_) => OUT,
                Object::Channel if process.incoming.is_empty() && process.open => OUT,
                Object::Channel => IN | OUT,
                Object::PipeReader(pipe) => match process.kernel.files.pipe(pipe)? {
                    pipe if !pipe.bytes.is_empty() => IN,
                    pipe if pipe.writers == 0 => HANG_UP,
                    _ => 0,
                },
                Object::PipeWriter(pipe) => match process.kernel.files.pipe(pipe)? {
                    pipe if pipe.readers == 0 => OUT | ERROR,
                    pipe if pipe.bytes.len() < PIPE_BYTES => OUT,
                    _ => 0,
                },
            },
        };
        let answered = state & (entry[4] | ERROR | HANG_UP | INVALID);
        (entry[6], entry[7]) = (answered, 0);
        ready += u64::from(answered != 0);
    }
    process.space.write(entries, count * 8)?.copy_from_slice(&bytes);
    Ok(ready)
}
