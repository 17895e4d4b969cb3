//! Which addresses show which file. Plain data, beside [`crate::memory::regions`].
//!
//! A file's pages are copied when they are mapped. Two operations have to find the file again:
//! pages that are given back (`MADV_DONTNEED`) read as the file afterwards, and a shared mapping
//! shows what is written to the file.
//!
//! Where a shared mapping can be written to, its pages are newer than the file: before any call
//! reads the file, they are copied back. So bytes of a file that are shared for writing at one
//! address are shared at no other.
//!
//! A guest may have [65 530 mappings](crate::memory::space), and one call may be about all of them,
//! with no deadline inside the call. So what such a call asks for each mapping
//! ([`FileMappings::written`], [`FileMappings::show`]) is found by file and offset, never by a walk
//! over all others.
//!
//! Two questions walk over all mappings of a file: [`FileMappings::overlap`], which a call asks
//! once about its whole range, and [`FileMappings::sharing`], which a call asks once about the
//! bytes that it maps or changes. `writev` asks once for each part, and looks for a stop between
//! two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::vfs::NodeId;

/// A file from an offset on, as it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileMapping {
    pub(crate) node: NodeId,
    /// Offset in the file of the mapping's first address.
    pub(crate) offset: u64,
    /// Whether it is MAP_SHARED.
    pub(crate) shared: bool,
    /// Whether the file was opened for writing when it was mapped.
    pub(crate) writable: bool,
    /// Whether its pages may be newer than the file: shared, and writable at some time.
    pub(crate) written: bool,
}

impl FileMapping {
    /// The same file, `more` bytes further on.
    fn behind(self, more: u64) -> Self {
        Self { offset: self.offset + more, ..self }
    }
}

/// Disjoint ranges of whole pages, each of one file; always a part of what is mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileMappings {
    /// Shared by clones until one changes it: a reset goes back to it.
    maps: Arc<Maps>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Maps {
    /// By start: end, and the file.
    by_address: BTreeMap<u64, (u64, FileMapping)>,
    /// Mappings of scratch, by file. Layers never change.
    scratch: BTreeSet<Place>,
    /// Those of scratch whose pages may be newer: no two show the same bytes of a file.
    written: BTreeSet<Place>,
}

/// A file, the offset at which a mapping begins, and its address.
type Place = (NodeId, u64, u64);

impl FileMappings {
    /// Number of mappings.
    pub(crate) fn count(&self) -> usize {
        self.maps.by_address.len()
    }

    /// All of them, by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, FileMapping)> + '_ {
        self.maps.by_address.iter().map(|(start, (end, what))| (*start..*end, *what))
    }

    /// The parts that lie inside `range`, by address.
    pub(crate) fn inside(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, FileMapping)> + '_ {
        let before = self.maps.by_address.range(..=range.start).next_back();
        let first =
            before.filter(|(_, (end, _))| *end > range.start).map_or(range.start, |it| *it.0);
        let found = self.maps.by_address.range(first..range.end.max(first));
        found.filter(move |(start, _)| **start < range.end).map(move |(start, (end, what))| {
            let from = (*start).max(range.start);
            (from..(*end).min(range.end), what.behind(from - start))
        })
    }

    /// The whole mappings that touch `range`.
    pub(crate) fn around(&self, range: &Range<u64>) -> Vec<(Range<u64>, FileMapping)> {
        let starts = self.inside(range.clone()).filter_map(|(part, _)| {
            let (start, (end, what)) = self.maps.by_address.range(..=part.start).next_back()?;
            Some((*start..*end, *what))
        });
        starts.collect()
    }

    /// The one file behind all of `range`; none where there is no file. An error where there are
    /// several.
    pub(crate) fn whole(&self, range: &Range<u64>) -> Result<Option<FileMapping>, SeveralFiles> {
        match self.inside(range.clone()).next() {
            None => Ok(None),
            Some((part, what)) if part == *range => Ok(Some(what)),
            Some(_) => Err(SeveralFiles),
        }
    }

    /// Notes the file behind `range`, instead of what was there.
    pub(crate) fn set(&mut self, range: Range<u64>, what: FileMapping) {
        self.clear(range.clone());
        let maps = Arc::make_mut(&mut self.maps);
        let (mut range, mut what) = (range, what);
        if let Some((&start, &(end, before))) = maps.by_address.range(..range.start).next_back()
            && end == range.start
            && before.behind(end - start) == what
        {
            maps.remove(start);
            (range.start, what) = (start, before);
        }
        if let Some(&(end, next)) = maps.by_address.get(&range.end)
            && what.behind(range.end - range.start) == next
        {
            maps.remove(range.end);
            range.end = end;
        }
        maps.insert(range, what);
    }

    /// Notes that no file is behind `range`.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        // The usual case: what is unmapped shows no file.
        if self.inside(range.clone()).next().is_none() {
            return;
        }
        let maps = Arc::make_mut(&mut self.maps);
        while let Some((&start, &(end, what))) = maps.by_address.range(..range.end).next_back()
            && end > range.start
        {
            maps.remove(start);
            if start < range.start {
                maps.insert(start..range.start, what);
            }
            if end > range.end {
                maps.insert(range.end..end, what.behind(range.end - start));
            }
        }
    }

    /// Whether one mapping reaches beyond `range` on both sides: without `range` it becomes two.
    pub(crate) fn surround(&self, range: &Range<u64>) -> bool {
        self.maps
            .by_address
            .range(..range.start)
            .next_back()
            .is_some_and(|(_, (end, _))| *end > range.end)
    }

    /// Whether any address shows this file of scratch.
    pub(crate) fn show(&self, node: NodeId) -> bool {
        from(&self.maps.scratch, node, 0).next().is_some()
    }

    /// Whether any address shows a file of scratch.
    pub(crate) fn show_scratch(&self) -> bool {
        !self.maps.scratch.is_empty()
    }

    /// Addresses that share these bytes of a file of scratch. Walks over every mapping of the file
    /// that begins before their end: not to be asked for each of many.
    pub(crate) fn sharing(
        &self,
        node: NodeId,
        bytes: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, FileMapping)> + '_ {
        let end = bytes.end;
        let all = from(&self.maps.scratch, node, 0).take_while(move |place| place.1 < end);
        all.filter_map(move |place| self.cut(place, &bytes)).filter(|(_, what)| what.shared)
    }

    /// Addresses that share these bytes for writing: no byte twice.
    pub(crate) fn written(
        &self,
        node: NodeId,
        bytes: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, FileMapping)> + '_ {
        let Range { start, end } = bytes;
        let before = self.maps.written.range((node, 0, 0)..=(node, start, u64::MAX)).next_back();
        let first = before.map_or(start, |place| place.1);
        let all = from(&self.maps.written, node, first).take_while(move |place| place.1 < end);
        all.filter_map(move |place| self.cut(place, &bytes))
    }

    /// Whether bytes of a file of scratch that one of these shares are shared elsewhere, too, or by
    /// another one of these.
    pub(crate) fn overlap(&self, these: &[(Range<u64>, FileMapping)]) -> bool {
        let starts: BTreeSet<_> = these.iter().map(|(range, _)| range.start).collect();
        let nodes: BTreeSet<_> = these.iter().map(|(_, what)| what.node).collect();
        nodes.into_iter().any(|node| {
            // How far those reach in the file that begin further ahead: any, and one of these.
            let (mut any, mut one) = (0, 0);
            from(&self.maps.scratch, node, 0).any(|place| {
                let Some((range, what)) = self.cut(place, &(0..u64::MAX)) else { return false };
                let (is_one, end) =
                    (starts.contains(&range.start), what.offset + (range.end - range.start));
                let reached = if is_one { any } else { one };
                if what.shared {
                    any = any.max(end);
                    one = if is_one { one.max(end) } else { one };
                }
                what.shared && what.offset < reached
            })
        })
    }

    /// What a mapping shows of some bytes of its file.
    fn cut(&self, &(_, _, start): &Place, bytes: &Range<u64>) -> Option<(Range<u64>, FileMapping)> {
        let &(end, what) = self.maps.by_address.get(&start)?;
        let first = bytes.start.max(what.offset);
        let last = bytes.end.min(what.offset + (end - start));
        // From file to memory: both begin with the mapping.
        let at = |offset: u64| start + (offset - what.offset);
        (first < last).then(|| (at(first)..at(last), what.behind(first - what.offset)))
    }
}

/// Places of a file, from an offset on.
fn from(places: &BTreeSet<Place>, node: NodeId, offset: u64) -> impl Iterator<Item = &Place> + '_ {
    let found = places.range((node, offset, 0)..=(node, u64::MAX, u64::MAX));
    #[cfg(test)]
    let found = found.inspect(|_| tests::look());
    found
}

impl Maps {
    fn insert(&mut self, range: Range<u64>, what: FileMapping) {
        self.by_address.insert(range.start, (range.end, what));
        let place = (what.node, what.offset, range.start);
        if what.node.is_scratch() {
            self.scratch.insert(place);
        }
        if what.node.is_scratch() && what.written {
            self.written.insert(place);
        }
    }

    fn remove(&mut self, start: u64) {
        if let Some((_, what)) = self.by_address.remove(&start) {
            let place = (what.node, what.offset, start);
            self.scratch.remove(&place);
            self.written.remove(&place);
        }
    }
}

/// Several things are behind a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeveralFiles;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    const SCRATCH: u32 = 1 << 31;

    thread_local! {
        static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    /// One more mapping was looked at to find others.
    pub(super) fn look() {
        LOOKED_AT.set(LOOKED_AT.get() + 1);
    }

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
                let twice = |(at, there): (u64, &Option<FileMapping>)| {
                    let again = |there: &FileMapping, what: FileMapping| {
                        what.written && there.node == what.node && (offset..offset + length).contains(&there.offset)
                    };
                    !(start..start + length).contains(&at)
                        && there.zip(what).is_some_and(|(there, what)| again(&there, what))
                };
                // No call does that: see above.
                if (0..).zip(&model).any(twice) {
                    continue;
                }
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
            prop_assert_eq!(mappings.show_scratch(), model.iter().flatten().any(|what| what.node.is_scratch()));

            let probe = probe.0..probe.0 + probe.1;
            let here: Vec<_> =
                probe.clone().map(|page| model[usize::try_from(page).unwrap()]).collect();
            let first = here[0];
            let expected = if here.iter().all(Option::is_none) {
                Ok(None)
            } else if (0..).zip(&here).all(|(page, it)| first.is_some() && *it == first.map(|first| first.behind(page))) {
                Ok(first)
            } else {
                Err(SeveralFiles)
            };
            prop_assert_eq!(mappings.whole(&probe), expected);
            let mut holed = mappings.clone();
            holed.clear(probe.clone());
            prop_assert_eq!(mappings.surround(&probe), holed.count() > mappings.count());
            for node in [NodeId(SCRATCH), NodeId(SCRATCH + 1), NodeId(SCRATCH + 2)] {
                let (mut shared, mut written) = (Vec::new(), Vec::new());
                for (at, what) in (0_u64..).zip(&model) {
                    if let Some(what) = what && what.node == node && what.shared && probe.contains(&what.offset) {
                        shared.push((at, what.offset));
                        written.extend(what.written.then_some((at, what.offset)));
                    }
                }
                prop_assert_eq!(pages(mappings.sharing(node, probe.clone())), shared);
                prop_assert_eq!(pages(mappings.written(node, probe.clone())), written);
                prop_assert_eq!(mappings.show(node), model.iter().flatten().any(|what| what.node == node));
            }
            let these: Vec<_> = mappings.around(&probe).into_iter().filter(|(_, what)| what.shared).collect();
            let mut shared = mappings.iter().filter(|(_, what)| what.shared && what.node.is_scratch());
            let twice = shared.any(|(range, what)| these.iter().any(|(this, one)| {
                let bytes = one.offset..one.offset + (this.end - this.start);
                this.start != range.start && what.node == one.node
                    && what.offset < bytes.end && bytes.start < what.offset + (range.end - range.start)
            }));
            prop_assert_eq!(mappings.overlap(&these), twice);
        }
    }

    /// Which bytes of a file at which addresses.
    fn pages(found: impl Iterator<Item = (Range<u64>, FileMapping)>) -> Vec<(u64, u64)> {
        let mut pages: Vec<_> = found.flat_map(|(range, what)| range.zip(what.offset..)).collect();
        pages.sort_unstable();
        pages
    }

    /// A guest has them all asked about in one call, that no deadline ends: looking at each for
    /// each would take ten seconds.
    #[test]
    fn a_question_about_each_mapping_does_not_walk_over_all_others() {
        const MANY: u64 = 1000;
        let looked_at = |ask: &dyn Fn()| {
            LOOKED_AT.set(0);
            ask();
            LOOKED_AT.get() as u64
        };
        let (one, nodes) = (NodeId(SCRATCH), |page| NodeId(SCRATCH + 1 + page));
        let mut mappings = FileMappings::default();
        for page in 0..MANY {
            let seen = FileMapping { node: one, ..mapping(1, 2 * page) };
            let written = FileMapping { written: true, ..mapping(1, 2 * page + 1) };
            let single = mapping(1, 0);
            let single = FileMapping { node: nodes(u32::try_from(page).unwrap()), ..single };
            for (nth, what) in (0..).zip([seen, written, single]) {
                mappings.set(10 * page + 2 * nth..10 * page + 2 * nth + 1, what);
            }
        }
        let all: Vec<_> = mappings.iter().collect();
        assert_eq!(all.len() as u64, 3 * MANY);
        let asked = [
            // MADV_DONTNEED, and `msync` and whatever reads or maps.
            looked_at(&|| {
                let written = |(range, what): &(Range<u64>, FileMapping)| {
                    let bytes = what.offset..what.offset + (range.end - range.start);
                    mappings.written(what.node, bytes).count()
                };
                assert_eq!(all.iter().map(written).sum::<usize>() as u64, MANY);
            }),
            // `mprotect`.
            looked_at(&|| assert!(!mappings.overlap(&all))),
            // `munmap`.
            looked_at(&|| assert!(all.iter().all(|(_, what)| mappings.show(what.node)))),
        ];
        assert!(asked.iter().all(|looked_at| *looked_at <= 3 * all.len() as u64), "{asked:?}");
        // Once a call, `mmap`, `write`: those of the file, and those only that begin before the
        // end.
        let sharing = |bytes: Range<u64>| {
            looked_at(&|| assert!(mappings.sharing(one, bytes.clone()).count() > 0))
        };
        assert_eq!(mappings.sharing(one, 0..u64::MAX).count() as u64, 2 * MANY);
        assert_eq!(sharing(0..u64::MAX), 2 * MANY);
        assert!(sharing(10..11) <= 12, "{}", sharing(10..11));
    }
}
