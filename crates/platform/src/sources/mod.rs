//! Event sources: queues whose messages functions are called with.
//!
//! ```text
//!   poller ─► receive, up to a batch ─► event: {"Records": […]} ─► call ─┬─ it answered: delete the messages
//!      ▲                                                                 ├─ it named some that failed: delete the others
//!      └─────────────────────────────────────────────────────────────────┴─ it failed: they come again, by the queue's rules
//! ```
//! A source is kept beside its function, and goes with it. Its queue is asked with the worker's credentials, which is for the
//! default tenant alone. Nothing of a message is kept here: what was not deleted is the queue's.

mod batch;
mod poller;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws::Client;
use function::{DEFAULT_TENANT, FunctionName, Qualifier, WholeName};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use self::poller::Poller;
use crate::access::{Permit, to};
use crate::functions::Registry;
use crate::invoke::Invoker;

/// What they are kept as, beside a function: [`Source`], as JSON, each under its own name.
pub const SOURCE: &str = "event-source";

/// Queues that are polled at a time: each takes a thread that waits.
const MOST: usize = 64;

/// So often it is looked whether what is polled is what is kept.
const PERIOD: Duration = Duration::from_secs(1);

/// What is told of a source whose queue nobody can ask.
const NO_SERVICE: &str =
    "PROBLEM: no queue is polled: `lambda_endpoints` in the worker's configuration names no sqs";

/// A queue, and what is done with its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// The queue's ARN.
    pub queue_arn: String,
    /// The account that the queue belongs to.
    pub account: String,
    /// The queue's region.
    pub region: String,
    /// The queue's name.
    pub queue: String,
    /// The function's ARN, as calls are told it.
    pub function_arn: String,
    /// The version or alias that is called; empty: the current version.
    pub qualifier: String,
    /// Whether it is polled.
    pub enabled: bool,
    /// Most messages of one call.
    pub batch: usize,
    /// Seconds that a call waits for more messages, from the first one on.
    pub window: u64,
    /// Whether the function's answer names the messages that failed.
    pub reports: bool,
    /// Most calls at a time; none: five.
    pub concurrency: Option<u32>,
    /// Seconds since 1970 at which it was last changed.
    pub changed: f64,
}

/// Keeps a poller for each source.
#[derive(Debug)]
pub struct Sources {
    registry: Arc<Registry>,
    invoker: Arc<Invoker>,
    client: Option<Arc<Client>>,
    running: Mutex<HashMap<String, Running>>,
}

/// A source that is polled.
#[derive(Debug)]
struct Running {
    /// As it was when its poller began.
    source: Source,
    stop: CancellationToken,
    result: Arc<Mutex<String>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Sources {
    /// Those of the functions of a registry; `client` asks their queues, where the operator has named a service.
    #[must_use]
    pub fn new(registry: Arc<Registry>, invoker: Arc<Invoker>, client: Option<Client>) -> Self {
        let client = client.map(Arc::new);
        Self { registry, invoker, client, running: Mutex::default() }
    }

    /// Whether a caller's functions can have sources: the worker's credentials are for the default tenant alone.
    #[must_use]
    pub fn serves(permit: &Permit<to::Configure>) -> bool {
        permit.tenant().as_str() == DEFAULT_TENANT
    }

    /// The function that a source is of, among those of the caller's tenant; none: there is no such source.
    #[must_use]
    pub fn function_of(
        &self,
        permit: &Permit<to::ListFunctions>,
        id: &str,
    ) -> Option<FunctionName> {
        let mut all = self.registry.attached(SOURCE).into_iter();
        let found =
            all.find(|(name, key, _)| name.tenant() == permit.tenant().as_str() && key == id);
        found.and_then(|(name, ..)| name.name().parse().ok())
    }

    /// What came of the last messages of a source.
    #[must_use]
    pub fn last_result(&self, id: &str) -> String {
        if self.client.is_none() {
            return NO_SERVICE.to_owned();
        }
        let running = self.running();
        let result = running
            .get(id)
            .map(|running| running.result.lock().unwrap_or_else(PoisonError::into_inner).clone());
        result.unwrap_or_else(|| "No records processed".to_owned())
    }

    /// Polls what is to be polled until the worker stops.
    pub async fn poll(self: Arc<Self>, stop: CancellationToken) {
        let Some(client) = self.client.clone() else { return };
        let mut every = tokio::time::interval(PERIOD);
        while stop.run_until_cancelled(every.tick()).await.is_some() {
            let wanted = self.wanted();
            let mut running = self.running();
            running.retain(|id, one| wanted.get(id).is_some_and(|(_, now)| *now == one.source));
            for (id, (name, source)) in wanted {
                if running.len() >= MOST || running.contains_key(&id) {
                    continue;
                }
                let (stop, result) = (stop.child_token(), Arc::default());
                let poller = Poller {
                    invoker: Arc::clone(&self.invoker),
                    client: Arc::clone(&client),
                    name,
                    source: source.clone(),
                    result: Arc::clone(&result),
                    stop: stop.clone(),
                };
                tokio::spawn(poller.run());
                running.insert(id, Running { source, stop, result });
            }
        }
        self.running().clear();
    }

    /// The sources that are to be polled.
    fn wanted(&self) -> HashMap<String, (WholeName, Source)> {
        let all = self.registry.attached(SOURCE).into_iter();
        let of_default = all.filter(|(name, ..)| name.tenant() == DEFAULT_TENANT);
        let read = |(name, id, text): (WholeName, String, String)| {
            let source: Source = serde_json::from_str(&text).ok()?;
            Some((id, (name, source)))
        };
        of_default.filter_map(read).filter(|(_, (_, source))| source.enabled).collect()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    /// The version or alias that is called.
    fn version(&self) -> Qualifier {
        self.qualifier.parse().unwrap_or_default()
    }
}
