//! HTTP: the door, and the APIs behind it.
//!
//! ```text
//!   bytes ──► door (listen, TLS, connections, heads) ──► request (who asks, audit, bodies) ─┬► native ─┬─► platform ──► bytes
//!                                                                                          └► lambda ─┘
//! ```
//! `native` is Lambswool's own API, `lambda` is AWS Lambda's: paths that begin with one of its dates. A refusal is an [`error::ApiError`] everywhere.

#![forbid(unsafe_code)]

mod app;
pub mod door;
pub mod error;
pub mod lambda;
pub mod native;
mod request;

use std::sync::Arc;

use axum::{Router, middleware};
use function::{Bytes, Span};
use lambda_api::arn::Place;
use platform::access::Demand;

pub use app::{App, Listener};
pub use request::Budgets;
pub use request::entrance::TENANT;

/// What the operator says of requests.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When calls over TCP take a token.
    pub tokens: Demand,
    /// The largest body of a call.
    pub run_body: Bytes,
    /// The largest bundle of a deploy.
    pub deploy_body: Bytes,
    /// How long a client may pause.
    pub client_timeout: Span,
    /// The account and the region that AWS Lambda's API is of here.
    pub place: Place,
}

/// The routes of all APIs, behind a listener.
pub fn router(app: &Arc<App>, listener: Listener) -> Router {
    let lambda = lambda::Api::new(app, listener);
    let native = native::router(Arc::clone(app), listener);
    native.layer(middleware::from_fn_with_state(lambda, lambda::answer_or_pass_on))
}
