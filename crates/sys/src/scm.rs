//! Packets with descriptors and credentials: `unix(7)`.
//!
//! Whatever arrives beyond what the reader asked for is closed by the kernel or here, never leaked.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Most descriptors in one packet.
pub const MAX_FDS: usize = 16;

/// Who sent a packet, as the kernel says, in the reader's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id.
    pub pid: i32,
    /// Effective user id, unless the sender may name another that it holds.
    pub uid: u32,
    /// Effective group id, likewise.
    pub gid: u32,
}

/// One packet, or one read from a stream.
#[derive(Debug)]
pub struct Received {
    /// Bytes read; 0 at the end.
    pub length: usize,
    /// Descriptors that came along.
    pub fds: Vec<OwnedFd>,
    /// The sender, when the socket asks for it ([`want_credentials`]).
    pub credentials: Option<Credentials>,
    /// A pidfd of the sender, when the socket asks for it (Linux ≥ 6.5).
    pub pidfd: Option<OwnedFd>,
    /// Something did not fit: bytes of a packet, or ancillary data.
    pub truncated: bool,
}

const SO_PASSPIDFD: i32 = 76;
const SCM_PIDFD: i32 = 4;

#[repr(C, align(8))]
struct Control([u8; 256]);

/// Sends one packet with descriptors. `block` says whether to wait for room.
///
/// # Errors
/// As `sendmsg(2)`; `WouldBlock` when there is no room and `block` is false; `InvalidInput` for more than [`MAX_FDS`] descriptors.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    block: bool,
) -> io::Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    if fds.len() > MAX_FDS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    let io = [io::IoSlice::new(bytes)];
    let flags = if block { SendFlags::empty() } else { SendFlags::DONTWAIT };
    Ok(sendmsg(socket, &io, &mut control, SendFlags::NOSIGNAL | flags)?)
}

/// Receives bytes with whatever comes along. `block` says whether to wait.
///
/// # Errors
/// As `recvmsg(2)`; `WouldBlock` when nothing is there and `block` is false.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], block: bool) -> io::Result<Received> {
    let mut control = Control([0; 256]);
    let mut io = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: an all-zero msghdr is a valid one.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut io;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control.0).cast();
    header.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | if block { 0 } else { libc::MSG_DONTWAIT };
    let length = loop {
        // SAFETY: the header points at buffers that outlive the call, with their true lengths.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
        match usize::try_from(got) {
            Ok(got) => break got,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    let mut received = Received {
        length,
        fds: Vec::new(),
        credentials: None,
        pidfd: None,
        truncated: header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
    };
    // SAFETY: the header is as the kernel left it.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !at.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers that lie whole inside the control buffer.
        let entry = unsafe { at.read_unaligned() };
        // SAFETY: as above; the data follows its header.
        let data = unsafe { libc::CMSG_DATA(at) };
        take_entry(entry, data, &mut received);
        // SAFETY: `at` is a header of this message.
        at = unsafe { libc::CMSG_NXTHDR(&raw const header, at) };
    }
    Ok(received)
}

fn take_entry(entry: libc::cmsghdr, data: *const u8, received: &mut Received) {
    // SAFETY: a plain computation.
    let head = unsafe { libc::CMSG_LEN(0) } as usize;
    let length = entry.cmsg_len.saturating_sub(head);
    match (entry.cmsg_level, entry.cmsg_type) {
        (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
            for i in 0..length / size_of::<i32>() {
                received.fds.extend(read_fd(data.wrapping_add(i * size_of::<i32>())));
            }
        }
        (libc::SOL_SOCKET, SCM_PIDFD) if length >= size_of::<i32>() => {
            received.pidfd = read_fd(data);
        }
        (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if length >= size_of::<libc::ucred>() => {
            // SAFETY: the kernel wrote a ucred of this length at `data`.
            let raw = unsafe { data.cast::<libc::ucred>().read_unaligned() };
            received.credentials = Some(Credentials { pid: raw.pid, uid: raw.uid, gid: raw.gid });
        }
        _ => {}
    }
}

fn read_fd(at: *const u8) -> Option<OwnedFd> {
    // SAFETY: the caller points inside the control buffer, at an int that the kernel wrote.
    let fd = unsafe { at.cast::<i32>().read_unaligned() };
    // SAFETY: the kernel installed this descriptor for us in this very call; nobody else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks the kernel to name the sender of what is read from `socket` (and give a pidfd of it, where it can), or no more.
///
/// # Errors
/// As `setsockopt(2)`. A kernel without `SO_PASSPIDFD` (before 6.5) is no error.
pub fn want_credentials(socket: BorrowedFd<'_>, wanted: bool) -> io::Result<()> {
    set_flag(socket, libc::SO_PASSCRED, wanted)?;
    match set_flag(socket, SO_PASSPIDFD, wanted) {
        Err(error) if error.raw_os_error() != Some(libc::ENOPROTOOPT) => Err(error),
        _ => Ok(()),
    }
}

fn set_flag(socket: BorrowedFd<'_>, option: i32, on: bool) -> io::Result<()> {
    let value = i32::from(on);
    // SAFETY: `value` outlives the call and its size is true.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const value).cast(), 4)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_packet_brings_descriptors_and_the_senders_credentials() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        want_credentials(ours.as_fd(), true).unwrap();
        let (kept, passed) = UnixStream::pair().unwrap();
        send(theirs.as_fd(), b"hello", &[passed.as_fd()], true).unwrap();
        let mut bytes = [0; 16];
        let got = receive(ours.as_fd(), &mut bytes, false).unwrap();
        assert_eq!(&bytes[..got.length], b"hello");
        assert_eq!(got.fds.len(), 1);
        assert!(!got.truncated);
        assert_eq!(u32::try_from(got.credentials.unwrap().pid), Ok(std::process::id()));
        drop((kept, passed));
    }

    #[test]
    fn an_empty_socket_would_block() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = receive(ours.as_fd(), &mut [0; 4], false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
