//! Pages that clones will touch, touched ahead of time.
//!
//! ```text
//!   a clone, watched ── runs ──► marks in its page tables ── learn ──► TouchedPages
//!                                                                          │
//!   a further clone: together, in the host's page tables  ◄── place ───────┤
//!                    one by one, by the guest             ◄── touch ───────┘
//! ```
//!
//! The first touch of a page is a fault of the guest's and, unless the page is there already, one
//! of the host's; a page that is read first and written later takes two of each. Faults of the
//! guest's cannot be batched: KVM derives an entry from the guest's tables when the guest touches
//! the page. So the guest touches the pages by a routine that does nothing else
//! ([`crate::linux::state::clock_page`]), before it has run anything of its own: afterwards only
//! its registers have to be put back.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use crate::linux::state::clock_page::{LIST, page_of};
use crate::linux::state::process::Process;
use crate::machine::{Exit, Vcpu, VcpuError};
use crate::memory::arena::{Arena, length_of};
use crate::memory::layout::{PAGE, USER_END, pages as pages_of};
use crate::memory::rights::Rights;
use crate::memory::scan::Scanner;
use crate::memory::space::{Space, SpaceState};
use crate::memory::tables;

/// Pages of a template that are remembered.
const MAX_PAGES: usize = 4096;
/// Bytes of the list of pages.
const ROOM: usize = length_of(&LIST);
/// In an address of the list: the page is written.
const WRITTEN: u32 = 1;
/// Pages by address, and whether they are written.
type Pages = BTreeMap<u64, bool>;

/// Pages that clones of one template touch: at first those of a clone that rehearses, later those
/// that at least two of this one and of two clones that answered a call touch. A page that one
/// clone alone touches may be of no use to others, and each page written ahead takes memory of a
/// clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct TouchedPages {
    pages: Pages,
    /// Pages of the first call, until the second has come.
    call: Option<Pages>,
    complete: bool,
}

impl TouchedPages {
    /// Whether a clone that answers a call can still teach anything.
    pub(crate) fn wants_to_learn(&self) -> bool {
        !self.complete
    }

    /// Learns from a watched clone: the first one has rehearsed, later ones have answered a call.
    /// `space` is the template's.
    pub(crate) fn learn(
        &mut self,
        space: &SpaceState,
        clone: &Process,
        scanner: &Scanner,
    ) -> io::Result<()> {
        if !clone.watched {
            return Err(io::Error::other("the clone was not watched"));
        }
        let arena = clone.space.arena();
        let base = arena.address();
        let frozen = arena.origin().ok_or_else(|| io::Error::other("the process is no clone"))?;
        let differs = |page: &u64| {
            let page = *page..page + PAGE;
            arena.bytes(page.clone()) != frozen.bytes(page)
        };
        let mut used = Vec::new();
        // Pages that a clone has mapped since are in no other clone.
        for part in arena.inherited(0..USER_END) {
            used.extend(tables::used(arena, part.clone()));
            // Pages that the monitor wrote for the guest, too, but not those written ahead. Unknown
            // before Linux 6.7.
            let private = scanner.private(base + part.start..base + part.end).unwrap_or_default();
            let written = private.into_iter().map(|it| it.start - base..it.end - base);
            used.extend(written.flat_map(pages_of).filter(differs).map(|page| (page, true)));
        }
        let mut pages = Pages::new();
        for (page, written) in used {
            // What a clone may touch from the start without a fault.
            let may = |wanted| space.regions.allow(page..page + PAGE, wanted);
            if may(Rights::READ) && !space.present(page..page + PAGE).is_empty() {
                *pages.entry(page).or_default() |= written && may(Rights::WRITE);
            }
        }
        while pages.len() > MAX_PAGES {
            pages.pop_last();
        }
        self.take(pages);
        Ok(())
    }

    fn take(&mut self, pages: Pages) {
        if self.pages.is_empty() {
            self.pages = pages;
            return;
        }
        let Some(before) = self.call.take() else {
            self.call = Some(pages);
            return;
        };
        self.pages = most_touch([&self.pages, &before, &pages]);
        self.complete = true;
    }

    /// Has the host map the pages.
    pub(crate) fn place(&self, arena: &mut Arena) {
        // Written pages first: to copy one page of a huge page, the host splits it.
        let written = self.pages.iter().filter(|(_, written)| **written);
        for range in joined(written.map(|(page, _)| *page), PAGE) {
            arena.expect(range, true);
        }
        let looked_at = self.pages.iter().filter(|(_, written)| !**written);
        // As one range where the host maps neighbours with a page anyway: asking for each takes
        // longer. Not over holes, where it would make pages that no clone has opened.
        for range in joined(looked_at.map(|(page, _)| *page), 16 * PAGE) {
            for part in arena.between_holes(range) {
                arena.expect(part, false);
            }
        }
    }

    /// Has the guest touch the pages, by the routine at `routine`. The processor's state is
    /// undefined afterwards.
    pub(crate) fn touch(
        &self,
        routine: u64,
        vcpu: &mut Vcpu,
        space: &mut Space,
    ) -> Result<(), VcpuError> {
        let addresses = self.pages.iter().filter_map(|(page, written)| {
            Some(u32::try_from(*page).ok()? | if *written { WRITTEN } else { 0 })
        });
        let list: Vec<u8> = addresses.flat_map(u32::to_le_bytes).collect();
        let page = page_of(&space.state);
        let start = page + LIST.start;
        for part in list.chunks(ROOM) {
            let part_end = start + part.len() as u64;
            space.arena_mut().bytes_mut(start..part_end).copy_from_slice(part);
            run(routine, start..part_end, vcpu, space)?;
        }
        vcpu.settle()?;
        space.arena_mut().bytes_mut(start..page + LIST.end).fill(0);
        Ok(())
    }
}

/// Has the processor forget the data segments that a guest had selected. A KVM that runs guests
/// natively below another hypervisor does not reach these itself. As after [`TouchedPages::touch`],
/// registers have to be set afterwards.
pub(crate) fn forget_segments(
    routine: u64,
    vcpu: &mut Vcpu,
    space: &mut Space,
) -> Result<(), VcpuError> {
    run(routine, 0..0, vcpu, space)
}

/// Runs the routine for a list of pages.
fn run(
    routine: u64,
    list: Range<u64>,
    vcpu: &mut Vcpu,
    space: &mut Space,
) -> Result<(), VcpuError> {
    // Completes an exit of KVM's; its registers are then the whole state.
    vcpu.settle()?;
    vcpu.enter(routine, 0, 0);
    let registers = vcpu.registers();
    (registers.rdi, registers.rsi) = (list.start, list.end);
    loop {
        match vcpu.run(space)? {
            Exit::Hypercall => return Ok(()),
            // A stop meant for what ran before.
            Exit::Stopped => {}
            other => {
                return Err(VcpuError::Lost(format!("{other:?} in a routine of the monitor's")));
            }
        }
    }
}

/// Pages that two of three touch; written if two of them write.
fn most_touch(three: [&Pages; 3]) -> Pages {
    let mut count = BTreeMap::<u64, (usize, usize)>::new();
    for (page, written) in three.into_iter().flatten() {
        let (touched, wrote) = count.entry(*page).or_default();
        *touched += 1;
        *wrote += usize::from(*written);
    }
    let most = count.into_iter().filter(|(_, (touched, _))| *touched >= 2);
    most.map(|(page, (_, wrote))| (page, wrote >= 2)).take(MAX_PAGES).collect()
}

/// Pages at most `close` bytes apart, as ranges.
fn joined(pages: impl Iterator<Item = u64>, close: u64) -> impl Iterator<Item = Range<u64>> {
    let mut pages = pages.peekable();
    std::iter::from_fn(move || {
        let start = pages.next()?;
        let mut range = start..start + PAGE;
        while let Some(next) = pages.next_if(|next| *next < range.end + close) {
            range.end = next + PAGE;
        }
        Some(range)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::linux::state::clock_page::touching;
    use crate::linux::{Options, Template};
    use crate::machine::Hypervisor;
    use crate::memory::layout::STACK_BYTES;
    use crate::memory::rights::Rights;
    use crate::vfs::TreeBuilder;

    /// It is never run.
    const PROGRAM: &[u8] = include_bytes!("../../../../../fuzz/corpus/unikernels/static");

    #[test]
    fn pages_that_two_of_three_clones_touch_are_learnt_and_others_are_not() {
        let mut touched = TouchedPages::default();
        touched.take(Pages::from([(1, false), (2, true)]));
        assert!(touched.wants_to_learn());
        let much = (3..1000).map(|page| (page, true));
        touched.take(much.chain([(1, true)]).collect());
        assert!(touched.wants_to_learn());
        assert_eq!(touched.pages.len(), 2);
        touched.take(Pages::from([(1, true), (3, true), (4, false), (5000, true)]));
        assert_eq!(touched.pages, Pages::from([(1, true), (3, true), (4, false)]));
        assert!(!touched.wants_to_learn());
    }

    #[test]
    fn pages_are_placed_without_the_holes_between_them() {
        let mut origin = Arena::new().unwrap();
        let [first, second, last] = [0, 2, 10].map(|number| number * PAGE);
        [first, second, last].into_iter().for_each(|page| origin.set_word(page, 1));
        let hole = second + PAGE..last;
        let frozen = origin.freeze(Vec::new(), USER_END, vec![hole]).unwrap();
        let pages = Pages::from([(first, false), (last, false)]);
        let mut clone = Arena::clone_of(&frozen).unwrap();
        TouchedPages { pages, ..TouchedPages::default() }.place(&mut clone);
        let filled = frozen.filled(0..USER_END).unwrap();
        assert_eq!(filled, [first..second + PAGE, last..last + PAGE]);
    }

    #[test]
    fn a_guest_touches_the_pages_of_its_list_and_no_others() {
        let Ok(host) = Hypervisor::open() else {
            return skips::skip("kvm", "there is no /dev/kvm");
        };
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("program"), PROGRAM).unwrap();
        let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
        let options = Options { program: vec!["/program".into()], ..Options::default() };
        let process = Process::start(&host, tree.build(0, 0), &options).unwrap();
        let template = Template::seal(process).unwrap();
        let mut clone = template.spawn(&host).unwrap();
        clone.watch().unwrap();
        let (stack, _) = clone
            .space
            .regions()
            .iter()
            .find(|(range, rights)| {
                range.end - range.start == STACK_BYTES && rights.allow(Rights::WRITE)
            })
            .unwrap();
        let (last, stack) = (stack.end - PAGE, stack.end - 20 * PAGE);
        let pages = Pages::from([(last, false), (stack, true)]);
        let touched = TouchedPages { pages, ..TouchedPages::default() };
        let origin = clone.space.arena().origin().unwrap();
        let routine = touching(origin, &clone.space.state).unwrap();
        touched.touch(routine, &mut clone.vcpu, &mut clone.space).unwrap();
        let mut used = tables::used(clone.space.arena(), 0..USER_END);
        // Pages that the routine itself uses.
        let clock = page_of(&clone.space.state);
        used.retain(|(page, _)| ![clock, clock + PAGE].contains(page));
        assert_eq!(used, [(stack, true), (last, false)]);
        let list = clone.space.arena().bytes(clock + LIST.start..clock + LIST.end);
        assert_eq!(list, vec![0; ROOM], "the list is gone");
    }
}
