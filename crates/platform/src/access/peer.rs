//! Who is at the other end of a connection: an address, or in the kernel's words a process of this machine.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use rustix::process::geteuid;
use tokio::net::UnixStream;

/// Where a connection comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// An address of this machine or another.
    Tcp(SocketAddr),
    /// A process of this machine.
    Unix(Peer),
}

/// The process that connected, as it was at that moment (unix(7), SO_PEERCRED).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its effective uid; none: the kernel did not say.
    pub uid: Option<u32>,
    /// Its effective group, and its supplementary ones.
    pub groups: Vec<u32>,
    /// Its pid, where that is known.
    pub pid: Option<i32>,
}

/// Whom the Unix socket lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The worker's own user; root is let in beside it.
    pub uid: u32,
    /// A group whose members are let in.
    pub group: Option<u32>,
}

impl Peer {
    /// Who is at the other end.
    #[must_use]
    pub fn of(stream: &UnixStream) -> Self {
        let Ok(credentials) = stream.peer_cred() else { return Self::default() };
        let mut groups = vec![credentials.gid()];
        // Without them, a member by a supplementary group is refused: an error refuses too many, never too few.
        groups.extend(sys::peer::groups(stream.as_fd()).unwrap_or_default());
        Self { uid: Some(credentials.uid()), groups, pid: credentials.pid() }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(Peer { pid: Some(pid), .. }) => write!(f, "unix socket, pid {pid}"),
            Self::Unix(_) => f.write_str("unix socket"),
        }
    }
}

impl Admitted {
    /// This process's user, root, and the members of a group.
    ///
    /// # Errors
    /// When there is no such group.
    pub fn of_this_worker(group: Option<&str>) -> io::Result<Self> {
        let group = group.map(group_number).transpose()?;
        Ok(Self { uid: geteuid().as_raw(), group })
    }

    /// Whether this peer may use the socket.
    #[must_use]
    pub fn lets_in(&self, peer: &Peer) -> bool {
        let own = peer.uid.is_some_and(|uid| uid == self.uid || uid == 0);
        own || self.group.is_some_and(|group| peer.groups.contains(&group))
    }
}

/// A group's number, of its name.
fn group_number(name: &str) -> io::Result<u32> {
    let found = nix::unistd::Group::from_name(name).map_err(io::Error::from)?;
    let unknown = || {
        let words = format!(
            "there is no group {name:?}: make it with `groupadd {name}`, or change admin_group"
        );
        io::Error::new(io::ErrorKind::NotFound, words)
    };
    Ok(found.ok_or_else(unknown)?.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, groups: &[u32]) -> Peer {
        Peer { uid: Some(uid), groups: groups.to_vec(), pid: None }
    }

    #[test]
    fn the_socket_is_for_the_workers_user_root_and_the_group_and_for_nobody_else() {
        let without = Admitted { uid: 1000, group: None };
        let with = Admitted { uid: 1000, group: Some(50) };
        for one in [without, with] {
            assert!(one.lets_in(&peer(1000, &[7])));
            assert!(one.lets_in(&peer(0, &[])));
            assert!(!one.lets_in(&peer(1001, &[1000, 0])));
            assert!(!one.lets_in(&Peer { groups: vec![7], ..Peer::default() }), "unknown");
        }
        assert!(with.lets_in(&peer(1001, &[7, 50])));
        assert!(!without.lets_in(&peer(1001, &[7, 50])));
    }

    #[test]
    fn a_group_that_is_not_there_is_told() {
        let told = Admitted::of_this_worker(Some("no-such-group-here")).unwrap_err();
        assert!(told.to_string().contains("groupadd no-such-group-here"), "{told}");
        assert_eq!(Admitted::of_this_worker(Some("root")).unwrap().group, Some(0));
    }

    #[tokio::test]
    async fn the_kernel_says_who_we_are() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one);
        assert_eq!(peer.uid, Some(geteuid().as_raw()));
        assert!(peer.groups.contains(&rustix::process::getegid().as_raw()));
        assert_eq!(peer.pid, i32::try_from(std::process::id()).ok());
    }
}
