//! The clock page: what a guest needs to tell the time by itself, written by the monitor before the guest runs on.
//!
//! ```text
//!   0    how often it was written     ┐
//!   8    ticks at the base            │ nanoseconds = base + (ticks now - ticks at the base) * rate
//!   16   rate, in 2⁻³² ns a tick      │
//!   32   base of clock 0, 1, … 7      ┘ 0: this clock is asked of the monitor
//! ```
//! The guest reads the host's own counter of ticks, so one page would do for all machines of a host; each has its own all
//! the same, as part of its memory, and a reset puts back an old one. So it is written anew whenever it is older than
//! [`FRESH`], at the latest when the machine is entered for the first time. The monotonic clock never goes back: where the
//! page was ahead of the host's clock it stays there, and goes slower until the host has caught up. A clone begins where its
//! origin's guest was told to be last, and keeps a page of its own from there on.
//!
//! A base and the ticks at it are of one moment: the counter is read before and behind the clocks, and all of them once more
//! where something came in between.
//!
//! A host whose kernel does not trust the counter itself, or whose machines read another one, gets no bases: then each
//! look at a clock leaves the machine ([`crate::machine::Hypervisor::ticks`] says which it is).

use std::ops::Range;

use rustix::time::{ClockId, clock_gettime};

use crate::linux::state::host_clock::{MONOTONIC, REALTIME};
use crate::machine::{Hypervisor, Vcpu, VcpuError};
use crate::machine::{Ticks, read_ticks};
use crate::memory::arena::Frozen;
use crate::memory::layout::{PAGE, page_up};
use crate::memory::rights::Rights;
use crate::memory::space::{Place, Space, SpaceState};

/// Offset of the clocks' bases in the page.
const BASES: u64 = 32;
/// What follows the clocks: nothing, but while pages are touched. Offsets in the page.
pub(crate) const LIST: Range<u64> = 128..PAGE;
/// Nanoseconds for which a page is good.
const FRESH: u64 = 10_000_000;
/// Nanoseconds after which the rate is measured anew.
const MEASURED: u64 = 1_000_000_000;
/// A page that is ahead goes slower by this part: more than any clock is slewed.
const SLOWER: u64 = 1 << 10;
/// Nanoseconds in which the clocks can be read: whoever took longer was put aside meanwhile.
const CLOSE: u64 = 5_000;
/// Looks at the clocks at most. On a host where each takes longer than that the best one has to do.
const LOOKS: usize = 4;

const BOOTTIME: u64 = 7;

core::arch::global_asm!(include_str!("vdso.s"));

unsafe extern "C" {
    static lambswool_vdso_begin: u8;
    static lambswool_vdso_end: u8;
    static lambswool_vdso_touch: u8;
}

/// The shared object.
fn image() -> &'static [u8] {
    let (begin, end) = (&raw const lambswool_vdso_begin, &raw const lambswool_vdso_end);
    let length = end.addr() - begin.addr();
    // SAFETY: the two labels enclose bytes of this program that nobody writes.
    unsafe { std::slice::from_raw_parts(begin, length) }
}

/// Where the page is: before the shared object.
pub(crate) const fn page_of(space: &SpaceState) -> u64 {
    space.vdso - PAGE
}

/// Where the routine is that touches pages, if the guest still has the shared object as it was given, and the page before
/// it: there, from [`LIST`] on, is what it touches.
pub(crate) fn touching(frozen: &Frozen, space: &SpaceState) -> Option<u64> {
    let image = image();
    let (start, end) = (space.vdso, space.vdso + image.len() as u64);
    let whole = space.regions.allow(page_of(space)..start, Rights::READ)
        && space.regions.allow(start..page_up(end), Rights::EXECUTE)
        && frozen.bytes(start..end) == image;
    let at = (&raw const lambswool_vdso_touch).addr() - image.as_ptr().addr();
    whole.then_some(start + at as u64)
}

/// Maps the shared object at `vdso` and, before it, the page, on which no clock has a base yet.
pub(crate) fn lay_out(space: &mut Space, vdso: u64) -> Result<(), rustix::io::Errno> {
    space.state.vdso = vdso;
    space.map(Place::FixedIfFree(page_of(&space.state)), PAGE, Rights::READ)?;
    let image = image();
    let length = image.len() as u64;
    space.map(Place::FixedIfFree(vdso), length, Rights::WRITE)?;
    space.write(vdso, length)?.copy_from_slice(image);
    space.protect(vdso, length, Rights::EXECUTE)
}

/// Keeps a machine's page. Not part of what is reset: it remembers what the guest may have seen.
#[derive(Debug)]
pub(crate) struct ClockPage {
    /// As the host's counter is said to run, in 2⁻³² ns a tick.
    nominal: u64,
    /// As it was last measured to run.
    rate: u64,
    /// Since when it is being measured.
    since: Moment,
    /// What the guest's page says, or said before it was put back; before the first one, where its clock begins at the
    /// earliest.
    seen: (Moment, u64),
    /// Whether the page says something else.
    lost: bool,
}

/// The same moment on the counter and on the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    monotonic: u64,
}

impl ClockPage {
    /// One that has not been written yet. `floor` is the latest that the guest was told to be by another one, in
    /// nanoseconds: its clock does not go back behind that.
    pub(crate) fn new(ticks: Ticks, floor: u64) -> Self {
        let nominal = ticks.rate();
        let since = look(nominal).now;
        // At rest: a guest that does not run is told nothing.
        let seen = (Moment { monotonic: floor, ticks: since.ticks }, 0);
        Self { nominal, rate: nominal, since, seen, lost: true }
    }

    /// The latest that the guest can have been told to be, in nanoseconds of the monotonic clock.
    pub(crate) fn told(&self) -> u64 {
        told(self.seen, read_ticks())
    }

    /// The page was put back to what it was: it is written anew before the guest runs on.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// Writes the page anew if it is old. Whenever the guest is about to run on.
    pub(crate) fn refresh(&mut self, space: &mut Space) {
        let age = read_ticks().wrapping_sub(self.seen.0.ticks);
        if !self.lost && scaled(age, self.nominal) < FRESH {
            return;
        }
        // A guest may do with the page what it likes: then it has none.
        let page = page_of(&space.state);
        if space.regions().at(page).is_none_or(|(_, rights)| rights != Rights::READ) {
            return;
        }
        let HostClocks { real, boot, now } = look(self.nominal);
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

    /// The host's clock is slewed: its rate is measured now and then.
    fn measure(&mut self, now: Moment) {
        let took = now.monotonic.saturating_sub(self.since.monotonic);
        let ticks = now.ticks.saturating_sub(self.since.ticks);
        if took < MEASURED || ticks == 0 {
            return;
        }
        let rate = (u128::from(took) << 32) / u128::from(ticks);
        let nearby = self.nominal - self.nominal / SLOWER..=self.nominal + self.nominal / SLOWER;
        // Where the host slept, one of the two stood still.
        let rate = u64::try_from(rate).ok().filter(|rate| nearby.contains(rate));
        (self.rate, self.since) = (rate.unwrap_or(self.nominal), now);
    }
}

/// What a machine's guest tells the time by, from `floor` on at the earliest: see [`ClockPage::new`].
pub(crate) fn keep_time(
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

/// What the page says from now on: where the guest takes the clock to be, if that is later, and slower then.
fn next(seen: (Moment, u64), now: Moment, rate: u64) -> (Moment, u64) {
    let seen = told(seen, now.ticks);
    if seen > now.monotonic {
        return (Moment { monotonic: seen, ..now }, rate - rate / SLOWER);
    }
    (now, rate)
}

/// What a guest takes the monotonic clock to be, by a page.
fn told((base, rate): (Moment, u64), ticks: u64) -> u64 {
    base.monotonic + scaled(ticks.saturating_sub(base.ticks), rate)
}

/// Nanoseconds of so many ticks.
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

/// Looks at them, by a counter that is said to run as fast as this.
fn look(nominal: u64) -> HostClocks {
    let clocks = || [ClockId::Realtime, ClockId::Boottime, ClockId::Monotonic].map(read);
    let ([real, boot, monotonic], ticks) = at_once(read_ticks, clocks, nominal);
    HostClocks { real, boot, now: Moment { ticks, monotonic } }
}

/// What was read, and the counter right behind it: a guest is then behind the host's clocks by nanoseconds, and never
/// ahead. Of several attempts the quickest, and no further one once nothing came in between.
fn at_once<T>(counter: impl Fn() -> u64, read: impl Fn() -> T, rate: u64) -> (T, u64) {
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
pub(crate) fn says(space: &Space) -> u64 {
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
        /// The host's clock runs up to a thousandth slower or faster than its rate was measured to be.
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
    fn a_clock_that_nobody_was_told_does_not_go_on() {
        let floor = (Moment { ticks: 1_000, monotonic: 5_000 }, 0);
        let host = Moment { ticks: 90_000_000_000, monotonic: 8_000 };
        assert_eq!(next(floor, host, RATE).0.monotonic, 8_000);
    }

    #[test]
    fn the_clock_and_the_counter_are_of_one_moment_whenever_their_reader_is_put_aside() {
        // A tick is a nanosecond, and each look at either takes fifty.
        for aside in 0..3 {
            let (time, looks) = (Cell::new(1_000_u64), Cell::new(0));
            let look = || {
                let slept = if looks.get() == aside { 20_000_000 } else { 0 };
                looks.set(looks.get() + 1);
                time.set(time.get() + slept + 50);
                time.get()
            };
            let (clock, ticks) = at_once(look, look, 1 << 32);
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
        let (clock, ticks) = at_once(look, look, 1 << 32);
        assert_eq!((ticks - clock, looks.get()), (6_000, 3 * LOOKS));
    }
}
