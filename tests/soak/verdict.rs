//! Whether an answer is the right one, or one that what we broke explains.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::epoch::Epoch;
use crate::exchange::{Answer, Unanswered};
use crate::function::Expected;

/// What became of a call.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The right answer.
    Right,
    /// Its connection broke, or it was refused, because its worker was ending.
    CutOff,
    /// Nobody took it, or it was told to come back: it was never accepted.
    NotTaken,
    /// Its sandbox was killed by us.
    Killed,
    /// We hung up.
    HungUp,
    /// A promise was not kept.
    Wrong(String),
}

impl Verdict {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::CutOff => "cut off",
            Self::NotTaken => "not taken",
            Self::Killed => "killed",
            Self::HungUp => "hung up",
            Self::Wrong(_) => "WRONG",
        }
    }
}

/// Instances that we have killed of late, or may have: each may cost one call.
#[derive(Debug, Default)]
pub(crate) struct Kills(Mutex<Vec<Instant>>);

/// A paused instance is found dead when it is called, and given up when nobody calls it for a while.
const LATE: Duration = Duration::from_secs(30);

impl Kills {
    /// Before the kill.
    pub(crate) fn add(&self, count: usize) {
        self.0.lock().unwrap().extend(vec![Instant::now(); count]);
    }

    pub(crate) fn spend(&self) -> bool {
        let mut kills = self.0.lock().unwrap();
        kills.retain(|at| at.elapsed() < LATE);
        kills.pop().is_some()
    }
}

/// Judges the answer to a call.
pub(crate) fn judge(
    expected: &Expected,
    heard: &Result<Answer, Unanswered>,
    epoch: &Epoch,
    kills: &Kills,
) -> Verdict {
    let answer = match heard {
        Ok(answer) => answer,
        Err(why) => return unanswered(*why, epoch),
    };
    if fits(expected, answer) {
        return Verdict::Right;
    }
    if answer.status == 429 {
        return Verdict::NotTaken;
    }
    let kind = answer.json()["error"]["type"].as_str().unwrap_or_default().to_owned();
    let text = answer.text();
    // Sandboxes die with the warden, and what is under way when a worker stops is ended.
    let ending = ["died", "no-sandbox", "stopping"].contains(&kind.as_str());
    if epoch.doomed() && ending {
        return Verdict::CutOff;
    }
    if answer.status == 502 && text.contains("killed by SIGKILL (9)") && kills.spend() {
        return Verdict::Killed;
    }
    Verdict::Wrong(format!(
        "expected {expected:?}, got {} {text}; {}",
        answer.status, answer.timing
    ))
}

/// Whether a wrong answer is that of a handler whose connection broke, or who was not let through.
pub(crate) fn disconnected(verdict: &Verdict, heard: &Result<Answer, Unanswered>) -> bool {
    const BROKEN: [&str; 3] = ["ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"];
    let Ok(answer) = heard else { return false };
    let kind = &answer.json()["error"]["type"];
    matches!(verdict, Verdict::Wrong(_)) && BROKEN.iter().any(|broken| kind == broken)
}

/// Judges a connection without an answer.
pub(crate) fn unanswered(why: Unanswered, epoch: &Epoch) -> Verdict {
    match why {
        Unanswered::NotTaken if epoch.doomed() => Verdict::NotTaken,
        Unanswered::CutOff if epoch.doomed() => Verdict::CutOff,
        other => Verdict::Wrong(format!("{other:?}")),
    }
}

/// Judges the answer to a deploy or a removal: any of these statuses is right.
pub(crate) fn settle(
    heard: &Result<Answer, Unanswered>,
    statuses: &[u16],
    epoch: &Epoch,
) -> Verdict {
    match heard {
        Ok(answer) if statuses.contains(&answer.status) => Verdict::Right,
        Ok(answer) if epoch.doomed() && answer.status >= 500 => Verdict::CutOff,
        Ok(answer) => Verdict::Wrong(format!("{} {}", answer.status, answer.text())),
        Err(why) => unanswered(*why, epoch),
    }
}

fn fits(expected: &Expected, answer: &Answer) -> bool {
    match expected {
        Expected::Value(value) => answer.status == 200 && answer.json() == *value,
        Expected::Error(status, kind, words) => {
            let error = &answer.json()["error"];
            answer.status == *status
                && error["type"] == *kind
                && error["message"].as_str().is_some_and(|message| message.contains(words.as_str()))
        }
    }
}
