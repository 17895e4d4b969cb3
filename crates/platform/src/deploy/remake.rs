//! Making a deployed version again on this machine, from its record.
//!
//! ```text
//!   a call finds no handler, or a layer of it gone ─┐
//!   the worker starts and finds one so             ─┴─► one work for each version ─► turn ─► still so?
//!                                                             ─► materialise ─► engine, registry
//! ```
//! The record and the bundle's files are all that it takes; packages come from the wheels that are there, else from
//! their index.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::Handler;
use function::{VersionId, WholeName};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use layers::Silent;

use super::{DeployError, Deployer, patience};
use crate::functions::{Function, Noted};

/// How a version is run; none: it is neither current nor published any more.
type Remade = Result<Option<Arc<Handler>>, Arc<DeployError>>;

/// A version that could not be made is tried again after that: its calls could otherwise keep the tenant's turns, and an
/// index, busy.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// One work, which all calls that need it wait for.
type Work = Shared<BoxFuture<'static, Remade>>;

/// A version of a function.
type Wanted = (WholeName, VersionId);

/// The versions that are being made again, and those that could not be made.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    works: HashMap<Wanted, Work>,
    failed: HashMap<Wanted, (Instant, Arc<DeployError>)>,
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Why this version could not be made a moment ago.
    fn failure(&mut self, wanted: &Wanted) -> Option<Arc<DeployError>> {
        self.failed.retain(|_, (when, _)| when.elapsed() < RETRY_AFTER);
        self.failed.get(wanted).map(|(_, error)| Arc::clone(error))
    }
}

impl Deployer {
    /// Whether a function's version can be run from what is on the disk.
    #[must_use]
    pub fn is_whole(&self, function: &Function) -> bool {
        function.handler.as_ref().is_some_and(|handler| self.registry.lost(handler).is_none())
    }

    /// How a version of a function is run here; what is missing for that is made again. None: the version is neither
    /// current nor published any more. The work goes on when the caller goes away: others may wait for the same.
    ///
    /// # Errors
    /// When it cannot be made: its bundle is gone, or a package cannot be fetched.
    pub async fn remake(self: &Arc<Self>, name: &WholeName, version: &VersionId) -> Remade {
        let Some(function) = self.registry.find(name, version) else { return Ok(None) };
        if self.is_whole(&function) {
            return Ok(function.handler.clone());
        }
        let wanted = (name.clone(), version.clone());
        let remade = {
            let mut under_way = self.under_way.lock();
            if let Some(error) = under_way.failure(&wanted) {
                return Err(error);
            }
            match under_way.works.get(&wanted) {
                Some(remade) => remade.clone(),
                None => {
                    let remade = Arc::clone(self).begin(wanted.clone());
                    under_way.works.insert(wanted, remade.clone());
                    remade
                }
            }
        };
        remade.await
    }

    fn begin(self: Arc<Self>, wanted: Wanted) -> Work {
        let work = tokio::spawn(async move {
            let remade = AssertUnwindSafe(self.remake_in_turn(&wanted)).catch_unwind().await;
            let remade = remade.unwrap_or(Err(DeployError::BrokeOff)).map_err(Arc::new);
            let mut under_way = self.under_way.lock();
            under_way.works.remove(&wanted);
            if let Err(error) = &remade {
                under_way.failed.insert(wanted, (Instant::now(), Arc::clone(error)));
            }
            remade
        });
        let broke_off = |_| Err(Arc::new(DeployError::BrokeOff));
        work.map(move |ended| ended.unwrap_or_else(broke_off)).boxed().shared()
    }

    async fn remake_in_turn(
        &self,
        (name, version): &Wanted,
    ) -> Result<Option<Arc<Handler>>, DeployError> {
        let turn = self.stop.run_until_cancelled(self.turns.take(name.tenant(), 1)).await;
        let _turn = turn.ok_or(DeployError::GivenUp)?;
        let Some(function) = self.registry.find(name, version) else { return Ok(None) };
        if self.is_whole(&function) {
            // A deploy has made it meanwhile.
            return Ok(function.handler.clone());
        }
        let handler = self.materialise(&function).await?;
        let (engine, registry) = (Arc::clone(&self.engine), Arc::clone(&self.registry));
        let (again, lost) = (Arc::clone(&handler), function.handler.is_some());
        let noted = tokio::task::spawn_blocking(move || {
            if lost {
                // Zygotes and instances stand on what was there before.
                engine.start_over();
            }
            registry.made(again)
        });
        match noted.await.map_err(|_| DeployError::BrokeOff)? {
            Noted::Gone => return Ok(None),
            Noted::Kept(None) => {}
            Noted::Kept(Some(old)) => self.usage.leave(&old),
        }
        self.engine.forget(&handler.id).await;
        tracing::info!(function = %name, version = %handler.id, "made again from its record");
        Ok(Some(handler))
    }

    async fn materialise(&self, function: &Function) -> Result<Arc<Handler>, DeployError> {
        let workshop = Arc::clone(&self.workshop);
        let patience = patience(self.index_timeout, self.stop.clone());
        let version = Arc::clone(&function.stored.current);
        let made = tokio::task::spawn_blocking(move || {
            workshop.materialise(&version.record, None, &patience, &Silent)
        });
        Ok(Arc::new(made.await.map_err(|_| DeployError::BrokeOff)??.handler))
    }
}
