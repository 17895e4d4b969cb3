//! C structures, written field by field at the offsets that the kernel's ABI gives them.

/// A structure of `N` bytes, zero at first.
#[derive(Debug)]
pub(crate) struct Record<const N: usize>([u8; N]);

impl<const N: usize> Record<N> {
    pub(crate) fn new() -> Self {
        Self([0; N])
    }

    /// Sets a field of eight bytes.
    #[must_use]
    pub(crate) fn long(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// Sets a field of four bytes.
    #[must_use]
    pub(crate) fn int(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// Sets a text with its closing zero, cut to the room for it.
    #[must_use]
    pub(crate) fn text(mut self, at: usize, room: usize, text: &str) -> Self {
        let bytes = text.as_bytes();
        let length = bytes.len().min(room - 1);
        self.0[at..at + length].copy_from_slice(&bytes[..length]);
        self
    }

    pub(crate) fn bytes(&self) -> &[u8; N] {
        &self.0
    }
}

/// The little-endian number at an offset; 0 behind the end.
pub(crate) fn long_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |field| {
        let mut word = [0; 8];
        word.copy_from_slice(field);
        u64::from_le_bytes(word)
    })
}
