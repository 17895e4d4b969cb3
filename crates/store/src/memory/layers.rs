//! Layers in memory.

use function::WholeLayerName;

use super::Memory;
use crate::millis::truncate;
use crate::{LayerRow, LayerVersion, Layers, StoreError};

impl Layers for Memory {
    fn publish_layer(
        &mut self,
        layer: &WholeLayerName,
        version: &LayerVersion,
    ) -> Result<u32, StoreError> {
        let mut content = self.content()?;
        let last = content.layer_numbers.entry(layer.clone()).or_default();
        *last += 1;
        let number = *last;
        let version = LayerVersion { published: truncate(version.published), ..version.clone() };
        let row = LayerRow { layer: layer.clone(), number, version, policy: None };
        content.layers.insert((layer.clone(), number), row);
        Ok(number)
    }

    fn set_layer_policy(
        &mut self,
        layer: &WholeLayerName,
        number: u32,
        policy: Option<&str>,
    ) -> Result<bool, StoreError> {
        let mut content = self.content()?;
        let row = content.layers.get_mut(&(layer.clone(), number));
        Ok(row.map(|row| row.policy = policy.map(str::to_owned)).is_some())
    }

    fn remove_layer(&mut self, layer: &WholeLayerName, number: u32) -> Result<bool, StoreError> {
        Ok(self.content()?.layers.remove(&(layer.clone(), number)).is_some())
    }

    fn layers(&self) -> Result<Vec<LayerRow>, StoreError> {
        Ok(self.content()?.layers.values().cloned().collect())
    }
}
