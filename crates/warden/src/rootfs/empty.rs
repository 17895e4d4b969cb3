//! Emptying a dead sandbox's scratch, even if a zygote still holds it open.
//!
//! ```text
//!   dead ─► scratch closed: one page, no file more ──────────────► root released
//!              ▲  │ there is something
//!              │  ▼
//!              └─ some of it unlinked, the rest in the next turn
//!                 │ for longer than [`HELD_TIMEOUT`]: its zygote holds files without a name
//!                 └─► the zygote ends
//! ```
//! A file system exists while any process holds a descriptor of it, and a zygote is handed each
//! slot's. Files of dead instances that it holds would be memory that is charged to no sandbox. An
//! honest zygote holds none.
//!
//! Closing comes first because mostly it is all: the kernel refuses it where more is in use, so
//! that an empty scratch costs two such attempts and no look. It also keeps a scratch empty: no
//! process that is left can write there.

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

/// The minimum size of a tmpfs, in bytes: 0 would be no limit.
const LEAST_BYTES: u64 = 4096;

/// Entries that are removed in one turn: a millisecond or two, in which no command is served.
const MAX_ENTRIES: u32 = 512;

/// How long unlinked files may stay in use: the kernel clears a socket that holds descriptors when
/// it has time.
pub(crate) const HELD_TIMEOUT: Duration = Duration::from_secs(3);

/// And in how many turns: four times the content of a function's scratch. Turns happen only when
/// there is nothing else to do.
const MAX_TURNS: u32 = 64;

/// How far a dead sandbox's scratch has been emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyingProgress {
    /// Emptying has not begun.
    #[default]
    Full,
    /// Files were left at this time, and this many turns later.
    Since(Instant, u32),
}

impl EmptyingProgress {
    /// Files are left: returns whether some process must hold them.
    pub(crate) fn is_held(&mut self, now: Instant) -> bool {
        match *self {
            Self::Full => {
                *self = Self::Since(now, 0);
                false
            }
            Self::Since(begin, turns) => {
                *self = Self::Since(begin, turns.saturating_add(1));
                turns > MAX_TURNS && now.duration_since(begin) > HELD_TIMEOUT
            }
        }
    }
}

/// Empties the scratch in a dead sandbox's root; false where something is left for the next turn.
/// Afterwards not more than a page can be written there.
pub(crate) fn empty(root: BorrowedFd<'_>) -> bool {
    ["tmp", "dev/shm"].into_iter().fold(true, |done, path| {
        let closed = || resize_tmpfs(root, path, LEAST_BYTES, 1);
        let closed = closed().or_else(|_| {
            let scratch = open(root, path)?;
            forget_attributes(scratch.as_fd());
            remove_some(scratch.as_fd(), MAX_ENTRIES)?;
            closed()
        });
        done && closed.is_ok()
    })
}

/// Opens a directory below a root that does not change: the scratch is mounted there.
fn open(root: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path, flags, Mode::empty(), beneath)?)
}

/// Extended attributes count as files do (Linux 6.6). Nothing else removes those of the scratch's
/// own directory.
fn forget_attributes(file: BorrowedFd<'_>) {
    let mut names = vec![0; 64 << 10];
    let length = flistxattr(file, &mut names).unwrap_or(0);
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let _ = fremovexattr(file, name);
    }
}

/// Removes that many entries at most, of any kind. Opens only directories, through no link, in this
/// file system. Moves deeper entries up first, so that a step costs the same at every depth.
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
                // An unpredictable name, so that no file can have it already; otherwise the next
                // turn tries again.
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

/// At most so many names of a directory.
fn names(dir: BorrowedFd<'_>, most: u32) -> io::Result<Vec<CString>> {
    let entries = Dir::read_from(dir)?.map_while(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_owned());
    let own = |name: &CString| [b".".as_slice(), b".."].contains(&name.as_bytes());
    Ok(names.filter(|name| !own(name)).take(most as usize).collect())
}
