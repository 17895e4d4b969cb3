//! `/v1/functions`: looking and removing.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use engine::Engine;
use sandbox::{Kind, Processors};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::act::Act;
use super::error::ApiError;
use super::{App, Asked, ErrorBody, Named, Query};
use crate::native::isolation::{Isolation, Reset};
use platform::functions::Function;
use platform::limits::Unenforced;
use platform::logs::stamp;
use store::PastVersion;

/// A function as lists show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionSummary {
    /// Its name.
    pub name: String,
    /// Whose it is.
    #[serde(default)]
    pub tenant: String,
    /// Its current version: the hash of everything that it is made of.
    pub version: String,
    /// When this version was made current, RFC 3339.
    pub updated: String,
    /// `module.function`
    pub handler: String,
    /// The base that it runs on; empty while the version is not made on this machine.
    pub base: String,
    /// What it runs in on this machine.
    #[serde(default)]
    pub isolation: Option<Isolation>,
    /// What a call finds of the one before.
    #[serde(default)]
    pub reset: Option<Reset>,
    /// Seconds that a call may take.
    pub timeout: f64,
    /// Bytes of memory that an instance may use.
    pub memory: u64,
    /// Processors that an instance may use; without it the worker's settings decide.
    #[serde(default)]
    pub cpu: Option<f64>,
    /// Instances at a time.
    pub concurrency: u32,
    /// Whether bodies pass through as bytes.
    pub binary: bool,
}

/// A function with everything that is known about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionDetail {
    /// The same as in lists.
    #[serde(flatten)]
    pub summary: FunctionSummary,
    /// When this version was first deployed, RFC 3339.
    pub created: String,
    /// Its settings, with what the deploy said instead.
    pub manifest: serde_json::Value,
    /// The exact lock of its packages, with hashes.
    pub lock: String,
    /// Its versions, newest first.
    pub versions: Vec<VersionSummary>,
    /// Settings in its files that have no effect.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Limits and lines of defence that this host does not enforce.
    #[serde(default)]
    pub unenforced: Vec<Unenforced>,
}

/// A version in a function's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionSummary {
    /// Its identity.
    pub version: String,
    /// When it was first deployed, RFC 3339.
    pub created: String,
}

/// All functions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionList {
    /// By name.
    pub functions: Vec<FunctionSummary>,
}

impl FunctionSummary {
    fn of(function: &Function, engine: &Engine) -> Self {
        let (version, manifest) = (function.current(), function.manifest());
        let base = function.handler.as_ref().map(|handler| handler.python.base.to_string());
        let has_machines = || engine.lacks(Kind::Microvm).is_none();
        Self {
            name: version.record.name.clone(),
            tenant: version.record.tenant.clone(),
            version: version.id.to_string(),
            updated: stamp(function.stored.updated),
            handler: format!("{}.{}", manifest.module, manifest.function),
            base: base.unwrap_or_default(),
            isolation: Some(Isolation::of(manifest.kind, has_machines)),
            reset: Some(manifest.reset.into()),
            timeout: manifest.timeout.as_secs_f64(),
            memory: manifest.limits.memory_bytes,
            cpu: manifest.limits.cpu.quota.map(Processors::number),
            concurrency: manifest.concurrency,
            binary: manifest.binary,
        }
    }
}

impl FunctionDetail {
    fn of(app: &App, function: &Function, history: Vec<PastVersion>) -> Self {
        let summary = |past: PastVersion| VersionSummary {
            version: past.id.to_string(),
            created: stamp(past.created),
        };
        let version = function.current();
        Self {
            summary: FunctionSummary::of(function, &app.engine),
            created: stamp(version.created),
            warnings: version.warnings.clone(),
            manifest: serde_json::to_value(function.manifest()).unwrap_or_default(),
            lock: version.record.lock.as_ref().map(|lock| lock.text.clone()).unwrap_or_default(),
            versions: history.into_iter().map(summary).collect(),
            unenforced: app.unenforced.clone(),
        }
    }
}

/// What a list shows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Also the functions that `wool run` made.
    #[serde(default)]
    hidden: bool,
}

/// List the functions.
#[utoipa::path(get, path = "/v1/functions", tag = "functions", params(ListQuery),
    responses((status = 200, description = "all functions of the tenant, by name", body = FunctionList),
              (status = 400, description = "the query is not valid", body = ErrorBody)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Asked { caller, tenant }: Asked,
    Query(query): Query<ListQuery>,
) -> Json<FunctionList> {
    let shown = app
        .registry
        .list()
        .into_iter()
        .filter(|function| query.hidden || !function.stored.hidden)
        .filter(|function| function.is_of(&tenant) && caller.may_touch(function.name()));
    let functions = shown.map(|function| FunctionSummary::of(&function, &app.engine)).collect();
    Json(FunctionList { functions })
}

/// Show a function with its manifest, its lock and its versions.
#[utoipa::path(get, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "the function's name")),
    responses(
        (status = 200, description = "the function", body = FunctionDetail),
        (status = 404, description = "no such function", body = ErrorBody),
    ))]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    Named(name): Named,
) -> Result<Json<FunctionDetail>, ApiError> {
    let function =
        app.registry.get(&name).ok_or_else(|| ApiError::unknown_function(name.name()))?;
    detail(&app, function).await.map(Json)
}

/// Remove a function with all its versions, its log and its secrets.
#[utoipa::path(delete, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "the function's name")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 403, description = "it has secrets, and the caller is not authenticated", body = ErrorBody),
        (status = 404, description = "no such function", body = ErrorBody),
    ))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Asked { caller, .. }: Asked,
    Extension(act): Extension<Arc<Act>>,
    Named(name): Named,
) -> Result<StatusCode, ApiError> {
    // All of it, or its log and its secrets could stay behind.
    let work = async move {
        if !app.deployer.remove(&name, caller.is_known()).await? {
            return Err(ApiError::unknown_function(name.name()));
        }
        // It may have been deployed again meanwhile, and the log be that one's.
        let (registry, again) = (Arc::clone(&app.registry), name.clone());
        app.logs.remove_unless(&name, move || registry.get(&again).is_some()).await;
        let vault = Arc::clone(&app.vault);
        let forgotten = tokio::task::spawn_blocking(move || vault.forget(&name)).await;
        forgotten.map_err(|_| ApiError::internal("the secrets broke off"))??;
        Ok(StatusCode::NO_CONTENT)
    };
    act.carry_out(work).await
}

/// A function with what the registry knows of its past.
pub(super) async fn detail(
    app: &Arc<App>,
    function: Arc<Function>,
) -> Result<FunctionDetail, ApiError> {
    let (registry, name) = (Arc::clone(&app.registry), function.whole_name());
    let history = tokio::task::spawn_blocking(move || registry.history(&name)).await;
    let history = history.map_err(|_| ApiError::internal("the registry broke off"))??;
    Ok(FunctionDetail::of(app, &function, history))
}
