//! Making a deployed version again on this machine, from its record.
//!
//! ```text
//!   a call finds no handler, or a layer of it gone ─┐
//!   the worker starts and finds one so             ─┴─► one work for each function ─► turn ─► still so?
//!                                                             ─► materialise ─► engine, registry
//! ```
//! The record and the bundle's files are all that it takes; packages come from the wheels that are there, else from
//! their index.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::Handler;
use function::{VersionId, WholeName};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use layers::Silent;

use super::{DeployError, Deployer, patience};
use crate::functions::{Function, Noted};

/// How a version is run; none: there is no such function any more.
type Remade = Result<Option<Arc<Handler>>, Arc<DeployError>>;

/// A version that could not be made is tried again after that: its calls could otherwise keep the tenant's turns, and an
/// index, busy.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// One work, which all calls that need it wait for.
type Work = Shared<BoxFuture<'static, Remade>>;

/// The functions that are being made again, and those that could not be made.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    works: HashMap<WholeName, Work>,
    failed: HashMap<WholeName, (VersionId, Instant, Arc<DeployError>)>,
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Why this version could not be made a moment ago.
    fn failure(&mut self, name: &WholeName, id: &VersionId) -> Option<Arc<DeployError>> {
        self.failed.retain(|_, (_, when, _)| when.elapsed() < RETRY_AFTER);
        let (version, _, error) = self.failed.get(name)?;
        (version == id).then(|| Arc::clone(error))
    }
}

impl Deployer {
    /// Whether a function's current version can be run from what is on the disk.
    #[must_use]
    pub fn is_whole(&self, function: &Function) -> bool {
        function.handler.as_ref().is_some_and(|handler| self.registry.lost(handler).is_none())
    }

    /// How a function's current version is run here; what is missing for that is made again. None: there is no such
    /// function. The work goes on when the caller goes away: others may wait for the same.
    ///
    /// # Errors
    /// When it cannot be made: its bundle is gone, or a package cannot be fetched.
    pub async fn remake(self: &Arc<Self>, name: &WholeName) -> Remade {
        let Some(function) = self.registry.get(name) else { return Ok(None) };
        if self.is_whole(&function) {
            return Ok(function.handler.clone());
        }
        let remade = {
            let mut under_way = self.under_way.lock();
            if let Some(error) = under_way.failure(name, &function.current().id) {
                return Err(error);
            }
            match under_way.works.get(name) {
                Some(remade) => remade.clone(),
                None => {
                    let remade = Arc::clone(self).begin(name.clone());
                    under_way.works.insert(name.clone(), remade.clone());
                    remade
                }
            }
        };
        remade.await
    }

    fn begin(self: Arc<Self>, name: WholeName) -> Work {
        let work = tokio::spawn(async move {
            let remade = self.remake_in_turn(&name).await;
            let mut under_way = self.under_way.lock();
            under_way.works.remove(&name);
            remade.map_err(|(id, error)| {
                let error = Arc::new(error);
                under_way.failed.insert(name, (id, Instant::now(), Arc::clone(&error)));
                error
            })
        });
        let broke_off = |_| Err(Arc::new(DeployError::BrokeOff));
        work.map(move |ended| ended.unwrap_or_else(broke_off)).boxed().shared()
    }

    /// The handler, or the version that could not be made and the reason.
    async fn remake_in_turn(
        &self,
        name: &WholeName,
    ) -> Result<Option<Arc<Handler>>, (VersionId, DeployError)> {
        let turn = self.stop.run_until_cancelled(self.turns.take(name.tenant())).await;
        let Some(function) = self.registry.get(name) else { return Ok(None) };
        let id = function.current().id.clone();
        let failed = |error: DeployError| (id.clone(), error);
        let _turn = turn.ok_or_else(|| failed(DeployError::GivenUp))?;
        if self.is_whole(&function) {
            // A deploy has made it meanwhile.
            return Ok(function.handler.clone());
        }
        let handler = self.materialise(&function).await.map_err(failed)?;
        let (engine, registry) = (Arc::clone(&self.engine), Arc::clone(&self.registry));
        let (again, lost) = (Arc::clone(&handler), function.handler.is_some());
        let noted = tokio::task::spawn_blocking(move || {
            if lost {
                // Zygotes and instances stand on what was there before.
                engine.start_over();
            }
            registry.made(again)
        });
        match noted.await.map_err(|_| failed(DeployError::BrokeOff))? {
            Noted::Gone => return Ok(None),
            Noted::Superseded(other) => return Ok(other),
            Noted::Current(None) => {}
            Noted::Current(Some(old)) => self.usage.leave(&old),
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
