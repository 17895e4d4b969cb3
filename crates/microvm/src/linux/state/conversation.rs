//! What a process hears and says: its channel, and what it writes to its standard streams, until somebody takes it.

use rustix::io::Errno;

use crate::linux::abi::registers::Answer;
use crate::linux::state::files::Stream;
use crate::linux::state::process::Process;
use crate::vfs::Contents;

/// Bytes that a process may have said without anybody taking them.
const MAX_UNTAKEN: usize = 64 << 20;
/// Pieces of output that nobody has taken: as many bytes again, with what each takes beside its own.
const MAX_ENTRIES: usize = 1 << 20;

impl Process {
    /// What it reads from the channel next.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.incoming.extend(bytes);
    }

    /// Nothing more will be fed: reading the channel then finds its end.
    #[doc(hidden)]
    pub fn hang_up(&mut self) {
        self.open = false;
    }

    /// What it wrote to the channel since this was asked last.
    pub fn take_said(&mut self) -> Vec<u8> {
        self.untaken -= self.outgoing.len();
        std::mem::take(&mut self.outgoing)
    }

    /// What it wrote to its standard streams since this was asked last.
    pub fn take_output(&mut self) -> Vec<(Stream, Vec<u8>)> {
        self.untaken -= self.output.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        std::mem::take(&mut self.output)
    }

    /// The end of what is in the file that its standard error goes to, at most so many bytes: what a program that catches its
    /// own output would have said, had it not ended before. Empty where it goes nowhere, or to what is no file.
    #[must_use]
    pub fn last_words(&self, most: usize) -> Vec<u8> {
        const STANDARD_ERROR: u64 = 2;
        let Some(node) = self.kernel.files.node_of(STANDARD_ERROR) else { return Vec::new() };
        match self.kernel.tree.contents(node) {
            Contents::Bytes(bytes) if node.is_scratch() => {
                bytes[bytes.len().saturating_sub(most)..].to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Bytes of the monitor's memory that hold what was said in either direction and was not taken.
    pub(crate) fn untaken_held(&self) -> u64 {
        let entries = self.output.capacity() * size_of::<(Stream, Vec<u8>)>();
        let output = self.output.iter().map(|(_, bytes)| bytes.capacity()).sum::<usize>();
        (self.incoming.capacity() + self.outgoing.capacity() + entries + output) as u64
    }

    /// Says something to the worker: what the guest has at `source`.
    pub(crate) fn say(&mut self, source: u64, length: u64) -> Answer {
        let bytes = self.space.read(source, length)?;
        self.untaken = untaken(self.untaken, bytes)?;
        self.outgoing.extend_from_slice(bytes);
        Ok(length)
    }

    /// Writes to a standard stream what the guest has at `source`.
    pub(crate) fn print(&mut self, stream: Stream, source: u64, length: u64) -> Answer {
        let bytes = self.space.read(source, length)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let untaken = untaken(self.untaken, bytes)?;
        let full = self.output.len() == MAX_ENTRIES;
        match self.output.last_mut() {
            // One list entry for each byte would take many times what it holds.
            Some((last, before)) if *last == stream => before.extend_from_slice(bytes),
            // Streams in turns make an entry for each.
            _ if full => return Err(Errno::NOSPC),
            _ => self.output.push((stream, bytes.to_vec())),
        }
        self.untaken = untaken;
        Ok(length)
    }
}

/// How much is untaken with these bytes; ENOSPC when that is too much, before they are copied.
fn untaken(before: usize, more: &[u8]) -> Result<usize, Errno> {
    let after = before + more.len();
    if after > MAX_UNTAKEN { Err(Errno::NOSPC) } else { Ok(after) }
}
