//! How the worker is, and stopping it.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use engine::{EngineStatus, RefusedStatus, ZygoteStatus, ZygoteTree};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{App, Asked};
use platform::access::Scope;
use platform::limits::Capacity;

/// How the worker is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerStatus {
    /// Its release.
    pub version: String,
    /// Its process; for administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Where it listens.
    pub url: String,
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
    if app.stop.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

/// Metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "worker",
    responses((status = 200, description = "all metrics", body = String, content_type = "text/plain; version=0.0.4")))]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    // Sets the gauges that nothing else sets between calls.
    drop(app.engine.status());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render())
}

/// Say how the worker is.
#[utoipa::path(get, path = "/v1/status", tag = "worker",
    responses((status = 200, description = "how it is", body = WorkerStatus)))]
pub(super) async fn status(
    State(app): State<Arc<App>>,
    Asked { caller, tenant }: Asked,
) -> Json<WorkerStatus> {
    let mut engine = app.engine.status();
    let administers = caller.may(Scope::Admin);
    if !administers {
        engine.zygotes.clear();
        engine.refused.clear();
    }
    Json(WorkerStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: administers.then(std::process::id),
        url: app.url.clone(),
        state: administers.then(|| app.state.display().to_string()),
        uptime_seconds: app.began.elapsed().as_secs_f64(),
        functions: app.registry.list().iter().filter(|one| one.is_of(&tenant)).count(),
        deploy_body: app.settings.deploy_body.0,
        capacity: app.capacity.clone(),
        log_pieces_dropped: app.logs.dropped(),
        engine: serde_json::to_value(engine).unwrap_or_default(),
    })
}

/// List the zygotes.
#[utoipa::path(get, path = "/v1/zygotes", tag = "worker",
    responses((status = 200, description = "the import cache", body = ZygoteList)))]
pub(super) async fn zygotes(State(app): State<Arc<App>>) -> Json<ZygoteList> {
    let EngineStatus { zygotes, refused, .. } = app.engine.status();
    Json(ZygoteList { zygotes, refused, tree: app.engine.zygote_tree() })
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
pub(super) async fn stop(State(app): State<Arc<App>>) -> impl IntoResponse {
    tracing::info!("asked to stop");
    app.stop.cancel();
    (StatusCode::ACCEPTED, Json(serde_json::json!({ "stopping": true, "pid": std::process::id() })))
}
