//! What happened: for the judge of each call, for the reader of a failure, for the table at the end.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::verdict::Verdict;

/// Events that a failure shows.
const LAST: usize = 25;

/// An answer that takes longer is listed, with what was broken meanwhile.
const OUTLIER: Duration = Duration::from_secs(5);

/// More failures than anybody reads.
const MOST: usize = 50;

#[derive(Debug)]
pub(crate) struct History {
    begun: Instant,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    events: VecDeque<String>,
    breaks: Vec<Break>,
    tallies: BTreeMap<&'static str, Tally>,
    outliers: Vec<(Duration, String)>,
    failures: Vec<String>,
    failed: usize,
}

/// Something that was broken on purpose.
#[derive(Debug)]
struct Break {
    what: String,
    over: Option<Instant>,
}

/// Calls of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) verdicts: BTreeMap<&'static str, u64>,
    pub(crate) took: Vec<Duration>,
}

/// Something is broken until this is dropped.
#[derive(Debug)]
pub(crate) struct Breaking<'a> {
    history: &'a History,
    index: usize,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), told: Mutex::default() }
    }

    fn at(&self, when: Instant) -> f64 {
        when.duration_since(self.begun).as_secs_f64()
    }

    pub(crate) fn event(&self, what: impl fmt::Display) {
        let line = format!("{:9.3} {what}", self.at(Instant::now()));
        let mut told = self.told.lock().unwrap();
        if told.events.len() == LAST {
            told.events.pop_front();
        }
        told.events.push_back(line);
    }

    /// Says that something is being broken.
    pub(crate) fn breaking(&self, what: impl fmt::Display) -> Breaking<'_> {
        self.event(format_args!("-- {what}"));
        let mut told = self.told.lock().unwrap();
        told.breaks.push(Break { what: what.to_string(), over: None });
        Breaking { history: self, index: told.breaks.len() - 1 }
    }

    /// Notes how a call went.
    pub(crate) fn called(
        &self,
        kind: &'static str,
        call: u64,
        begun: Instant,
        verdict: &Verdict,
        timing: &str,
    ) {
        let took = begun.elapsed();
        let name = verdict.name();
        self.event(format_args!("{kind} {call}: {name} after {:.3} s", took.as_secs_f64()));
        {
            let mut told = self.told.lock().unwrap();
            let tally = told.tallies.entry(kind).or_default();
            *tally.verdicts.entry(name).or_default() += 1;
            if matches!(verdict, Verdict::Right) {
                tally.took.push(took);
            }
        }
        if took > OUTLIER {
            self.outlier(kind, call, begun, took, timing);
        }
        if let Verdict::Wrong(why) = verdict {
            self.failure(format_args!("{kind} {call}: {why}"));
        }
    }

    fn outlier(&self, kind: &str, call: u64, begun: Instant, took: Duration, timing: &str) {
        let mut told = self.told.lock().unwrap();
        let overlapping = told.breaks.iter().filter(|one| one.over.is_none_or(|over| over > begun));
        let causes: Vec<&str> = overlapping.map(|one| one.what.as_str()).collect();
        let causes = if causes.is_empty() { "nothing known".to_owned() } else { causes.join(", ") };
        let busy = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let busy = busy.split(' ').next().unwrap_or_default();
        let line = format!(
            "{:9.3} {kind} {call} took {:.1} s; broken meanwhile: {causes}; load average {busy}; {timing}",
            self.at(begun),
            took.as_secs_f64()
        );
        told.outliers.push((took, line));
    }

    /// A promise was not kept.
    pub(crate) fn failure(&self, what: impl fmt::Display) {
        let mut told = self.told.lock().unwrap();
        told.failed += 1;
        if told.failures.len() < MOST {
            let at = self.at(Instant::now());
            let events: Vec<_> = told.events.iter().cloned().collect();
            let events = events.join("\n        ");
            eprintln!("FAILURE {at:.3} {what}\n        {events}");
            told.failures.push(format!("{at:9.3} {what}"));
        }
    }

    pub(crate) fn last_events(&self) -> String {
        self.told.lock().unwrap().events.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn tallies(&self) -> BTreeMap<&'static str, Tally> {
        self.told.lock().unwrap().tallies.clone()
    }

    /// The slowest first.
    pub(crate) fn outliers(&self) -> Vec<String> {
        let mut outliers = self.told.lock().unwrap().outliers.clone();
        outliers.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        outliers.into_iter().map(|(_, line)| line).collect()
    }

    pub(crate) fn failures(&self) -> (usize, Vec<String>) {
        let told = self.told.lock().unwrap();
        (told.failed, told.failures.clone())
    }

    /// How often each thing was broken.
    pub(crate) fn breaks(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for one in &self.told.lock().unwrap().breaks {
            *counts.entry(one.what.clone()).or_default() += 1;
        }
        counts
    }
}

impl Drop for Breaking<'_> {
    fn drop(&mut self) {
        let mut told = self.history.told.lock().unwrap();
        told.breaks[self.index].over = Some(Instant::now());
    }
}
