//! The HTTP API. What it offers is in `/openapi.json`, which is generated from this code.
//!
//! ```text
//!   TCP, loopback ──► guard (no foreign web page) ──┐
//!   Unix socket, mode 0600 ──── + POST /v1/stop ────┴──► routes ──► registry, deployer, engine, logs
//! ```

mod body;
mod budget;
pub mod error;
mod functions;
mod guard;
mod logs;
mod packages;
mod run;
mod status;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{self, FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware;
use engine::Engine;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::capacity::Capacity;
use crate::config::Config;
use crate::deploy::Deployer;
use crate::logs::Logs;
use crate::name::FunctionName;
use crate::registry::Registry;
use crate::state::State;
use crate::stock::Stock;

pub use budget::Budget;
pub use error::{ApiError, ErrorBody, ErrorDetail};
pub use functions::{FunctionDetail, FunctionList, FunctionSummary};
pub use packages::{Broken, Checked, PackageList, PackageSummary, Pruned};
pub use run::{INVOCATION, START};
pub(crate) use status::read_tree;
pub use status::{WorkerStatus, ZygoteList};

/// Everything that a request may need.
#[derive(Debug)]
pub struct App {
    /// The settings.
    pub config: Config,
    /// The state directory.
    pub state: State,
    /// Which functions exist.
    pub registry: Arc<Registry>,
    /// Who serves calls.
    pub engine: Arc<Engine>,
    /// Who deploys.
    pub deployer: Arc<Deployer>,
    /// Who looks after packages.
    pub stock: Arc<Stock>,
    /// Output of functions.
    pub logs: Arc<Logs>,
    /// What `/metrics` shows.
    pub metrics: PrometheusHandle,
    /// Cancelled when the worker shall stop.
    pub stop: CancellationToken,
    /// When the worker came up.
    pub began: Instant,
    /// Where it listens.
    pub url: String,
    /// How many sandboxes there may be.
    pub capacity: Capacity,
    /// Bodies of calls, in memory.
    pub run_bodies: Budget,
    /// Bundles that are being deployed, on disk.
    pub deploy_bodies: Budget,
}

/// Through which door a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// TCP on a loopback address: any user of the machine, any web page in a browser.
    Tcp,
    /// The Unix socket: its owner.
    Unix,
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Lambswool",
    description = "Runs Python functions on your own Linux machine. Served on a loopback address and on a Unix socket; every error is `{\"error\": {\"type\", \"message\"}}`."
))]
struct Described;

fn described() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(functions::list))
        .routes(routes!(functions::put, functions::get, functions::delete))
        .routes(routes!(logs::read))
        .routes(routes!(packages::list))
        .routes(routes!(packages::verify))
        .routes(routes!(packages::prune))
        .routes(routes!(run::run))
        .routes(routes!(status::healthz))
        .routes(routes!(status::metrics))
        .routes(routes!(status::status))
        .routes(routes!(status::zygotes))
}

/// The description of the API, as `/openapi.json` has it.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().routes(routes!(status::stop)).split_for_parts().1
}

/// The routes behind a door.
pub fn router(app: Arc<App>, door: Door) -> Router {
    let mut routes = described().routes(routes!(status::openapi));
    if door == Door::Unix {
        routes = routes.routes(routes!(status::stop));
    }
    let (router, _) = routes.split_for_parts();
    let router = router
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app.clone());
    let router = router.layer(middleware::from_fn_with_state(app, body::read_small_first));
    match door {
        Door::Tcp => router.layer(middleware::from_fn(guard::refuse_foreign_pages)),
        Door::Unix => router,
    }
}

/// What a connection gets that there is no room for, whatever it asks for.
pub(crate) fn refusal() -> Router {
    Router::new().fallback(async || ApiError::too_many_connections())
}

async fn nothing_here() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown-path",
        "nothing here: /openapi.json says what there is",
    )
}

async fn wrong_method() -> ApiError {
    let message = "this path does not take this method: /openapi.json says which it takes";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", message)
}

/// The function's name in the path.
struct Named(FunctionName);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text.parse()?)),
            // Not UTF-8 once decoded: say the rule.
            Err(_) => Ok(Self("\u{fffd}".parse()?)),
        }
    }
}

/// What stands behind the `?` of a path.
struct Query<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let extract::Query(query) = extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(query))
    }
}
