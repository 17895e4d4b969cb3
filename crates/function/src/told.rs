//! What AWS Lambda's API was told of a version and shows again. Nothing of it changes how the version runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the API was told of a version, beside what its manifest says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// The ARN of a role. It is shown, and gives no rights.
    pub role: String,
    /// What its author says of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The hash of the archive that its code came in: SHA-256, as Base64.
    pub code_sha256: String,
    /// Bytes of that archive.
    pub code_size: u64,
    /// Names this change of the function: no other has it.
    pub revision: String,
    /// Members of the configuration that have no effect here, as JSON, by their names: `VpcConfig`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub without_effect: BTreeMap<String, String>,
}
