//! HTTP: the door, and the API behind it.
//!
//! ```text
//!   bytes ──► door (listen, TLS, connections, heads) ──► native (who asks, routes, bodies) ──► platform ──► bytes
//! ```
//! `native` is Lambswool's own API. `door` calls it back for one thing: refusals that no route has made.

#![forbid(unsafe_code)]

pub mod door;
pub mod native;

use function::{Bytes, Span};

use platform::access::Demand;

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
