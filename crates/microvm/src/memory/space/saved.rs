//! An address space in a snapshot on disk: its mappings, from which page tables are made anew.

use std::io;

use serde::{Deserialize, Serialize};

use super::limits::MAX_REGIONS;
use super::promises::Absent;
use super::{Space, SpaceState};
use crate::memory::file_mappings::FileMapping;
use crate::memory::layout::{BREAK_END, PAGE, Places, USER_END, USER_START};
use crate::memory::rights::Rights;
use crate::memory::tables;
use crate::vfs::NodeId;

/// Mappings and the break.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedSpace {
    /// Start, end and rights, by address.
    regions: Vec<(u64, u64, u8)>,
    /// Start and end of the break.
    program_break: (u64, u64),
    /// Bytes that counted when the first machine of its line was frozen.
    given: u64,
    /// Address of the vDSO.
    vdso: u64,
    /// Addresses that show files of layers.
    files: Vec<SavedMapping>,
    /// Start and end of each shared range without a file.
    shared: Vec<(u64, u64)>,
    /// Start and end of each promised range, and of each reserved stack; whether it is promised.
    promised: Vec<(u64, u64, bool)>,
}

/// Start, end, node, offset in the file, and whether it is shared.
type SavedMapping = (u64, u64, u32, u64, bool);

/// Why a snapshot's mappings make no address space.
#[derive(Debug)]
pub(crate) enum SpaceRestoreError {
    /// No guest could have mapped this.
    Mappings,
    /// The host has no memory for it.
    Host(io::Error),
}

impl SpaceState {
    /// The mappings for a snapshot; none where they are more than one holds. Units, and where
    /// clones look for room, follow from them.
    pub(crate) fn to_saved(&self) -> Option<SavedSpace> {
        let Self {
            regions,
            files,
            shared,
            promised,
            break_start,
            break_now,
            units: _,
            vdso,
            floor: _,
            huge: _,
            given,
        } = self;
        let longest = regions.count().max(files.count()).max(shared.count()).max(promised.count());
        if longest > MAX_REGIONS {
            return None;
        }
        let given = given.unwrap_or_else(|| self.counted());
        let regions = regions.iter().map(|(range, rights)| (range.start, range.end, rights.bits()));
        let program_break = (*break_start, *break_now);
        let files = files.iter().map(|(range, FileMapping { node, offset, shared, .. })| {
            (range.start, range.end, node.0, offset, shared)
        });
        let shared = shared.iter().map(|(range, _)| (range.start, range.end)).collect();
        let promised = promised.iter();
        let promised = promised.map(|(it, mark)| (it.start, it.end, mark == Absent::Promised));
        let (regions, files, promised) = (regions.collect(), files.collect(), promised.collect());
        Some(SavedSpace { regions, program_break, given, vdso: *vdso, files, shared, promised })
    }
}

impl SavedSpace {
    /// The files that the mappings show.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.files.iter().map(|(_, _, node, ..)| NodeId(*node))
    }

    /// An address space with these mappings, in which all memory is zero.
    pub(crate) fn to_space(&self) -> Result<Space, SpaceRestoreError> {
        let Self { regions, program_break, given, vdso, files, shared, promised } = self;
        let (start, now) = program_break;
        if regions.len() > MAX_REGIONS
            || files.len() > MAX_REGIONS
            || shared.len() > MAX_REGIONS
            || promised.len() > MAX_REGIONS
            || start > now
            || *now > BREAK_END
            || !Places::can_have_vdso(*vdso)
        {
            return Err(SpaceRestoreError::Mappings);
        }
        let mut space = Space::new().map_err(SpaceRestoreError::Host)?;
        let mut behind = USER_START;
        for &(start, end, rights) in regions {
            let rights = Rights::of_bits(rights).ok_or(SpaceRestoreError::Mappings)?;
            let whole = start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
            if !whole || start < behind || end <= start || end > USER_END {
                return Err(SpaceRestoreError::Mappings);
            }
            space.state.regions.set(start..end, rights);
            space.state.units.cover(&(start..end));
            behind = end;
        }
        space.restore_promises(promised)?;
        for &(start, end, rights) in regions {
            let rights = Rights::of_bits(rights).ok_or(SpaceRestoreError::Mappings)?;
            for part in space.state.present(start..end) {
                tables::set(&mut space.arena, part, rights).map_err(SpaceRestoreError::Host)?;
            }
        }
        if *given > space.state.counted() {
            return Err(SpaceRestoreError::Mappings);
        }
        let mut behind = USER_START;
        for &(start, end, node, offset, shared) in files {
            let whole = [start, end, offset].iter().all(|at| at.is_multiple_of(PAGE));
            let fits = offset.checked_add(USER_END).is_some();
            if !whole
                || !fits
                || start < behind
                || end <= start
                || !space.state.regions.cover(start..end)
            {
                return Err(SpaceRestoreError::Mappings);
            }
            let node = NodeId(node);
            let (writable, written) = (false, false);
            let file = FileMapping { node, offset, shared, writable, written };
            space.state.files.set(start..end, file);
            behind = end;
        }
        let mut behind = USER_START;
        for &(start, end) in shared {
            let whole = start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
            if !whole || start < behind || end <= start || !space.state.regions.cover(start..end) {
                return Err(SpaceRestoreError::Mappings);
            }
            space.share(start..end);
            behind = end;
        }
        space.state.given = Some(*given);
        space.state.vdso = *vdso;
        (space.state.break_start, space.state.break_now) = (*start, *now);
        Ok(space)
    }
}

impl Space {
    /// Takes over promised ranges, which have rights, and reserved stacks, which have none.
    fn restore_promises(&mut self, promised: &[(u64, u64, bool)]) -> Result<(), SpaceRestoreError> {
        let mut behind = USER_START;
        for &(start, end, promised) in promised {
            let whole = start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
            let regions = &self.state.regions;
            if !whole || start < behind || end <= start || !regions.cover(start..end) {
                return Err(SpaceRestoreError::Mappings);
            }
            if regions.inside(start..end).any(|(_, rights)| rights.count() != promised) {
                return Err(SpaceRestoreError::Mappings);
            }
            let mark = if promised { Absent::Promised } else { Absent::Reserved };
            self.state.promised.set(start..end, mark);
            behind = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Place;
    use super::*;
    use crate::memory::layout::{BLOCK, MAP_START, pages};

    const VDSO: u64 = 0x1000_0000;
    const RIGHTS: [Rights; 4] = [Rights::READ, Rights::WRITE, Rights::EXECUTE, Rights::NONE];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_space_of_a_snapshot_has_the_same_mappings_and_page_tables(
            steps in prop::collection::vec((0_u64..1200, 1_u64..700, 0_usize..4), 1..12),
        ) {
            let mut space = Space::new().unwrap();
            space.set_break(BLOCK * 130);
            space.move_break(BLOCK * 131);
            for (page, length, rights) in steps {
                let at = Place::Fixed(MAP_START + page * PAGE);
                let _ = space.map(at, length * PAGE, RIGHTS[rights]);
            }
            space.state.given = Some(PAGE);
            space.state.vdso = VDSO;
            let regions: Vec<_> = space.state.regions.iter().map(|(range, _)| range).collect();
            for (number, range) in (0..).zip(regions) {
                let (node, shared) = (NodeId(number), number == 1);
                let (offset, writable, written) = (PAGE, false, false);
                let file = FileMapping { node, offset, shared, writable, written };
                match space.state.regions.at(range.start).unwrap().1 {
                    Rights::NONE if number % 3 == 0 => space.reserve_stack(range.clone()),
                    rights if number % 3 == 0 && rights.count() => {
                        space.promise(range.start..range.start + PAGE).unwrap();
                    }
                    _ => {}
                }
                if number % 2 == 0 { space.show(range, file) } else { space.share(range) }
            }
            let again = space.state.to_saved().unwrap().to_space().unwrap();
            prop_assert_eq!(&again.state, &space.state);
            for page in pages(MAP_START..MAP_START + 2000 * PAGE) {
                let entry = |space: &Space| tables::entry(&space.arena, page);
                prop_assert_eq!(entry(&again), entry(&space), "at {:#x}", page);
            }
        }
    }

    #[test]
    fn mappings_that_no_guest_could_have_are_refused() {
        let saved = |regions: &[(u64, u64, u8)], program_break, given| {
            let regions = regions.to_vec();
            let (files, shared, promised) = (Vec::new(), Vec::new(), Vec::new());
            let vdso = VDSO;
            SavedSpace { regions, program_break, given, vdso, files, shared, promised }.to_space()
        };
        let page = |number: u64| USER_START + number * PAGE;
        assert!(saved(&[(page(0), page(1), 3), (page(1), page(2), 1)], (0, 0), PAGE).is_ok());
        for regions in [
            &[(page(0), page(1), 2)][..],
            &[(page(0), page(1), 16)],
            &[(page(1), page(1), 3)],
            &[(page(2), page(1), 3)],
            &[(page(0) + 1, page(1), 3)],
            &[(0, page(1), 3)],
            &[(page(0), USER_END + PAGE, 3)],
            &[(page(0), !(PAGE - 1), 3)],
            &[(page(0), page(2), 3), (page(1), page(3), 3)],
        ] {
            let space = saved(regions, (0, 0), 0);
            assert!(matches!(space, Err(SpaceRestoreError::Mappings)), "{regions:x?}");
        }
        let all = |files: &[SavedMapping], shared: &[(u64, u64)], promised: &[(u64, u64, bool)]| {
            let regions = vec![(page(0), page(4), 3), (page(4), page(8), 0)];
            let (files, shared, promised) = (files.to_vec(), shared.to_vec(), promised.to_vec());
            let (program_break, given, vdso) = ((0, 0), 0, VDSO);
            SavedSpace { regions, program_break, given, vdso, files, shared, promised }.to_space()
        };
        let with = |files: &[SavedMapping], shared: &[(u64, u64)]| all(files, shared, &[]);
        let shows = |files: &[SavedMapping]| with(files, &[]);
        assert!(with(&[], &[(page(0), page(1)), (page(2), page(4))]).is_ok());
        assert!(all(&[], &[], &[(page(2), page(4), true), (page(6), page(8), false)]).is_ok());
        for promised in [
            &[(page(3), page(5), true)][..],
            &[(page(3), page(5), false)],
            &[(page(4), page(9), false)],
            &[(page(4), page(4), false)],
            &[(page(4), page(5) + 1, false)],
            &[(page(4), page(6), false), (page(5), page(7), false)],
        ] {
            assert!(
                matches!(all(&[], &[], promised), Err(SpaceRestoreError::Mappings)),
                "{promised:x?}"
            );
        }
        for shared in [
            &[(page(0), page(9))][..],
            &[(page(1), page(1))],
            &[(page(1), page(2) + 1)],
            &[(page(0), page(2)), (page(1), page(3))],
        ] {
            assert!(matches!(with(&[], shared), Err(SpaceRestoreError::Mappings)), "{shared:x?}");
        }
        assert!(
            shows(&[(page(0), page(1), 5, PAGE, true), (page(1), page(4), 6, 0, false)]).is_ok()
        );
        for files in [
            &[(page(0), page(9), 5, 0, true)][..],
            &[(page(1), page(1), 5, 0, true)],
            &[(page(1), page(2), 5, 1, true)],
            &[(page(1), page(2) + 1, 5, 0, true)],
            &[(page(1), page(2), 5, !(PAGE - 1), true)],
            &[(page(1), page(3), 5, 0, true), (page(2), page(4), 5, 0, true)],
        ] {
            assert!(matches!(shows(files), Err(SpaceRestoreError::Mappings)), "{files:x?}");
        }
        for (program_break, given) in [((2, 1), 0), ((0, BREAK_END + 1), 0), ((0, 0), 1)] {
            let space = saved(&[], program_break, given);
            assert!(
                matches!(space, Err(SpaceRestoreError::Mappings)),
                "{program_break:x?} {given}"
            );
        }
    }

    #[test]
    fn a_space_of_too_many_ranges_is_not_saved() {
        const MANY: u64 = MAX_REGIONS as u64;
        let mut space = Space::new().unwrap();
        let start = space.map(Place::Hint(0), 2 * (MANY + 1) * PAGE, Rights::NONE).unwrap();
        let stack = |number: u64| start + 2 * number * PAGE..start + (2 * number + 1) * PAGE;
        for number in 0..=MANY {
            space.reserve_stack(stack(number));
        }
        assert_eq!(space.state.promised.count() as u64, MANY);
        assert!(space.state.to_saved().is_some());
        // As touches here and there may make them.
        space.state.promised.set(stack(MANY), Absent::Promised);
        assert_eq!(space.state.to_saved(), None);
    }
}
