//! Who may do what.
//!
//! ```text
//!   TCP ──┬─ Authorization: Bearer wool_… ──► Tokens::find ──► Caller::Token    its scopes, its functions, its tenant
//!         ├─ none, and no token was ever made ───────────────► Caller::Anyone   on a loopback address only
//!         └─ none; or unknown, removed, expired ─────────────► 401
//!   Unix ──── peer credentials ─┬─ ours, root's, the group's ► Caller::User     everything
//!                               └─ anybody else's ───────────► 403, whatever the file's mode is
//! ```
//!
//! What each [`Action`] takes is in one table (`action`). A use case does nothing without a [`Permit`], and only the check of
//! that table makes one (`permit`).
//!
//! Losing the store of tokens opens nothing beyond this machine: a listener on another address does not start without a token.

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
mod unprotected;

pub use action::{Action, Need, Purpose, to};
pub use caller::Caller;
pub use issuer::Issuer;
pub use patterns::{PatternError, Patterns};
pub use peer::{Admitted, Peer, Remote};
pub use permit::{Denied, Grant, GrantError, Permit, Requester, Subject};
pub use scope::{Scope, ScopeError};
pub use token::{Refusal, Secret, Token};
pub use token_error::TokenError;
pub use tokens::{NewToken, Tokens};
pub use unprotected::Unprotected;

use serde::{Deserialize, Serialize};

/// When TCP asks for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// From the moment at which the first token is made; removing the last one does not open the door again.
    #[default]
    Auto,
    /// Every caller on TCP needs a token.
    Required,
    /// Never: every user of this machine may do everything. Only on a loopback address.
    Off,
}

impl Demand {
    /// Whether a caller without a token is let in.
    #[must_use]
    pub fn lets_anyone_in(self, tokens: &Tokens) -> bool {
        match self {
            Self::Auto => !tokens.ever_made(),
            Self::Required => false,
            Self::Off => true,
        }
    }
}
