//! Versions of layers as rows, in the file of the functions: one look tells which bundles are used.

use std::collections::BTreeSet;

use function::{BundleDigest, WholeLayerName};
use rusqlite::{Row, params};
use store::millis::{from_millis, to_millis};
use store::{LayerRow, LayerVersion, Layers, StoreError};

use crate::database::{strange, unreadable, unwritable};
use crate::functions::{STORE, SqliteFunctions};

impl Layers for SqliteFunctions {
    fn publish_layer(
        &mut self,
        layer: &WholeLayerName,
        version: &LayerVersion,
    ) -> Result<u32, StoreError> {
        let failed = unwritable(STORE);
        let LayerVersion { published, bundle, bytes, modules, uses_runtime_set, text } = version;
        let (tenant, name) = (layer.tenant(), layer.name());
        let transaction = self.disk.transaction().map_err(failed)?;
        let sql = "INSERT INTO layer_numbers (tenant, name, last) VALUES (?1, ?2, 1)
                   ON CONFLICT (tenant, name) DO UPDATE SET last = last + 1
                   RETURNING last";
        let number = transaction.query_row(sql, [tenant, name], |row| row.get(0));
        let number: u32 = number.map_err(failed)?;
        let sql = "INSERT INTO layers 
                       (tenant, name, number, published, bundle, bytes, modules, uses_set, text)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
        let (published, bundle) = (to_millis(*published), bundle.as_str());
        let modules = serde_json::to_string(modules).map_err(|source| StoreError::Database {
            store: STORE,
            step: "cannot be written",
            source: source.into(),
        })?;
        let row = params![
            tenant,
            name,
            number,
            published,
            bundle,
            bytes,
            modules,
            uses_runtime_set,
            text
        ];
        transaction.execute(sql, row).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(number)
    }

    fn set_layer_policy(
        &mut self,
        layer: &WholeLayerName,
        number: u32,
        policy: Option<&str>,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE layers SET policy = ?4 WHERE tenant = ?1 AND name = ?2 AND number = ?3";
        let row = params![layer.tenant(), layer.name(), number, policy];
        Ok(self.disk.execute(sql, row).map_err(unwritable(STORE))? > 0)
    }

    fn remove_layer(&mut self, layer: &WholeLayerName, number: u32) -> Result<bool, StoreError> {
        let sql = "DELETE FROM layers WHERE tenant = ?1 AND name = ?2 AND number = ?3";
        let row = params![layer.tenant(), layer.name(), number];
        Ok(self.disk.execute(sql, row).map_err(unwritable(STORE))? > 0)
    }

    fn layers(&self) -> Result<Vec<LayerRow>, StoreError> {
        let failed = unreadable(STORE);
        let sql = "SELECT tenant, name, number, published, bundle, bytes, modules, uses_set, text,
                          policy
                   FROM layers ORDER BY tenant, name, number";
        let mut statement = self.disk.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| Ok(read_layer(row))).map_err(failed)?;
        rows.map(|row| row.map_err(failed)?).collect()
    }
}

impl SqliteFunctions {
    /// The digests of all layers' files.
    pub(crate) fn layer_bundles(&self) -> Result<BTreeSet<BundleDigest>, StoreError> {
        Ok(self.layers()?.into_iter().map(|row| row.version.bundle).collect())
    }
}

fn read_layer(row: &Row<'_>) -> Result<LayerRow, StoreError> {
    let failed = unreadable(STORE);
    let text = |column| row.get::<_, String>(column).map_err(failed);
    let layer = WholeLayerName::stored(text(0)?, text(1)?);
    let odd = |column, cause: String| strange(format!("the layer {}", layer.name()), column, cause);
    let bytes: i64 = row.get(5).map_err(failed)?;
    let version = LayerVersion {
        published: from_millis(row.get(3).map_err(failed)?),
        bundle: text(4)?
            .try_into()
            .map_err(|error: function::DigestError| odd("bundle", error.to_string()))?,
        bytes: u64::try_from(bytes).map_err(|error| odd("bytes", error.to_string()))?,
        modules: serde_json::from_str(&text(6)?)
            .map_err(|error| odd("modules", error.to_string()))?,
        uses_runtime_set: row.get(7).map_err(failed)?,
        text: text(8)?,
    };
    let number = row.get(2).map_err(failed)?;
    let policy = row.get(9).map_err(failed)?;
    Ok(LayerRow { layer, number, version, policy })
}
