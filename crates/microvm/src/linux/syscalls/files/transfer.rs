//! System calls that read and write bytes.

use rustix::io::Errno;

use crate::linux::abi::flags;
use crate::linux::abi::record::long_at;
use crate::linux::abi::registers::{Answer, fd};
use crate::linux::mapped_files::bytes;
use crate::linux::scheduling::deliver::raise;
use crate::linux::scheduling::wait::wait;
use crate::linux::state::files::{ATOMIC_BYTES, Object, PIPE_BYTES};
use crate::linux::state::flow::{Flow, Pause};
use crate::linux::state::host_clock;
use crate::linux::state::process::Process;
use crate::linux::state::signals::{Addressee, PIPE, XFSZ};
use crate::linux::state::threads::Wait;
use crate::linux::syscalls::files::pipe_ends::{Progress, drain};
use crate::linux::syscalls::files::{pipe_ends, proc};
use crate::linux::syscalls::random;
use crate::memory::space::Space;
use crate::vfs::{Contents, Device, NodeId};

/// Bytes of one call, all its parts together.
const MAX_TRANSFER: u64 = 0x7fff_f000;
pub(crate) const MAX_PARTS: u64 = 1024;

pub(crate) fn read(process: &mut Process, fd_: u64, target: u64, length: u64) -> Flow {
    transfer(process, fd_, &[(target, length)], TransferMode::USUAL, receive)
}

pub(crate) fn readv(process: &mut Process, fd_: u64, parts: u64, count: u64) -> Flow {
    match vector(process, parts, count) {
        Ok(parts) => transfer(process, fd_, &parts, TransferMode::USUAL, receive),
        Err(errno) => Flow::Answer(Err(errno)),
    }
}

pub(crate) fn write(process: &mut Process, fd_: u64, source: u64, length: u64) -> Flow {
    let parts = [(source, length)];
    transfer(process, fd_, &parts, TransferMode::USUAL, send(&parts, TransferMode::USUAL))
}

pub(crate) fn writev(process: &mut Process, fd_: u64, parts: u64, count: u64) -> Flow {
    match vector(process, parts, count) {
        // Empty parts are not sent, not even to a closed socket.
        Ok(parts)
            if pipe_ends::is_socket(process, fd_)
                && parts.iter().all(|(_, length)| *length == 0) =>
        {
            Flow::Answer(Ok(0))
        }
        Ok(parts) => {
            transfer(process, fd_, &parts, TransferMode::USUAL, send(&parts, TransferMode::USUAL))
        }
        Err(errno) => Flow::Answer(Err(errno)),
    }
}

/// What a call does when it cannot move anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferMode {
    /// Whether it waits, unless its descriptor does not block.
    pub(crate) waits: bool,
    /// Whether it sends SIGPIPE when there is no reader.
    pub(crate) signals: bool,
}

impl TransferMode {
    const USUAL: Self = Self { waits: true, signals: true };
}

/// Moves part by part, until one is moved incompletely. An error after the first bytes is left to
/// the next call.
pub(crate) fn transfer(
    process: &mut Process,
    fd_: u64,
    parts: &[(u64, u64)],
    manner: TransferMode,
    mut step: impl FnMut(&mut Process, u64, u64, u64) -> Result<Progress, Errno>,
) -> Flow {
    let (mut total, mut left) = (0, MAX_TRANSFER);
    let stopper = process.stopper();
    // Empty parts are skipped; if all are empty, the descriptor is still checked.
    let mut some = parts.iter().filter(|(_, length)| *length > 0).peekable();
    let none = some.peek().is_none().then_some(&(0, 0));
    for &(address, length) in some.chain(none) {
        let length = length.min(left);
        match step(process, fd(fd_), address, length) {
            Ok(Progress::Bytes(count)) => {
                (total, left) = (total + count, left - count);
                // Parts may repeat the same memory many times: a stop does not wait for all of
                // them.
                if count < length || left == 0 || stopper.wanted() {
                    break;
                }
            }
            Ok(Progress::Blocked(_)) if total == 0 && !manner.waits => {
                return Flow::Answer(Err(Errno::AGAIN));
            }
            Ok(Progress::Blocked(pause)) if total == 0 => return blocked(process, fd_, pause),
            Err(Errno::PIPE) if manner.signals => {
                let answer = if total == 0 { Err(Errno::PIPE) } else { Ok(total) };
                return raise(process, Addressee::Thread, PIPE, answer);
            }
            // As on Linux, a write that was partly done sends no signal.
            Err(Errno::FBIG) if total == 0 && process.kernel.limits.signals_length() => {
                let answer = Err(Errno::FBIG);
                return raise(process, Addressee::Thread, XFSZ, answer);
            }
            Err(errno) if total == 0 => {
                if errno == Errno::CONNRESET {
                    pipe_ends::take_reset(process, fd_);
                }
                return Flow::Answer(Err(errno));
            }
            Ok(Progress::Blocked(_)) | Err(_) => break,
        }
    }
    Flow::Answer(Ok(total))
}

fn blocked(process: &mut Process, fd_: u64, pause: Pause) -> Flow {
    let never =
        process.kernel.files.get(fd(fd_)).is_ok_and(|open| open.flags & flags::NONBLOCK != 0);
    match pause {
        _ if never => Flow::Answer(Err(Errno::AGAIN)),
        Pause::Stuck => wait(process, Wait::Change, None),
        pause => Flow::Again(pause),
    }
}

/// The parts of an `iovec` array, copied once.
pub(crate) fn vector(process: &Process, parts: u64, count: u64) -> Result<Vec<(u64, u64)>, Errno> {
    if count > MAX_PARTS {
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

fn receive(process: &mut Process, fd_: u64, target: u64, length: u64) -> Result<Progress, Errno> {
    let open = process.kernel.files.get(fd_)?;
    if open.flags & flags::ACCESS_MODE == flags::WRITE_ONLY {
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
                return Ok(Progress::Blocked(Pause::Stuck));
            }
            drain(&mut pipe.bytes, &mut process.space, target, length)?
        }
        Object::Channel => {
            if process.incoming.is_empty() && process.open && length > 0 {
                return Ok(Progress::Blocked(Pause::Idle));
            }
            drain(&mut process.incoming, &mut process.space, target, length)?
        }
        Object::Inet(alone) => return Err(alone.receive()),
        Object::Socket { .. } if length == 0 => 0,
        Object::Socket { receives, .. } => {
            return pipe_ends::receive(process, receives, None, target, length);
        }
        Object::PipeWriter(_) | Object::Output(_) => return Err(Errno::BADF),
    };
    Ok(Progress::Bytes(count))
}

fn read_node(
    process: &mut Process,
    fd_: u64,
    target: u64,
    length: u64,
    offset: u64,
) -> Result<u64, Errno> {
    let stopper = process.stopper();
    if let Object::Node(node, None) = process.kernel.files.get(fd_)?.object {
        bytes::take_over(process, node, offset..offset.saturating_add(length));
    }
    let Object::Node(node, file) = &process.kernel.files.get(fd_)?.object else {
        return Err(Errno::BADF);
    };
    match process.kernel.tree.contents(*node) {
        Contents::Directory(_) | Contents::Descriptors => return Err(Errno::ISDIR),
        Contents::Link(_) => return Err(Errno::BADF),
        Contents::Sealed { size, .. } => {
            // Only as much is checked, and written, as can be read.
            let target = process.space.write(target, length.min(size.saturating_sub(offset)))?;
            let file = file.as_ref().ok_or(Errno::BADF)?;
            return bytes::read_at(file, target, offset);
        }
        Contents::Bytes(bytes) => return copy(bytes, &mut process.space, target, length, offset),
        Contents::Generated(what) => {
            let text = proc::tell(process, *what, offset, length);
            return copy(&text, &mut process.space, target, length, 0);
        }
        Contents::Device(Device::Null) => return Ok(0),
        Contents::Device(Device::Zero | Device::Full) => {
            process.space.write(target, length)?.fill(0);
        }
        Contents::Device(Device::Random) => {
            return random::fill_random(process.space.write(target, length)?, &stopper);
        }
    }
    Ok(length)
}

/// Copies bytes from an offset on.
fn copy(
    from: &[u8],
    space: &mut Space,
    target: u64,
    length: u64,
    offset: u64,
) -> Result<u64, Errno> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(from.len());
    let rest = &from[start..];
    let target = space.write(target, length.min(rest.len() as u64))?;
    target.copy_from_slice(&rest[..target.len()]);
    Ok(target.len() as u64)
}

/// Writes one part after another; before the first it may wait for room for all of them.
pub(crate) fn send(
    parts: &[(u64, u64)],
    manner: TransferMode,
) -> impl FnMut(&mut Process, u64, u64, u64) -> Result<Progress, Errno> + use<> {
    let mut all = parts.iter().fold(0_u64, |all, (_, length)| all.saturating_add(*length));
    move |process, fd_, source, length| {
        let whole = all;
        all = all.saturating_sub(length);
        put(process, fd_, source, length, (whole, manner.waits))
    }
}

/// `whole`: bytes of this part and all that follow. `waits`: unless the descriptor does not block.
fn put(
    process: &mut Process,
    fd_: u64,
    source: u64,
    length: u64,
    (whole, waits): (u64, bool),
) -> Result<Progress, Errno> {
    let open = process.kernel.files.get(fd_)?;
    if open.flags & flags::ACCESS_MODE == 0 {
        return Err(Errno::BADF);
    }
    let (offset, append) = (open.offset, open.flags & flags::APPEND != 0);
    let count = match open.object {
        Object::Node(node, _) => {
            let end = process.kernel.tree.contents(node).size();
            let offset = if append { end } else { offset };
            let count = write_node(process, node, source, length, offset)?;
            // An empty write does not move the offset.
            if count > 0 {
                process.kernel.files.get_mut(fd_)?.offset = offset + count;
            }
            count
        }
        Object::Inet(alone) => return Err(alone.send(false)),
        Object::PipeWriter(_) if length == 0 => 0,
        Object::PipeWriter(pipe) | Object::Socket { sends: pipe, .. } => {
            let waits = waits && open.flags & flags::NONBLOCK == 0;
            let is_atomic =
                matches!(open.object, Object::PipeWriter(_)) && whole <= ATOMIC_BYTES as u64;
            let is_one = is_atomic || waits && whole <= PIPE_BYTES as u64;
            let state = process.kernel.files.pipe_mut(pipe)?;
            if state.is_broken() {
                return Err(Errno::PIPE);
            }
            let room = state.room() as u64;
            if length > 0 && room < if is_one { whole } else { 1 } {
                return Ok(Progress::Blocked(Pause::Stuck));
            }
            let bytes = process.space.read(source, length.min(room))?;
            state.bytes.extend(bytes);
            bytes.len() as u64
        }
        Object::Channel => process.say(source, length)?,
        Object::Output(stream) => process.print(stream, source, length)?,
        Object::PipeReader(_) => return Err(Errno::BADF),
    };
    Ok(Progress::Bytes(count))
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
        // Devices accept all bytes unread, even from unmapped memory.
        Contents::Device(_) => {}
        // An empty write does not lengthen the file.
        Contents::Bytes(_) if length == 0 => {}
        Contents::Bytes(_) => {
            let length = process.kernel.limits.fitting(offset, length)?;
            let length = process.kernel.tree.fitting(node, offset, length);
            let source = process.space.read(source, length)?;
            let before = process.kernel.tree.contents(node).size();
            process.kernel.tree.write(node, offset, source, host_clock::now())?;
            // A gap behind the old end is written, too.
            bytes::follow(process, node, offset.min(before)..offset + length);
            return Ok(length);
        }
        Contents::Sealed { .. } => return Err(Errno::ROFS),
        Contents::Directory(_)
        | Contents::Descriptors
        | Contents::Link(_)
        | Contents::Generated(_) => {
            return Err(Errno::BADF);
        }
    }
    Ok(length)
}

pub(crate) fn pread(
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
        Object::Node(..) if open.flags & flags::ACCESS_MODE == flags::WRITE_ONLY => {
            Err(Errno::BADF)
        }
        Object::Node(..) => read_node(process, fd(fd_), target, length.min(MAX_TRANSFER), offset),
        _ => Err(Errno::SPIPE),
    }
}

pub(crate) fn pwrite(
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
        Object::Node(..) if open.flags & flags::ACCESS_MODE == 0 => Err(Errno::BADF),
        Object::Node(node, _) => {
            // Linux appends to a file opened for appending, whatever the offset (pwrite(2), BUGS).
            let append = open.flags & flags::APPEND != 0;
            let offset = if append { process.kernel.tree.contents(node).size() } else { offset };
            write_node(process, node, source, length.min(MAX_TRANSFER), offset)
        }
        _ => Err(Errno::SPIPE),
    }
}

/// `preadv` and `pwritev`; and their second versions, of which no flag is supported and where -1
/// means the file's own offset.
pub(crate) fn at(process: &mut Process, arguments: [u64; 6], writes: bool, second: bool) -> Flow {
    let [fd_, parts, count, offset, _, flags] = arguments;
    if second && fd(flags) != 0 {
        return Flow::Answer(Err(Errno::OPNOTSUPP));
    }
    if second && offset == u64::MAX {
        let usual = if writes { writev } else { readv };
        return usual(process, fd_, parts, count);
    }
    if offset > i64::MAX.cast_unsigned() {
        return Flow::Answer(Err(Errno::INVAL));
    }
    let parts = match vector(process, parts, count) {
        Ok(parts) => parts,
        Err(errno) => return Flow::Answer(Err(errno)),
    };
    let mut offset = offset;
    transfer(process, fd_, &parts, TransferMode::USUAL, |process, fd_, address, length| {
        let one = if writes { pwrite } else { pread };
        let count = one(process, fd_, address, length, offset)?;
        offset += count;
        Ok(Progress::Bytes(count))
    })
}

/// `fallocate`: scratch has no holes, so only a file that is too short changes.
pub(crate) fn allocate(
    process: &mut Process,
    fd_: u64,
    mode: u64,
    offset: u64,
    length: u64,
) -> Answer {
    const KEEP_SIZE: u64 = 1;
    let end = offset.checked_add(length).filter(|end| *end <= i64::MAX.cast_unsigned());
    let is_negative = |number: u64| number > i64::MAX.cast_unsigned();
    let open = process.kernel.files.get(fd(fd_))?;
    if is_negative(offset) || is_negative(length) || length == 0 {
        return Err(Errno::INVAL);
    }
    if fd(mode) & !KEEP_SIZE != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if open.flags & flags::ACCESS_MODE == 0 {
        return Err(Errno::BADF);
    }
    let node = match open.object {
        Object::Node(node, _) => node,
        Object::PipeReader(_) | Object::PipeWriter(_) => return Err(Errno::SPIPE),
        _ => return Err(Errno::NODEV),
    };
    let Contents::Bytes(bytes) = process.kernel.tree.contents(node) else {
        return Err(Errno::NODEV);
    };
    let end = end.ok_or(Errno::FBIG)?;
    if end <= bytes.len() as u64 || fd(mode) == KEEP_SIZE {
        return Ok(0);
    }
    bytes::set_length(process, node, end)
}

pub(crate) fn lseek(process: &mut Process, fd_: u64, offset: u64, whence: u64) -> Answer {
    let open = process.kernel.files.get(fd(fd_))?;
    const DATA: u64 = 3;
    const HOLE: u64 = 4;
    if whence > HOLE {
        return Err(Errno::INVAL);
    }
    let Object::Node(node, _) = open.object else { return Err(Errno::SPIPE) };
    if whence >= DATA {
        // A file is data up to its end, with a hole behind it.
        let contents = process.kernel.tree.contents(node);
        let (Contents::Bytes(_) | Contents::Sealed { .. }) = contents else {
            return Err(Errno::INVAL);
        };
        let size = contents.size();
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let target = if whence == DATA { offset } else { size };
        process.kernel.files.get_mut(fd(fd_))?.offset = target;
        return Ok(target);
    }
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

pub(crate) fn ftruncate(process: &mut Process, fd_: u64, length: u64) -> Answer {
    if length > i64::MAX.cast_unsigned() {
        return Err(Errno::INVAL);
    }
    let open = process.kernel.files.get(fd(fd_))?;
    let Object::Node(node, _) = open.object else { return Err(Errno::INVAL) };
    if open.flags & flags::ACCESS_MODE == 0 {
        return Err(Errno::INVAL);
    }
    let Contents::Bytes(_) = process.kernel.tree.contents(node) else {
        return Err(Errno::INVAL);
    };
    bytes::set_length(process, node, length)
}
