//! Files below `/proc`: proc(5). Each text is made at each reading, from the monitor's knowledge;
//! the host's uptime is the only fact of the host in them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use crate::linux::state::host_clock;
use crate::linux::state::ids::USER;
use crate::linux::state::process::Process;
use crate::memory::file_mappings::FileMapping;
use crate::memory::layout::{PAGE, USER_END};
use crate::memory::rights::Rights;
use crate::vfs::{GeneratedFile, NodeId};

/// Memory that a machine without a limit claims to have: it imports, and its clones have limits.
/// Libraries that size buffers by it should fit into those.
const UNLIMITED: u64 = 512 << 20;

/// Bytes of memory that a guest may have, and how many are left. Memory of its family's reference
/// machine counts for neither: a limit counts from there on.
pub(crate) fn memory(process: &Process) -> (u64, u64) {
    let counted = counted(process);
    let Some(limit) = process.space.own_bytes() else {
        return (UNLIMITED, UNLIMITED.saturating_sub(counted));
    };
    let most = limit.min(USER_END);
    (most, process.space.room().min(most))
}

/// Bytes of one reading. Like Linux, the monitor returns no more at a time; the reader asks again.
const MAX_PART: u64 = 64 << 10;

/// Part of a text as it is now, from an offset on.
pub(crate) fn tell(process: &Process, what: GeneratedFile, offset: u64, length: u64) -> Vec<u8> {
    let mut part = Part { before: offset, left: length.min(MAX_PART), bytes: Vec::new() };
    match what {
        GeneratedFile::Maps => maps(process, &mut part),
        what => part.take(&whole(process, what)),
    }
    part.bytes
}

/// The part to be read of a text that may be too long to be held.
struct Part {
    /// Bytes to be skipped, and bytes to be taken after them.
    before: u64,
    left: u64,
    bytes: Vec<u8>,
}

impl Part {
    fn is_whole(&self) -> bool {
        self.left == 0
    }

    fn take(&mut self, text: &[u8]) {
        let skipped = usize::try_from(self.before).unwrap_or(usize::MAX).min(text.len());
        self.before -= skipped as u64;
        let text = &text[skipped..];
        let text = &text[..usize::try_from(self.left).unwrap_or(usize::MAX).min(text.len())];
        self.left -= text.len() as u64;
        self.bytes.extend_from_slice(text);
    }
}

/// A text that is short.
fn whole(process: &Process, what: GeneratedFile) -> Vec<u8> {
    match what {
        GeneratedFile::Maps => Vec::new(),
        GeneratedFile::Name => {
            let mut name = name(process).to_vec();
            name.push(b'\n');
            name
        }
        GeneratedFile::Limits => process.kernel.limits.table().into_bytes(),
        GeneratedFile::MemoryLimit => format!("{}\n", memory(process).0).into_bytes(),
        GeneratedFile::MemoryUse => {
            let (most, left) = memory(process);
            format!("{}\n", most - left).into_bytes()
        }
        GeneratedFile::Stat => stat(process),
        GeneratedFile::Status => status(process),
        GeneratedFile::StatMemory => {
            let (mapped, counted) = (mapped(process) / PAGE, counted(process) / PAGE);
            format!("{mapped} {counted} 0 0 0 {counted} 0\n").into_bytes()
        }
        GeneratedFile::Load => format!("0.00 0.00 0.00 1/1 {}\n", process.pid).into_bytes(),
        GeneratedFile::Memory => {
            let (most, left) = memory(process);
            meminfo(most >> 10, left >> 10).into_bytes()
        }
        GeneratedFile::System => {
            let now = host_clock::now().seconds;
            let started = now.saturating_sub_unsigned(host_clock::since_start().as_secs());
            let times = format!("{} 0 0 {} 0 0 0 0 0 0", used(process), idle(process));
            let rest = format!(
                "intr 0\nctxt 0\nbtime {started}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq{}\n",
                [" 0"; 11].concat()
            );
            format!("cpu  {times}\ncpu0 {times}\n{rest}").into_bytes()
        }
        GeneratedFile::Uptime => {
            let seconds = |hundredths: u64| format!("{}.{:02}", hundredths / 100, hundredths % 100);
            let (up, idle) = (host_clock::hundredths(host_clock::since_start()), idle(process));
            format!("{} {}\n", seconds(up), seconds(idle)).into_bytes()
        }
    }
}

/// `/proc/meminfo`, in kilobytes, with Linux's names and order. All memory in use is anonymous, and
/// there is no swap.
fn meminfo(total: u64, free: u64) -> String {
    let used = total - free;
    let sizes = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", used),
        ("Inactive", 0),
        ("Active(anon)", used),
        ("Inactive(anon)", 0),
        ("Active(file)", 0),
        ("Inactive(file)", 0),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", used),
        ("Mapped", 0),
        ("Shmem", 0),
        ("KReclaimable", 0),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
        ("KernelStack", 0),
        ("PageTables", 0),
        ("CommitLimit", total),
        ("Committed_AS", used),
        ("VmallocTotal", (1 << 35) - 1),
        ("VmallocUsed", 0),
        ("VmallocChunk", 0),
        ("AnonHugePages", 0),
    ];
    let mut text = String::new();
    for (name, kilobytes) in sizes {
        let _ = writeln!(text, "{:<15} {kilobytes:>8} kB", format!("{name}:"));
    }
    for name in ["HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp"] {
        let _ = writeln!(text, "{:<15} {:>8}", format!("{name}:"), 0);
    }
    let _ = writeln!(text, "{:<15} {:>8} kB", "Hugepagesize:", 2048);
    text
}

fn name(process: &Process) -> &[u8] {
    let name = &process.kernel.name;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    &name[..end]
}

/// Hundredths of a second of processor time: used, and idle.
fn used(process: &Process) -> u64 {
    host_clock::hundredths(process.used.now())
}

fn idle(process: &Process) -> u64 {
    host_clock::hundredths(host_clock::since_start()).saturating_sub(used(process))
}

fn mapped(process: &Process) -> u64 {
    process.space.regions().iter().map(|(it, _)| it.end - it.start).sum()
}

/// Stands for resident memory, which only a walk through the host's tables would tell.
fn counted(process: &Process) -> u64 {
    process.space.counted()
}

/// Fields by their numbers in proc(5), from the third on; all others are 0.
fn stat(process: &Process) -> Vec<u8> {
    const FIRST: usize = 3;
    const LAST: usize = 52;
    let known = BTreeMap::from([
        (5, process.pid),
        (6, process.pid),
        (14, used(process)),
        (18, 20),
        (20, process.kernel.threads.count()),
        (23, mapped(process)),
        (24, counted(process) / PAGE),
        (25, u64::MAX),
        (38, 17),
    ]);
    let mut text = format!("{} (", process.pid).into_bytes();
    text.extend_from_slice(name(process));
    text.extend_from_slice(b") R");
    for field in FIRST + 1..=LAST {
        // No terminal has a foreground group.
        let number = known.get(&field).map_or_else(
            || if field == 8 { "-1".to_owned() } else { "0".to_owned() },
            u64::to_string,
        );
        text.push(b' ');
        text.extend_from_slice(number.as_bytes());
    }
    text.push(b'\n');
    text
}

fn status(process: &Process) -> Vec<u8> {
    let mut text = b"Name:\t".to_vec();
    text.extend_from_slice(name(process));
    let pid = process.pid;
    let ids = format!("{USER}\t{USER}\t{USER}\t{USER}");
    let (mapped, counted) = (mapped(process) >> 10, counted(process) >> 10);
    let rest = format!(
        "\nUmask:\t{:04o}\nState:\tR (running)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t0\nTracerPid:\t0\n\
         Uid:\t{ids}\nGid:\t{ids}\nVmSize:\t{mapped:>8} kB\nVmRSS:\t{counted:>8} kB\nThreads:\t{}\n\
         Cpus_allowed:\t1\nCpus_allowed_list:\t0\n",
        process.kernel.umask,
        process.kernel.threads.count(),
    );
    text.extend_from_slice(rest.as_bytes());
    text
}

/// A line for each range with the same rights and the same file.
fn maps(process: &Process, part: &mut Part) {
    let stopper = process.stopper();
    // Neighbours mostly show one file.
    let mut last = (None, Vec::new());
    for (region, rights) in process.space.regions().iter() {
        let mut from = region.start;
        for (range, file) in process.space.files().inside(region.clone()) {
            // A guest can have very many mappings.
            if part.is_whole() || stopper.wanted() {
                return;
            }
            part.take(&line(process, from..range.start, rights, None));
            if last.0 != Some(file.node) {
                last = (Some(file.node), path(process, file.node));
            }
            part.take(&line(process, range.clone(), rights, Some((file, &last.1))));
            from = range.end;
        }
        part.take(&line(process, from..region.end, rights, None));
    }
}

/// Path of a mapped file, bounded by the length of a path.
fn path(process: &Process, node: NodeId) -> Vec<u8> {
    const MAX_PATH: usize = libc::PATH_MAX as usize;
    match process.kernel.tree.links(node) {
        0 => b"(deleted)".to_vec(),
        _ => process
            .kernel
            .tree
            .path_of_at_most(node, MAX_PATH)
            .unwrap_or_else(|| b"(too long)".to_vec()),
    }
}

fn line(
    process: &Process,
    range: Range<u64>,
    rights: Rights,
    file: Option<(FileMapping, &[u8])>,
) -> Vec<u8> {
    if range.is_empty() {
        return Vec::new();
    }
    let right = |wanted: Rights, letter| if rights.allow(wanted) { letter } else { '-' };
    let (offset, shared, inode) = file.as_ref().map_or_else(
        || (0, process.space.is_shared(range.clone()), 0),
        |(file, _)| (file.offset, file.shared, file.node.inode()),
    );
    let mut line = format!(
        "{:08x}-{:08x} {}{}{}{} {offset:08x} 00:01 {inode}",
        range.start,
        range.end,
        right(Rights::READ, 'r'),
        right(Rights::WRITE, 'w'),
        right(Rights::EXECUTE, 'x'),
        if shared { 's' } else { 'p' },
    );
    if let Some((_, name)) = file {
        // As on Linux, the name begins at column 73.
        let _ = write!(line, "{:1$} ", "", 72_usize.saturating_sub(line.len()));
        [line.as_bytes(), name, b"\n"].concat()
    } else {
        line.push('\n');
        line.into_bytes()
    }
}

/// A path below the process's own number, as a path below `self`. The number is another in each
/// clone.
pub(crate) fn of_own(process: &Process, path: &[u8]) -> Option<Vec<u8>> {
    let number = format!("/proc/{}", process.pid);
    let rest = path.strip_prefix(number.as_bytes())?;
    let is_whole = rest.first().is_none_or(|byte| *byte == b'/');
    is_whole.then(|| [b"/proc/self", rest].concat())
}
