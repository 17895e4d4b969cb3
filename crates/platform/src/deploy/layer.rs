//! Publishing versions of layers, in the same turns as deploys: files that are kept and not yet recorded look unused.

use std::fs::File;
use std::sync::Arc;

use store::{LayerRow, LayerVersion};

use super::workshop::KeptLayer;
use super::{DeployError, Deployer, now};
use crate::access::{Permit, to};

impl Deployer {
    /// Publishes the files of a zip archive as the next version of a layer; `text` is what is kept beside them.
    ///
    /// # Errors
    /// When nothing was published.
    pub async fn publish_layer(
        self: &Arc<Self>,
        permit: &Permit<to::PublishLayer>,
        archive: File,
        text: String,
    ) -> Result<Arc<LayerRow>, DeployError> {
        let layer = permit.layer().clone();
        let turn = self.stop.run_until_cancelled(self.turns.take(layer.tenant(), 1)).await;
        let turn = turn.ok_or(DeployError::GivenUp)?;
        self.registry.check_room_for_layer(&layer)?;
        let (workshop, registry) = (Arc::clone(&self.workshop), Arc::clone(&self.registry));
        let work = tokio::task::spawn_blocking(move || {
            let KeptLayer { bundle, bytes, modules, uses_runtime_set } =
                workshop.keep_layer(archive)?;
            let published = now();
            let version =
                LayerVersion { published, bundle, bytes, modules, uses_runtime_set, text };
            let published = registry.publish_layer(&layer, version)?;
            // Until it is recorded.
            drop(turn);
            Ok::<_, DeployError>(published)
        });
        let published = work.await.unwrap_or(Err(DeployError::BrokeOff))?;
        let (name, number) = (published.layer.name(), published.number);
        tracing::info!(
            tenant = published.layer.tenant(),
            layer = name,
            number,
            "published a layer"
        );
        Ok(published)
    }
}
