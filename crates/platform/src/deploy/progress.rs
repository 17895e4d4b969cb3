//! Progress of a long operation: events for the lines of a reply, or for a terminal.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;
use utoipa::ToSchema;

pub use layers::{Progress, Silent};

/// One event of a deploy, as a line of a reply of `application/x-ndjson`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// A new step begins.
    Progress(String),
    /// A line of the installer's own output.
    Line(String),
    /// Bytes moved in this step so far, and in all when that is known.
    Bytes(u64, Option<u64>),
}

/// Hands events to a task that sends them on.
#[derive(Debug)]
pub struct Sender {
    events: UnboundedSender<Event>,
    // When bytes were told last: they change thousands of times a second, and a reader wants ten.
    told: Mutex<Option<Instant>>,
}

impl Sender {
    /// Sends events to a channel whose reader may go away at any time.
    #[must_use]
    pub fn new(events: UnboundedSender<Event>) -> Self {
        Self { events, told: Mutex::new(None) }
    }

    fn send(&self, event: Event) {
        // The reader has gone; the work goes on.
        drop(self.events.send(event));
    }
}

impl Progress for Sender {
    fn step(&self, text: &str) {
        self.send(Event::Progress(text.to_owned()));
    }

    fn line(&self, text: &str) {
        self.send(Event::Line(text.to_owned()));
    }

    fn bytes(&self, done: u64, total: Option<u64>) {
        let now = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let due = told.is_none_or(|last| now.duration_since(last) >= Duration::from_millis(100));
        if due || Some(done) == total {
            *told = Some(now);
            drop(told);
            self.send(Event::Bytes(done, total));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn bytes_are_told_a_few_times_a_second_and_at_the_end() {
        let (events, mut told) = unbounded_channel();
        let sender = Sender::new(events);
        for done in 0..=10_000 {
            sender.bytes(done, Some(10_000));
        }
        drop(sender);
        let mut all = Vec::new();
        while let Ok(event) = told.try_recv() {
            all.push(event);
        }
        assert!(all.len() < 50, "{}", all.len());
        assert_eq!(all.last(), Some(&Event::Bytes(10_000, Some(10_000))));
    }

    #[test]
    fn an_event_is_an_object_with_one_key() {
        assert_eq!(serde_json::to_string(&Event::Line("a".to_owned())).unwrap(), r#"{"line":"a"}"#);
        assert_eq!(serde_json::to_string(&Event::Bytes(1, None)).unwrap(), r#"{"bytes":[1,null]}"#);
    }
}
