//! Polling one queue.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws::sqs::{BATCH, Message};
use aws::{Client, Failure};
use bytes::Bytes;
use function::WholeName;
use sandbox::InvocationId;
use sandbox::wire::LambdaCall;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Source;
use super::batch::{Batch, batches, done};
use crate::invoke::{Event, Invoker};
use crate::random;

/// Calls at a time of a source that says nothing, as on AWS.
const CALLS: u32 = 5;

/// How long the queue waits for a first message. A worker that stops waits for it.
const WAIT: Duration = Duration::from_secs(5);

/// After the first failure of the service, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What polls a queue until it is told to stop.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) invoker: Arc<Invoker>,
    pub(super) client: Arc<Client>,
    pub(super) name: WholeName,
    pub(super) source: Source,
    /// What came of the last messages.
    pub(super) result: Arc<Mutex<String>>,
    pub(super) stop: CancellationToken,
}

impl Poller {
    pub(super) async fn run(self) {
        let poller = Arc::new(self);
        let most = poller.source.concurrency.unwrap_or(CALLS).max(1);
        let calls = Arc::new(Semaphore::new(most as usize));
        let mut pause = PAUSES.0;
        let mut queue = None;
        poller.tell("No records processed");
        while !poller.stop.is_cancelled() {
            let Ok(place) = Arc::clone(&calls).acquire_owned().await else { return };
            match poller.gather(&mut queue).await {
                Ok(messages) => {
                    pause = PAUSES.0;
                    let (poller, queue) = (Arc::clone(&poller), queue.clone().unwrap_or_default());
                    if messages.is_empty() {
                        continue;
                    }
                    tokio::spawn(async move {
                        for batch in batches(&poller.source, messages) {
                            poller.call(&queue, batch).await;
                        }
                        drop(place);
                    });
                }
                Err(failure) => {
                    poller.tell(&format!("PROBLEM: {failure}"));
                    tracing::warn!(function = %poller.name, queue = poller.source.queue, %failure, "a queue cannot be polled");
                    // It may have been made anew.
                    queue = None;
                    let paused = tokio::time::sleep(pause);
                    poller.stop.run_until_cancelled(paused).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// As many messages as a call gets: when there is a first one, what else comes within the window.
    async fn gather(self: &Arc<Self>, queue: &mut Option<String>) -> Result<Vec<Message>, Failure> {
        let mut messages = Vec::new();
        let mut until = None;
        while messages.len() < self.source.batch && !self.stop.is_cancelled() {
            let left = until.map(|until: Instant| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let wait = left.unwrap_or(WAIT).min(WAIT);
            let most = (self.source.batch - messages.len()).min(BATCH);
            let (poller, known) = (Arc::clone(self), queue.clone());
            let asked = tokio::task::spawn_blocking(move || poller.receive(known, most, wait));
            let Ok(received) = asked.await else { break };
            let (url, some) = match received {
                Ok(received) => received,
                // What has come already is not to wait.
                Err(_) if !messages.is_empty() => break,
                Err(failure) => return Err(failure),
            };
            *queue = Some(url);
            if some.is_empty() && messages.is_empty() {
                break;
            }
            messages.extend(some);
            let window = Duration::from_secs(self.source.window);
            until.get_or_insert_with(|| Instant::now() + window);
        }
        Ok(messages)
    }

    /// Blocks until there is a message, or the time to wait is over.
    fn receive(
        &self,
        queue: Option<String>,
        most: usize,
        wait: Duration,
    ) -> Result<(String, Vec<Message>), Failure> {
        let url = match queue {
            Some(url) => url,
            None => self.client.queue_url(&self.source.account, &self.source.queue)?,
        };
        let messages = self.client.receive(&url, most, wait)?;
        Ok((url, messages))
    }

    /// Calls the function, and deletes the messages that it has done with.
    async fn call(self: &Arc<Self>, queue: &str, batch: Batch) {
        let answer = match self.answer(&batch).await {
            Ok(answer) => answer,
            Err(why) => return self.tell(&format!("PROBLEM: {why}")),
        };
        let gone = done(&self.source, &batch, &answer);
        let receipts: Vec<String> = gone.iter().map(|one| one.receipt_handle.clone()).collect();
        let is_all = receipts.len() == batch.messages.len();
        let (poller, queue) = (Arc::clone(self), queue.to_owned());
        let deleted = tokio::task::spawn_blocking(move || {
            let receipts: Vec<&str> = receipts.iter().map(String::as_str).collect();
            poller.client.delete(&queue, &receipts)
        });
        match deleted.await {
            Ok(Ok(())) if is_all => self.tell("OK"),
            Ok(Ok(())) => self.tell("PROBLEM: the function's answer names messages that failed"),
            Ok(Err(failure)) => self.tell(&format!("PROBLEM: {failure}")),
            Err(_) => self.tell("PROBLEM: deleting broke off"),
        }
    }

    async fn answer(&self, batch: &Batch) -> Result<Bytes, String> {
        let mut drawn = [0; 16];
        random::fill(&mut drawn).map_err(|_| "the kernel gave no random bytes")?;
        let lambda =
            LambdaCall { function_arn: self.source.function_arn.clone(), ..LambdaCall::default() };
        let event = Event {
            body: Bytes::copy_from_slice(&batch.event),
            content_type: None,
            id: InvocationId::from_random(drawn),
            lambda: Some(Arc::new(lambda)),
            tail: false,
            parts: None,
        };
        let target = self.invoker.find_for_worker(&self.name, &self.source.version()).await;
        let target = target.map_err(|error| error.to_string())?;
        let served = self.invoker.call(target, event).await.map_err(|error| error.to_string())?;
        let outcome = served.result.map_err(|_| "Function call failed")?;
        Ok(outcome.body)
    }

    fn tell(&self, words: &str) {
        words.clone_into(&mut self.result.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
