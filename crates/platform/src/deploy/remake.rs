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

use engine::Handler;
use function::WholeName;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use layers::Silent;

use super::{DeployError, Deployer, patience};
use crate::functions::Function;

/// How a version is run; none: there is no such function any more.
type Remade = Result<Option<Arc<Handler>>, Arc<DeployError>>;

/// The functions that are being made again, each by one work that all who need it wait for.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<HashMap<WholeName, Shared<BoxFuture<'static, Remade>>>>);

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, HashMap<WholeName, Shared<BoxFuture<'static, Remade>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let remade = {
            let mut under_way = self.under_way.lock();
            match under_way.get(name) {
                Some(remade) => remade.clone(),
                None => {
                    let remade = Arc::clone(self).begin(name.clone());
                    under_way.insert(name.clone(), remade.clone());
                    remade
                }
            }
        };
        remade.await
    }

    fn begin(self: Arc<Self>, name: WholeName) -> Shared<BoxFuture<'static, Remade>> {
        let work = tokio::spawn(async move {
            let remade = self.remake_in_turn(&name).await.map_err(Arc::new);
            self.under_way.lock().remove(&name);
            remade
        });
        let broke_off = |_| Err(Arc::new(DeployError::BrokeOff));
        work.map(move |ended| ended.unwrap_or_else(broke_off)).boxed().shared()
    }

    async fn remake_in_turn(&self, name: &WholeName) -> Result<Option<Arc<Handler>>, DeployError> {
        let turn = self.stop.run_until_cancelled(self.turns.take(name.tenant())).await;
        let _turn = turn.ok_or(DeployError::GivenUp)?;
        let Some(function) = self.registry.get(name) else { return Ok(None) };
        if self.is_whole(&function) {
            // A deploy has made it meanwhile.
            return Ok(function.handler.clone());
        }
        let workshop = Arc::clone(&self.workshop);
        let patience = patience(self.index_timeout, self.stop.clone());
        let version = Arc::clone(&function.stored.current);
        let made = tokio::task::spawn_blocking(move || {
            workshop.materialise(&version.record, None, &patience, &Silent)
        });
        let handler = Arc::new(made.await.map_err(|_| DeployError::BrokeOff)??.handler);
        let (engine, again) = (Arc::clone(&self.engine), Arc::clone(&handler));
        let registry = Arc::clone(&self.registry);
        let noted = tokio::task::spawn_blocking(move || {
            // Zygotes and instances stand on what was there before.
            engine.start_over();
            registry.made(again)
        });
        if let Some(old) = noted.await.map_err(|_| DeployError::BrokeOff)? {
            self.usage.leave(&old);
        }
        self.engine.forget(&handler.id).await;
        tracing::info!(function = %name, version = %handler.id, "made again from its record");
        Ok(Some(handler))
    }
}
