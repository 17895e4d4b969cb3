//! The clock page, from which a guest tells the time without leaving the machine. The monitor
//! writes it before the guest runs on.
//!
//! ```text
//!   0    number of writes             ┐
//!   8    ticks at the base            │ nanoseconds = base + (ticks now - ticks at the base) * rate
//!   16   rate, in 2⁻³² ns a tick      │
//!   32   base of clock 0, 1, … 7      ┘ 0: the guest asks the monitor for this clock
//! ```
//!
//! The guest reads the host's own counter of ticks, so one page would do for all machines of a
//! host. Each machine has a page of its own all the same, as part of its memory, and a reset puts
//! back an old one. So the page is rewritten whenever it is older than [`FRESH`], and when the
//! machine is entered for the first time. The monotonic clock never goes back: a page that was
//! ahead of the host's clock continues from its own value, and runs slower until the host has
//! caught up. A clone begins where its origin's guest was last, and keeps a page of its own from
//! there on.
//!
//! A base and its ticks belong to one moment: the counter is read before and after the clocks, and
//! all of them are read again if something came in between.
//!
//! A host whose kernel does not trust the counter, or whose machines read another value, gets no
//! bases: then each look at a clock leaves the machine ([`crate::machine::Hypervisor::ticks`]
//! tells).

use std::ops::Range;

use rustix::time::{ClockId, clock_gettime};

use crate::linux::state::host_clock::{MONOTONIC, REALTIME};
use crate::machine::{Hypervisor, Vcpu, VcpuError};
use crate::machine::{Ticks, read_ticks};
use crate::memory::arena::FrozenArena;
use crate::memory::layout::{PAGE, page_up};
use crate::memory::rights::Rights;
use crate::memory::space::{Place, Space, SpaceState};

/// Offset of the clocks' bases in the page.
const BASES: u64 = 32;
/// Offsets behind the clocks, where the list of pages to be touched stands; zero at other times.
pub(crate) const LIST: Range<u64> = 128..PAGE;
/// Nanoseconds after which a page is rewritten.
const FRESH: u64 = 10_000_000;
/// Nanoseconds after which the rate is measured again.
const MEASURED: u64 = 1_000_000_000;
/// A page that is ahead runs slower by one part in this many: more than any clock is slewed.
const SLOWER: u64 = 1 << 10;
/// Nanoseconds in which the clocks can be read. A longer reading was interrupted.
const CLOSE: u64 = 5_000;
/// Attempts to read the clocks. On a host where each takes longer than [`CLOSE`], the quickest is
/// used.
const LOOKS: usize = 4;

const BOOTTIME: u64 = 7;

core::arch::global_asm!(include_str!("vdso.s"));

unsafe extern "C" {
    static lambswool_vdso_begin: u8;
    static lambswool_vdso_end: u8;
    static lambswool_vdso_touch: u8;
}

/// The shared object (vDSO).
fn image() -> &'static [u8] {
    let (begin, end) = (&raw const lambswool_vdso_begin, &raw const lambswool_vdso_end);
    let length = end.addr() - begin.addr();
    // SAFETY: the two labels enclose read-only bytes of this program.
    unsafe { std::slice::from_raw_parts(begin, length) }
}

/// Address of the clock page, before the vDSO.
pub(crate) const fn page_of(space: &SpaceState) -> u64 {
    space.vdso - PAGE
}

/// Address of the routine that touches the pages of [`LIST`], if the guest still has the vDSO as it
/// was given, and the page before it.
pub(crate) fn touching(frozen: &FrozenArena, space: &SpaceState) -> Option<u64> {
    let image = image();
    let (start, end) = (space.vdso, space.vdso + image.len() as u64);
    let whole = space.regions.allow(page_of(space)..start, Rights::READ)
        && space.regions.allow(start..page_up(end), Rights::EXECUTE)
        && space.is_present(page_of(space)..page_up(end))
        && frozen.bytes(start..end) == image;
    let at = (&raw const lambswool_vdso_touch).addr() - image.as_ptr().addr();
    whole.then_some(start + at as u64)
}

/// Maps the vDSO at an address, and before it the clock page, on which no clock has a base yet.
pub(crate) fn lay_out(space: &mut Space, vdso: u64) -> Result<(), rustix::io::Errno> {
    space.state.vdso = vdso;
    space.map(Place::FixedIfFree(page_of(&space.state)), PAGE, Rights::READ)?;
    let image = image();
    let length = image.len() as u64;
    space.map(Place::FixedIfFree(vdso), length, Rights::WRITE)?;
    space.write(vdso, length)?.copy_from_slice(image);
    space.protect(vdso, length, Rights::EXECUTE)
}

/// The monitor's side of a clock page. Not reset: it remembers what the guest may have seen.
#[derive(Debug)]
pub(crate) struct ClockPage {
    /// The counter's rate as KVM tells it, in 2⁻³² ns a tick.
    nominal: u64,
    /// The counter's rate as last measured.
    rate: u64,
    /// The moment since which the rate is measured.
    since: Moment,
    /// The base and the rate on the page, or on the page before it was put back; before the first
    /// one, the moment from which the guest's clock starts.
    seen: (Moment, u64),
    /// Whether the page holds something else.
    lost: bool,
}

/// One moment, on the counter and on the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    monotonic: u64,
}

impl ClockPage {
    /// A page that is not written yet. The guest's clock does not go back behind `floor`, in
    /// nanoseconds.
    pub(crate) fn new(ticks: Ticks, floor: u64) -> Self {
        let nominal = ticks.rate();
        let since = read_clocks(nominal).now;
        // At rate 0: a guest that does not run is told nothing.
        let seen = (Moment { monotonic: floor, ticks: since.ticks }, 0);
        Self { nominal, rate: nominal, since, seen, lost: true }
    }

    /// The latest time that the guest can have seen, in nanoseconds of the monotonic clock.
    pub(crate) fn latest_seen(&self) -> u64 {
        told(self.seen, read_ticks())
    }

    /// A reset put an old page back: it is rewritten before the guest runs on.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// Rewrites the page if it is old. To be called before each entry of the guest.
    pub(crate) fn refresh(&mut self, space: &mut Space) {
        let age = read_ticks().wrapping_sub(self.seen.0.ticks);
        if !self.lost && scaled(age, self.nominal) < FRESH {
            return;
        }
        // A guest that unmapped the page, or may write to it, has none; nor has one that mapped
        // another there and did not touch it yet.
        let page = page_of(&space.state);
        let is_readable =
            space.regions().at(page).is_some_and(|(_, rights)| rights == Rights::READ);
        if !is_readable || !space.state.is_present(page..page + PAGE) {
            return;
        }
        let HostClocks { real, boot, now } = read_clocks(self.nominal);
        self.measure(now);
        let (base, rate) = next(self.seen, now, self.rate);
        let ahead = base.monotonic - now.monotonic;

        let arena = space.arena_mut();
        let written = arena.word(page).wrapping_add(1);
        for (at, word) in [(0, written), (8, base.ticks), (16, rate)] {
            arena.set_word(page + at, word);
        }
        let bases = [(REALTIME, real), (MONOTONIC, base.monotonic), (BOOTTIME, boot + ahead)];
        for (clock, word) in bases {
            arena.set_word(page + BASES + clock * 8, word);
        }
        (self.seen, self.lost) = ((base, rate), false);
    }

    /// Measures the rate now and then, because the host slews its clock.
    fn measure(&mut self, now: Moment) {
        let took = now.monotonic.saturating_sub(self.since.monotonic);
        let ticks = now.ticks.saturating_sub(self.since.ticks);
        if took < MEASURED || ticks == 0 {
            return;
        }
        let rate = (u128::from(took) << 32) / u128::from(ticks);
        let nearby = self.nominal - self.nominal / SLOWER..=self.nominal + self.nominal / SLOWER;
        // While the host slept, one of the two stood still.
        let rate = u64::try_from(rate).ok().filter(|rate| nearby.contains(rate));
        (self.rate, self.since) = (rate.unwrap_or(self.nominal), now);
    }
}

/// The clock page of a machine, from `floor` on: see [`ClockPage::new`]. None where guests cannot
/// use the counter.
pub(crate) fn clock_page_for(
    host: &Hypervisor,
    vcpu: &Vcpu,
    floor: u64,
) -> Result<Option<ClockPage>, VcpuError> {
    let Ok(ticks) = host.ticks() else { return Ok(None) };
    if ticks.unshifted {
        vcpu.unshift_ticks()?;
    }
    Ok(Some(ClockPage::new(ticks, floor)))
}

/// The next base and rate: from the guest's time on if that is ahead, and slower then.
fn next(seen: (Moment, u64), now: Moment, rate: u64) -> (Moment, u64) {
    let seen = told(seen, now.ticks);
    if seen > now.monotonic {
        return (Moment { monotonic: seen, ..now }, rate - rate / SLOWER);
    }
    (now, rate)
}

/// The monotonic clock that a page tells at this count of ticks.
fn told((base, rate): (Moment, u64), ticks: u64) -> u64 {
    base.monotonic + scaled(ticks.saturating_sub(base.ticks), rate)
}

/// Nanoseconds of a number of ticks.
fn scaled(ticks: u64, rate: u64) -> u64 {
    let nanoseconds = (u128::from(ticks) * u128::from(rate)) >> 32;
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// The host's clocks at one moment.
struct HostClocks {
    real: u64,
    boot: u64,
    now: Moment,
}

/// Reads the clocks, with a counter of this nominal rate.
fn read_clocks(nominal: u64) -> HostClocks {
    let clocks = || [ClockId::Realtime, ClockId::Boottime, ClockId::Monotonic].map(read);
    let ([real, boot, monotonic], ticks) = read_together(read_ticks, clocks, nominal);
    HostClocks { real, boot, now: Moment { ticks, monotonic } }
}

/// The value of `read`, and the counter right behind it, so that a guest is behind the host's
/// clocks by nanoseconds and never ahead. The quickest of several attempts; the first one that was
/// not interrupted ends them.
fn read_together<T>(counter: impl Fn() -> u64, read: impl Fn() -> T, rate: u64) -> (T, u64) {
    let attempt = || {
        let (before, read, behind) = (counter(), read(), counter());
        (behind.saturating_sub(before), read, behind)
    };
    let mut best = attempt();
    for _ in 1..LOOKS {
        if scaled(best.0, rate) <= CLOSE {
            break;
        }
        let next = attempt();
        if next.0 < best.0 {
            best = next;
        }
    }
    (best.1, best.2)
}

/// The monotonic clock's base on a guest's page.
#[cfg(test)]
pub(crate) fn monotonic_base(space: &Space) -> u64 {
    space.arena().word(page_of(&space.state) + BASES + MONOTONIC * 8)
}

/// Nanoseconds of a host's clock.
fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, rest) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// A counter of 2.5 GHz.
    const RATE: u64 = (2 << 32) / 5;

    proptest! {
        /// The host's clock runs up to a thousandth slower or faster than its rate was measured to
        /// be.
        #[test]
        fn a_guests_clock_never_goes_back_and_stays_with_the_hosts(
            steps in prop::collection::vec((1_u64..50_000_000, -1000_i64..1000), 1..60),
        ) {
            let (mut ticks, mut host) = (1_000_u64, 5_000_u64);
            let mut page = (Moment { ticks: 0, monotonic: 0 }, 0);
            for (step, drift) in steps {
                let before = told(page, ticks);
                ticks += step;
                let took = i64::try_from(scaled(step, RATE)).unwrap();
                host = host.checked_add_signed(took + took * drift / 1_000_000).unwrap();
                let seen = told(page, ticks);
                prop_assert!(before <= seen);
                let now = next(page, Moment { ticks, monotonic: host }, RATE);
                let after = told(now, ticks);
                prop_assert!(seen <= after, "from {} to {}", seen, after);
                prop_assert!(after >= host);
                // Ahead of the host's by no more than a step's worth of drift for each step.
                prop_assert!(after - host <= 60 * 20_000, "{} ahead", after - host);
                page = now;
            }
        }
    }

    #[test]
    fn a_clock_that_is_ahead_is_caught_up_with() {
        let mut page = (Moment { ticks: 0, monotonic: 1_000_000 }, RATE);
        // A millisecond ahead: after some seconds of slower running it is not.
        for step in 1..400_u64 {
            let ticks = step * 25_000_000;
            page = next(page, Moment { ticks, monotonic: scaled(ticks, RATE) }, RATE);
        }
        let (base, rate) = page;
        assert_eq!((base.monotonic, rate), (scaled(base.ticks, RATE), RATE));
    }

    #[test]
    fn an_unseen_clock_does_not_go_on() {
        let floor = (Moment { ticks: 1_000, monotonic: 5_000 }, 0);
        let host = Moment { ticks: 90_000_000_000, monotonic: 8_000 };
        assert_eq!(next(floor, host, RATE).0.monotonic, 8_000);
    }

    #[test]
    fn an_interrupted_reading_of_clock_and_counter_is_repeated() {
        // A tick is a nanosecond, and each look at either takes fifty.
        for aside in 0..3 {
            let (time, looks) = (Cell::new(1_000_u64), Cell::new(0));
            let look = || {
                let slept = if looks.get() == aside { 20_000_000 } else { 0 };
                looks.set(looks.get() + 1);
                time.set(time.get() + slept + 50);
                time.get()
            };
            let (clock, ticks) = read_together(look, look, 1 << 32);
            assert_eq!(ticks - clock, 50, "put aside before look {aside}");
        }
    }

    #[test]
    fn where_every_look_takes_long_the_quickest_of_a_few_is_taken() {
        let (time, looks) = (Cell::new(0_u64), Cell::new(0));
        let look = || {
            let quicker = (6..9).contains(&looks.get());
            looks.set(looks.get() + 1);
            time.set(time.get() + if quicker { 6_000 } else { 9_000 });
            time.get()
        };
        let (clock, ticks) = read_together(look, look, 1 << 32);
        assert_eq!((ticks - clock, looks.get()), (6_000, 3 * LOOKS));
    }
}
