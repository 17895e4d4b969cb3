//! A guest's rights to a page.

use std::fmt;
use std::ops::BitOr;

/// Rights to a page. The hardware cannot withhold reading from a page that may be written or
/// executed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// The bits that the hardware knows.
    const HARDWARE: u8 = 7;

    /// Every access faults, and the page was never accessible: it takes no memory.
    pub const NONE: Self = Self(0);
    /// Every access faults, but the page still holds what was written before, and counts.
    pub const HIDDEN: Self = Self(8);
    /// Reading, and nothing else.
    pub const READ: Self = Self(1);
    /// Reading and writing.
    pub const WRITE: Self = Self(3);
    /// Reading and executing.
    pub const EXECUTE: Self = Self(5);

    /// From the protection bits of `mmap`, or of an ELF header after [`Rights::of_segment`].
    #[must_use]
    pub const fn of_protection(bits: u64) -> Self {
        match bits & 7 {
            0 => Self::NONE,
            1 => Self::READ,
            2 | 3 => Self::WRITE,
            4 | 5 => Self::EXECUTE,
            _ => Self(7),
        }
    }

    /// From a segment's flags in an ELF header.
    #[must_use]
    pub const fn of_segment(flags: u32) -> Self {
        let (execute, write, read) = (flags & 1, flags >> 1 & 1, flags >> 2 & 1);
        Self::of_protection((execute << 2 | write << 1 | read) as u64)
    }

    /// The rights as a number, for a snapshot on disk.
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// The rights of a number; none where no mapping can have them.
    pub(crate) const fn of_bits(bits: u8) -> Option<Self> {
        match bits {
            0 | 1 | 3 | 5 | 7 | 8 => Some(Self(bits)),
            _ => None,
        }
    }

    /// Whether all of `wanted` is allowed.
    #[must_use]
    pub const fn allow(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Whether `new` lacks any of these rights.
    #[must_use]
    pub const fn shrink_to(self, new: Self) -> bool {
        self.0 & Self::HARDWARE & !new.0 != 0
    }

    /// Whether a page with these rights counts as memory.
    #[must_use]
    pub const fn count(self) -> bool {
        self.0 != 0
    }

    /// The rights of a page once it is given `new`: a page that was accessible stays counted.
    #[must_use]
    pub const fn turned_into(self, new: Self) -> Self {
        if self.count() && !new.count() { Self::HIDDEN } else { new }
    }

    /// Flags of a page-table entry: present, user, and accessed and dirty ahead of time, so that
    /// the processor never writes to a table.
    #[must_use]
    pub const fn entry_flags(self) -> u64 {
        const PRESENT_USER_ACCESSED_DIRTY: u64 = 1 | 4 | 0x60;
        if self.0 & Self::HARDWARE == 0 {
            return 0;
        }
        let write = if self.allow(Self::WRITE) { 2 } else { 0 };
        let no_execute = if self.allow(Self::EXECUTE) { 0 } else { 1 << 63 };
        PRESENT_USER_ACCESSED_DIRTY | write | no_execute
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |bit, letter| if self.0 & bit == 0 { '-' } else { letter };
        write!(f, "{}{}{}{}", letter(1, 'r'), letter(2, 'w'), letter(4, 'x'), letter(8, 'h'))
    }
}
