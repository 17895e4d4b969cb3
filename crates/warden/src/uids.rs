//! Kernel uids: every sandbox has its own. None is given out twice while a process that had it may
//! live.
//!
//! Each zygote has a block of ids: its own first, then those of its forks. A zygote in the initial
//! namespace, and one that is derived from such a one, takes a whole range. Deeper ones take a
//! share of their parent's block, because a user namespace can only hand out what it maps itself.
//!
//! An id goes back to its block when its sandbox is gone, and is given out again last: the same
//! zygote may then have held it twice, another never. A block goes back when its zygote and
//! everything below it is gone.
//!
//! A sandbox can read its id's number on the host (`/proc/self/uid_map`). So new ids, and new
//! blocks, are drawn at random: in order they would tell each sandbox how many others were made.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};

/// The lowest id of all wardens. The range from here up is one that no distribution and no
/// container tool allots (systemd lists it as unused, "UIDs and GIDs", table of special ranges).
pub const FIRST: u32 = 0x7000_0000;

/// The uid of the proxy.
pub const PROXY: u32 = FIRST - 3;

/// Ids of a block: a zygote and its forks at one time.
pub const RANGE: u32 = 1 << 16;

/// Ranges of one warden. Several wardens may run on a machine, each with a share of its own: see
/// [`Share`].
const RANGES: u32 = 256;
const SHARES: u32 = 16;

/// A share of the ids that no other warden on this machine has, for as long as this value lives.
#[derive(Debug)]
pub struct Share {
    number: u32,
    _lock: OwnedFd,
}

/// The directory of the locks, which only root can enter.
const LOCKS: &str = "/run/lambswool";

impl Share {
    /// Takes a free share, by a lock in `/run/lambswool`.
    ///
    /// # Errors
    /// When all are taken, or `/run` cannot be written.
    pub fn take() -> io::Result<Self> {
        (0..SHARES).find_map(|number| Self::lock(number).transpose()).unwrap_or_else(|| {
            Err(io::Error::other("all shares of kernel uids are taken: stop another worker first"))
        })
    }

    /// Removes locks that no process holds. Needs root.
    pub fn clear() {
        for share in (0..SHARES).filter_map(|number| Self::lock(number).ok().flatten()) {
            let _ = fs::remove_file(Self::path(share.number));
        }
        // Stays where other wardens have their locks.
        let _ = fs::remove_dir(LOCKS);
    }

    /// Takes the share, unless another warden has it.
    fn lock(number: u32) -> io::Result<Option<Self>> {
        loop {
            match DirBuilder::new().mode(0o700).create(LOCKS) {
                // Made by a release that let other users in: a user who can open a lock can hold
                // it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    fs::set_permissions(LOCKS, Permissions::from_mode(0o700))?;
                }
                made => made?,
            }
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let lock = match options.open(Self::path(number)) {
                // Cleared between the two steps.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Ok(None);
            }
            // It may have been removed before it was locked: then the next warden would lock
            // another file.
            let (ours, there) = (lock.metadata()?, fs::metadata(Self::path(number)));
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                return Ok(Some(Self { number, _lock: lock.into() }));
            }
        }
    }

    fn path(number: u32) -> PathBuf {
        Path::new(LOCKS).join(format!("uids-{number}"))
    }
}

/// The ids of a share, and which of them are in use.
#[derive(Debug)]
pub struct Uids {
    ranges: Vec<u32>,
    /// The block of ids for sandboxes that no zygote forks.
    singles: Option<Block>,
    _share: Option<Share>,
}

impl Uids {
    /// All ids of a share, unused.
    #[must_use]
    pub fn of(share: Share) -> Self {
        let ids = Self::numbered(share.number);
        Self { _share: Some(share), ..ids }
    }

    fn numbered(share: u32) -> Self {
        let ranges = share * RANGES..(share + 1) * RANGES;
        let mut in_order: Vec<u32> = ranges.map(|n| FIRST + n * RANGE).collect();
        let ranges = std::iter::from_fn(|| draw(&mut in_order)).collect();
        Self { ranges, singles: None, _share: None }
    }

    /// Takes a block of [`RANGE`] ids for a zygote; none when all are taken.
    pub fn take_block(&mut self) -> Option<Block> {
        self.ranges.pop().map(|first| Block::new(first, RANGE))
    }

    /// Gives a block back, by its first id: when no process lives any more that ever had one of its
    /// ids.
    pub fn return_block(&mut self, first: u32) {
        self.ranges.insert(0, first);
    }

    /// Takes an id for a sandbox that no zygote forks; none when all are taken.
    pub fn take_one(&mut self) -> Option<u32> {
        if self.singles.is_none() {
            self.singles = self.take_block();
        }
        let block = self.singles.as_mut()?;
        block.take_one().map(|offset| block.first + offset)
    }

    /// Gives such an id back, when its sandbox is gone.
    pub fn return_one(&mut self, id: u32) {
        if let Some(block) = &mut self.singles {
            block.return_one(id - block.first);
        }
    }
}

/// A sandbox's ids, in the form in which they are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allotment {
    /// A whole block of the warden's, by its first id.
    Block(u32),
    /// One id of the warden's.
    Single(u32),
    /// One id of its zygote's block, by its offset.
    One(u32),
    /// A share of its zygote's block, by its offset.
    Share(u32),
}

/// The id that every sandbox has inside its own namespace.
pub const INNER: u32 = 1000;

/// A zygote's ids. Offset 0 is the zygote's own; inside its namespace, offset 0 is [`INNER`].
#[derive(Debug)]
pub struct Block {
    /// First id, in the initial namespace.
    pub first: u32,
    /// Number of ids in the block.
    pub count: u32,
    next: u32,
    /// New ids from which the next is drawn.
    drawn_from: Vec<u32>,
    ones: VecDeque<u32>,
    shares: Vec<u32>,
}

impl Block {
    /// A block with nothing taken.
    #[must_use]
    pub fn new(first: u32, count: u32) -> Self {
        let (drawn_from, ones, shares) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { first, count, next: 1, drawn_from, ones, shares }
    }

    /// Takes an id for one fork: the offset of a new one while there are any, then of the one that
    /// was given back first. None when all are in use.
    pub fn take_one(&mut self) -> Option<u32> {
        if self.drawn_from.is_empty() {
            // Only an eighth at a time, so that shares find room too.
            let some = ((self.count - self.next) / 8).max(1);
            let first = self.take_new(some);
            self.drawn_from.extend(first.into_iter().flat_map(|first| first..first + some));
        }
        draw(&mut self.drawn_from).or_else(|| self.ones.pop_front())
    }

    /// Gives an id back.
    pub fn return_one(&mut self, offset: u32) {
        self.ones.push_back(offset);
    }

    /// Takes [`Block::share`] ids for a zygote that is derived from this block's. Returns the
    /// offset.
    pub fn take_share(&mut self) -> Option<u32> {
        self.shares.pop().or_else(|| self.take_new(self.share()))
    }

    /// Gives a share back.
    pub fn return_share(&mut self, offset: u32) {
        self.shares.push(offset);
    }

    /// Number of ids of a derived zygote: a sixteenth, so that the tree can be four deep.
    #[must_use]
    pub fn share(&self) -> u32 {
        self.count / 16
    }

    fn take_new(&mut self, count: u32) -> Option<u32> {
        let offset = self.next;
        let end = offset.checked_add(count)?;
        (end <= self.count).then(|| {
            self.next = end;
            offset
        })
    }
}

/// Removes one at random.
fn draw(from: &mut Vec<u32>) -> Option<u32> {
    let mut bytes = [0; 8];
    // Without randomness, early at a boot, the number is fixed.
    let _ = getrandom(&mut bytes, GetRandomFlags::NONBLOCK);
    let place = u64::from_ne_bytes(bytes) % from.len().max(1) as u64;
    (!from.is_empty()).then(|| from.swap_remove(usize::try_from(place).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_two_live_sandboxes_have_the_same_id() {
        let mut uids = Uids::numbered(3);
        let (mut live, mut by_age) = (HashSet::new(), VecDeque::new());
        let mut given = HashSet::new();
        for round in 0..3 * RANGE {
            if round >= 1000 {
                let oldest = by_age.pop_front().unwrap();
                assert!(live.remove(&oldest));
                uids.return_one(oldest);
            }
            let one = uids.take_one().unwrap();
            assert!(live.insert(one));
            by_age.push_back(one);
            // An id that was given back is given out again last.
            assert!(given.insert(one) || round >= RANGE - 1);
        }
        let block = uids.take_block().unwrap();
        assert!(live.iter().all(|id| !(block.first..block.first + block.count).contains(id)));
    }

    #[test]
    fn ids_do_not_tell_how_many_were_given() {
        let ids = || {
            let mut uids = Uids::numbered(3);
            let ids: Vec<_> = (0..100).filter_map(|_| uids.take_one()).collect();
            (ids, uids.take_block().map(|block| block.first))
        };
        let (first, second) = (ids(), ids());
        assert!(first.0.len() == 100 && first.0 != second.0 && !first.0.is_sorted());
        let blocks: HashSet<_> = (0..20).map(|_| ids().1).collect();
        assert!(blocks.len() > 1, "{blocks:?}");
    }

    #[test]
    fn a_block_that_gives_ids_has_room_for_shares() {
        let mut block = Block::new(FIRST, RANGE);
        let one = block.take_one().unwrap();
        let shares: Vec<_> = std::iter::from_fn(|| block.take_share()).collect();
        assert!(shares.len() >= 13, "{shares:?}");
        let taken = |it: &u32| (*it..*it + RANGE / 16).contains(&one);
        assert!(!shares.iter().any(taken), "{one} in {shares:?}");
    }

    #[test]
    fn shares_of_different_wardens_do_not_meet() {
        let last = *Uids::numbered(SHARES - 1).ranges.iter().max().unwrap();
        assert!(last.checked_add(RANGE).is_some_and(|end| end <= 0x7fff_ffff + 1));
        let (a, b) = (Uids::numbered(0).ranges, Uids::numbered(1).ranges);
        assert!(a.iter().max() < b.iter().min());
    }

    proptest! {
        #[test]
        fn a_block_never_has_an_id_taken_twice_nor_its_zygotes_own(
            count in 17u32..400,
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..600),
        ) {
            let mut block = Block::new(FIRST, count);
            let mut live: Vec<u32> = Vec::new();
            for (take, which) in steps {
                if take {
                    if let Some(offset) = block.take_one() {
                        prop_assert!(offset >= 1 && offset < count && !live.contains(&offset));
                        live.push(offset);
                    } else {
                        prop_assert_eq!(live.len(), count as usize - 1);
                    }
                } else if !live.is_empty() {
                    block.return_one(live.swap_remove(which.index(live.len())));
                }
            }
        }
    }
}
