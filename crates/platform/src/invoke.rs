//! One call of a function, whichever door it came through.
//!
//! ```text
//!   find   Permit, qualifier ─► version, made again if it is not made here ─► its network is allowed ─► Target
//!   call   Target, event ─► concurrency, quota ─► engine ─► Answer
//!                                                  └ a layer was gone: made again, and called once more
//! ```
//! There are two steps because a door reads the event between them: the target says in which form, and a caller that may
//! not call sends no body.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::{Call, CallError, Engine, Handler, Served, Stage, Stages, fault};
use function::{LATEST, Qualifier, VersionId, WholeName};
use sandbox::wire::LambdaCall;
use sandbox::{InvocationId, Layer};
use serde::de::IgnoredAny;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::access::{Permit, to};
use crate::deploy::{DeployError, Deployer};
use crate::functions::Registry;
use crate::limits::concurrency::Concurrency;
use crate::limits::quotas::{Exhausted, Quotas};
use crate::network_policy::{Networks, NotAllowed};
use crate::random;
use crate::throttled_log::Seldom;

/// The content type of events and results that are JSON.
pub const JSON: &str = "application/json";

/// The content type of bytes of which nothing is said.
const BYTES: &str = "application/octet-stream";

/// A call waits no longer than that for its version to be made again, which goes on.
const REMAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Callers can bring it about as often as they call.
static NO_SANDBOX: Seldom = Seldom::new(Duration::from_secs(10));

/// Calls functions.
#[derive(Debug)]
pub struct Invoker {
    registry: Arc<Registry>,
    deployer: Arc<Deployer>,
    networks: Arc<Networks>,
    quotas: Arc<Quotas>,
    engine: Arc<Engine>,
}

/// A function that was found and may be called.
#[derive(Debug)]
pub struct Target {
    name: WholeName,
    handler: Arc<Handler>,
    number: Option<u32>,
    concurrency: Arc<Concurrency>,
    resolved: Duration,
}

/// What a function is called with.
#[derive(Clone, Debug)]
pub struct Event {
    /// The event's bytes.
    pub body: Bytes,
    /// Their content type, as far as the caller told; of JSON it need not.
    pub content_type: Option<String>,
    /// The invocation's name.
    pub id: InvocationId,
    /// What a function that expects AWS's runtime is told of the call; a native one is not.
    pub lambda: Option<Arc<LambdaCall>>,
    /// Whether the end of what the call writes into its log comes back with the result.
    pub tail: bool,
    /// Where the parts go of a result that the function yields, as they come; none: it must come whole.
    pub parts: Option<mpsc::Sender<Bytes>>,
}

/// Why a function was not called.
#[derive(Debug, Error)]
pub enum InvokeError {
    /// There is no such function.
    #[error(
        "no function {:?}: deploy it with `wool deploy`, or see what is there with `wool ls`", .0.name()
    )]
    Unknown(WholeName),
    /// The function is there, and has no such version.
    #[error("{} has no version or alias {qualifier}: see `wool versions {}`", .name.name(), .name.name())]
    UnknownVersion {
        /// The function that is there.
        name: WholeName,
        /// What names no version of it.
        qualifier: Qualifier,
    },
    /// The operator no longer allows the function its network.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The event must be JSON.
    #[error(
        "the body is no JSON: {0}; send JSON, or set `binary = true` in the function's [tool.lambswool] to take bytes"
    )]
    NotJson(String),
    /// The tenant takes as much as it may.
    #[error("{tenant} takes as much as it may", tenant = .0.tenant())]
    Exhausted(WholeName, Exhausted),
    /// As many calls of the function run as it may have at a time.
    #[error(
        "as many calls of {} run as its reserved concurrency allows: try again later, or raise it with PutFunctionConcurrency", .0.name()
    )]
    Reserved(WholeName),
    /// Something that the version is made of is gone from the disk and could not be made again.
    #[error(
        "no sandbox could be made: {lost} is gone from the worker's disk and cannot be made again"
    )]
    NotMade {
        /// The layer or version that is gone.
        lost: String,
        /// Why it cannot be made again.
        #[source]
        source: Arc<DeployError>,
    },
    /// The version that was called is gone: another one was deployed while the call waited for what it lacked.
    #[error(
        "the version of {0} that was called is gone: another one was deployed, or it was unpublished"
    )]
    Replaced(WholeName),
    /// Something that the version is made of is gone from the disk, and making it again takes long.
    #[error(
        "no sandbox could be made: {lost} is gone from the worker's disk and is being made again; try again later"
    )]
    BeingMade {
        /// The layer or version that is gone.
        lost: String,
    },
}

impl Target {
    /// The version's number, where a number or an alias was called.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.number
    }
}

impl Invoker {
    /// Calls the functions of a registry on an engine. `deployer` makes again what is gone from the disk.
    #[must_use]
    pub fn new(
        registry: Arc<Registry>,
        deployer: Arc<Deployer>,
        networks: Arc<Networks>,
        quotas: Arc<Quotas>,
        engine: Arc<Engine>,
    ) -> Self {
        Self { registry, deployer, networks, quotas, engine }
    }

    /// Finds the version of a function that is called. In memory: microseconds, unless the version has to be made here first.
    ///
    /// # Errors
    /// When there is none, it may not be called, or it cannot be made.
    pub async fn find(
        &self,
        permit: &Permit<to::Invoke>,
        qualifier: &Qualifier,
    ) -> Result<Target, InvokeError> {
        self.find_for_worker(permit.function(), qualifier).await
    }

    /// The same, for a call that the worker makes itself.
    ///
    /// # Errors
    /// As [`Invoker::find`].
    pub(crate) async fn find_for_worker(
        &self,
        name: &WholeName,
        qualifier: &Qualifier,
    ) -> Result<Target, InvokeError> {
        let began = Instant::now();
        let found = self.registry.resolve_for_call(name, qualifier, random::draw);
        let (function, concurrency) = found.ok_or_else(|| self.unknown(name, qualifier))?;
        let handler = match &function.handler {
            Some(handler) => Arc::clone(handler),
            None => {
                let id = &function.current().id;
                self.remake(name, id, format!("its version {id}")).await?
            }
        };
        self.networks.check(&handler)?;
        let resolved = began.elapsed();
        let stage = Stage::Resolve.as_str();
        metrics::histogram!("lambswool_stage_seconds", "stage" => stage).record(resolved);
        fault::point(stage).await;
        let number = function.number;
        Ok(Target { name: name.clone(), handler, number, concurrency, resolved })
    }

    /// Calls it and waits for what comes of it. Dropped before that, the call is ended wherever it is.
    ///
    /// # Errors
    /// When it was not called. What a called function did is in what is served.
    pub async fn call(&self, target: Target, event: Event) -> Result<Served, InvokeError> {
        let Target { name, handler, number, concurrency, resolved } = target;
        let Event { body, content_type, id, lambda, tail, parts } = event;
        let body = if handler.binary { body } else { without_mark(body) };
        let content_type = match handler.binary {
            true => content_type.unwrap_or_else(|| BYTES.to_owned()),
            false => check_json(&body).map(|()| JSON.to_owned())?,
        };
        let begun = concurrency.begin();
        let _running = begun.ok_or_else(|| InvokeError::Reserved(name.clone()))?;
        // A deploy of the same version may have given it other layers while the event was read.
        let handler = self.newest(&name, handler);
        let bytes = handler.limits.charged_bytes();
        let admitted = self.quotas.admit(&handler.tenant, bytes, Instant::now());
        let _part =
            admitted.map_err(|exhausted| InvokeError::Exhausted(name.clone(), exhausted))?;
        let lambda = lambda.map(|told| of_version(told, number));
        let made = Arc::clone(&handler);
        let call = Call { handler: made, body, content_type, id, lambda, tail, parts };
        let mut served = self.engine.serve(call.clone()).await;
        if let Some(lost) = self.lost(&served, &handler) {
            let made = self.remake(&name, &handler.id, lost.to_string()).await?;
            served = self.engine.serve(Call { handler: made, ..call.clone() }).await;
        }
        if let Err(error) = &served.result {
            self.engine.log_failure(&call, error);
        }
        let mut stages = Stages::default();
        stages.record(Stage::Resolve, resolved);
        stages.0.append(&mut served.stages.0);
        Ok(Served { stages, ..served })
    }

    /// How the same version is run now.
    fn newest(&self, name: &WholeName, handler: Arc<Handler>) -> Arc<Handler> {
        let now = self.registry.find(name, &handler.id);
        now.and_then(|function| function.handler.clone()).unwrap_or(handler)
    }

    /// Why a qualifier found nothing.
    fn unknown(&self, name: &WholeName, qualifier: &Qualifier) -> InvokeError {
        match self.registry.get(name) {
            None => InvokeError::Unknown(name.clone()),
            Some(_) => {
                InvokeError::UnknownVersion { name: name.clone(), qualifier: qualifier.clone() }
            }
        }
    }

    /// The layer that is gone from the disk, where a call failed before its function was called.
    fn lost(&self, served: &Served, handler: &Handler) -> Option<Layer> {
        match &served.result {
            Err(CallError::NoSandbox(source)) => {
                if let Some(unsaid) = NO_SANDBOX.now(Instant::now()) {
                    let error = sandbox::chain(source);
                    tracing::warn!(%error, unsaid, "no sandbox could be made");
                }
                self.registry.lost(handler)
            }
            // What a sandbox has open may be a directory without files.
            Err(CallError::NotLoaded(_)) => self.registry.lost(handler),
            _ => None,
        }
    }

    async fn remake(
        &self,
        name: &WholeName,
        version: &VersionId,
        lost: String,
    ) -> Result<Arc<Handler>, InvokeError> {
        let made = timeout(REMAKE_TIMEOUT, self.deployer.remake(name, version)).await;
        let Ok(made) = made else { return Err(InvokeError::BeingMade { lost }) };
        let made = made.map_err(|source| InvokeError::NotMade { lost, source })?;
        made.ok_or_else(|| match self.registry.get(name) {
            None => InvokeError::Unknown(name.clone()),
            Some(_) => InvokeError::Replaced(name.clone()),
        })
    }
}

/// What a function of AWS Lambda's is told, with the version that runs.
fn of_version(told: Arc<LambdaCall>, number: Option<u32>) -> Arc<LambdaCall> {
    let version = number.map_or_else(|| LATEST.to_owned(), |number| number.to_string());
    Arc::new(LambdaCall { version, ..Arc::unwrap_or_clone(told) })
}

/// JSON without the mark of UTF-8 that some programs put before it: a reader may pass over it (RFC 8259, section 8.1).
fn without_mark(body: Bytes) -> Bytes {
    if body.starts_with(b"\xef\xbb\xbf") { body.slice(3..) } else { body }
}

/// Refuses an event that is no JSON, before anything is made for it. No event at all is allowed.
fn check_json(body: &[u8]) -> Result<(), InvokeError> {
    if body.is_empty() {
        return Ok(());
    }
    let text = str::from_utf8(body).map_err(|error| InvokeError::NotJson(error.to_string()))?;
    let read = serde_json::from_str::<IgnoredAny>(text);
    read.map(drop).map_err(|error| InvokeError::NotJson(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_passes_for_json() {
        for good in [
            "",
            "{}",
            " [1, 2.5e3, \"ü\"] ",
            "null",
            "\"a\"",
            &format!("{}1{}", "[".repeat(500), "]".repeat(500)),
        ] {
            assert!(check_json(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in ["{", "{'a': 1}", "[1,]", "NaN", "{} {}", "a=1", " "] {
            assert!(check_json(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(check_json(b"\"\xff\"").is_err());
    }
}
