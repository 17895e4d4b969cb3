//! What a call has been through: its stages, and where its sandbox came from.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument, Span, debug_span};

use crate::call::{CallError, Outcome, Stage, Stages, Start};
use crate::fault;

/// Kept beside a call, so that it is told even when the call fails.
#[derive(Debug, Default)]
pub(crate) struct Journey {
    pub(crate) start: Option<Start>,
    pub(crate) stages: Stages,
    /// Bytes that its instance cost when the call ended; only of a function that is told so.
    pub(crate) memory: u64,
    /// The end of what it wrote into the log, if that was asked for.
    pub(crate) tail: Vec<u8>,
}

impl Journey {
    /// Runs one stage in its span and takes its time.
    pub(crate) async fn stage<F: Future>(&mut self, stage: Stage, work: F) -> F::Output {
        fault::point(stage.as_str()).await;
        let begun = Instant::now();
        let output = work.instrument(span(stage)).await;
        self.stages.record(stage, begun.elapsed());
        output
    }

    /// How long a stage took, that the call passed.
    pub(crate) fn took(&self, stage: Stage) -> Option<Duration> {
        self.stages.0.iter().find(|(name, _)| *name == stage).map(|(_, took)| *took)
    }

    /// Milliseconds that making and loading its sandbox took; none: none was made.
    pub(crate) fn made_in_ms(&self) -> Option<f64> {
        let spent = [Stage::Fork, Stage::Load].into_iter().filter_map(|stage| self.took(stage));
        spent.map(|took| took.as_secs_f64() * 1e3).reduce(|fork, load| fork + load)
    }

    /// Tells the metrics how the call went.
    pub(crate) fn publish(&self, result: &Result<Outcome, CallError>) {
        for (stage, took) in &self.stages.0 {
            metrics::histogram!("lambswool_stage_seconds", "stage" => stage.as_str())
                .record(took.as_secs_f64());
        }
        let start = self.start.map_or("none", Start::as_str);
        metrics::counter!("lambswool_calls_total", "start" => start, "outcome" => outcome(result))
            .increment(1);
    }
}

/// Counts a look into a cache.
pub(crate) fn looked(cache: &'static str, hit: bool) {
    let result = if hit { "hit" } else { "miss" };
    metrics::counter!("lambswool_cache_total", "cache" => cache, "result" => result).increment(1);
}

/// The span of a stage. A span's name is part of the program, hence the list.
pub(crate) fn span(stage: Stage) -> Span {
    match stage {
        Stage::Resolve => debug_span!("resolve"),
        Stage::Admit => debug_span!("admit"),
        Stage::HandlerCache => debug_span!("handler_cache"),
        Stage::ImportCache => debug_span!("import_cache"),
        Stage::Fork => debug_span!("fork"),
        Stage::Load => debug_span!("load"),
        Stage::Call => debug_span!("call"),
        Stage::Park => debug_span!("park"),
    }
}

fn outcome(result: &Result<Outcome, CallError>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(CallError::Busy { .. }) => "busy",
        Err(CallError::Raised(_)) => "raised",
        Err(CallError::NotLoaded(_)) => "not-loaded",
        Err(CallError::Died(_)) => "died",
        Err(CallError::TimedOut { .. }) => "timed-out",
        Err(CallError::BadAnswer(_) | CallError::TooLong { .. }) => "bad-answer",
        Err(CallError::NoSandbox(_)) => "no-sandbox",
        Err(CallError::NoSecrets(_)) => "no-secrets",
        Err(CallError::Lost) => "lost",
        Err(CallError::Stopping) => "stopping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_stage_is_timed_in_a_span_of_its_own_name() {
        let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry());
        let mut journey = Journey::default();
        for stage in Stage::ALL {
            let name = journey
                .stage(stage, async { tracing::Span::current().metadata().map(|span| span.name()) })
                .await;
            assert_eq!(name, Some(stage.as_str()));
        }
        assert_eq!(
            journey.stages.0.iter().map(|(stage, _)| *stage).collect::<Vec<_>>(),
            Stage::ALL
        );
    }
}
