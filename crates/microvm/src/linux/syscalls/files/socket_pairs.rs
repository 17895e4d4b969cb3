//! Pairs of connected sockets (`socketpair`), the only sockets that can carry bytes: event loops
//! wake themselves by them.
//!
//! ```text
//!   one socket ── sends ──► pipe ── receives ──► the other
//!              ◄─ receives ─ pipe ◄── sends ────
//! ```
//!
//! Each way is a bounded pipe, which either side can shut down. Closing a socket with unread bytes
//! resets the way back: the other side gets ECONNRESET once, as on Linux.

use rustix::io::Errno;

use crate::linux::abi::record::long_at;
use crate::linux::abi::registers::{Answer, signed};
use crate::linux::state::files::{Object, PIPE_BYTES};
use crate::linux::state::flow::Flow;
use crate::linux::state::process::Process;
use crate::linux::syscalls::files::inet_sockets;
use crate::linux::syscalls::files::pipe_ends::{Progress, ends, receive, take_reset};
use crate::linux::syscalls::files::transfer::{MAX_PARTS, TransferMode, send, transfer, vector};

/// Bytes are looked at, and not taken.
const PEEK: i32 = libc::MSG_PEEK;
/// Bytes of a `struct msghdr`.
const HEAD_BYTES: u64 = 56;

/// `socketpair`. Not of datagrams, whose boundaries pipes do not keep.
pub(crate) fn pair(
    process: &mut Process,
    family: u64,
    kind: u64,
    protocol: u64,
    target: u64,
) -> Answer {
    let flags = signed(kind) & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    if signed(kind) & !(0xf | flags) != 0 {
        return Err(Errno::INVAL);
    }
    match (signed(family), signed(kind) & 0xf, signed(protocol)) {
        (libc::AF_UNIX, libc::SOCK_STREAM, 0 | libc::PF_UNIX) => {}
        (libc::AF_UNIX, libc::SOCK_STREAM, _) => return Err(Errno::PROTONOSUPPORT),
        (libc::AF_UNIX, ..) => return Err(Errno::SOCKTNOSUPPORT),
        _ => return Err(Errno::AFNOSUPPORT),
    }
    process.space.write(target, 8)?;
    let files = &mut process.kernel.files;
    let [there, back] = [files.new_pipe(), files.new_pipe()];
    // SOCK_NONBLOCK and SOCK_CLOEXEC are O_NONBLOCK and O_CLOEXEC.
    let flags = u64::from((libc::O_RDWR | flags).cast_unsigned());
    let one = Object::Socket { receives: back, sends: there };
    let other = Object::Socket { receives: there, sends: back };
    let [one, other] = files.open_both([(one, flags), (other, flags)])?;
    let both = one | other << 32;
    process.space.write(target, 8)?.copy_from_slice(&both.to_le_bytes());
    Ok(0)
}

/// `sendto`, which also serves `send`.
pub(crate) fn send_to(process: &mut Process, arguments: [u64; 6]) -> Flow {
    let [fd_, source, length, flags, address, address_length] = arguments;
    let addressed = address != 0 && signed(address_length) != 0;
    send_parts(process, fd_, flags, addressed, |_| Ok(vec![(source, length)]))
}

/// `sendmsg`, without descriptors: no other process could take them.
pub(crate) fn send_message(process: &mut Process, fd_: u64, head: u64, flags: u64) -> Flow {
    let head = match MessageHeader::read(process, head) {
        Ok(head) => head,
        Err(errno) => return Flow::Answer(Err(errno)),
    };
    let addressed = head.name != 0 && head.name_length != 0;
    send_parts(process, fd_, flags, addressed, |process| match head.control_length {
        0 => head.parts(process),
        _ => Err(Errno::OPNOTSUPP),
    })
}

fn send_parts(
    process: &mut Process,
    fd_: u64,
    flags: u64,
    addressed: bool,
    parts: impl FnOnce(&Process) -> Result<Vec<(u64, u64)>, Errno>,
) -> Flow {
    const KNOWN: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE | libc::MSG_EOR;
    if let Some(alone) = inet_sockets::of(&process.kernel.files, fd_) {
        return Flow::Answer(Err(alone.send(addressed)));
    }
    let checked = ends(process, fd_).and_then(|_| match signed(flags) & !KNOWN {
        0 if addressed => Err(Errno::ISCONN),
        0 => parts(process),
        _ => Err(Errno::OPNOTSUPP),
    });
    match checked {
        Ok(parts) => {
            let manner = manner(flags);
            transfer(process, fd_, &parts, manner, send(&parts, manner))
        }
        Err(errno) => Flow::Answer(Err(errno)),
    }
}

fn manner(flags: u64) -> TransferMode {
    let has = |flag: i32| signed(flags) & flag != 0;
    TransferMode { waits: !has(libc::MSG_DONTWAIT), signals: !has(libc::MSG_NOSIGNAL) }
}

/// `recvfrom`, which also serves `recv`. The sender has no address.
pub(crate) fn receive_from(process: &mut Process, arguments: [u64; 6]) -> Flow {
    let [fd_, target, length, flags, address, address_length] = arguments;
    if address != 0
        && let Err(errno) = room(process, address_length)
    {
        return Flow::Answer(Err(errno));
    }
    let flow = receive_parts(process, fd_, flags, |_| Ok(vec![(target, length)]));
    if address != 0 && matches!(flow, Flow::Answer(Ok(_))) {
        return put(process, &[(address_length, 0)], flow);
    }
    flow
}

/// `recvmsg`, without control messages.
pub(crate) fn receive_message(process: &mut Process, fd_: u64, at: u64, flags: u64) -> Flow {
    let head = MessageHeader::read(process, at).and_then(|head| {
        process.space.write(at, HEAD_BYTES)?;
        Ok(head)
    });
    let head = match head {
        Ok(head) => head,
        Err(errno) => return Flow::Answer(Err(errno)),
    };
    let flow = receive_parts(process, fd_, flags, |process| head.parts(process));
    if !matches!(flow, Flow::Answer(Ok(_))) {
        return flow;
    }
    // Beside the bytes: no control message (whose length has 8 bytes), and no flag.
    let nothing = [(at + 40, 0), (at + 44, 0), (at + 48, 0), (at + 8, 0)];
    put(process, &nothing[..if head.name == 0 { 3 } else { 4 }], flow)
}

fn receive_parts(
    process: &mut Process,
    fd_: u64,
    flags: u64,
    parts: impl FnOnce(&Process) -> Result<Vec<(u64, u64)>, Errno>,
) -> Flow {
    const KNOWN: i32 = PEEK | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    if let Some(alone) = inet_sockets::of(&process.kernel.files, fd_) {
        return Flow::Answer(Err(alone.receive()));
    }
    let checked = ends(process, fd_).and_then(|(pipe, _)| match signed(flags) & !KNOWN {
        0 => Ok((pipe, parts(process)?)),
        _ => Err(Errno::OPNOTSUPP),
    });
    let (pipe, parts) = match checked {
        Ok(found) => found,
        Err(errno) => return Flow::Answer(Err(errno)),
    };
    let mut seen = (signed(flags) & PEEK != 0).then_some(0);
    transfer(process, fd_, &parts, manner(flags), |process, _, target, length| {
        let moved = receive(process, pipe, seen, target, length)?;
        if let (Some(seen), Progress::Bytes(count)) = (&mut seen, &moved) {
            *seen += count;
        }
        Ok(moved)
    })
}

/// Writes numbers into the guest's memory, after an answer.
fn put(process: &mut Process, numbers: &[(u64, u32)], answer: Flow) -> Flow {
    for (at, number) in numbers {
        match process.space.write(*at, 4) {
            Ok(place) => place.copy_from_slice(&number.to_le_bytes()),
            Err(errno) => return Flow::Answer(Err(errno)),
        }
    }
    answer
}

/// The fields of `struct msghdr` that count.
struct MessageHeader {
    name: u64,
    name_length: i32,
    parts: u64,
    count: u64,
    control_length: u64,
}

impl MessageHeader {
    fn read(process: &Process, at: u64) -> Result<Self, Errno> {
        let bytes = process.space.read(at, HEAD_BYTES)?;
        let long = |number: usize| long_at(bytes, number * 8);
        let (name, name_length) = (long(0), signed(long(1)));
        Ok(Self { name, name_length, parts: long(2), count: long(3), control_length: long(5) })
    }

    fn parts(&self, process: &Process) -> Result<Vec<(u64, u64)>, Errno> {
        if self.count > MAX_PARTS {
            return Err(Errno::MSGSIZE);
        }
        vector(process, self.parts, self.count)
    }
}

/// The room for a value, which the caller gives as an `int`.
fn room(process: &Process, at: u64) -> Result<u64, Errno> {
    let bytes = process.space.read(at, 4)?;
    let room = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    u64::try_from(room).map_err(|_| Errno::INVAL)
}

/// Writes a value as far as there is room, and its length: the written one or, of a name, the whole
/// one.
fn tell(
    process: &mut Process,
    value: &[u8],
    target: u64,
    length: u64,
    in_full: bool,
) -> Result<(), Errno> {
    let count = room(process, length)?.min(value.len() as u64);
    let target = process.space.write(target, count)?;
    for (place, byte) in target.iter_mut().zip(value) {
        *place = *byte;
    }
    let told = if in_full { value.len() as u64 } else { count };
    process.space.write(length, 4)?.copy_from_slice(&told.to_le_bytes()[..4]);
    Ok(())
}

/// `getsockname` and `getpeername`: sockets of a pair have no name but their family.
pub(crate) fn name(
    process: &mut Process,
    fd_: u64,
    target: u64,
    length: u64,
    peer: bool,
) -> Answer {
    const FAMILY: [u8; 2] = [1, 0];
    let name = match inet_sockets::of(&process.kernel.files, fd_) {
        Some(_) if peer => return Err(Errno::NOTCONN),
        Some(alone) => alone.name(),
        None => ends(process, fd_).map(|_| FAMILY.to_vec())?,
    };
    tell(process, &name, target, length, true)?;
    Ok(0)
}

/// `shutdown` of one way, or both.
pub(crate) fn shut_down(process: &mut Process, fd_: u64, how: u64) -> Answer {
    if inet_sockets::of(&process.kernel.files, fd_).is_some() {
        return Err(Errno::NOTCONN);
    }
    let (receives, sends) = ends(process, fd_)?;
    let ways = match signed(how) {
        libc::SHUT_RD => &[receives][..],
        libc::SHUT_WR => &[sends],
        libc::SHUT_RDWR => &[receives, sends],
        _ => return Err(Errno::INVAL),
    };
    for pipe in ways {
        process.kernel.files.pipe_mut(*pipe)?.shut = true;
    }
    Ok(0)
}

/// `getsockopt` of SOL_SOCKET.
pub(crate) fn option(
    process: &mut Process,
    fd_: u64,
    level: u64,
    which: u64,
    target: u64,
    length: u64,
) -> Answer {
    if let Some(alone) = inet_sockets::of(&process.kernel.files, fd_) {
        let value = match signed(level) {
            libc::SOL_SOCKET => alone.option(signed(which))?,
            _ => return Err(Errno::NOPROTOOPT),
        };
        tell(process, &value.to_le_bytes(), target, length, false)?;
        return Ok(0);
    }
    ends(process, fd_)?;
    if signed(level) != libc::SOL_SOCKET {
        return Err(Errno::OPNOTSUPP);
    }
    room(process, length)?;
    let value = match signed(which) {
        libc::SO_TYPE => libc::SOCK_STREAM,
        libc::SO_DOMAIN => libc::AF_UNIX,
        libc::SO_PROTOCOL | libc::SO_ACCEPTCONN => 0,
        libc::SO_SNDBUF | libc::SO_RCVBUF => i32::try_from(PIPE_BYTES).unwrap_or(i32::MAX),
        libc::SO_ERROR if take_reset(process, fd_) => libc::ECONNRESET,
        libc::SO_ERROR => 0,
        _ => return Err(Errno::NOPROTOOPT),
    };
    tell(process, &value.to_le_bytes(), target, length, false)?;
    Ok(0)
}

/// `setsockopt`: hints and options of addresses are accepted, without effect.
pub(crate) fn set_option(
    process: &mut Process,
    fd_: u64,
    level: u64,
    which: u64,
    value: u64,
    length: u64,
) -> Answer {
    // Without effect, whatever it is.
    if inet_sockets::of(&process.kernel.files, fd_).is_some() {
        return process.space.read(value, length & 0xffff_ffff).map(|_| 0);
    }
    ends(process, fd_)?;
    if signed(level) != libc::SOL_SOCKET {
        return Err(Errno::OPNOTSUPP);
    }
    if signed(length) < 4 {
        return Err(Errno::INVAL);
    }
    process.space.read(value, 4)?;
    match signed(which) {
        libc::SO_SNDBUF | libc::SO_RCVBUF | libc::SO_KEEPALIVE | libc::SO_REUSEADDR => Ok(0),
        _ => Err(Errno::NOPROTOOPT),
    }
}
