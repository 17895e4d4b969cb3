//! `/v1/functions/{name}/secrets`: variables of a function's environment that only the function sees. No route shows a value.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::{Extension, Json};
use sandbox::chain;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use crate::App;
use crate::error::{ApiError, ErrorBody};
use crate::request::body::Small;
use crate::request::{Act, Permitted};
use platform::access::to;
use platform::logs::stamp;
use platform::run_name;
use platform::secrets::SecretError;

/// Longest value that is read at all, in bytes.
const VALUE_BYTES: u64 = 64 << 10;

/// A secret as lists show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SecretSummary {
    /// The variable's name.
    pub key: String,
    /// When it was last set, RFC 3339.
    pub updated: String,
}

/// The secrets of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SecretList {
    /// Sorted by name.
    pub secrets: Vec<SecretSummary>,
}

/// List the names of a function's secrets.
#[utoipa::path(get, path = "/v1/functions/{name}/secrets", tag = "secrets",
    params(("name" = String, Path, description = "the function's name")),
    responses((status = 200, description = "their names", body = SecretList)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::ListSecrets>,
) -> Json<SecretList> {
    let held = app.secrets.list(&permit).into_iter();
    let secrets = held.map(|one| SecretSummary { key: one.key, updated: stamp(one.updated) });
    Json(SecretList { secrets: secrets.collect() })
}

/// Set a secret: the body is its value. The function's next instances have it, and idle ones are ended.
///
/// The function need not be deployed yet.
#[utoipa::path(put, path = "/v1/functions/{name}/secrets/{key}", tag = "secrets",
    params(("name" = String, Path, description = "the function's name"),
           ("key" = String, Path, description = "the variable's name")),
    request_body(description = "the value, UTF-8", content((Option<String> = "text/plain"))),
    responses(
        (status = 204, description = "it is set"),
        (status = 400, description = "the name or the value is not valid", body = ErrorBody),
        (status = 403, description = "the tenant has secrets for as many functions as it may", body = ErrorBody),
        (status = 413, description = "it is too large", body = ErrorBody),
    ))]
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::SetSecret>,
    Extension(act): Extension<Arc<Act>>,
    Key(key): Key,
    body: Small<VALUE_BYTES>,
) -> Result<StatusCode, ApiError> {
    if run_name::is_one(permit.function().name()) {
        let message =
            "what `wool run` makes has no secrets: deploy the function under a name of its own";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad-secret", message));
    }
    // Ours alone, once it has been read: it is overwritten.
    let value = Zeroizing::new(Vec::from(body.bytes));
    let work = async move {
        app.secrets.set(&permit, key, value).await?;
        Ok(StatusCode::NO_CONTENT)
    };
    act.carry_out(work).await
}

/// Remove a secret. The function's next instances do without it.
#[utoipa::path(delete, path = "/v1/functions/{name}/secrets/{key}", tag = "secrets",
    params(("name" = String, Path, description = "the function's name"),
           ("key" = String, Path, description = "the variable's name")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 404, description = "no such secret", body = ErrorBody),
    ))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::RemoveSecret>,
    Extension(act): Extension<Arc<Act>>,
    Key(key): Key,
) -> Result<StatusCode, ApiError> {
    let work = async move {
        if !app.secrets.remove(&permit, key.clone()).await? {
            let name = permit.function().name();
            let message = format!("{name} has no secret {key:?}: see `wool secret ls {name}`");
            return Err(ApiError::new(StatusCode::NOT_FOUND, "unknown-secret", message));
        }
        Ok(StatusCode::NO_CONTENT)
    };
    act.carry_out(work).await
}

/// The secret's name in the path.
pub(super) struct Key(String);

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = RawPathParams::from_request_parts(parts, state).await;
        let key = path.as_ref().ok().and_then(|all| all.iter().find(|(key, _)| *key == "key"));
        // Not UTF-8 once decoded: the vault says the rule.
        Ok(Self(key.map_or("\u{fffd}", |(_, key)| key).to_owned()))
    }
}

impl From<SecretError> for ApiError {
    fn from(error: SecretError) -> Self {
        let status = match &error {
            SecretError::Key(_) | SecretError::Value(_) => StatusCode::BAD_REQUEST,
            SecretError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            SecretError::Full { .. } => {
                return Self::new(StatusCode::FORBIDDEN, "quota", error.to_string());
            }
            _ => return Self::internal(chain(&error)),
        };
        Self::new(status, "bad-secret", chain(&error))
    }
}
