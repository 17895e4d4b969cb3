//! Remains of a zygote's imports, as the kernel reports them.
//!
//! A zygote runs packages' code, so its own report cannot be trusted, and many zygotes have no
//! `/proc` to look at. The warden reads theirs from outside. A fork gets a copy of its zygote's
//! private memory and of its one thread. Three things are no copies, and would connect functions
//! that must not meet:
//! - shared mappings (`mmap.mmap(-1, n)`, a lock of `multiprocessing`), which all forks read and
//!   write;
//! - a descriptor behind one of the first three numbers, which a landing keeps, except for an
//!   instance's output; it closes those above;
//! - another thread or process, which no fork gets, and which may have left a lock taken.

use std::fs::{self, File};
use std::io::{self, Read};

use rustix::fs::{FileType, Stat, major, minor};
use sys::process::PidFd;

use crate::outcome::{CommandError, CommandResult, kernel};
use crate::protocol::{Answer, ImportRemains};
use crate::sandbox::record::FileId;
use crate::state::Warden;

/// `/dev/null`, Documentation/admin-guide/devices.txt.
const NULL: (u32, u32) = (1, 3);

impl Warden {
    pub(crate) fn examine(&mut self, name: u64) -> CommandResult {
        let left = self.look(name);
        // The process still had the number after all that was read.
        match self.find(name)?.process.as_ref().is_some_and(PidFd::alive) {
            true => Ok((Answer::Examined(left?), Vec::new())),
            false => Err(CommandError::Gone),
        }
    }

    fn look(&mut self, name: u64) -> Result<ImportRemains, CommandError> {
        let sandbox = self.find(name)?;
        let stderr =
            sandbox.as_zygote().ok_or(CommandError::Wrong("only zygotes are examined"))?.stderr;
        let group = sandbox.group.clone();
        let process = sandbox.process.as_ref().and_then(PidFd::identity);
        let pid = process.ok_or(CommandError::Gone)?.pid;
        let others = self.cgroups.pids(&group).into_iter().filter(|other| *other != pid);
        let others = others.filter(|other| runs(*other)).count();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(kernel("count threads"))?;
        Ok(ImportRemains {
            tasks: count(tasks.count().saturating_sub(1) + others),
            descriptors: foreign_descriptors(pid, stderr).map_err(kernel("look at descriptors"))?,
            shared: shared_mappings(pid).map_err(kernel("look at memory"))?,
        })
    }
}

/// Whether there is such a process and it has not ended.
pub(crate) fn runs(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name before it may hold any characters.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Descriptors that are not a zygote's own. Its own are `/dev/null` three times, of which the last
/// is the pipe to the warden at a root zygote, and its channel. A closed one of the first three is
/// `/dev/null` again before a fork.
fn foreign_descriptors(pid: i32, stderr: FileId) -> io::Result<u32> {
    let mut foreign = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let number = entry.file_name().to_string_lossy().parse::<u32>().ok();
        // Follows the link to the open file itself, of any kind and with or without a name.
        match rustix::fs::stat(entry.path()) {
            Ok(stat) => foreign += u32::from(!is_own(number, &stat, stderr)),
            // Closed meanwhile.
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(foreign)
}

fn is_own(number: Option<u32>, stat: &Stat, stderr: FileId) -> bool {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_null =
        kind == FileType::CharacterDevice && (major(stat.st_rdev), minor(stat.st_rdev)) == NULL;
    match number {
        Some(0 | 1) => is_null,
        Some(2) => is_null || kind == FileType::Fifo && FileId::from(stat) == stderr,
        Some(3) => kind == FileType::Socket,
        _ => false,
    }
}

/// Size of page tables, in KiB, above which they are not walked: they map 2 GiB with a page each.
const MAX_TABLES: u64 = 4 << 10;

/// Bytes of a `maps` or `smaps` that are read at most, in some 25 ms: the maximum number of
/// mappings (65 530) with lines of 128 bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Size of the read buffer, in bytes.
const PIECE: usize = 16 << 10;

/// How much of a line is kept: the needed fields stand before a mapping's path, which can be of any
/// length.
const MAX_LINE: usize = 256;

/// Mappings that forks would share. [`u32::MAX`], which is unfit to be forked, where counting would
/// take long: the warden's one thread serves all sandboxes, and a package chooses its mappings.
fn shared_mappings(pid: i32) -> io::Result<u32> {
    let mut any = false;
    let maps = File::open(format!("/proc/{pid}/maps"))?;
    let whole = each_line(maps, MAX_BYTES, |line| {
        any |= is_shared(line);
        !any
    })?;
    if !whole {
        return Ok(u32::MAX);
    }
    if !any {
        return Ok(0);
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    if tables(&status).is_none_or(|kib| kib > MAX_TABLES) {
        return Ok(u32::MAX);
    }
    // Reading `smaps` walks the page tables, which takes milliseconds for a large zygote, and
    // hardly any zygote has such a mapping.
    let mut shared = 0u32;
    let smaps = File::open(format!("/proc/{pid}/smaps"))?;
    let whole = each_line(smaps, MAX_BYTES, |line| {
        shared = shared.saturating_add(is_writable(line).into());
        true
    })?;
    Ok(if whole { shared } else { u32::MAX })
}

/// Calls `see` with the first [`MAX_LINE`] bytes of each line, until it returns false. Returns
/// false when there were more bytes than `most`.
fn each_line(
    mut from: impl Read,
    most: u64,
    mut see: impl FnMut(&str) -> bool,
) -> io::Result<bool> {
    let (mut piece, mut line, mut read) = (vec![0; PIECE], Vec::with_capacity(MAX_LINE), 0);
    loop {
        let got = from.read(&mut piece)?;
        read += got as u64;
        if read > most {
            return Ok(false);
        }
        if got == 0 {
            if !line.is_empty() {
                see(&String::from_utf8_lossy(&line));
            }
            return Ok(true);
        }
        for part in piece[..got].split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            line.extend_from_slice(&text[..text.len().min(MAX_LINE - line.len())]);
            if ends {
                if !see(&String::from_utf8_lossy(&line)) {
                    return Ok(true);
                }
                line.clear();
            }
        }
    }
}

/// The size of a process's page tables in KiB, from its `status`.
fn tables(status: &str) -> Option<u64> {
    let size = status.lines().find_map(|line| line.strip_prefix("VmPTE:"))?;
    size.trim().strip_suffix(" kB")?.parse().ok()
}

/// Whether a line of `maps` describes a shared mapping. Includes files that were opened for reading
/// only.
fn is_shared(line: &str) -> bool {
    line.split(' ').nth(1).is_some_and(|rights| rights.ends_with('s'))
}

/// Whether a line of `smaps` describes a mapping that is shared ("ms") and writable now or after
/// `mprotect` ("mw").
fn is_writable(line: &str) -> bool {
    let Some(flags) = line.strip_prefix("VmFlags:") else { return false };
    let has = |flag| flags.split_whitespace().any(|one| one == flag);
    has("ms") && has("mw")
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's description of this process's mapping at `address`.
    fn of_own(address: *const u8) -> (bool, u32) {
        let begins = format!("{:x}-", address as usize);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.starts_with(&begins)).unwrap();
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let at = smaps.find(&begins).unwrap();
        let end = smaps[at..].find("VmFlags:").map(|end| at + end).unwrap();
        let rest = &smaps[end..];
        let flags = &rest[..rest.find('\n').unwrap_or(rest.len())];
        (is_shared(line), u32::from(is_writable(flags)))
    }

    /// An endless file of mappings, each with a path of that length. Counts the bytes that are
    /// read.
    struct EndlessFile<'a>(Vec<u8>, usize, &'a mut u64);

    impl<'a> EndlessFile<'a> {
        fn new(path: usize, read: &'a mut u64) -> Self {
            let line = "7f8a4c000000-7f8a4c001000 rw-p 00000000 00:1f 12  /";
            Self([line.as_bytes(), &vec![b'd'; path], b"\n"].concat(), 0, read)
        }
    }

    impl Read for EndlessFile<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let rest = &self.0[self.1..];
            let some = rest.len().min(into.len());
            into[..some].copy_from_slice(&rest[..some]);
            self.1 = (self.1 + some) % self.0.len();
            *self.2 += some as u64;
            Ok(some)
        }
    }

    #[test]
    fn a_memory_map_is_read_to_a_length_and_no_line_of_it_is_held_whole() {
        for path in [20, 1 << 20] {
            let (mut read, mut longest) = (0, 0);
            let whole = each_line(EndlessFile::new(path, &mut read), MAX_BYTES, |line| {
                longest = longest.max(line.len());
                !is_shared(line)
            });
            assert!(!whole.unwrap(), "there is more");
            assert!(longest <= MAX_LINE && read <= MAX_BYTES + PIECE as u64, "{longest} {read}");
        }
        // A mapping behind a line of a megabyte is found, and nothing is read behind the one that
        // was sought.
        let mut read = 0;
        let mut maps = EndlessFile::new(1 << 20, &mut read).take((1 << 20) + 52);
        let shared = b"7f8a4c000000-7f8a4c001000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n";
        let mut seen = Vec::new();
        let both = maps.by_ref().chain(&shared[..]).chain(io::repeat(b'x'));
        let whole = each_line(both, MAX_BYTES, |line| {
            seen.push(is_shared(line));
            !is_shared(line)
        });
        assert!(whole.unwrap());
        assert_eq!(seen, [false, true]);
    }

    #[test]
    fn the_size_of_page_tables_is_known_before_they_are_walked() {
        assert!(
            (1..MAX_TABLES)
                .contains(&tables(&fs::read_to_string("/proc/self/status").unwrap()).unwrap())
        );
        assert_eq!(tables("VmData:\t 8 kB\nVmPTE:\t     108 kB\n"), Some(108));
        assert_eq!(tables("Name:\tx\n"), None);
    }

    #[test]
    fn memory_that_forks_would_share_is_told_from_other_memory() {
        let map = |file: i32, rights: i32, how: i32| {
            // SAFETY: a new mapping, at an address of the kernel's choice.
            let address = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, how, file, 0) };
            assert_ne!(address, libc::MAP_FAILED);
            address.cast::<u8>().cast_const()
        };
        let file = fs::File::open("/proc/self/exe").unwrap();
        let readable = std::os::fd::AsRawFd::as_raw_fd(&file);
        let (shared, private) = (libc::MAP_SHARED, libc::MAP_PRIVATE);
        let anonymous = shared | libc::MAP_ANONYMOUS;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // Unlike their neighbours: the kernel would merge equal ones.
        assert_eq!(of_own(map(-1, both, anonymous)), (true, 1));
        assert_eq!(
            of_own(map(-1, libc::PROT_NONE, anonymous)),
            (true, 1),
            "it may become writable"
        );
        assert_eq!(of_own(map(readable, libc::PROT_READ, shared)), (true, 0), "a file to read");
        assert_eq!(of_own(map(readable, both, private)), (false, 0));
    }
}
