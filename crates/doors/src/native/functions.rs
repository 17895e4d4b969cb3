//! `/v1/functions`: looking and removing.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use sandbox::Processors;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Query;
use super::releases::{AliasSummary, ReleaseSummary};
use crate::App;
use crate::error::{ApiError, ErrorBody};
use crate::native::isolation::{Isolation, Reset};
use crate::request::{Act, Permitted};
use platform::access::to;
use platform::functions::{Function, History};
use platform::limits::Unenforced;
use platform::logs::stamp;
use store::PastVersion;

/// A function as lists show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionSummary {
    /// The function's name.
    pub name: String,
    /// The tenant that owns it.
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
    /// Its versions, newest first: the last twenty, the current one and the published ones.
    pub versions: Vec<VersionSummary>,
    /// Its published versions, by number.
    #[serde(default)]
    pub published: Vec<ReleaseSummary>,
    /// Its aliases, by name.
    #[serde(default)]
    pub aliases: Vec<AliasSummary>,
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
    /// The version's id.
    pub version: String,
    /// When it was first deployed, RFC 3339.
    pub created: String,
}

/// The functions of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionList {
    /// Sorted by name.
    pub functions: Vec<FunctionSummary>,
}

impl FunctionSummary {
    fn of(function: &Function, app: &App) -> Self {
        let (version, manifest) = (function.current(), function.manifest());
        let base = function.handler.as_ref().map(|handler| handler.python.base.to_string());
        let has_machines = || app.functions.have_machines();
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
    fn of(app: &App, function: &Function, history: History) -> Self {
        let summary = |past: PastVersion| VersionSummary {
            version: past.id.to_string(),
            created: stamp(past.created),
        };
        let version = function.current();
        Self {
            summary: FunctionSummary::of(function, app),
            created: stamp(version.created),
            warnings: version.warnings.clone(),
            manifest: serde_json::to_value(function.manifest()).unwrap_or_default(),
            lock: version.record.lock.as_ref().map(|lock| lock.text.clone()).unwrap_or_default(),
            versions: history.versions.into_iter().map(summary).collect(),
            published: history.releases.into_iter().map(ReleaseSummary::from).collect(),
            aliases: history.aliases.into_iter().map(AliasSummary::from).collect(),
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
    Permitted(permit): Permitted<to::ListFunctions>,
    Query(query): Query<ListQuery>,
) -> Json<FunctionList> {
    let functions = app.functions.list(&permit, query.hidden);
    let functions = functions.iter().map(|function| FunctionSummary::of(function, &app)).collect();
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
    Permitted(permit): Permitted<to::ShowFunction>,
) -> Result<Json<FunctionDetail>, ApiError> {
    let unknown = || ApiError::unknown_function(permit.function().name());
    let function = app.functions.show(&permit).ok_or_else(unknown)?;
    detail(&app, function).await.map(Json)
}

/// Remove a function with all its versions, its log and its secrets.
#[utoipa::path(delete, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "the function's name")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 404, description = "no such function", body = ErrorBody),
    ))]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::Remove>,
    Extension(act): Extension<Arc<Act>>,
) -> Result<StatusCode, ApiError> {
    let work = async move {
        if !app.deployer.remove(&permit).await? {
            return Err(ApiError::unknown_function(permit.function().name()));
        }
        Ok(StatusCode::NO_CONTENT)
    };
    act.carry_out(work).await
}

/// A function with what the registry knows of its past.
pub(super) async fn detail(
    app: &Arc<App>,
    function: Arc<Function>,
) -> Result<FunctionDetail, ApiError> {
    let history = app.functions.history(&function).await?;
    Ok(FunctionDetail::of(app, &function, history))
}
