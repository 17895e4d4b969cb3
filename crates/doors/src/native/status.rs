//! Status of the worker, metrics, zygotes, and stopping it.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use engine::{RefusedStatus, ZygoteStatus, ZygoteTree};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::App;
use crate::request::Permitted;
use platform::access::to;
use platform::control::{Host, Status, Zygotes};
use platform::limits::Capacity;

/// How the worker is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerStatus {
    /// The worker's release.
    pub version: String,
    /// Its process; for administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Where it listens.
    pub url: String,
    /// The region that it is in AWS Lambda's API.
    #[serde(default)]
    pub lambda_region: String,
    /// Its state directory; for administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Seconds since it came up.
    pub uptime_seconds: f64,
    /// Functions deployed by the tenant, hidden ones included.
    pub functions: usize,
    /// Bytes of the largest bundle that it takes.
    #[serde(default)]
    pub deploy_body: u64,
    /// How many sandboxes there may be at once, and why no more.
    pub capacity: Capacity,
    /// Pieces of output dropped because the disk could not keep up.
    pub log_pieces_dropped: u64,
    /// Instances, memory and queue; the zygotes, which are of all tenants, for administrators.
    #[schema(value_type = Object)]
    pub engine: serde_json::Value,
}

/// The import cache: zygotes that can be forked, and packages that have none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ZygoteList {
    /// Oldest first; `parent` makes them a tree.
    #[schema(value_type = Vec<Object>)]
    pub zygotes: Vec<ZygoteStatus>,
    /// What is not forked from, and why.
    #[schema(value_type = Vec<Object>)]
    pub refused: Vec<RefusedStatus>,
    /// The same zygotes as a tree that another worker can start from (`zygote_seed`).
    #[schema(value_type = Object)]
    pub tree: ZygoteTree,
}

/// A tree of zygotes: by itself, or inside a [`ZygoteList`].
///
/// # Errors
/// When it is neither.
pub fn read_tree(text: &[u8]) -> serde_json::Result<ZygoteTree> {
    let mut read: serde_json::Value = serde_json::from_slice(text)?;
    let tree = match read.get_mut("tree") {
        Some(tree) => tree.take(),
        None => read,
    };
    // A node may leave out what it adds; a file that says nothing at all is something else.
    if tree.get("children").is_none() && tree.get("packages").is_none() {
        return Err(serde::de::Error::custom("it has neither `packages` nor `children`"));
    }
    serde_json::from_value(tree)
}

/// Say whether the worker serves calls.
#[utoipa::path(get, path = "/healthz", tag = "worker",
    responses((status = 200, description = "`ok`", body = String), (status = 503, description = "`stopping`", body = String)))]
pub(super) async fn healthz(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.control.is_stopping() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "worker",
    responses((status = 200, description = "all metrics", body = String, content_type = "text/plain; version=0.0.4")))]
pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::ReadMetrics>,
) -> impl IntoResponse {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], app.control.metrics(&permit))
}

/// Say how the worker is.
#[utoipa::path(get, path = "/v1/status", tag = "worker",
    responses((status = 200, description = "how it is", body = WorkerStatus)))]
pub(super) async fn status(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::ReadStatus>,
) -> Json<WorkerStatus> {
    let status = app.control.status(&permit);
    let Status { host, uptime, functions, log_pieces_dropped, engine } = status;
    let (pid, state) = host.map(|Host { pid, state }| (pid, state.display().to_string())).unzip();
    Json(WorkerStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid,
        url: app.url.clone(),
        lambda_region: app.settings.place.region.clone(),
        state,
        uptime_seconds: uptime.as_secs_f64(),
        functions,
        deploy_body: app.settings.deploy_body.0,
        capacity: app.capacity.clone(),
        log_pieces_dropped,
        engine: serde_json::to_value(engine).unwrap_or_default(),
    })
}

/// List the zygotes.
#[utoipa::path(get, path = "/v1/zygotes", tag = "worker",
    responses((status = 200, description = "the import cache", body = ZygoteList)))]
pub(super) async fn zygotes(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::ListZygotes>,
) -> Json<ZygoteList> {
    let Zygotes { zygotes, refused, tree } = app.control.zygotes(&permit);
    Json(ZygoteList { zygotes, refused, tree })
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "worker",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
pub(super) async fn openapi() -> impl IntoResponse {
    // Making it takes a thousand times longer than sending it, and anybody may ask.
    static DESCRIPTION: LazyLock<Bytes> = LazyLock::new(|| {
        // Plain data: it always serializes.
        serde_json::to_vec(&super::openapi()).unwrap_or_default().into()
    });
    ([(header::CONTENT_TYPE, "application/json")], DESCRIPTION.clone())
}

/// Stop the worker once running calls have ended. Only on the Unix socket.
#[utoipa::path(post, path = "/v1/stop", tag = "worker",
    responses((status = 202, description = "it is stopping", body = serde_json::Value)))]
pub(super) async fn stop(
    State(app): State<Arc<App>>,
    Permitted(permit): Permitted<to::Stop>,
) -> impl IntoResponse {
    app.control.stop(&permit);
    (StatusCode::ACCEPTED, Json(serde_json::json!({ "stopping": true, "pid": std::process::id() })))
}
