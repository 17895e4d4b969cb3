//! Which addresses show which file, beside what [`crate::regions`] says of them. Plain data.
//!
//! A file's pages are copied when they are mapped. Two things have to find the file again: whoever gives pages back
//! (`MADV_DONTNEED`) reads the file there afterwards, and whoever has mapped it to share it sees what is written to it.
//!
//! Where a shared mapping can be written to, its pages and not the file are what holds: before anybody looks at the file
//! they are copied back. So bytes of a file that are shared where one can write are shared nowhere else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::vfs::NodeId;

/// What is behind addresses: a file from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileMapping {
    pub(crate) node: NodeId,
    /// Where in the file its first address is.
    pub(crate) offset: u64,
    /// MAP_SHARED.
    pub(crate) shared: bool,
    /// Whether the file could be written by the descriptor that it was mapped with.
    pub(crate) writable: bool,
    /// Whether its pages may have what the file has not yet: shared, and open to writing once.
    pub(crate) written: bool,
}

impl FileMapping {
    /// The same, `more` bytes behind its start.
    fn behind(self, more: u64) -> Self {
        Self { offset: self.offset + more, ..self }
    }
}

/// Ranges of whole pages, disjoint; those that go on in the same file are one. Always a part of what is mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileMappings {
    /// By start: end, and what is there. Clones have it in common until they change it: resets go back to it.
    map: Arc<BTreeMap<u64, (u64, FileMapping)>>,
    /// How many of them have to follow what is written.
    following: usize,
}

impl FileMappings {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.map.len()
    }

    /// All of them, by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, FileMapping)> + '_ {
        self.map.iter().map(|(start, (end, what))| (*start..*end, *what))
    }

    /// Those parts that lie inside `range`, by address.
    pub(crate) fn inside(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, FileMapping)> + '_ {
        let before = self.map.range(..=range.start).next_back();
        let first =
            before.filter(|(_, (end, _))| *end > range.start).map_or(range.start, |it| *it.0);
        let found = self.map.range(first..range.end.max(first));
        found.filter(move |(start, _)| **start < range.end).map(move |(start, (end, what))| {
            let from = (*start).max(range.start);
            (from..(*end).min(range.end), what.behind(from - start))
        })
    }

    /// Those that lie inside `range`, as far as they reach.
    pub(crate) fn around(&self, range: &Range<u64>) -> Vec<(Range<u64>, FileMapping)> {
        let starts = self.inside(range.clone()).filter_map(|(part, _)| {
            let (start, (end, what)) = self.map.range(..=part.start).next_back()?;
            Some((*start..*end, *what))
        });
        starts.collect()
    }

    /// What is behind all of `range`, in one piece; none where no file is. An error where there are several things.
    pub(crate) fn whole(&self, range: &Range<u64>) -> Result<Option<FileMapping>, Several> {
        match self.inside(range.clone()).next() {
            None => Ok(None),
            Some((part, what)) if part == *range => Ok(Some(what)),
            Some(_) => Err(Several),
        }
    }

    /// Says what is behind `range`, whatever was there.
    pub(crate) fn set(&mut self, range: Range<u64>, what: FileMapping) {
        self.clear(range.clone());
        let map = Arc::make_mut(&mut self.map);
        let (mut range, mut what) = (range, what);
        if let Some((&start, &(end, before))) = map.range(..range.start).next_back()
            && end == range.start
            && before.behind(end - start) == what
        {
            (range.start, what) = (start, before);
            self.following -= usize::from(before.follows());
        }
        if let Some(&(end, next)) = map.get(&range.end)
            && what.behind(range.end - range.start) == next
        {
            map.remove(&range.end);
            range.end = end;
            self.following -= usize::from(next.follows());
        }
        map.insert(range.start, (range.end, what));
        self.following += usize::from(what.follows());
    }

    /// Says that no file is behind `range`.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        // Nearly always: what is unmapped is no file's.
        if self.inside(range.clone()).next().is_none() {
            return;
        }
        let map = Arc::make_mut(&mut self.map);
        while let Some((&start, &(end, what))) = map.range(..range.end).next_back()
            && end > range.start
        {
            map.remove(&start);
            self.following -= usize::from(what.follows());
            let head = (start < range.start).then_some((start, (range.start, what)));
            let tail =
                (end > range.end).then(|| (range.end, (end, what.behind(range.end - start))));
            for (start, (end, what)) in head.into_iter().chain(tail) {
                map.insert(start, (end, what));
                self.following += usize::from(what.follows());
            }
        }
    }

    /// Whether one reaches beyond `range` on both sides: without it there were one more.
    pub(crate) fn surround(&self, range: &Range<u64>) -> bool {
        self.map.range(..range.start).next_back().is_some_and(|(_, (end, _))| *end > range.end)
    }

    /// Whether a file is behind any address.
    pub(crate) fn show(&self, node: NodeId) -> bool {
        self.map.values().any(|(_, what)| what.node == node)
    }

    /// Whether a file of scratch is behind any address.
    pub(crate) fn show_scratch(&self) -> bool {
        self.map.values().any(|(_, what)| what.node.is_scratch())
    }

    /// Where bytes of a file of scratch are shared: which addresses, and what is at their beginning.
    pub(crate) fn sharing(
        &self,
        node: NodeId,
        bytes: Range<u64>,
    ) -> Vec<(Range<u64>, FileMapping)> {
        if self.following == 0 || !node.is_scratch() {
            return Vec::new();
        }
        let all = self.map.iter().filter(|(_, (_, what))| what.shared && what.node == node);
        let cut = all.map(|(start, (end, what))| {
            let first = bytes.start.max(what.offset);
            let last = bytes.end.min(what.offset + (end - start));
            // From file to memory: both begin with the mapping.
            let at = |offset: u64| start + (offset - what.offset);
            (first < last).then(|| (at(first)..at(last), what.behind(first - what.offset)))
        });
        cut.flatten().collect()
    }
}

impl FileMapping {
    /// Whether it has to follow what is written: layers never change.
    fn follows(self) -> bool {
        self.shared && self.node.is_scratch()
    }
}

/// Several things are behind a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Several;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCRATCH: u32 = 1 << 31;

    fn mapping(what: u32, page: u64) -> FileMapping {
        FileMapping {
            node: NodeId(SCRATCH * (what & 1) + what / 2),
            offset: page,
            shared: what < 4,
            writable: false,
            written: what == 3,
        }
    }

    proptest! {
        /// The model is one entry per page; a page is a byte here.
        #[test]
        fn file_mappings_are_what_page_by_page_bookkeeping_says(
            steps in prop::collection::vec((0_u64..60, 1_u64..20, 0_u32..8, 0_u64..4), 1..50),
            probe in (0_u64..60, 1_u64..20),
        ) {
            let mut mappings = FileMappings::default();
            let mut model = [None; 80];
            for (start, length, what, offset) in steps {
                // Two of eight take away.
                let what = (what < 6).then(|| mapping(what, offset));
                match what {
                    Some(what) => mappings.set(start..start + length, what),
                    None => mappings.clear(start..start + length),
                }
                for page in 0..length {
                    let at = usize::try_from(start + page).unwrap();
                    model[at] = what.map(|what| what.behind(page));
                }
            }
            let mut seen = [None; 80];
            let mut last: Option<(u64, FileMapping)> = None;
            for (range, what) in mappings.iter() {
                prop_assert!(last != Some((range.start, what)), "what goes on is one");
                last = Some((range.end, what.behind(range.end - range.start)));
                for page in range.clone() {
                    seen[usize::try_from(page).unwrap()] = Some(what.behind(page - range.start));
                }
            }
            prop_assert_eq!(seen, model);
            let following = mappings.iter().filter(|(_, what)| what.follows()).count();
            prop_assert_eq!(mappings.following, following);

            let probe = probe.0..probe.0 + probe.1;
            let here: Vec<_> =
                probe.clone().map(|page| model[usize::try_from(page).unwrap()]).collect();
            let first = here[0];
            let expected = if here.iter().all(Option::is_none) {
                Ok(None)
            } else if (0..).zip(&here).all(|(page, it)| first.is_some() && *it == first.map(|first| first.behind(page))) {
                Ok(first)
            } else {
                Err(Several)
            };
            prop_assert_eq!(mappings.whole(&probe), expected);
            let mut holed = mappings.clone();
            holed.clear(probe.clone());
            prop_assert_eq!(mappings.surround(&probe), holed.count() > mappings.count());
            for node in [NodeId(SCRATCH), NodeId(SCRATCH + 1)] {
                let mut shared = Vec::new();
                for (at, what) in (0_u64..).zip(&model) {
                    if let Some(what) = what && what.node == node && what.shared && probe.contains(&what.offset) {
                        shared.push((at, what.offset));
                    }
                }
                let found = mappings.sharing(node, probe.clone());
                let found = found.into_iter().flat_map(|(range, what)| range.zip(what.offset..));
                prop_assert_eq!(found.collect::<Vec<_>>(), shared);
            }
        }
    }
}
