//! Instances that are there before they are called, as many of a version as its owner was promised: what AWS Lambda calls
//! provisioned concurrency.
//!
//! ```text
//!   keep_promises, once a second ─► how many lack? ─► a seat and a permit ─► fork, load ─► idle, and paused
//! ```
//! One that is called counts while its call runs. One that does not load is tried again, after a second, two, four and so on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use function::VersionId;
use sandbox::InvocationId;
use sandbox::wire::LambdaCall;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Engine;
use crate::call::{Call, CallError};
use crate::handler::Handler;
use crate::journey::Journey;
use crate::relay::Relay;
use crate::scheduler::Seat;

/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// So many instances of a version are to be there.
#[derive(Clone, Debug)]
pub struct Promise {
    /// The version that they are of.
    pub handler: Arc<Handler>,
    /// Its number, which a function of AWS's kind is told when it is loaded.
    pub number: String,
    /// How many instances.
    pub instances: u32,
}

/// How far a promise is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Instances that are there, whether a call has them or not.
    pub instances: u32,
    /// Why the last one could not be made.
    pub failed: Option<String>,
}

/// What is known of each promised version.
#[derive(Debug, Default)]
pub(crate) struct Promises(Mutex<HashMap<VersionId, Making>>);

#[derive(Debug, Default)]
struct Making {
    under_way: u32,
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    why: String,
    times: u32,
    again: Instant,
}

impl Promises {
    fn all(&self) -> MutexGuard<'_, HashMap<VersionId, Making>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how the making of an instance ended; none: it was given up for want of room.
    fn made(&self, id: &VersionId, outcome: Option<Result<(), String>>) {
        let mut all = self.all();
        let Some(making) = all.get_mut(id) else { return };
        making.under_way = making.under_way.saturating_sub(1);
        match outcome {
            Some(Ok(())) => making.failed = None,
            Some(Err(why)) => {
                let times = making.failed.as_ref().map_or(0, |failed| failed.times) + 1;
                let wait = Duration::from_secs(1 << times.min(6)) / 2;
                let again = Instant::now() + wait.min(LONGEST_WAIT);
                making.failed = Some(Failed { why, times, again });
            }
            None => {}
        }
    }
}

impl Engine {
    /// Keeps these promises and no others from now on: what lacks is made aside. About once a second.
    pub fn keep_promises(self: &Arc<Self>, promises: &[Promise]) {
        let most = |one: &Promise| (one.handler.id.clone(), one.instances as usize);
        self.scheduler.promise(promises.iter().map(most).collect());
        let mut all = self.promises.all();
        all.retain(|id, _| promises.iter().any(|promise| promise.handler.id == *id));
        for promise in promises {
            let making = all.entry(promise.handler.id.clone()).or_default();
            let waits = making.failed.as_ref().is_some_and(|failed| Instant::now() < failed.again);
            // After a failure one shows whether it goes better now.
            let most = if making.failed.is_some() { 1 } else { u32::MAX };
            while !waits && making.under_way < most {
                let room = self.scheduler.room_for_promised(&promise.handler, promise.instances);
                let Some((seat, permit)) = room else { break };
                making.under_way += 1;
                let (engine, promise) = (Arc::clone(self), promise.clone());
                self.background.spawn(async move {
                    let made = tokio::select! {
                        biased;
                        () = engine.halt.cancelled() => None,
                        made = engine.make_promised(&promise, seat, permit) => made,
                    };
                    engine.promises.made(&promise.handler.id, made);
                });
            }
        }
    }

    /// How far the promise of a version is kept.
    pub fn kept(&self, id: &VersionId) -> Kept {
        let all = self.promises.all();
        let Some(making) = all.get(id) else { return Kept::default() };
        let instances = self.scheduler.live(id).saturating_sub(making.under_way);
        if !self.scheduler.keeps_any() {
            let failed = Some("this worker keeps no idle instances".to_owned());
            return Kept { instances: 0, failed };
        }
        Kept { instances, failed: making.failed.as_ref().map(|failed| failed.why.clone()) }
    }

    /// Makes an instance and keeps it idle; none: there is no room for it now.
    async fn make_promised(
        &self,
        promise: &Promise,
        seat: Seat,
        permit: OwnedSemaphorePermit,
    ) -> Option<Result<(), String>> {
        let handler = Arc::clone(&promise.handler);
        let lambda = LambdaCall { version: promise.number.clone(), ..LambdaCall::default() };
        let id: InvocationId = "promised".parse().ok()?;
        let call = Call {
            handler: Arc::clone(&handler),
            body: Bytes::new(),
            content_type: String::new(),
            id: id.clone(),
            lambda: Some(Arc::new(lambda)),
            tail: false,
            parts: None,
        };
        let allowed = (self.config.log_bytes, self.config.messages);
        let mut relay = Relay::new(Arc::clone(&self.logs), handler, id, allowed);
        let mut journey = Journey::default();
        match self.make(&call, seat, permit, &mut relay, &mut journey).await {
            Ok((lease, ..)) => {
                self.scheduler.keep(lease);
                Some(Ok(()))
            }
            Err(CallError::Busy { .. } | CallError::Stopping) => None,
            Err(error) => {
                let why = error.as_lambda(&call.id).map(|told| told.error_message);
                Some(Err(why.unwrap_or_else(|| sandbox::chain(&error))))
            }
        }
    }
}
