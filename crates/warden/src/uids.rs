//! Kernel uids: every sandbox has its own, and none is given twice while anyone who ever held it may live.
//!
//! A root zygote and each of its direct slots take single ids. A derived zygote takes a range, because its user
//! namespace can only hand out what it maps itself. Ranges come back when the zygote and everything below it is gone.

/// First id of ours: the range from here up is one that no distribution and no container tool allots (systemd lists
/// it as unused, "UIDs and GIDs", table of special ranges).
pub const FIRST: u32 = 0x7000_0000;

/// Ids of a derived zygote: itself and what it forks.
pub const RANGE: u32 = 1 << 16;

const RANGES: u32 = 4096;

/// Which ranges are in use. Single ids come from ranges too, one range at a time.
#[derive(Debug)]
pub struct Uids {
    free: Vec<u32>,
    single: std::ops::Range<u32>,
}

impl Default for Uids {
    fn default() -> Self {
        Self { free: (0..RANGES).rev().map(|n| FIRST + n * RANGE).collect(), single: 0..0 }
    }
}

impl Uids {
    /// A range of [`RANGE`] ids; none when all are taken.
    pub fn take_range(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Gives a range back: when nobody lives any more who ever held one of its ids.
    pub fn return_range(&mut self, first: u32) {
        self.free.insert(0, first);
    }

    /// A single id, never given again by this process; none when all ranges are taken.
    pub fn take_one(&mut self) -> Option<u32> {
        if self.single.is_empty() {
            let first = self.take_range()?;
            self.single = first..first + RANGE;
        }
        self.single.next()
    }
}

/// The ids that a derived zygote hands out below itself. Inside its namespace they start at [`INNER`].
#[derive(Debug)]
pub struct Block {
    /// First id, in the initial namespace: the zygote's own.
    pub first: u32,
    /// How many.
    pub count: u32,
    next: u32,
}

/// The id that every sandbox has for itself, inside its own namespace.
pub const INNER: u32 = 1000;

impl Block {
    /// A block whose first id is its zygote's own.
    #[must_use]
    pub fn new(first: u32, count: u32) -> Self {
        Self { first, count, next: 1 }
    }

    /// Takes `count` ids: their offset in this block. None when the block is used up: the zygote must be replaced.
    pub fn take(&mut self, count: u32) -> Option<u32> {
        let offset = self.next;
        let end = offset.checked_add(count)?;
        (end <= self.count).then(|| {
            self.next = end;
            offset
        })
    }

    /// How many ids a zygote derived from this block's gets: a sixteenth, so that the tree can be four deep.
    #[must_use]
    pub fn share(&self) -> u32 {
        self.count / 16
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_id_is_given_twice() {
        let mut uids = Uids::default();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..3 * RANGE {
            assert!(seen.insert(uids.take_one().unwrap()));
        }
        let range = uids.take_range().unwrap();
        assert!((range..range + RANGE).all(|id| !seen.contains(&id)));
    }

    proptest! {
        #[test]
        fn a_block_never_hands_out_its_zygotes_own_id_nor_beyond_its_end(count in 1u32..5000, sizes in prop::collection::vec(1u32..600, 1..40)) {
            let mut block = Block::new(FIRST, count);
            let mut end = 1;
            for size in sizes {
                if let Some(offset) = block.take(size) {
                    prop_assert_eq!(offset, end);
                    end = offset + size;
                    prop_assert!(end <= count);
                }
            }
        }
    }
}
