//! How often each handler is called, and how many of its calls were under way then: plain data.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use function::VersionId;

/// A call counts half after this time.
const HALF_LIFE: Duration = Duration::from_secs(600);

/// Rates below one call in about seven half-lives are forgotten.
const FORGOTTEN: f64 = 0.01;

/// Events of late; old ones count less.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    weight: f64,
    counted: Option<Instant>,
}

impl Rate {
    pub(crate) fn count(&mut self, now: Instant) {
        self.weight = self.weight(now) + 1.0;
        self.counted = Some(now);
    }

    pub(crate) fn per_second(&self, now: Instant) -> f64 {
        self.weight(now) * std::f64::consts::LN_2 / HALF_LIFE.as_secs_f64()
    }

    fn weight(&self, now: Instant) -> f64 {
        let Some(counted) = self.counted else { return 0.0 };
        let age = now.saturating_duration_since(counted).as_secs_f64();
        self.weight * (-age / HALF_LIFE.as_secs_f64()).exp2()
    }
}

/// For each handler the rates of its calls, by how many others were under way.
#[derive(Debug, Default)]
pub(crate) struct Popularity(HashMap<VersionId, Vec<Rate>>);

impl Popularity {
    /// A call came while `busy` others of its handler were under way.
    pub(crate) fn called(&mut self, handler: &VersionId, busy: usize, now: Instant) {
        if !self.0.contains_key(handler) {
            self.0.insert(handler.clone(), Vec::new());
        }
        let Some(rates) = self.0.get_mut(handler) else { return };
        if rates.len() <= busy {
            rates.resize(busy + 1, Rate::default());
        }
        rates[busy].count(now);
    }

    /// Calls a second that come while at least `busy` others of the handler are under way: those
    /// that need one more instance than that.
    pub(crate) fn per_second(&self, handler: &VersionId, busy: usize, now: Instant) -> f64 {
        let rates = self.0.get(handler).and_then(|rates| rates.get(busy..)).unwrap_or_default();
        rates.iter().map(|rate| rate.per_second(now)).sum()
    }

    pub(crate) fn forget(&mut self, handler: &VersionId) {
        self.0.remove(handler);
    }

    /// Forgets handlers without recent calls.
    pub(crate) fn tidy(&mut self, now: Instant) {
        self.0.retain(|_, rates| rates.iter().any(|rate| rate.weight(now) > FORGOTTEN));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_further_instance_is_needed_by_fewer_calls_and_all_fade() {
        let (mut popularity, handler) = (Popularity::default(), VersionId(Arc::from("h")));
        let now = Instant::now();
        for busy in [0, 0, 0, 1, 0, 2] {
            popularity.called(&handler, busy, now);
        }
        let rates = |at| [0, 1, 2, 3].map(|busy| popularity.per_second(&handler, busy, at));
        let at_once = rates(now);
        assert!(at_once[0] > at_once[1] && at_once[1] > at_once[2] && at_once[3] == 0.0);
        let later = rates(now + HALF_LIFE);
        assert!((later[0] - at_once[0] / 2.0).abs() < 1e-12);
        popularity.tidy(now + 20 * HALF_LIFE);
        assert!(popularity.0.is_empty());
    }
}
