//! Keeps a file and the memory that shows it equal.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::linux::abi::registers::Answer;
use crate::linux::state::host_clock;
use crate::linux::state::process::Process;
use crate::memory::file_mappings::FileMapping;
use crate::vfs::{Contents, NodeId};

/// Copies a file to memory that is still zero. Memory behind the file's end is not touched: a
/// mapping can be far longer than its file.
pub(crate) fn fill(
    process: &mut Process,
    range: Range<u64>,
    node: NodeId,
    offset: u64,
) -> Result<(), Errno> {
    let Process { space, kernel, .. } = process;
    let target = space.arena_mut().bytes_mut(range);
    match kernel.tree.contents(node) {
        Contents::Bytes(bytes) => {
            show(bytes, offset, target);
            Ok(())
        }
        Contents::Sealed { .. } => {
            let file = kernel.tree.open(node)?.ok_or(Errno::IO)?;
            read_at(&file, target, offset).map(drop)
        }
        _ => Err(Errno::NODEV),
    }
}

/// Copies bytes of a file from an offset on, and returns how many there were.
fn show(bytes: &[u8], offset: u64, target: &mut [u8]) -> usize {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let count = (bytes.len() - from).min(target.len());
    target[..count].copy_from_slice(&bytes[from..from + count]);
    count
}

/// After bytes of a scratch file changed or were cut off: updates the mappings that share them.
pub(crate) fn follow(process: &mut Process, node: NodeId, bytes: Range<u64>) {
    let sharing: Vec<_> = process.space.files().sharing(node, bytes).collect();
    let Process { space, kernel, .. } = process;
    let Contents::Bytes(contents) = kernel.tree.contents(node) else { return };
    for (range, file) in sharing {
        let target = space.arena_mut().bytes_mut(range);
        let count = show(contents, file.offset, target);
        target[count..].fill(0);
    }
}

/// Before bytes of a file are read: copies what was written to mappings of them into the file.
pub(crate) fn take_over(process: &mut Process, node: NodeId, bytes: Range<u64>) {
    let written = process.space.files().written(node, bytes).collect();
    write_back(process, written);
}

/// The same for all files that a range shows.
pub(crate) fn take_over_range(process: &mut Process, range: Range<u64>) {
    let written = process.space.files().inside(range).filter(|(_, file)| file.written);
    let written = written.collect();
    write_back(process, written);
}

fn write_back(process: &mut Process, written: Vec<(Range<u64>, FileMapping)>) {
    let Process { space, kernel, .. } = process;
    for (range, FileMapping { node, offset, .. }) in written {
        // Only as far as the file reaches: reading pages that were never touched takes memory.
        let left = kernel.tree.contents(node).size().saturating_sub(offset);
        let range = range.start..range.end.min(range.start.saturating_add(left));
        let source = space.arena().bytes(range);
        kernel.tree.take_over(node, offset, source, host_clock::now());
    }
}

/// Sets the length of a scratch file.
pub(crate) fn set_length(process: &mut Process, node: NodeId, length: u64) -> Answer {
    let before = process.kernel.tree.contents(node).size();
    if length > before {
        process.kernel.limits.check_length(length)?;
    }
    process.kernel.tree.set_length(node, length, host_clock::now())?;
    follow(process, node, before.min(length)..before.max(length));
    Ok(0)
}

/// Reads a file of a layer until the target is full or the file ends.
pub(crate) fn read_at(file: &File, target: &mut [u8], offset: u64) -> Result<u64, Errno> {
    let mut done = 0;
    while done < target.len() {
        match file.read_at(&mut target[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Errno::IO),
        }
    }
    Ok(done as u64)
}
