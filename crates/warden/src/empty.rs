//! What a sandbox has written goes when it is dead, whoever still holds its scratch.
//!
//! ```text
//!   dead ─► scratch closed: one page, no file more ──────────────► root let go
//!              ▲  │ there is something
//!              │  ▼
//!              └─ some of it unlinked, the rest in the next turn
//!                 │ for longer than [`PATIENCE`]: its zygote holds what has no name any more
//!                 └─► the zygote ends
//! ```
//! A file system is there for as long as anybody holds a descriptor of it, and a zygote is handed each slot's. What it holds of
//! dead instances would be memory that is counted for nobody. An honest one holds nothing.
//!
//! Closing comes first because for most it is all: the kernel refuses it where more is in use, so that an empty scratch costs
//! two such attempts and no look. It is also what keeps a scratch empty: whatever process is left has nowhere to write to.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, RenameFlags, ResolveFlags, flistxattr, fremovexattr, openat2,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use sys::mount::resize_tmpfs;

/// The least that a tmpfs may have: 0 would be no limit.
const LEAST_BYTES: u64 = 4096;

/// Entries that are removed in one turn: a millisecond or two, in which nobody is served.
const AT_ONCE: u32 = 512;

/// How long what was unlinked may stay in use: a socket that holds descriptors is cleared up by the kernel when it has time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// And in so many turns: four times what a function's scratch may hold. Turns are for when there is nothing else to do.
const TURNS: u32 = 64;

/// How far what a dead sandbox has written is taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remains {
    /// Nobody has tried.
    #[default]
    Full,
    /// There was something at this time, and so many turns later.
    Since(Instant, u32),
}

impl Remains {
    /// There is something: whether somebody must hold it.
    pub(crate) fn is_held(&mut self, now: Instant) -> bool {
        match *self {
            Self::Full => {
                *self = Self::Since(now, 0);
                false
            }
            Self::Since(begin, turns) => {
                *self = Self::Since(begin, turns.saturating_add(1));
                turns > TURNS && now.duration_since(begin) > PATIENCE
            }
        }
    }
}

/// Takes back what a dead sandbox has written to the scratch of its root; false where something is left for the next turn.
/// Afterwards nobody writes there any more than a page.
pub(crate) fn empty(root: BorrowedFd<'_>) -> bool {
    ["tmp", "dev/shm"].into_iter().fold(true, |done, path| {
        let closed = || resize_tmpfs(root, path, LEAST_BYTES, 1);
        let closed = closed().or_else(|_| {
            let scratch = open(root, path)?;
            forget_attributes(scratch.as_fd());
            remove_some(scratch.as_fd(), AT_ONCE)?;
            closed()
        });
        done && closed.is_ok()
    })
}

/// Of a root that nobody changes: what is mounted there is the scratch.
fn open(root: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path, flags, Mode::empty(), beneath)?)
}

/// Extended attributes count as files do (Linux 6.6), and those of the scratch's own directory go with nothing else.
fn forget_attributes(file: BorrowedFd<'_>) {
    let mut names = vec![0; 64 << 10];
    let length = flistxattr(file, &mut names).unwrap_or(0);
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let _ = fremovexattr(file, name);
    }
}

/// Removes that many entries at most, whatever they are: nothing is opened but directories, through no link, in this file
/// system. What lies deeper is first brought up, so that a step costs the same at every depth.
fn remove_some(scratch: BorrowedFd<'_>, most: u32) -> io::Result<()> {
    let mut left = most;
    let mut open = names(scratch, most)?;
    while let Some(name) = open.pop() {
        if left == 0 {
            break;
        }
        left -= 1;
        if remove(scratch, &name) != Err(Errno::NOTEMPTY) {
            continue;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let here = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = openat2(scratch, &name, flags, Mode::empty(), here)?;
        for below in names(dir.as_fd(), left)? {
            left = left.saturating_sub(1);
            if remove(dir.as_fd(), &below) == Err(Errno::NOTEMPTY) {
                // A name that nobody can have given to something ahead; else it is for the next turn.
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let new = CString::new(format!("{}-{left}", now.as_nanos()))?;
                if renameat_with(&dir, &below, scratch, &new, RenameFlags::NOREPLACE).is_ok() {
                    open.push(new);
                }
            }
        }
        let _ = remove(scratch, &name);
    }
    Ok(())
}

fn remove(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => unlinkat(dir, name, AtFlags::REMOVEDIR),
        removed => removed,
    }
}

/// So many names in a directory at most.
fn names(dir: BorrowedFd<'_>, most: u32) -> io::Result<Vec<CString>> {
    let entries = Dir::read_from(dir)?.map_while(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_owned());
    let own = |name: &CString| [b".".as_slice(), b".."].contains(&name.as_bytes());
    Ok(names.filter(|name| !own(name)).take(most as usize).collect())
}
