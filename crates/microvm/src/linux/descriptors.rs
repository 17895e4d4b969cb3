//! System calls about descriptors themselves, whatever they refer to.

use std::time::Duration;

use rustix::io::Errno;

use super::Answer;
use super::call::{Flow, fd, signed};
use super::files::{MOST, Object, PIPE_BYTES};
use super::process::{Pause, Process};
use super::threads::{self, Wait};

const WRITE_ONLY: u64 = 1;
const APPEND: u64 = 0o2000;
const NONBLOCK: u64 = 0o4000;

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
    for number in first..=last.min(MOST as u64) {
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

/// Ready or not; else it waits for another thread, or, without a limit of time, for the channel.
pub(super) fn poll(process: &mut Process, entries: u64, count: u64, timeout: i32) -> Flow {
    let mut channel = false;
    match poll_now(process, entries, count, &mut channel) {
        Ok(0) if timeout == 0 => Flow::Answer(Ok(0)),
        Ok(0) if timeout > 0 => {
            let wanted = Duration::from_millis(u64::from(timeout.unsigned_abs()));
            let until = process.kernel.threads.limit(wanted);
            threads::wait(process, Wait::Change, Some(until))
        }
        Ok(0) if channel => Flow::Again(Pause::Idle),
        Ok(0) => threads::wait(process, Wait::Change, None),
        answer => Flow::Answer(answer),
    }
}

/// What is ready; says whether the channel is asked about.
fn poll_now(process: &mut Process, entries: u64, count: u64, channel: &mut bool) -> Answer {
    const IN: u8 = 1;
    const OUT: u8 = 4;
    const ERROR: u8 = 8;
    const HANG_UP: u8 = 16;
    const INVALID: u8 = 32;
    if count > MOST as u64 {
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
                Object::Channel if process.incoming.is_empty() && process.open => {
                    *channel |= entry[4] & IN != 0;
                    OUT
                }
                Object::Channel => IN | OUT,
                Object::PipeReader(pipe) => match process.kernel.files.pipe(pipe)? {
                    pipe if !pipe.bytes.is_empty() && pipe.writers == 0 => IN | HANG_UP,
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
