use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::super::{Pages, Place};
use super::*;
use crate::memory::arena::{Arena, FrozenArena};
use crate::memory::layout::{MAP_START, pages};
use crate::memory::scan::Scanner;

const RIGHTS: [Rights; 4] = [Rights::NONE, Rights::READ, Rights::WRITE, Rights::WRITE];
/// Pages in which mappings are made, and pages of the limit.
const ZONE: u64 = 2048;
const LIMIT: u64 = 300;
const MIB: u64 = 1 << 20;

/// A clone of such a space; none before Linux 6.7.
fn clone_of(origin: Space, limit: u64) -> Option<Space> {
    let (frozen, state) = origin.freeze().unwrap();
    let mut space = Space::clone_of(&frozen, state).unwrap();
    let scanner = Scanner::open().unwrap();
    if scanner.private(0..PAGE).is_err() {
        skips::skip("linux 6.7", "the host does not tell what was touched");
        return None;
    }
    space.measure_by(scanner);
    space.allow(limit);
    Some(space)
}

/// What a guest does at a page.
fn touch(space: &mut Space, page: u64) -> bool {
    let is_so = tables::entry(&space.arena, page) & 2 != 0
        || space.supply(page) && tables::entry(&space.arena, page) & 2 != 0;
    if is_so {
        space.arena.set_word(page, page);
    }
    is_so
}

/// What the host spends for a clone.
fn touched(space: &Space) -> Vec<Range<u64>> {
    let base = space.arena.address();
    let touched = space.scanner.as_ref().unwrap().touched(base..base + USER_END).unwrap();
    touched.into_iter().map(|it| it.start - base..it.end - base).collect()
}

/// What a call does that writes to a range.
fn write(space: &mut Space, range: Range<u64>, value: u64, written: &mut BTreeMap<u64, u64>) {
    if space.write(range.start, range.end - range.start).is_ok() {
        for at in pages(range.start..page_up(range.end)) {
            space.arena.set_word(at, value);
            written.insert(at, value);
        }
    }
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// A step: what is done, and the pages and rights with which it is done.
type Step = (u8, u64, u64, usize);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0_u8..9, 0_u64..ZONE, 1_u64..900, 0_usize..4), 1..40)
}

/// Takes the steps, and looks after each whether the space is what it has to be. `written` are the
/// pages that hold anything.
fn take(
    space: &mut Space,
    mut written: BTreeMap<u64, u64>,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    for (step, (what, page, length, rights)) in steps.iter().copied().enumerate() {
        let value = step as u64 + 1;
        let length = length.min(ZONE - page);
        let (start, bytes) = (MAP_START + BLOCK + page * PAGE, length * PAGE);
        let range = start..start + bytes;
        match what {
            0 => {
                let place = Place::Fixed(start);
                // Zeros in the place of the template's bytes need room.
                let needs = !space.arena.stale(range.clone()).is_empty();
                let mapped = space.map(place, bytes, RIGHTS[rights]);
                prop_assert!(mapped == Ok(start) || needs && mapped == Err(Errno::NOMEM));
                written.retain(|at, _| !range.contains(at));
            }
            // The first half may be present, and the second one promised.
            1 => {
                let middle = start + length / 2 * PAGE;
                for part in [start..middle, middle..start + bytes] {
                    let length = part.end - part.start;
                    let _ = space.map(Place::Fixed(part.start), length, Rights::WRITE);
                }
                written.retain(|at, _| !range.contains(at));
                write(space, range, value, &mut written);
            }
            2 => {
                let _ = space.protect(start, bytes, RIGHTS[rights]);
            }
            3 => {
                let _ = space.forget(start, bytes);
                written.retain(|at, _| !range.contains(at));
            }
            4 => {
                space.unmap(start, bytes).unwrap();
                written.retain(|at, _| !range.contains(at));
            }
            5 => {
                // A part of it, where all of it has to have the right.
                let bytes = if step % 2 == 0 { bytes } else { bytes / 8 + 5 };
                write(space, start..start + bytes, value, &mut written);
            }
            6 => {
                if let Some((region, _)) = space.state.regions.at(start) {
                    let old = bytes.min(region.end - start);
                    let moved = space.remap(start, old, old + rights as u64 * 150 * PAGE, true);
                    if let Ok(to) = moved {
                        let rest = written.split_off(&start);
                        written.extend(rest.into_iter().map(|(at, value)| {
                            (if at < start + old { to + (at - start) } else { at }, value)
                        }));
                    }
                }
            }
            _ => {
                for at in pages(range).step_by(1 + step % 5) {
                    if touch(space, at) {
                        space.arena.set_word(at, value);
                        written.insert(at, value);
                    }
                }
            }
        }
        // What a machine would not do any more is no worse.
        space.exhausted = false;
        prop_assert!(space.state.counted() <= LIMIT * PAGE);
        prop_assert!(written.len() as u64 <= space.state.counted() / PAGE);
        for range in touched(space) {
            let promised = space.state.promised_in(range.clone());
            prop_assert!(promised.is_empty(), "step {}: {:x?} of {:x?}", step, promised, range);
        }
        for page in pages(MAP_START..MAP_START + ZONE * PAGE + 2 * BLOCK) {
            let promised = space.state.promised.at(page).is_some();
            let rights = space.state.regions.at(page).map_or(Rights::NONE, |it| it.1);
            let expected = if promised { 0 } else { rights.entry_flags() };
            let entry = tables::entry(&space.arena, page);
            prop_assert_eq!(entry, if expected == 0 { 0 } else { page | expected });
            if rights.count() && !written.contains_key(&page) {
                prop_assert_eq!(space.arena.word(page), 0, "at {:#x}", page);
            }
        }
        for (page, value) in &written {
            prop_assert_eq!(space.arena.word(*page), *value, "at {:#x}", page);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn page_tables_and_counts_agree_with_what_is_promised(steps in steps()) {
        let Some(mut space) = clone_of(Space::new().unwrap(), LIMIT * PAGE) else { return Ok(()) };
        take(&mut space, BTreeMap::new(), &steps)?;
    }

    #[test]
    fn clones_of_promised_memory_agree_with_it_again_after_a_reset(
        step in 20_usize..60, calls in [steps(), steps(), steps()],
    ) {
        let mut loaded = BTreeMap::new();
        let Some(mut space) = clone_of(Space::new().unwrap(), LIMIT * PAGE) else { return Ok(()) };
        let scanner = space.scanner.clone().unwrap();
        let all = space.map(Place::Fixed(MAP_START + BLOCK), ZONE * PAGE, Rights::WRITE).unwrap();
        for page in (0..ZONE).step_by(step) {
            prop_assert!(touch(&mut space, all + page * PAGE));
            loaded.insert(all + page * PAGE, all + page * PAGE);
        }
        let (frozen, state) = space.into_own(&scanner).unwrap().freeze().unwrap();
        let mut space = clone_within(LIMIT * PAGE, &(frozen, state.clone(), scanner.clone()));
        for steps in calls {
            take(&mut space, loaded.clone(), &steps)?;
            space.reset(&state, &scanner).unwrap();
            prop_assert_eq!(space.differences(&state, &scanner).unwrap(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_call_over_much_promised_memory_looks_once_for_what_was_touched() {
    let Some(mut space) = clone_of(Space::new().unwrap(), 300 * PAGE) else { return };
    let at = space.map(Place::Hint(0), 598 * PAGE, Rights::WRITE).unwrap();
    assert!((0..299).all(|number| touch(&mut space, at + 2 * number * PAGE)));
    assert_eq!((space.room(), space.scans), (PAGE, 0));
    assert_eq!(space.write(at, 598 * PAGE).err(), Some(Errno::NOMEM));
    assert!(space.is_exhausted());
    assert_eq!(space.write(at, 598 * PAGE).err(), Some(Errno::NOMEM));
    assert_eq!(space.scans, 1);
    assert_eq!(bytes(&touched(&space)), 299 * PAGE);
}

#[test]
fn nothing_is_taken_back_for_what_can_have_no_room() {
    let Some(mut space) = clone_of(Space::new().unwrap(), 300 * PAGE) else { return };
    let at = space.map(Place::Hint(0), 300 * PAGE, Rights::WRITE).unwrap();
    let map = |space: &mut Space, pages| {
        space.map_for(Pages::AtOnce, Place::Hint(0), pages * PAGE, Rights::WRITE)
    };
    assert_eq!(map(&mut space, 301), Err(Errno::NOMEM));
    assert!(space.state.is_present(at..at + 300 * PAGE));
    // What has room gets it, from what was never touched.
    assert!((0..100).all(|number| touch(&mut space, at + number * PAGE)));
    let more = map(&mut space, 200).unwrap();
    space.write(more, 200 * PAGE).unwrap().fill(1);
    assert_eq!(space.room(), 0);
    // In vain so often, and no more.
    space.scans = MAX_SCANS - 1;
    assert_eq!(map(&mut space, 1), Err(Errno::NOMEM));
    assert_eq!(space.scans, MAX_SCANS);
    assert!(!space.take_back(|_| false));
    space.begin_run();
    assert!(space.take_back(|_| false));
}

#[test]
fn a_write_of_nothing_supplies_nothing() {
    let Some(mut space) = clone_of(Space::new().unwrap(), 10 * PAGE) else { return };
    let at = space.map(Place::Hint(0), 20 * PAGE, Rights::READ).unwrap();
    assert!(space.write(at + 5, 0).is_ok());
    assert_eq!(space.state.counted(), 0);
}

#[test]
fn clones_share_no_file_where_their_template_only_promised() {
    let Some(mut loaded) = clone_of(Space::new().unwrap(), 32 * MIB) else { return };
    let scanner = loaded.scanner.clone().unwrap();
    let all = loaded.map(Place::Hint(0), 1024 * MIB, Rights::WRITE).unwrap();
    let own = [all, all + 700 * MIB];
    assert!(own.into_iter().all(|page| touch(&mut loaded, page)));
    let (frozen, state) = loaded.into_own(&scanner).unwrap().freeze().unwrap();
    assert!(state.counted() <= 2 * STEP);
    let held = || bytes(&frozen.filled(0..USER_END).unwrap());
    let before = held();
    let mut space = Space::clone_of(&frozen, state.clone()).unwrap();
    space.measure_by(scanner.clone());
    space.allow(32 * MIB);
    for round in 0..20 {
        let start = all + MIB + round * 48 * MIB;
        assert!(pages(start..start + 20 * MIB).all(|page| touch(&mut space, page)));
        assert_eq!(bytes(&touched(&space)), 20 * MIB);
        assert!((20 * MIB..=32 * MIB).contains(&space.state.counted()));
        space.reset(&state, &scanner).unwrap();
        assert_eq!(space.differences(&state, &scanner).unwrap(), Vec::<String>::new());
        assert_eq!(bytes(&touched(&space)), 0);
        assert!(own.into_iter().all(|page| space.arena.word(page) == page));
    }
    assert_eq!(held(), before);
}

#[test]
fn what_was_never_touched_when_a_clone_is_frozen_is_promised() {
    let Some(mut loaded) = clone_of(Space::new().unwrap(), 64 * MIB) else { return };
    let scanner = loaded.scanner.clone().unwrap();
    let all = loaded.map(Place::Hint(0), 48 * MIB, Rights::WRITE).unwrap();
    // To the last page of a huge page, where the host has them.
    assert!(pages(all..all + 8 * MIB).skip(1).step_by(2).all(|page| touch(&mut loaded, page)));
    assert_eq!(loaded.state.counted(), 48 * MIB);
    let (frozen, state) = loaded.into_own(&scanner).unwrap().freeze().unwrap();
    assert_eq!(state.counted(), 8 * MIB);
    let shares = |range: &Range<u64>| !frozen.own().iter().any(|own| own.contains(&range.start));
    assert!(!state.promised_in(0..USER_END).iter().any(shares));
}

#[test]
fn promised_memory_in_too_many_ranges_counts_in_clones() {
    const MANY: u64 = MAX_ZONES as u64 + 8;
    let mut space = Space::new().unwrap();
    let length = |number: u64| BLOCK + number * PAGE;
    for number in 0..MANY {
        let start = MAP_START + number * 2 * BLOCK;
        space.map(Place::Fixed(start), 2 * BLOCK, Rights::WRITE).unwrap();
        space.promise(start..start + length(number)).unwrap();
    }
    // One that is too short.
    let short = MAP_START + MANY * 2 * BLOCK;
    space.map(Place::Fixed(short), 2 * BLOCK, Rights::WRITE).unwrap();
    space.promise(short..short + BLOCK - PAGE).unwrap();
    let (frozen, state) = space.freeze().unwrap();
    // The longest are promised still, and clones have these to themselves.
    let promised = (8..MANY).map(|number| MAP_START + number * 2 * BLOCK..0);
    let promised = promised.zip(8..).map(|(it, number)| it.start..it.start + length(number));
    let promised: Vec<_> = promised.collect();
    assert_eq!(state.promised_in(0..USER_END), promised);
    assert!(promised.iter().all(|it| frozen.own().contains(it)));
    assert!(state.is_present(short..short + 2 * BLOCK));
    for page in [MAP_START, short] {
        assert_ne!(tables::entry(&Arena::clone_of(&frozen).unwrap(), page), 0);
    }
}

/// A clone's template of which a page is present every `step` bytes, and all else was only mapped.
fn sparse(limit: u64, count: u64, step: u64) -> Option<(Arc<FrozenArena>, SpaceState, Scanner)> {
    let mut loaded = clone_of(Space::new().unwrap(), limit)?;
    let scanner = loaded.scanner.clone().unwrap();
    let all = loaded.map(Place::Fixed(MAP_START), count * step, Rights::WRITE).unwrap();
    assert!((0..count).all(|number| touch(&mut loaded, all + number * step)));
    let (frozen, state) = loaded.into_own(&scanner).unwrap().freeze().unwrap();
    Some((frozen, state, scanner))
}

fn clone_within(limit: u64, template: &(Arc<FrozenArena>, SpaceState, Scanner)) -> Space {
    let (frozen, state, scanner) = template;
    let mut space = Space::clone_of(frozen, state.clone()).unwrap();
    space.measure_by(scanner.clone());
    space.allow(limit);
    space
}

fn held(frozen: &FrozenArena) -> u64 {
    bytes(&frozen.filled(0..USER_END).unwrap())
}

/// As threads have, which are many when a function loads.
#[test]
fn promised_memory_in_many_ranges_costs_clones_what_they_touch() {
    let Some(template) = sparse(64 * MIB, 60, 8 * MIB) else { return };
    let mut space = clone_within(64 * MIB, &template);
    for round in 0..2 {
        let page = |number: u64| MAP_START + number * 8 * MIB + 4 * MIB;
        assert!((0..60).all(|number| touch(&mut space, page(number))), "round {round}");
        assert!(space.state.counted() <= 64 * MIB);
        space.reset(&template.1, &template.2).unwrap();
        assert_eq!(space.differences(&template.1, &template.2).unwrap(), Vec::<String>::new());
        assert!((0..60).all(|number| space.arena.word(page(number)) == 0));
    }
}

#[test]
fn a_template_of_far_more_than_its_limit_gives_clones_no_more_of_it() {
    let Some(template) = sparse(32 * MIB, 2000, MIB) else { return };
    assert!(template.1.counted() <= 32 * MIB, "{:x}", template.1.counted());
    let before = held(&template.0);
    for number in 0..6 {
        let mut space = clone_within(32 * MIB, &template);
        let all = pages(MAP_START + number * 300 * MIB..MAP_START + 2000 * MIB);
        let got = all.take_while(|page| touch(&mut space, *page)).count() as u64;
        assert!(got <= 40 * MIB / PAGE, "{got}");
        assert!(space.is_exhausted());
    }
    // What a call reads makes pages of the file, too.
    let space = clone_within(32 * MIB, &template);
    for number in 0..2000 {
        if let Ok(bytes) = space.read(MAP_START + number * MIB + PAGE, MIB - PAGE) {
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
    }
    // Sixteen were made present, and count.
    let more = held(&template.0) - before;
    assert!(more <= 80 * MIB, "{more:x}");
}

#[test]
fn clones_open_a_limited_part_of_their_templates_holes() {
    let mut origin = Space::new().unwrap();
    for number in 0..1000 {
        let at = MAP_START + number * MIB;
        origin.map(Place::Fixed(at), PAGE, Rights::WRITE).unwrap();
        origin.arena.set_word(at, 1);
        // A part of the hole behind it is reserved.
        origin.map(Place::Fixed(at + 100 * PAGE), 50 * PAGE, Rights::NONE).unwrap();
    }
    let Some(scanner) = clone_of(Space::new().unwrap(), 0).and_then(|space| space.scanner) else {
        return;
    };
    let (frozen, state) = origin.freeze().unwrap();
    let template = (frozen, state, scanner);
    let before = held(&template.0);
    let mut got = [0; 3];
    for number in 0..1000 {
        let mut space = clone_within(32 * MIB, &template);
        let at = MAP_START + number * MIB;
        let (hole, reserved) = (at + PAGE..at + 100 * PAGE, at + 100 * PAGE..at + 150 * PAGE);
        let length = hole.end - hole.start;
        if space.map(Place::Fixed(hole.start), length, Rights::WRITE).is_ok() {
            assert!(pages(hole).all(|page| touch(&mut space, page)));
            got[0] += length;
        }
        let length = reserved.end - reserved.start;
        if space.protect(reserved.start, length, Rights::WRITE).is_ok() {
            assert!(pages(reserved).all(|page| touch(&mut space, page)));
            got[1] += length;
        }
        // A place that has room is found all the same.
        let more = space.map(Place::Hint(0), 20 * MIB, Rights::WRITE).unwrap();
        got[2] += u64::from(touch(&mut space, more));
    }
    // Nor is it refused what does not have to lie there.
    let mut space = clone_within(32 * MIB, &template);
    for place in [Place::Hint(MAP_START + 150 * PAGE), Place::Low] {
        let at = space.map(place, 105 * PAGE, Rights::WRITE);
        assert!(at.is_ok_and(|at| touch(&mut space, at)), "{place:?}");
    }
    assert_eq!((got[0] + got[1]).div_ceil(MIB), 64);
    assert!(got[1] >= 20 * MIB);
    assert_eq!(got[2], 1000);
    // Less where the host drops its caches: such pages were never written.
    assert!(held(&template.0) <= before + got[0] + got[1]);
}

#[test]
fn a_touch_takes_back_few_ranges_and_the_next_ones_find_the_others() {
    const MANY: u64 = 3 * BATCH as u64;
    let Some(mut space) = clone_of(Space::new().unwrap(), 2 * MANY * PAGE) else { return };
    // Where no huge pages are.
    let at = space.map(Place::Fixed(MAP_START), 2 * MANY * PAGE, Rights::WRITE).unwrap();
    assert!((0..MANY).all(|number| touch(&mut space, at + 2 * number * PAGE)));
    let more = space.map(Place::Hint(0), MANY * PAGE, Rights::WRITE).unwrap();
    assert!(touch(&mut space, more));
    assert_eq!(space.state.promised.inside(at..more).count(), BATCH);
    assert!(pages(more..more + MANY * PAGE).all(|page| touch(&mut space, page)));
    assert!((0..MANY).all(|number| space.arena.word(at + 2 * number * PAGE) != 0));
    assert!(!touch(&mut space, at + PAGE));
}

#[test]
fn a_touch_moves_few_blocks_off_their_huge_pages() {
    const MANY: u64 = 36;
    let Some(mut space) = clone_of(Space::new().unwrap(), MANY * BLOCK) else { return };
    let at = space.map(Place::Hint(0), MANY * BLOCK, Rights::WRITE).unwrap();
    let page = |number: u64| at + number * BLOCK;
    assert!(pages(at..page(MANY)).all(|page| touch(&mut space, page)));
    // A page of zeros in each but the first, which has to stay as it is.
    (1..MANY).for_each(|number| space.arena.set_word(page(number), 0));
    let more = space.map(Place::Hint(0), MANY * PAGE, Rights::WRITE).unwrap();
    assert!(touch(&mut space, more));
    let taken_back = space.state.promised_in(at..page(MANY));
    assert_eq!(taken_back, (1..17).map(|it| page(it)..page(it) + PAGE).collect::<Vec<_>>());
    assert!((1..MANY - 1).all(|number| touch(&mut space, more + number * PAGE)));
    assert!(!touch(&mut space, more + (MANY - 1) * PAGE));
    let kept = pages(at..page(MANY)).filter(|page| space.arena.word(*page) == *page).count();
    assert_eq!(kept as u64, MANY * BLOCK / PAGE - (MANY - 1));
}

/// Uses up what clones may open of their template's holes, but for those of `kept`.
fn use_holes_up(space: &Space, kept: &Range<u64>) {
    let others = pages(USER_START..USER_END).filter(|page| !kept.contains(page));
    others.take_while(|page| space.arena.open_holes(&(*page..page + PAGE))).for_each(drop);
}

#[test]
fn a_page_that_a_sibling_opened_is_supplied_when_no_more_of_its_hole_may_be() {
    let Some(template) = sparse(32 * MIB, 2000, MIB) else { return };
    let mut space = clone_within(32 * MIB, &template);
    let mut promised = template.1.promised_in(0..USER_END).into_iter();
    let hole = promised.find(|part| !space.arena.inherited(part.clone()).is_empty()).unwrap();
    let page = hole.start + 100 * PAGE;
    assert!(space.arena.open_holes(&(page..page + PAGE)));
    use_holes_up(&space, &hole);
    assert!(touch(&mut space, page));
    assert_eq!(space.state.promised_in(page - PAGE..page + 2 * PAGE).len(), 2);
    assert!(!space.is_exhausted());
    assert!(!touch(&mut space, page + PAGE));
    assert!(space.is_exhausted());
}

#[test]
fn what_may_lie_elsewhere_is_not_refused_for_a_hole() {
    let mut origin = Space::new().unwrap();
    let page = |number: u64| MAP_START + number * MIB;
    // Then a zone of the clones' own.
    for number in (0..=100).chain([110]) {
        origin.map(Place::Fixed(page(number)), PAGE, Rights::WRITE).unwrap();
        origin.arena.set_word(page(number), page(number));
    }
    let Some(scanner) = clone_of(Space::new().unwrap(), 0).and_then(|space| space.scanner) else {
        return;
    };
    let (frozen, state) = origin.freeze().unwrap();
    let floor = state.floor;
    let template = (frozen, state, scanner);
    let mut space = clone_within(32 * MIB, &template);
    // What fails for another reason uses nothing.
    let hole = page(10) + PAGE..page(11);
    space.set_own_limit(0);
    for place in [Place::Fixed(hole.start), Place::Hint(hole.start)] {
        assert_eq!(space.map(place, hole.end - hole.start, Rights::WRITE), Err(Errno::NOMEM));
    }
    space.set_own_limit(u64::MAX);
    assert_eq!(space.arena.cost_of_holes(&hole), Some(hole.end - hole.start));

    use_holes_up(&space, &(page(0)..page(30)));
    assert_eq!(space.remap(page(10), PAGE, 2 * PAGE, false), Err(Errno::NOMEM));
    let moved = space.remap(page(10), PAGE, 2 * PAGE, true).unwrap();
    assert!(moved >= floor && space.arena.word(moved) == page(10));
    // Above the template nothing is free.
    space.map(Place::Fixed(floor), USER_END - floor, Rights::NONE).unwrap();
    let zone = page(102)..page(110);
    for place in [Place::Hint(0), Place::Low] {
        let at = space.map(place, 3 * MIB, Rights::WRITE).unwrap();
        assert!(zone.contains(&at) && touch(&mut space, at), "{place:?}: {at:x}");
        space.unmap(at, 3 * MIB).unwrap();
    }
    // Holes that a sibling opened are as good.
    let at = space.map(Place::Hint(page(20) + PAGE), 100 * PAGE, Rights::WRITE).unwrap();
    assert!(at >= page(30) && touch(&mut space, at), "{at:x}");
    assert_eq!(space.map(Place::Hint(0), 9 * MIB, Rights::WRITE), Err(Errno::NOMEM));
    // As a thread's stack, which gets its rights later.
    let at = space.map(Place::Hint(0), 3 * MIB, Rights::NONE).unwrap();
    assert_eq!(space.protect(at, 3 * MIB, Rights::WRITE), Ok(()));
    space.unmap(at, 3 * MIB).unwrap();
    assert!(space.map(Place::Hint(0), 9 * MIB, Rights::NONE).is_ok());
}

#[test]
fn no_mapping_without_rights_makes_too_many_regions_of_what_it_hides() {
    const MANY: u64 = MAX_REGIONS as u64 / 2;
    let mut origin = Space::new().unwrap();
    let at = origin.map(Place::Hint(0), 3 * MANY * PAGE, Rights::WRITE).unwrap();
    (0..MANY).for_each(|number| origin.arena.set_word(at + 3 * number * PAGE, number + 1));
    let (frozen, state) = origin.freeze().unwrap();
    let mut space = Space::clone_of(&frozen, state).unwrap();
    let before = space.state.clone();
    let all = space.map(Place::Fixed(at), 3 * MANY * PAGE, Rights::NONE);
    assert_eq!((all, space.state == before), (Err(Errno::NOMEM), true));
    // One less, beside the one that stays.
    let most = 3 * (MANY - 1) * PAGE;
    assert_eq!(space.map(Place::Fixed(at + 3 * PAGE), most, Rights::NONE), Ok(at + 3 * PAGE));
    assert!(space.state.regions.count() <= MAX_REGIONS);
    // Where nothing was mapped before, too.
    let mut space = Space::clone_of(&frozen, before).unwrap();
    space.unmap(at, 3 * MANY * PAGE).unwrap();
    for place in [Place::Hint(at), Place::FixedIfFree(at)] {
        assert_eq!(space.map(place, 3 * MANY * PAGE, Rights::NONE), Err(Errno::NOMEM));
    }
    assert_eq!(space.state.regions.count(), 0);
}
