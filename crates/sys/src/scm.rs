//! Packets with descriptors and credentials: `unix(7)`.
//!
//! Ancillary data that the reader did not ask for is closed by the kernel or here, never leaked. A
//! packet whose descriptors were not all received gives an error to readers that want them; the
//! rest is closed.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use thiserror::Error;

/// Maximum number of descriptors in one packet.
pub const MAX_FDS: usize = 16;

/// Sender of a packet, as the kernel reports it, in the reader's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Pid of the sender.
    pub pid: i32,
    /// Effective user id, unless the sender may name another that it holds.
    pub uid: u32,
    /// Effective group id, or another one as above.
    pub gid: u32,
}

/// The kernel left out descriptors of a packet: the buffer was too small, or the reader may open no
/// more files. The received ones are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not all descriptors of a packet could be received")]
pub struct TruncatedPacket;

impl From<TruncatedPacket> for io::Error {
    fn from(error: TruncatedPacket) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// One packet, or one read from a stream.
#[derive(Debug)]
pub struct Packet {
    /// Bytes read; 0 at the end.
    pub length: usize,
    /// Descriptors that came along, all or none.
    pub fds: Result<Vec<OwnedFd>, TruncatedPacket>,
    /// The sender, when the socket asks for it ([`want_credentials`]).
    pub credentials: Option<Credentials>,
    /// A pidfd of the sender, when the socket asks for it (Linux ≥ 6.5).
    pub pidfd: Option<OwnedFd>,
}

const SO_PASSPIDFD: i32 = 76;
const SCM_PIDFD: i32 = 4;

#[repr(C, align(8))]
struct Control([u8; 256]);

/// Sends one packet with descriptors. `block` says whether to wait for room.
///
/// # Errors
/// As `sendmsg(2)`; `WouldBlock` when there is no room and `block` is false; `InvalidInput` for
/// more than [`MAX_FDS`] descriptors.
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

/// Receives bytes and ancillary data. `block` says whether to wait.
///
/// # Errors
/// As `recvmsg(2)`; `WouldBlock` when nothing has arrived and `block` is false; `InvalidData` for a
/// packet that is longer than `bytes`.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], block: bool) -> io::Result<Packet> {
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
    let mut received = Packet { length, fds: Ok(Vec::new()), credentials: None, pidfd: None };
    let mut fds = Vec::new();
    // SAFETY: the header is as the kernel left it.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !at.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers that lie whole inside the control
        // buffer.
        let entry = unsafe { at.read_unaligned() };
        // SAFETY: as above; the data follows its header.
        let data = unsafe { libc::CMSG_DATA(at) };
        take_entry(entry, data, &mut received, &mut fds);
        // SAFETY: `at` is a header of this message.
        at = unsafe { libc::CMSG_NXTHDR(&raw const header, at) };
    }
    if header.msg_flags & libc::MSG_TRUNC != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"));
    }
    let whole = header.msg_flags & libc::MSG_CTRUNC == 0;
    received.fds = if whole { Ok(fds) } else { Err(TruncatedPacket) };
    Ok(received)
}

fn take_entry(
    entry: libc::cmsghdr,
    data: *const u8,
    received: &mut Packet,
    fds: &mut Vec<OwnedFd>,
) {
    // SAFETY: a plain computation.
    let head = unsafe { libc::CMSG_LEN(0) } as usize;
    let length = entry.cmsg_len.saturating_sub(head);
    match (entry.cmsg_level, entry.cmsg_type) {
        (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
            for i in 0..length / size_of::<i32>() {
                fds.extend(read_fd(data.wrapping_add(i * size_of::<i32>())));
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
    // SAFETY: the kernel installed this descriptor in this very call; nothing else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the kernel shall name the sender of packets that are read from `socket`, with a pidfd
/// where it can.
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
        assert_eq!(got.fds.unwrap().len(), 1);
        assert_eq!(u32::try_from(got.credentials.unwrap().pid), Ok(std::process::id()));
        drop((kept, passed));
    }

    #[test]
    fn an_empty_socket_would_block() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = receive(ours.as_fd(), &mut [0; 4], false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// How many open descriptors of this process lead to `file`.
    fn leading_to(file: &std::fs::File) -> usize {
        use std::os::unix::fs::MetadataExt;
        let own = file.metadata().unwrap();
        let same = |fd: &std::fs::DirEntry| {
            std::fs::metadata(fd.path()).is_ok_and(|m| (m.dev(), m.ino()) == (own.dev(), own.ino()))
        };
        std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter(same).count()
    }

    /// A file that this process has open once.
    fn file() -> std::fs::File {
        let fd = rustix::fs::memfd_create(c"scm", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        fd.into()
    }

    #[test]
    fn descriptors_that_do_not_all_fit_are_an_error_and_none_stays_open() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = file();
        let many = [file.as_fd(); 100];
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(100))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        let bytes = [io::IoSlice::new(b"many")];
        sendmsg(theirs.as_fd(), &bytes, &mut control, SendFlags::empty()).unwrap();
        let mut bytes = [0; 16];
        let got = receive(ours.as_fd(), &mut bytes, false).unwrap();
        assert_eq!((got.length, got.fds.unwrap_err()), (4, TruncatedPacket));
        assert_eq!(leading_to(&file), 1);
    }

    #[test]
    fn a_packet_that_is_too_long_is_an_error_and_its_descriptors_are_closed() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let file = file();
        send(theirs.as_fd(), b"too long", &[file.as_fd()], true).unwrap();
        let error = receive(ours.as_fd(), &mut [0; 4], false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(leading_to(&file), 1);
    }
}
