//! Layers: files that functions of one tenant share, numbered version by version.
//!
//! ```text
//!   publish ─► Deployer::publish_layer ─► files kept ─► Registry::publish_layer ─► Store (durable, then) ─► memory
//! ```
//! A function that has a version keeps its files: its own record names their digest. A version that is removed is not found
//! any more, and its number is not given again.

use std::sync::{Arc, PoisonError};

use function::WholeLayerName;
use store::{LayerRow, LayerVersion, StoreError};
use thiserror::Error;

use super::{Registry, RegistryError};
use crate::access::{Permit, Purpose, to};

/// Most versions of layers that a tenant has, all layers together.
pub const MAX_LAYER_VERSIONS: usize = 1000;

/// Why the policy of a version of a layer stays as it is.
#[derive(Debug, Error)]
pub enum PolicyError<E> {
    /// There is no such version.
    #[error("the layer has no such version")]
    Unknown,
    /// The caller does not want the change, having seen what is there.
    #[error("the change was refused")]
    Refused(E),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
    /// The work ended without a result.
    #[error("the change broke off: see the worker's log")]
    BrokeOff,
}

/// Shows, lists and removes versions of layers, and keeps their policies, for callers with a permit.
#[derive(Clone, Debug)]
pub struct LayerVersions {
    registry: Arc<Registry>,
}

impl LayerVersions {
    /// Those of a registry.
    #[must_use]
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    /// A version of a layer; none: it is not there.
    #[must_use]
    pub fn show<P>(&self, permit: &Permit<P>, number: u32) -> Option<Arc<LayerRow>>
    where
        P: Purpose<Subject = WholeLayerName>,
    {
        let layers = self.registry.layers.read().unwrap_or_else(PoisonError::into_inner);
        layers.get(&(permit.layer().clone(), number)).cloned()
    }

    /// The versions of a layer, by number; none of a layer that is not there.
    #[must_use]
    pub fn versions(&self, permit: &Permit<to::ShowLayer>) -> Vec<Arc<LayerRow>> {
        let layers = self.registry.layers.read().unwrap_or_else(PoisonError::into_inner);
        let first = (permit.layer().clone(), 0);
        let last = (permit.layer().clone(), u32::MAX);
        layers.range(first..=last).map(|(_, row)| Arc::clone(row)).collect()
    }

    /// All versions of the tenant's layers that the caller may touch, by name and number.
    #[must_use]
    pub fn list(&self, permit: &Permit<to::ListLayers>) -> Vec<Arc<LayerRow>> {
        let layers = self.registry.layers.read().unwrap_or_else(PoisonError::into_inner);
        let of_caller = layers.values().filter(|row| {
            row.layer.tenant() == permit.tenant().as_str()
                && permit.caller().may_touch(row.layer.name())
        });
        of_caller.cloned().collect()
    }

    /// Removes a version of a layer. Returns whether it was there.
    ///
    /// # Errors
    /// When the store cannot be written; nothing has changed then.
    pub async fn remove(
        &self,
        permit: &Permit<to::RemoveLayer>,
        number: u32,
    ) -> Result<bool, RegistryError> {
        let (registry, layer) = (Arc::clone(&self.registry), permit.layer().clone());
        let work = tokio::task::spawn_blocking(move || registry.remove_layer(&layer, number));
        Ok(work.await.map_err(|_| RegistryError::BrokeOff)??)
    }

    /// Changes the policy of a version of a layer: `change` sees it, and says what it is to be. Nothing comes between the two.
    ///
    /// # Errors
    /// When there is no such version, or `change` refuses; nothing has changed then.
    pub async fn change_policy<E: Send + 'static>(
        &self,
        permit: &Permit<to::ConfigureLayer>,
        number: u32,
        change: impl FnOnce(Option<&str>) -> Result<Option<String>, E> + Send + 'static,
    ) -> Result<(), PolicyError<E>> {
        let (registry, layer) = (Arc::clone(&self.registry), permit.layer().clone());
        let work = tokio::task::spawn_blocking(move || {
            registry.change_layer_policy(&layer, number, change)
        });
        work.await.unwrap_or(Err(PolicyError::BrokeOff))
    }
}

impl Registry {
    /// Whether a tenant may have one more version of a layer.
    ///
    /// # Errors
    /// When it has as many as it may.
    pub(crate) fn check_room_for_layer(&self, layer: &WholeLayerName) -> Result<(), RegistryError> {
        let layers = self.layers.read().unwrap_or_else(PoisonError::into_inner);
        let of_tenant = layers.keys().filter(|(one, _)| one.tenant() == layer.tenant());
        if of_tenant.count() < MAX_LAYER_VERSIONS {
            return Ok(());
        }
        Err(RegistryError::FullOfLayers { tenant: layer.tenant().to_owned() })
    }

    /// Adds a version of a layer whose files are kept. Waits for the disk.
    ///
    /// # Errors
    /// When the tenant has no room, or the store refused; nothing has changed then.
    pub(crate) fn publish_layer(
        &self,
        layer: &WholeLayerName,
        version: LayerVersion,
    ) -> Result<Arc<LayerRow>, RegistryError> {
        let mut store = self.store();
        self.check_room_for_layer(layer)?;
        let number = store.publish_layer(layer, &version)?;
        let row = Arc::new(LayerRow { layer: layer.clone(), number, version, policy: None });
        let mut layers = self.layers.write().unwrap_or_else(PoisonError::into_inner);
        layers.insert((layer.clone(), number), Arc::clone(&row));
        Ok(row)
    }

    fn remove_layer(&self, layer: &WholeLayerName, number: u32) -> Result<bool, StoreError> {
        let mut store = self.store();
        let removed = store.remove_layer(layer, number)?;
        let mut layers = self.layers.write().unwrap_or_else(PoisonError::into_inner);
        layers.remove(&(layer.clone(), number));
        Ok(removed)
    }

    fn change_layer_policy<E>(
        &self,
        layer: &WholeLayerName,
        number: u32,
        change: impl FnOnce(Option<&str>) -> Result<Option<String>, E>,
    ) -> Result<(), PolicyError<E>> {
        let mut store = self.store();
        let key = (layer.clone(), number);
        let row = {
            let layers = self.layers.read().unwrap_or_else(PoisonError::into_inner);
            layers.get(&key).cloned().ok_or(PolicyError::Unknown)?
        };
        let policy = change(row.policy.as_deref()).map_err(PolicyError::Refused)?;
        let changed = store.set_layer_policy(layer, number, policy.as_deref());
        changed.map_err(PolicyError::Store)?;
        let row = Arc::new(LayerRow { policy, ..LayerRow::clone(&row) });
        let mut layers = self.layers.write().unwrap_or_else(PoisonError::into_inner);
        layers.insert(key, row);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use store::Functions;
    use store::memory::Memory;

    use super::super::tests::registry;
    use super::*;

    fn named(tenant: &str, name: &str) -> WholeLayerName {
        WholeLayerName::new(&tenant.parse().unwrap(), &name.parse().unwrap())
    }

    fn version() -> LayerVersion {
        let published = SystemTime::UNIX_EPOCH;
        let bundle = blake3::hash(b"l").into();
        let (modules, uses_runtime_set, text) = (Vec::new(), false, "{}".into());
        LayerVersion { published, bundle, bytes: 1, modules, uses_runtime_set, text }
    }

    #[test]
    fn versions_of_layers_and_their_policies_are_there_after_a_start() {
        let (root, store) = (tempfile::tempdir().unwrap(), Memory::default());
        let open = || registry(Box::new(store.clone()) as Box<dyn Functions>, root.path());
        let (first, layer) = (open(), named("acme", "l"));
        for number in 1..=3 {
            assert_eq!(first.publish_layer(&layer, version()).unwrap().number, number);
        }
        first.change_layer_policy(&layer, 2, |_| Ok::<_, ()>(Some("p".to_owned()))).unwrap();
        assert!(first.remove_layer(&layer, 3).unwrap());
        let again = open();
        let layers = again.layers.read().unwrap().clone();
        assert_eq!(layers, first.layers.read().unwrap().clone());
        let policies: Vec<_> = layers.values().map(|row| row.policy.as_deref()).collect();
        assert_eq!(policies, [None, Some("p")]);
        assert_eq!(again.publish_layer(&layer, version()).unwrap().number, 4);
    }

    #[test]
    fn a_tenant_has_so_many_versions_of_layers_and_no_more() {
        let root = tempfile::tempdir().unwrap();
        let registry = registry(Box::new(Memory::default()), root.path());
        for number in 0..MAX_LAYER_VERSIONS {
            let layer = named("acme", if number % 2 == 0 { "even" } else { "odd" });
            registry.publish_layer(&layer, version()).unwrap();
        }
        let full = registry.publish_layer(&named("acme", "one-more"), version());
        assert!(matches!(full, Err(RegistryError::FullOfLayers { .. })), "{full:?}");
        registry.publish_layer(&named("other", "l"), version()).unwrap();
        assert!(registry.remove_layer(&named("acme", "odd"), 1).unwrap());
        registry.publish_layer(&named("acme", "one-more"), version()).unwrap();
    }
}
