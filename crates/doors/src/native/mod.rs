//! The HTTP API. What it offers is in `/openapi.json`, which is generated from this code.
//!
//! ```text
//!   TCP, loopback ──► guard (no foreign web page) ──┐    without a token: calls, until the first token is made
//!   TCP, elsewhere: TLS and a token, always ────────┤
//!   Unix socket ──────────── + POST /v1/stop ───────┴─► identify (who asks for what?) ──► body ──► routes ──► platform
//! ```
//!
//! A route says which action it is (`actions`), `identify` asks for it; `platform` decides, and what it grants goes along with
//! the request to the use case ([`Permitted`](crate::request::Permitted)). An [`App`] holds use cases and no stores: a handler can do nothing without a
//! permit.

mod actions;
mod audit;
mod deploys;
mod describe;
mod functions;
mod identify;
pub mod isolation;
mod lines;
mod logs;
mod packages;
mod queries;
mod releases;
mod rollback;
mod run;
mod secrets;
mod status;
mod tokens;

use std::sync::Arc;

use axum::extract::{self, FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware;
use axum::{Extension, Router};
use serde::de::DeserializeOwned;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::request::entrance::Entrance;
use crate::request::{body, guard, reply};
use crate::{App, Listener};

pub use self::packages::{Broken, Checked, PackageList, PackageSummary, Pruned};
pub use audit::ActionList;
pub use functions::{FunctionDetail, FunctionList, FunctionSummary};
pub use lines::MOST as MOST_LINES;
pub use releases::{AliasRequest, AliasSummary, Canary, PublishRequest, ReleaseSummary};
pub use rollback::RollBackRequest;
pub use run::random_id;
pub use run::{INVOCATION, START};
pub use secrets::{SecretList, SecretSummary};
pub use status::read_tree;
pub use status::{WorkerStatus, ZygoteList};
pub use tokens::{TokenList, TokenMade, TokenRequest, TokenSummary};

#[derive(OpenApi)]
#[openapi(info(
    title = "Lambswool",
    description = "Runs Python functions on your own Linux machine. Served on a loopback address and on a Unix socket; every error is `{\"error\": {\"type\", \"message\"}}`. Over TCP each request takes a token, `Authorization: Bearer wool_…`; calls on a loopback address take none until the first token is made. The socket takes none."
))]
struct Described;

fn described() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(functions::list))
        .routes(routes!(deploys::put, functions::get, functions::delete))
        .routes(routes!(logs::read))
        .routes(routes!(packages::list))
        .routes(routes!(packages::verify))
        .routes(routes!(packages::prune))
        .routes(routes!(releases::publish))
        .routes(routes!(releases::unpublish))
        .routes(routes!(releases::set_alias, releases::remove_alias))
        .routes(routes!(rollback::roll_back))
        .routes(routes!(run::run))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::put, secrets::delete))
        .routes(routes!(status::healthz))
        .routes(routes!(status::metrics))
        .routes(routes!(status::status))
        .routes(routes!(status::zygotes))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::delete))
        .routes(routes!(audit::read))
}

/// The description of the API, as `/openapi.json` has it.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut api = described().routes(routes!(status::stop)).split_for_parts().1;
    describe::complete(&mut api);
    api
}

/// The routes behind a listener.
pub(crate) fn router(app: Arc<App>, listener: Listener) -> Router {
    let mut routes = described().routes(routes!(status::openapi));
    if listener == Listener::Unix {
        routes = routes.routes(routes!(status::stop));
    }
    let (router, _) = routes.split_for_parts();
    let router = router
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::clone(&app));
    let entrance = Entrance { app: Arc::clone(&app), listener };
    let budgets = app.budgets(listener).clone();
    // The last is asked first: who it is, then what it has to say. Replies go the other way.
    let router = router
        .layer(middleware::from_fn(reply::count))
        .layer(middleware::from_fn_with_state(app, body::read_small_first))
        .layer(Extension(budgets))
        .layer(middleware::from_fn_with_state(entrance, identify::identify));
    match listener {
        Listener::Loopback => router.layer(middleware::from_fn(guard::refuse_foreign_pages)),
        // A browser adds no token by itself: a page that has none of its own gets nowhere.
        Listener::Network | Listener::Unix => router,
    }
}

async fn nothing_here() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown-path",
        "nothing here: /openapi.json says what there is",
    )
}

async fn wrong_method(method: Method, path: MatchedPath) -> ApiError {
    let takes = actions::methods(path.as_str()).join(" or ");
    let message = format!("this path does not take {method}: call it with {takes}");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", message)
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
