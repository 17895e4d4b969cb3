//! The addresses that a guest has mapped, and the rights to each; and sets of ranges that are marked
//! in another way. Plain data.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::memory::layout::page_down;
use crate::memory::rights::Rights;

/// What is noted of a range.
pub trait Mark: Copy + Eq {
    /// Whether bytes that are marked so count.
    fn counts(self) -> bool;
}

impl Mark for Rights {
    fn counts(self) -> bool {
        self.count()
    }
}

/// Disjoint mapped ranges of whole pages; neighbours with equal rights are one range. With another
/// mark than rights: a set of such ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions<M = Rights> {
    /// By start: end and rights.
    map: BTreeMap<u64, (u64, M)>,
    /// Bytes of the ranges that count as memory.
    counted: u64,
}

impl<M> Default for Regions<M> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), counted: 0 }
    }
}

impl Regions {
    /// Whether all of `range` is mapped with at least `wanted`. True of an empty range.
    #[must_use]
    pub fn allow(&self, range: Range<u64>, wanted: Rights) -> bool {
        self.are_all(range, |rights| rights.allow(wanted))
    }
}

impl<M: Mark> Regions<M> {
    /// Number of ranges.
    #[must_use]
    pub fn count(&self) -> usize {
        self.map.len()
    }

    /// Bytes that count as memory: all but those that could never be touched.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Bytes of `range` that count as memory.
    #[must_use]
    pub fn counted_in(&self, range: Range<u64>) -> u64 {
        let counting = self.inside(range).filter(|(_, rights)| rights.counts());
        counting.map(|(part, _)| part.end - part.start).sum()
    }

    /// All of them, by address.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, M)> + '_ {
        self.map.iter().map(|(start, (end, rights))| (*start..*end, *rights))
    }

    /// The parts that lie inside `range`, by address.
    pub fn inside(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, M)> + '_ {
        let before = self.map.range(..=range.start).next_back();
        let first =
            before.filter(|(_, (end, _))| *end > range.start).map_or(range.start, |it| *it.0);
        let found = self.map.range(first..range.end.max(first));
        found.filter(move |(start, _)| **start < range.end).map(move |(start, (end, rights))| {
            ((*start).max(range.start)..(*end).min(range.end), *rights)
        })
    }

    /// Whether any byte of `range` is mapped.
    #[must_use]
    pub fn touch(&self, range: Range<u64>) -> bool {
        self.inside(range).next().is_some()
    }

    /// Whether all of `range` is mapped.
    #[must_use]
    pub fn cover(&self, range: Range<u64>) -> bool {
        self.are_all(range, |_| true)
    }

    /// Whether all of `range` is mapped, with rights of which this is true.
    fn are_all(&self, range: Range<u64>, is_so: impl Fn(M) -> bool) -> bool {
        let mut reached = range.start;
        for (part, rights) in self.inside(range.clone()) {
            if part.start != reached || !is_so(rights) {
                return false;
            }
            reached = part.end;
        }
        reached >= range.end
    }

    /// Maps `range`, instead of what was there.
    pub fn set(&mut self, range: Range<u64>, rights: M) {
        self.clear(range.clone());
        if rights.counts() {
            self.counted += range.end - range.start;
        }
        let Range { mut start, mut end } = range;
        if let Some((&before, &(reach, same))) = self.map.range(..start).next_back()
            && reach == start
            && same == rights
        {
            start = before;
        }
        if let Some(&(reach, same)) = self.map.get(&end)
            && same == rights
        {
            self.map.remove(&end);
            end = reach;
        }
        self.map.insert(start, (end, rights));
    }

    /// Unmaps `range`.
    pub fn clear(&mut self, range: Range<u64>) {
        let parts: Vec<_> = self.inside(range.clone()).map(|(part, _)| part).collect();
        for part in parts {
            let Some((&start, &(end, rights))) = self.map.range(..=part.start).next_back() else {
                continue;
            };
            self.map.remove(&start);
            if rights.counts() {
                self.counted -= part.end - part.start;
            }
            if start < range.start {
                self.map.insert(start, (range.start, rights));
            }
            if end > range.end {
                self.map.insert(range.end, (end, rights));
            }
        }
    }

    /// Whether an address lies inside a region, not at one of its ends.
    #[must_use]
    pub fn cut_at(&self, address: u64) -> bool {
        self.map.range(..address).next_back().is_some_and(|(_, (end, _))| *end > address)
    }

    /// Whether one region reaches beyond `range` on both sides: without `range` it becomes two.
    #[must_use]
    pub fn surround(&self, range: &Range<u64>) -> bool {
        self.map.range(..range.start).next_back().is_some_and(|(_, (end, _))| *end > range.end)
    }

    /// The parts of `range` that are not mapped, by address.
    #[must_use]
    pub fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), range.start);
        for (part, _) in self.inside(range.clone()) {
            gaps.push(at..part.start);
            at = part.end;
        }
        gaps.push(at..range.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// The lowest free range of `length` bytes in `zone` that starts on a multiple of `align`.
    #[must_use]
    pub fn gap(&self, zone: Range<u64>, length: u64, align: u64) -> Option<u64> {
        let aligned = |address: u64| address.next_multiple_of(align);
        let mut at = aligned(zone.start);
        for (part, _) in self.inside(zone.clone()) {
            if at.checked_add(length)? <= part.start {
                break;
            }
            at = at.max(aligned(part.end));
        }
        (at.checked_add(length)? <= zone.end).then_some(at)
    }

    /// The end of what is mapped below `limit`.
    #[must_use]
    pub fn end_below(&self, limit: u64) -> u64 {
        self.map.range(..limit).next_back().map_or(0, |(_, (end, _))| (*end).min(limit))
    }

    /// The region that holds `address`.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<(Range<u64>, M)> {
        let page = page_down(address);
        let (&start, &(end, rights)) = self.map.range(..=page).next_back()?;
        // Ends are whole pages. The last page of the address space has no end that could be
        // expressed.
        (end > page).then_some((start..end, rights))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::layout::PAGE;

    const RIGHTS: [Rights; 4] = [Rights::NONE, Rights::READ, Rights::WRITE, Rights::HIDDEN];

    fn pages(start: u64, length: u64) -> Range<u64> {
        start * PAGE..(start + length) * PAGE
    }

    proptest! {
        /// The model is one entry per page.
        #[test]
        fn regions_are_what_page_by_page_bookkeeping_says(
            steps in prop::collection::vec((0u64..60, 1u64..20, 0usize..5), 1..60),
            probe in (0u64..70, 1u64..12),
        ) {
            let mut regions = Regions::default();
            let mut model = [None; 80];
            for (start, length, what) in steps {
                let rights = RIGHTS.get(what).copied();
                match rights {
                    Some(rights) => regions.set(pages(start, length), rights),
                    None => regions.clear(pages(start, length)),
                }
                for page in start..start + length {
                    model[usize::try_from(page).unwrap()] = rights;
                }
            }
            let mut seen = [None; 80];
            let mut last: Option<(u64, Rights)> = None;
            for (range, rights) in regions.iter() {
                prop_assert!(last != Some((range.start, rights)), "equal neighbours are one");
                last = Some((range.end, rights));
                for page in range.start / PAGE..range.end / PAGE {
                    seen[usize::try_from(page).unwrap()] = Some(rights);
                }
            }
            prop_assert_eq!(seen, model);
            let counted = model.iter().flatten().filter(|rights| rights.count()).count();
            prop_assert_eq!(regions.counted(), counted as u64 * PAGE);

            let all = 0..80 * PAGE;
            prop_assert_eq!(regions.counted_in(all), regions.counted());

            let (start, length) = probe;
            let asked = usize::try_from(start).unwrap()..usize::try_from(start + length).unwrap().min(80);
            let range = pages(start, asked.len() as u64);
            let wanted = Rights::WRITE;
            let all = model[asked.clone()].iter().all(|page| page.is_some_and(|r| r.allow(wanted)));
            prop_assert_eq!(regions.allow(range.clone(), wanted), all);
            prop_assert_eq!(regions.touch(range.clone()), model[asked.clone()].iter().any(Option::is_some));
            let gaps = regions.gaps(range.clone()).into_iter().flat_map(|gap| gap.start / PAGE..gap.end / PAGE);
            let free = (start..start + asked.len() as u64).filter(|page| model[usize::try_from(*page).unwrap()].is_none());
            prop_assert_eq!(gaps.collect::<Vec<_>>(), free.collect::<Vec<_>>());
            let now = regions.count();
            let mut holed = regions.clone();
            holed.clear(range.clone());
            prop_assert_eq!(regions.surround(&range), holed.count() > now);
            let ends = [range.start, range.end].map(|at| usize::from(regions.cut_at(at)));
            let mut other = regions.clone();
            other.set(range.clone(), Rights::EXECUTE);
            if regions.cover(range.clone()) && !range.is_empty() {
                prop_assert!(other.count() <= now + ends[0] + ends[1]);
            }
            if regions.inside(range.clone()).count() == 1 && regions.cover(range.clone()) {
                prop_assert_eq!(other.count(), now + ends[0] + ends[1]);
            }
            let gap = regions.gap(0..80 * PAGE, length * PAGE, PAGE).map(|at| at / PAGE);
            let length = usize::try_from(length).unwrap();
            let expected = model.windows(length).position(|free| free.iter().all(Option::is_none));
            prop_assert_eq!(gap, expected.map(|at| at as u64));
            for (page, rights) in model.iter().enumerate() {
                let at = regions.at(page as u64 * PAGE + 5).map(|(_, rights)| rights);
                prop_assert_eq!(at, *rights);
            }
            prop_assert_eq!(regions.at(u64::MAX), None);
        }
    }
}
