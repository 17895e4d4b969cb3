//! Who may do what.
//!
//! ```text
//!   TCP ──┬─ Authorization: Bearer wool_… ──► Tokens::find ──► Caller::Token    its scopes, its functions, its tenant
//!         ├─ none, a call on a loopback address, and calls take none ► Caller::Anyone
//!         └─ none; or unknown, removed, expired ─────────────► 401
//!   Unix ──── peer credentials ─┬─ ours, root's, the group's ► Caller::User     everything
//!                               └─ anybody else's ───────────► 403, whatever the file's mode is
//! ```
//!
//! What each [`Action`] takes is in one table (`action`). A use case does nothing without a [`Permit`], and only the check of
//! that table makes one (`permit`).
//!
//! Losing the store of tokens opens nothing beyond this machine: on another address everything takes a token.

mod action;
mod caller;
mod issuer;
mod patterns;
mod peer;
mod permit;
mod rows;
mod scope;
mod token;
mod token_error;
mod tokens;

pub use action::{Action, Purpose, to};
pub use caller::Caller;
pub use issuer::Issuer;
pub use patterns::{PatternError, Patterns};
pub use peer::{Admitted, Peer, Remote};
pub use permit::{Denied, Grant, GrantError, Permit, Requester, Subject};
pub use scope::{Scope, ScopeError};
pub use token::{Refusal, Secret, Token};
pub use token_error::TokenError;
pub use tokens::{NewToken, Tokens};

use serde::{Deserialize, Serialize};

/// When calls over TCP take a token. Everything else over TCP always takes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// From the moment at which the first token is made; removing the last one changes nothing.
    #[default]
    Auto,
    /// Always, from the worker's first start on.
    Required,
    /// Never: every user of this machine may call every function. Only on a loopback address.
    Off,
}

impl Demand {
    /// Whether calls on a loopback address take no token.
    #[must_use]
    pub fn lets_anyone_call(self, tokens: &Tokens) -> bool {
        match self {
            Self::Auto => !tokens.ever_made(),
            Self::Required => false,
            Self::Off => true,
        }
    }
}
