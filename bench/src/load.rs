//! Load: closed loops, and an open loop whose latencies count from when a call was due.
//!
//! A closed loop hides waits: while an answer is late, it sends nothing. The open loop sends on a fixed schedule whatever
//! happens, and a call that could not be sent in time counts its lateness as latency.
//!
//! Everything runs on one thread, so that the generator takes at most one processor and no lock; only the schedule has
//! a thread of its own, since tokio's timers have a granularity of a millisecond.

use std::cell::Cell as Counter;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::unbounded_channel;

use crate::cpu::{Clocks, CpuGroup, Spent};
use crate::sample::{Mode, Sample, float};

/// A boxed future on this thread.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// One answered call.
#[derive(Debug)]
pub(crate) struct Shot {
    /// When the first byte of the answer was here.
    pub(crate) first: Instant,
    /// When nothing was left to do or to wait for.
    pub(crate) done: Instant,
    /// Of this, what the function itself says that it worked; zero where it says nothing.
    pub(crate) own: Duration,
    /// Modules that it had to import from packages, as it says.
    pub(crate) imported: usize,
    /// `Lambswool-Start`.
    pub(crate) start: String,
    /// `Server-Timing`.
    pub(crate) stages: String,
}

impl Shot {
    /// Of something that is no worker.
    pub(crate) fn plain(first: Instant) -> Self {
        let (done, own) = (Instant::now(), Duration::ZERO);
        Self { first, done, own, imported: 0, start: String::new(), stages: String::new() }
    }
}

/// What is called.
pub(crate) trait Target {
    /// Its name in all tables.
    fn name(&self) -> &str;

    /// One call, by the client of this number.
    fn shoot(&self, client: usize) -> Pending<'_, Shot>;

    /// Waits until the client may call: not part of the call.
    fn before(&self, _client: usize) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Waits until what calls left behind is cleaned up.
    fn settle(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Whose processor time is counted.
    fn group(&self) -> Option<&CpuGroup> {
        None
    }
}

/// When a closed loop ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After so many calls.
    Calls(usize),
    /// When this time has passed.
    Time {
        /// How long.
        time: Duration,
        /// But not before so many calls have begun.
        least: usize,
        /// And at the latest when so many have.
        most: usize,
    },
}

/// One arm at one level in one round.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Arm.
    pub(crate) arm: String,
    /// Round.
    pub(crate) round: u32,
    /// How load was made.
    pub(crate) mode: Mode,
    /// Clients or calls per second.
    pub(crate) level: f64,
    /// Seconds from the first call to the last answer.
    pub(crate) answered: f64,
    /// Processor time, and all time, until everything was cleaned up.
    pub(crate) spent: Spent,
    /// Calls.
    pub(crate) samples: Vec<Sample>,
}

impl Cell {
    /// Calls with an answer.
    pub(crate) fn good(&self) -> usize {
        self.samples.iter().filter(|sample| sample.error.is_empty()).count()
    }

    /// Answers a second, cleaning up included.
    pub(crate) fn throughput(&self) -> f64 {
        float(self.good()) / self.spent.wall
    }
}

/// `clients` at a time.
pub(crate) async fn closed(
    target: &dyn Target,
    round: u32,
    clients: usize,
    until: Until,
) -> Result<Cell> {
    let before = Clocks::read(target.group())?;
    let began = Instant::now();
    let begun = Counter::new(0usize);
    let client = async |number: usize| {
        let mut samples = Vec::new();
        loop {
            let more = match until {
                Until::Calls(calls) => begun.get() < calls,
                Until::Time { time, least, most } => {
                    begun.get() < most && (began.elapsed() < time || begun.get() < least)
                }
            };
            if !more {
                return samples;
            }
            begun.set(begun.get() + 1);
            let ready = target.before(number).await;
            let due = Instant::now();
            let outcome = match ready {
                Ok(()) => target.shoot(number).await,
                Err(error) => Err(error),
            };
            samples.push(sample(
                target,
                round,
                Mode::Closed,
                float(clients),
                (began, due, due),
                outcome,
            ));
        }
    };
    let samples = join_all((0..clients).map(client)).await.concat();
    finish(target, round, Mode::Closed, float(clients), (began, before), samples).await
}

/// `rate` calls a second, `calls` of them.
pub(crate) async fn open(target: &dyn Target, round: u32, rate: f64, calls: usize) -> Result<Cell> {
    let before = Clocks::read(target.group())?;
    let (due, mut told) = unbounded_channel();
    // A little later, so that the thread is there for the first.
    let began = Instant::now() + Duration::from_millis(5);
    let schedule = std::thread::spawn(move || {
        // 50 µs by default, which would all be added to latencies.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        for number in 0..calls {
            let when = began + Duration::from_secs_f64(float(number) / rate);
            if let Some(wait) = when.checked_duration_since(Instant::now()) {
                std::thread::sleep(wait);
            }
            if due.send((number, when)).is_err() {
                return;
            }
        }
    });
    let call = async |number: usize, due: Instant| {
        let sent = Instant::now();
        let outcome = target.shoot(number).await;
        sample(target, round, Mode::Open, rate, (began, due, sent), outcome)
    };
    let (mut running, mut samples, mut more) = (FuturesUnordered::new(), Vec::new(), true);
    while more || !running.is_empty() {
        tokio::select! {
            next = told.recv(), if more => match next {
                Some((number, due)) => running.push(call(number, due)),
                None => more = false,
            },
            Some(sample) = running.next(), if !running.is_empty() => samples.push(sample),
        }
    }
    drop(running);
    drop(schedule.join());
    finish(target, round, Mode::Open, rate, (began, before), samples).await
}

fn sample(
    target: &dyn Target,
    round: u32,
    mode: Mode,
    level: f64,
    (began, due, sent): (Instant, Instant, Instant),
    outcome: Result<Shot>,
) -> Sample {
    let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
    let (shot, error) = match outcome {
        Ok(shot) => (shot, String::new()),
        Err(error) => (Shot::plain(Instant::now()), format!("{error:#}")),
    };
    Sample {
        arm: target.name().to_owned(),
        round,
        mode,
        level,
        at_ms: ms(began, due),
        late_ms: ms(due, sent),
        latency_ms: ms(due, shot.first),
        own_ms: shot.own.as_secs_f64() * 1e3,
        imported: shot.imported,
        total_ms: ms(due, shot.done),
        start: shot.start,
        stages: shot.stages,
        error,
    }
}

async fn finish(
    target: &dyn Target,
    round: u32,
    mode: Mode,
    level: f64,
    (began, before): (Instant, Clocks),
    samples: Vec<Sample>,
) -> Result<Cell> {
    let answered = began.elapsed().as_secs_f64();
    target.settle().await?;
    let spent = Clocks::read(target.group())?.since(&before);
    Ok(Cell { arm: target.name().to_owned(), round, mode, level, answered, spent, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Slow(Duration);

    impl Target for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
            Box::pin(async {
                // Blocks the generator: the worst that a target may do.
                std::thread::sleep(self.0);
                Ok(Shot::plain(Instant::now()))
            })
        }
    }

    #[tokio::test]
    async fn an_open_loop_counts_the_wait_of_calls_that_could_not_be_sent() {
        let cell = open(&Slow(Duration::from_millis(20)), 0, 200.0, 20).await.unwrap();
        let last = cell.samples.iter().map(|s| s.latency_ms).fold(0.0, f64::max);
        // 20 calls of 20 ms end after 400 ms; the last was due after 95 ms.
        assert!(last > 280.0, "{last}");
        assert_eq!(cell.good(), 20);
    }

    #[tokio::test]
    async fn a_closed_loop_makes_exactly_the_calls_that_were_asked_for() {
        let cell = closed(&Slow(Duration::from_millis(1)), 0, 3, Until::Calls(10)).await.unwrap();
        assert_eq!(cell.samples.len(), 10);
    }
}
