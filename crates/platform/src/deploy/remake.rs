//! Making a deployed version again on this machine, from its record.
//!
//! ```text
//!   a call finds no handler, or a layer of it gone ─┐
//!   the worker starts and finds one so             ─┴─► turn ─► still so? ─► materialise ─► registry, engine
//! ```
//! The record and the bundle's files are all that it takes; packages come from the wheels that are there, else from
//! their index.

use std::sync::Arc;

use engine::Handler;
use function::WholeName;
use layers::Silent;

use super::{DeployError, Deployer, patience};
use crate::functions::Function;

impl Deployer {
    /// Whether a function's current version can be run from what is on the disk.
    #[must_use]
    pub fn is_whole(&self, function: &Function) -> bool {
        function.handler.as_ref().is_some_and(|handler| self.registry.lost(handler).is_none())
    }

    /// How a function's current version is run here; what is missing for that is made again. None: there is no such
    /// function. It goes on when the caller goes away: others may wait for the same.
    ///
    /// # Errors
    /// When it cannot be made: its bundle is gone, or a package cannot be fetched.
    pub async fn remake(
        self: &Arc<Self>,
        name: &WholeName,
    ) -> Result<Option<Arc<Handler>>, DeployError> {
        let (this, name) = (Arc::clone(self), name.clone());
        let work = tokio::spawn(async move { this.remake_in_turn(name).await });
        work.await.unwrap_or(Err(DeployError::BrokeOff))
    }

    async fn remake_in_turn(&self, name: WholeName) -> Result<Option<Arc<Handler>>, DeployError> {
        let turn = self.stop.run_until_cancelled(self.turns.take(name.tenant())).await;
        let _turn = turn.ok_or(DeployError::GivenUp)?;
        let Some(function) = self.registry.get(&name) else { return Ok(None) };
        if self.is_whole(&function) {
            // Another has made it meanwhile.
            return Ok(function.handler.clone());
        }
        let workshop = Arc::clone(&self.workshop);
        let patience = patience(self.index_timeout, self.stop.clone());
        let version = Arc::clone(&function.stored.current);
        let made = tokio::task::spawn_blocking(move || {
            workshop.materialise(&version.record, None, &patience, &Silent)
        });
        let made = made.await.map_err(|_| DeployError::BrokeOff)?;
        let handler = Arc::new(made?.handler);
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
