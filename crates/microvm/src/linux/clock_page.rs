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
//! page was ahead of the host's clock it stays there, and goes slower until the host has caught up.
//!
//! A host whose kernel does not trust the counter itself, or whose machines read another one, gets no bases: then each
//! look at a clock leaves the machine ([`crate::hypervisor::Hypervisor::ticks`] says which it is).

use rustix::time::{ClockId, clock_gettime};

use super::clock::{MONOTONIC, REALTIME};
use crate::hypervisor::{Ticks, read_ticks};
use crate::layout::{PAGE, VDSO};
use crate::rights::Rights;
use crate::space::{Place, Space};

/// Where it is.
const CLOCK: u64 = VDSO - PAGE;
const BASES: u64 = CLOCK + 32;
/// Nanoseconds for which a page is good.
const FRESH: u64 = 10_000_000;
/// Nanoseconds after which the rate is measured anew.
const MEASURED: u64 = 1_000_000_000;
/// A page that is ahead goes slower by this part: more than any clock is slewed.
const SLOWER: u64 = 1 << 10;

const BOOTTIME: u64 = 7;

core::arch::global_asm!(include_str!("vdso.s"));

unsafe extern "C" {
    static lambswool_vdso_begin: u8;
    static lambswool_vdso_end: u8;
}

/// The shared object.
fn image() -> &'static [u8] {
    let (begin, end) = (&raw const lambswool_vdso_begin, &raw const lambswool_vdso_end);
    let length = end.addr() - begin.addr();
    // SAFETY: the two labels enclose bytes of this program that nobody writes.
    unsafe { std::slice::from_raw_parts(begin, length) }
}

/// Maps the shared object and, before it, the page, on which no clock has a base yet. Says where the object is.
pub(super) fn lay_out(space: &mut Space) -> Result<u64, rustix::io::Errno> {
    space.map(Place::FixedIfFree(CLOCK), PAGE, Rights::READ)?;
    let image = image();
    let length = image.len() as u64;
    space.map(Place::FixedIfFree(VDSO), length, Rights::WRITE)?;
    space.write(VDSO, length)?.copy_from_slice(image);
    space.protect(VDSO, length, Rights::EXECUTE)?;
    Ok(VDSO)
}

/// Keeps a machine's page. Not part of what is reset: it remembers what the guest may have seen.
#[derive(Debug)]
pub(super) struct ClockPage {
    /// As the host's counter is said to run, in 2⁻³² ns a tick.
    nominal: u64,
    /// As it was last measured to run.
    rate: u64,
    /// Since when it is being measured.
    since: Moment,
    /// What the guest's page says, or said before it was put back.
    seen: Option<(Moment, u64)>,
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
    pub(super) fn new(ticks: Ticks) -> Self {
        let nominal = ticks.rate();
        let since = Moment { monotonic: read(ClockId::Monotonic), ticks: read_ticks() };
        Self { nominal, rate: nominal, since, seen: None, lost: true }
    }

    /// The page was put back to what it was: it is written anew before the guest runs on.
    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// Writes the page anew if it is old. Whenever the guest is about to run on.
    pub(super) fn refresh(&mut self, space: &mut Space) {
        let age = self.seen.map(|(base, _)| read_ticks().wrapping_sub(base.ticks));
        if !self.lost && age.is_some_and(|age| scaled(age, self.nominal) < FRESH) {
            return;
        }
        // A guest may do with the page what it likes: then it has none.
        if space.regions().at(CLOCK).is_none_or(|(_, rights)| rights != Rights::READ) {
            return;
        }
        let (real, boot) = (read(ClockId::Realtime), read(ClockId::Boottime));
        // The counter last: a guest is then behind the host's clocks by nanoseconds, and never ahead.
        let now = Moment { monotonic: read(ClockId::Monotonic), ticks: read_ticks() };
        self.measure(now);
        let (base, rate) = next(self.seen, now, self.rate);
        let ahead = base.monotonic - now.monotonic;

        let arena = space.arena_mut();
        let written = arena.word(CLOCK).wrapping_add(1);
        for (at, word) in [(0, written), (8, base.ticks), (16, rate)] {
            arena.set_word(CLOCK + at, word);
        }
        let bases = [(REALTIME, real), (MONOTONIC, base.monotonic), (BOOTTIME, boot + ahead)];
        for (clock, word) in bases {
            arena.set_word(BASES + clock * 8, word);
        }
        (self.seen, self.lost) = (Some((base, rate)), false);
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

/// What the page says from now on: where the guest takes the clock to be, if that is later, and slower then.
fn next(seen: Option<(Moment, u64)>, now: Moment, rate: u64) -> (Moment, u64) {
    let seen = seen.map_or(0, |(base, rate)| told(base, rate, now.ticks));
    if seen > now.monotonic {
        return (Moment { monotonic: seen, ..now }, rate - rate / SLOWER);
    }
    (now, rate)
}

/// What a guest takes the monotonic clock to be, by a page.
fn told(base: Moment, rate: u64, ticks: u64) -> u64 {
    base.monotonic + scaled(ticks.saturating_sub(base.ticks), rate)
}

/// Nanoseconds of so many ticks.
fn scaled(ticks: u64, rate: u64) -> u64 {
    let nanoseconds = (u128::from(ticks) * u128::from(rate)) >> 32;
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// Nanoseconds of a host's clock.
fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, rest) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests {
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
            let mut page: Option<(Moment, u64)> = None;
            for (step, drift) in steps {
                let before = page.map_or(0, |(base, rate)| told(base, rate, ticks));
                ticks += step;
                let took = i64::try_from(scaled(step, RATE)).unwrap();
                host = host.checked_add_signed(took + took * drift / 1_000_000).unwrap();
                let seen = page.map_or(0, |(base, rate)| told(base, rate, ticks));
                prop_assert!(before <= seen);
                let now = next(page, Moment { ticks, monotonic: host }, RATE);
                let after = told(now.0, now.1, ticks);
                prop_assert!(seen <= after, "from {} to {}", seen, after);
                prop_assert!(after >= host);
                // Ahead of the host's by no more than a step's worth of drift for each step.
                prop_assert!(after - host <= 60 * 20_000, "{} ahead", after - host);
                page = Some(now);
            }
        }
    }

    #[test]
    fn a_clock_that_is_ahead_is_caught_up_with() {
        let mut page = Some((Moment { ticks: 0, monotonic: 1_000_000 }, RATE));
        // A millisecond ahead: after some seconds of slower running it is not.
        for step in 1..400_u64 {
            let ticks = step * 25_000_000;
            page = Some(next(page, Moment { ticks, monotonic: scaled(ticks, RATE) }, RATE));
        }
        let (base, rate) = page.unwrap();
        assert_eq!((base.monotonic, rate), (scaled(base.ticks, RATE), RATE));
    }
}
