//! The channel of a process and its standard streams, until the monitor's caller takes the bytes.

use rustix::io::Errno;

use crate::linux::abi::registers::Answer;
use crate::linux::state::files::Stream;
use crate::linux::state::process::Process;
use crate::vfs::Contents;

/// Bytes that a process may write before they are taken.
const MAX_UNTAKEN: usize = 64 << 20;
/// Pieces of output that are not taken: their list takes as much memory again as their bytes may.
const MAX_ENTRIES: usize = 1 << 20;

impl Process {
    /// Appends bytes that the process reads from the channel next.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.incoming.extend(bytes);
    }

    /// Closes the channel: reading it finds its end.
    #[doc(hidden)]
    pub fn hang_up(&mut self) {
        self.open = false;
    }

    /// Takes the bytes that it wrote to the channel.
    pub fn take_said(&mut self) -> Vec<u8> {
        self.untaken -= self.outgoing.len();
        std::mem::take(&mut self.outgoing)
    }

    /// Takes the bytes that it wrote to its standard streams, in order.
    pub fn take_output(&mut self) -> Vec<(Stream, Vec<u8>)> {
        self.untaken -= self.output.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        std::mem::take(&mut self.output)
    }

    /// The last bytes of the file that its standard error goes to, at most `most`: the message of a
    /// program that collects its own output and ended before it could send it. Empty if standard
    /// error goes to no file.
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

    /// Bytes of the monitor's memory that hold untaken bytes of either direction.
    pub(crate) fn untaken_held(&self) -> u64 {
        let entries = self.output.capacity() * size_of::<(Stream, Vec<u8>)>();
        let output = self.output.iter().map(|(_, bytes)| bytes.capacity()).sum::<usize>();
        (self.incoming.capacity() + self.outgoing.capacity() + entries + output) as u64
    }

    /// Writes the guest's bytes at `source` to the channel.
    pub(crate) fn say(&mut self, source: u64, length: u64) -> Answer {
        let bytes = self.space.read(source, length)?;
        self.untaken = untaken(self.untaken, bytes)?;
        self.outgoing.extend_from_slice(bytes);
        Ok(length)
    }

    /// Writes the guest's bytes at `source` to a standard stream.
    pub(crate) fn print(&mut self, stream: Stream, source: u64, length: u64) -> Answer {
        let bytes = self.space.read(source, length)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let untaken = untaken(self.untaken, bytes)?;
        let full = self.output.len() == MAX_ENTRIES;
        match self.output.last_mut() {
            // An entry for each byte would take many times its memory.
            Some((last, before)) if *last == stream => before.extend_from_slice(bytes),
            // Streams that alternate make an entry each time.
            _ if full => return Err(Errno::NOSPC),
            _ => self.output.push((stream, bytes.to_vec())),
        }
        self.untaken = untaken;
        Ok(length)
    }
}

/// The untaken bytes with these; ENOSPC when they are too many, before they are copied.
fn untaken(before: usize, more: &[u8]) -> Result<usize, Errno> {
    let after = before + more.len();
    if after > MAX_UNTAKEN { Err(Errno::NOSPC) } else { Ok(after) }
}
