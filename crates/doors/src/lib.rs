//! HTTP: the door, and the APIs behind it.
//!
//! ```text
//!   bytes ──► door (listen, TLS, connections, heads) ──► request (who asks, audit, bodies) ──► native ──► platform ──► bytes
//! ```
//! `native` is Lambswool's own API. A refusal is an [`error::ApiError`] everywhere.

#![forbid(unsafe_code)]

mod app;
pub mod door;
pub mod error;
pub mod native;
mod request;

use function::{Bytes, Span};

use platform::access::Demand;

pub use app::{App, Listener};
pub use request::Budgets;
pub use request::entrance::TENANT;

/// What the operator says of requests.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// When calls over TCP take a token.
    pub tokens: Demand,
    /// The largest body of a call.
    pub run_body: Bytes,
    /// The largest bundle of a deploy.
    pub deploy_body: Bytes,
    /// How long a client may pause.
    pub client_timeout: Span,
}
