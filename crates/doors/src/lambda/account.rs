//! GetAccountSettings: what the account may have, and what it has.

use lambda_api::Fault;
use platform::access::to;
use serde_json::json;

use super::call::{Answer, Call};
use super::configuration;
use super::layers::Kept;

/// The service's limits of code: zipped in a request, and unpacked.
const CODE_BYTES: (u64, u64) = (50 << 20, 250 << 20);

/// `GetAccountSettings`.
pub(super) async fn settings(call: Call) -> Result<Answer, Fault> {
    let permit = call.permit_all::<to::ListFunctions>()?;
    let functions = call.app.functions.list_versions(&permit);
    let versions = functions.iter().flat_map(|(current, releases)| {
        releases.iter().map(|release| &release.function).chain([current])
    });
    let mut bytes: u64 = versions.map(|function| configuration::code_bytes(function)).sum();
    for layer in call.app.layers.list(&call.permit_all::<to::ListLayers>()?) {
        bytes = bytes.saturating_add(Kept::of(&layer)?.code_size);
    }
    let sandboxes = call.app.capacity.sandboxes;
    let reserved = usize::try_from(call.app.functions.reserved(&permit)).unwrap_or(usize::MAX);
    Answer::json(&json!({
        "AccountLimit": {
            "TotalCodeSize": 80_530_636_800_u64,
            "CodeSizeUnzipped": CODE_BYTES.1,
            "CodeSizeZipped": CODE_BYTES.0,
            "ConcurrentExecutions": sandboxes,
            "UnreservedConcurrentExecutions": sandboxes.saturating_sub(reserved),
        },
        "AccountUsage": { "TotalCodeSize": bytes, "FunctionCount": functions.len() },
    }))
}
