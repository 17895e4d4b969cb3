//! `/v1/functions/{name}/secrets`: what a function's environment holds and nobody else sees. No route shows a value.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::error::{ApiError, said};
use super::{App, Asked, ErrorBody, Named, body};
use crate::access::Caller;
use crate::logs::stamp;
use crate::name::FunctionName;
use crate::secrets::{Owner, SecretError};

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
    /// By name.
    pub secrets: Vec<SecretSummary>,
}

/// List the names of a function's secrets.
#[utoipa::path(get, path = "/v1/functions/{name}/secrets", tag = "secrets",
    params(("name" = String, Path, description = "the function's name")),
    responses((status = 200, description = "their names", body = SecretList)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Asked(caller): Asked,
    Named(name): Named,
) -> Json<SecretList> {
    let held = app.vault.list(&owner(&caller, &name)).into_iter();
    let secrets = held.map(|one| SecretSummary { key: one.key, updated: stamp(one.updated) });
    Json(SecretList { secrets: secrets.collect() })
}

/// Set a secret: the body is its value. The function's next instances have it; idle ones, which have not, are ended.
///
/// The function need not be there yet: its first instance may want it.
#[utoipa::path(put, path = "/v1/functions/{name}/secrets/{key}", tag = "secrets",
    params(("name" = String, Path, description = "the function's name"),
           ("key" = String, Path, description = "the variable's name")),
    request_body(description = "the value, UTF-8", content((String = "text/plain"))),
    responses(
        (status = 204, description = "it is set"),
        (status = 400, description = "name or value do not fit", body = ErrorBody),
        (status = 413, description = "it is too large", body = ErrorBody),
    ))]
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Asked(caller): Asked,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let (name, key) = parts(path)?;
    let value = body::collect(&headers, body, VALUE_BYTES).await?;
    // Ours alone, once it has been read: it is overwritten.
    let value = Zeroizing::new(Vec::from(value));
    let (vault, whose) = (Arc::clone(&app.vault), owner(&caller, &name));
    let set = tokio::task::spawn_blocking(move || vault.set(&whose, &key, &value)).await;
    set.map_err(|_| broke_off())??;
    renew(&app, &name);
    Ok(StatusCode::NO_CONTENT)
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
    Asked(caller): Asked,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<StatusCode, ApiError> {
    let (name, key) = parts(path)?;
    let (vault, whose, wanted) = (Arc::clone(&app.vault), owner(&caller, &name), key.clone());
    let removed = tokio::task::spawn_blocking(move || vault.remove(&whose, &wanted)).await;
    if !removed.map_err(|_| broke_off())?? {
        let message = format!("{name} has no secret {key:?}: see `wool secret ls {name}`");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "unknown-secret", message));
    }
    renew(&app, &name);
    Ok(StatusCode::NO_CONTENT)
}

/// Whose secrets a caller's are.
pub(super) fn owner(_: &Caller, name: &FunctionName) -> Owner {
    let tenant = crate::access::Label::DEFAULT_TENANT.to_owned();
    Owner { tenant, function: name.to_string() }
}

/// Ends the instances that have the secrets of before.
fn renew(app: &App, name: &FunctionName) {
    if let Some(handler) = app.registry.resolve(name.as_str()) {
        app.engine.renew(&handler.id);
    }
}

fn parts(
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<(FunctionName, String), ApiError> {
    // Not UTF-8 once decoded: say the rule.
    let strange = || ("\u{fffd}".to_owned(), String::new());
    let (name, key) = path.map_or_else(|_| strange(), |Path(parts)| parts);
    Ok((name.parse()?, key))
}

fn broke_off() -> ApiError {
    ApiError::internal("the secrets broke off")
}

impl From<SecretError> for ApiError {
    fn from(error: SecretError) -> Self {
        let status = match &error {
            SecretError::Key(_) | SecretError::Value(_) => StatusCode::BAD_REQUEST,
            SecretError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            _ => return Self::internal(said(&error)),
        };
        Self::new(status, "bad-secret", said(&error))
    }
}
