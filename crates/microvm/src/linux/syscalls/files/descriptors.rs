//! System calls about descriptors, whatever their objects are.

use rustix::io::Errno;

use crate::linux::abi::flags;
use crate::linux::abi::registers::{Answer, fd, signed};
use crate::linux::scheduling::wait::wait;
use crate::linux::state::files::{Lock, MAX_DESCRIPTORS, Object};
use crate::linux::state::flow::Flow;
use crate::linux::state::process::Process;
use crate::linux::state::threads::Wait;

pub(crate) fn close(process: &mut Process, fd_: u64) -> Answer {
    let gone = process.kernel.files.close(fd(fd_))?;
    forget(process, gone);
    Ok(0)
}

pub(crate) fn close_range(process: &mut Process, first: u64, last: u64, flags: u64) -> Answer {
    const UNSHARE: u64 = 2;
    const CLOSE_ON_EXEC: u64 = 4;
    let (first, last) = (fd(first), fd(last));
    if flags & !(UNSHARE | CLOSE_ON_EXEC) != 0 || first > last {
        return Err(Errno::INVAL);
    }
    for number in first..=last.min(MAX_DESCRIPTORS as u64) {
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

/// `fsync` and `fdatasync`: files are in memory, and stay there. Pipes and sockets cannot be
/// synchronised.
pub(crate) fn sync(process: &mut Process, fd_: u64) -> Answer {
    match process.kernel.files.get(fd(fd_))?.object {
        Object::Node(..) => Ok(0),
        _ => Err(Errno::INVAL),
    }
}

/// Frees the node of a file without a name when its last descriptor is closed.
fn forget(process: &mut Process, gone: Option<Object>) {
    if let Some(Object::Node(node, _)) = gone {
        process.release(node);
    }
}

pub(crate) fn dup(process: &mut Process, from: u64, to: u64, flags: u64) -> Answer {
    let close_on_exec = flags::CLOSE_ON_EXEC;
    if flags & !close_on_exec != 0 {
        return Err(Errno::INVAL);
    }
    let gone = process.kernel.files.duplicate_to(fd(from), fd(to), flags != 0)?;
    forget(process, gone);
    Ok(fd(to))
}

pub(crate) fn pipe(process: &mut Process, target: u64, flags: u64) -> Answer {
    let known = flags::CLOSE_ON_EXEC | flags::NONBLOCK;
    if flags & !known != 0 {
        return Err(Errno::INVAL);
    }
    process.space.write(target, 8)?;
    let files = &mut process.kernel.files;
    let pipe = files.new_pipe();
    let ends =
        [(Object::PipeReader(pipe), flags), (Object::PipeWriter(pipe), flags | flags::WRITE_ONLY)];
    let [reader, writer] = files.open_both(ends)?;
    let both = reader | writer << 32;
    process.space.write(target, 8)?.copy_from_slice(&both.to_le_bytes());
    Ok(0)
}

pub(crate) fn fcntl(process: &mut Process, fd_: u64, command: u64, argument: u64) -> Answer {
    let changeable = flags::APPEND | flags::NONBLOCK;
    let files = &mut process.kernel.files;
    match signed(command) {
        libc::F_DUPFD => files.duplicate(fd(fd_), argument, false),
        libc::F_DUPFD_CLOEXEC => files.duplicate(fd(fd_), argument, true),
        libc::F_GETFD => Ok(u64::from(files.descriptor(fd(fd_))?.close_on_exec)),
        libc::F_SETFD => files.set_close_on_exec(fd(fd_), argument & 1 != 0).map(|()| 0),
        libc::F_GETFL => Ok(files.place(fd(fd_))?.flags),
        libc::F_SETFL => {
            let open = files.get_mut(fd(fd_))?;
            open.flags = open.flags & !changeable | argument & changeable;
            Ok(0)
        }
        // No other process could hold a lock.
        libc::F_SETLK | libc::F_SETLKW => {
            let access = files.get(fd(fd_))?.flags & flags::ACCESS_MODE;
            let lock = process.space.read(argument, 32)?;
            match i16::from_le_bytes([lock[0], lock[1]]).into() {
                libc::F_RDLCK if access == flags::WRITE_ONLY => Err(Errno::BADF),
                libc::F_WRLCK if access == 0 => Err(Errno::BADF),
                libc::F_RDLCK | libc::F_WRLCK | libc::F_UNLCK => Ok(0),
                _ => Err(Errno::INVAL),
            }
        }
        // No lock is in the way: F_UNLCK, in `struct flock`'s first field.
        libc::F_GETLK => {
            files.get(fd(fd_))?;
            let lock = process.space.write(argument, 32)?;
            if !matches!(lock[..2], [0 | 1, 0]) {
                return Err(Errno::INVAL);
            }
            lock[..2].copy_from_slice(&[2, 0]);
            Ok(0)
        }
        _ => files.get(fd(fd_)).and(Err(Errno::INVAL)),
    }
}

/// `ioctl`: requests that hold for every descriptor. None is a terminal or another device with
/// requests of its own.
pub(crate) fn ioctl(process: &mut Process, fd_: u64, request: u64, argument: u64) -> Answer {
    const CLOSE_ON_EXEC: u64 = 0x5451;
    const KEEP_ON_EXEC: u64 = 0x5450;
    const NON_BLOCKING: u64 = 0x5421;
    const UNREAD: u64 = 0x541b;
    let open = process.kernel.files.get(fd(fd_))?;
    match fd(request) {
        CLOSE_ON_EXEC => process.kernel.files.set_close_on_exec(fd(fd_), true)?,
        KEEP_ON_EXEC => process.kernel.files.set_close_on_exec(fd(fd_), false)?,
        NON_BLOCKING => {
            let wanted = process.space.read(argument, 4)? != [0; 4];
            let open = process.kernel.files.get_mut(fd(fd_))?;
            open.flags =
                if wanted { open.flags | flags::NONBLOCK } else { open.flags & !flags::NONBLOCK };
        }
        UNREAD => {
            let pipe = match open.object {
                Object::PipeReader(pipe) | Object::PipeWriter(pipe) => pipe,
                Object::Socket { receives, .. } => receives,
                _ => return Err(Errno::NOTTY),
            };
            let unread = process.kernel.files.pipe(pipe)?.bytes.len() as u64;
            process.space.write(argument, 4)?.copy_from_slice(&unread.to_le_bytes()[..4]);
        }
        _ => return Err(Errno::NOTTY),
    }
    Ok(0)
}

/// `flock`. Two open files of one process exclude each other as those of two processes would.
pub(crate) fn flock(process: &mut Process, fd_: u64, operation: u64) -> Flow {
    let wanted = match signed(operation) & !libc::LOCK_NB {
        libc::LOCK_SH => Lock::Shared,
        libc::LOCK_EX => Lock::Exclusive,
        libc::LOCK_UN => Lock::None,
        _ => return Flow::Answer(Err(Errno::INVAL)),
    };
    match process.kernel.files.lock(fd(fd_), wanted) {
        Ok(true) => Flow::Answer(Ok(0)),
        Ok(false) if signed(operation) & libc::LOCK_NB != 0 => Flow::Answer(Err(Errno::AGAIN)),
        Ok(false) => wait(process, Wait::Change, None),
        Err(errno) => Flow::Answer(Err(errno)),
    }
}
