//! `/v1/packages`: lists what is installed, checks it, and removes what no function uses.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use sandbox::chain;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::App;
use crate::error::{ApiError, ErrorBody};
use crate::request::{Act, Permitted};
use platform::access::to;
use platform::logs::stamp;
use platform::packages::maintenance::{Inventory, StockError, Stocked};

/// An installed package: one wheel, for one Python.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PackageSummary {
    /// Its normalised name.
    pub name: String,
    /// Its exact version.
    pub version: String,
    /// Names its directory: name, version, and a hash of content, interpreter and platform.
    pub wheel: String,
    /// The Python that it was compiled for, `3.12`.
    pub python: String,
    /// Whether it was built here, from its source: it had no wheel.
    #[serde(default)]
    pub built: bool,
    /// Whether it came with functions' own files, and from no index.
    #[serde(default)]
    pub bundled: bool,
    /// Outermost modules that it brings, dotted below namespace packages.
    pub modules: Vec<String>,
    /// How many files it has, bytecode included.
    pub files: u64,
    /// The bytes that it frees.
    pub bytes: u64,
    /// Functions whose current version locked it.
    pub functions: Vec<String>,
    /// When it was last deployed or found in use, RFC 3339.
    pub used: String,
    /// Milliseconds that its modules took to import, all that were seen together and what they import of others apart; none
    /// before that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_ms: Option<f64>,
    /// Bytes of memory that having imported it takes, where a process did that and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_bytes: Option<u64>,
    /// Why no function is forked from a process that has imported it, where that was found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unforkable: Option<String>,
}

/// All installed packages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PackageList {
    /// By name and version.
    pub packages: Vec<PackageSummary>,
    /// Their bytes together.
    pub bytes: u64,
    /// What packages, code and bases may take together: the setting `install_cache_bytes`.
    pub budget: u64,
}

/// What was found broken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checked {
    /// Packages, and directories linked from them, that were not as they were made.
    pub broken: Vec<Broken>,
}

/// Something that was not as it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Broken {
    /// The wheel or the package set.
    pub what: String,
    /// What was wrong.
    pub fault: String,
    /// Whether it is as it was again.
    pub repaired: bool,
    /// The reason of a failed repair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What was removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pruned {
    /// Wheels, and layers of packages and code.
    pub removed: Vec<String>,
    /// Bytes that this gave back.
    pub freed: u64,
    /// Bytes of what is left.
    pub left: u64,
}

impl PackageSummary {
    fn of(stocked: Stocked) -> Self {
        let Stocked { wheel, functions, used, cost, unforkable } = stocked;
        let bundled = wheel.is_of_bundle();
        Self {
            name: wheel.name,
            version: wheel.version,
            unforkable,
            wheel: wheel.id,
            python: wheel.python,
            built: wheel.built.is_some(),
            bundled,
            modules: wheel.modules,
            files: wheel.extent.files,
            bytes: wheel.extent.bytes,
            functions,
            used: stamp(used),
            import_ms: cost.milliseconds,
            import_bytes: cost.bytes,
        }
    }
}

/// List the installed packages.
#[utoipa::path(get, path = "/v1/packages", tag = "packages",
    responses((status = 200, description = "all of them", body = PackageList)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::ListPackages>,
) -> Result<Json<PackageList>, ApiError> {
    let Inventory { wheels, budget } = app.stock.list(&permit).await?;
    let packages: Vec<PackageSummary> = wheels.into_iter().map(PackageSummary::of).collect();
    let bytes = packages.iter().map(|package| package.bytes).sum();
    Ok(Json(PackageList { packages, bytes, budget }))
}

/// Read every file of every package, and fetch again what is not as it was. Waits for deploys that are under way.
#[utoipa::path(post, path = "/v1/packages/verify", tag = "packages",
    responses((status = 200, description = "what was broken", body = Checked),
              (status = 500, description = "the check could not go on", body = ErrorBody)))]
pub(super) async fn verify(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::VerifyPackages>,
    Extension(act): Extension<Arc<Act>>,
) -> Result<Json<Checked>, ApiError> {
    let verdicts = act
        .carry_out(async move { app.stock.verify(&permit).await.map_err(ApiError::from) })
        .await?;
    let broken = verdicts.into_iter().map(|verdict| Broken {
        what: verdict.what,
        fault: verdict.fault,
        repaired: verdict.repaired.is_ok(),
        reason: verdict.repaired.err().map(|error| chain(&error)),
    });
    Ok(Json(Checked { broken: broken.collect() }))
}

/// Remove the packages and the code that no function uses. Waits for deploys that are under way.
#[utoipa::path(post, path = "/v1/packages/prune", tag = "packages",
    responses((status = 200, description = "what was removed", body = Pruned),
              (status = 409, description = "deploys are under way", body = ErrorBody),
              (status = 500, description = "not all could be removed", body = ErrorBody)))]
pub(super) async fn prune(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::PrunePackages>,
    Extension(act): Extension<Arc<Act>>,
) -> Result<Json<Pruned>, ApiError> {
    let collected = act
        .carry_out(async move { app.stock.prune(&permit).await.map_err(ApiError::from) })
        .await?;
    let packages::retention::Collected { removed, freed, left } = collected;
    Ok(Json(Pruned { removed, freed, left }))
}

impl From<StockError> for ApiError {
    fn from(error: StockError) -> Self {
        match error {
            StockError::Busy => Self::new(StatusCode::CONFLICT, "busy", chain(&error)),
            error => Self::internal(chain(&error)),
        }
    }
}
