//! Memory in a snapshot: runs of pages that hold data.

use std::io::{self, Read, Write};
use std::ops::Range;

use super::RestoreError;
use crate::memory::arena::FrozenArena;
use crate::memory::layout::{BLOCK, PAGE, pages};
use crate::memory::regions::Regions;
use crate::memory::space::Space;

/// A page of zeros.
const NOTHING: [u8; 4096] = [0; 4096];
const _: () = assert!(NOTHING.len() as u64 == PAGE);

/// Writes the mapped pages that hold data.
pub(crate) fn write(
    frozen: &FrozenArena,
    regions: &Regions,
    to: &mut impl Write,
) -> io::Result<()> {
    for (region, rights) in regions.iter() {
        if !rights.count() {
            continue;
        }
        for part in frozen.filled(region)? {
            for run in runs(frozen, part) {
                write_head(to, run.start, run.end - run.start)?;
                to.write_all(frozen.bytes(run))?;
            }
        }
    }
    write_head(to, 0, 0)
}

fn write_head(to: &mut impl Write, start: u64, length: u64) -> io::Result<()> {
    to.write_all(&start.to_le_bytes())?;
    to.write_all(&length.to_le_bytes())
}

/// The pages of a range that are not all zeros, in runs of up to a block.
fn runs(frozen: &FrozenArena, range: Range<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for page in pages(range) {
        if frozen.bytes(page..page + PAGE) == NOTHING {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == page && page - run.start < BLOCK => run.end += PAGE,
            _ => runs.push(page..page + PAGE),
        }
    }
    runs
}

/// Reads runs into an address space that is zero.
pub(crate) fn read(space: &mut Space, from: &mut impl Read) -> Result<(), RestoreError> {
    let mut behind = 0;
    loop {
        let (start, length) = (read_word(from)?, read_word(from)?);
        if (start, length) == (0, 0) {
            return Ok(());
        }
        let whole = start.is_multiple_of(PAGE) && length.is_multiple_of(PAGE);
        let end = start.checked_add(length).filter(|_| whole && (PAGE..=BLOCK).contains(&length));
        let run = end.filter(|_| start >= behind).map(|end| start..end);
        let run = run.filter(|run| space.state.is_present(run.clone()));
        let run = run.ok_or(RestoreError::Damaged("memory where there is none"))?;
        behind = run.end;
        from.read_exact(space.arena_mut().bytes_mut(run))?;
    }
}

fn read_word(from: &mut impl Read) -> io::Result<u64> {
    let mut word = [0; 8];
    from.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}
