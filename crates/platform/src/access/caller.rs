//! Who a request comes from.

use std::fmt;
use std::sync::Arc;

use function::Label;

use super::{Scope, Token};

/// Who a request comes from, once that is known.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Any user of this machine, on a loopback address, while calls take no token.
    Anyone,
    /// The holder of this token.
    Token(Arc<Token>),
    /// A user on the Unix socket: the worker's own user, root, or a member of `admin_group`.
    User {
        /// The user's number.
        uid: u32,
    },
}

impl Caller {
    /// Whether the caller may do this kind of thing at all.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        match self {
            Self::Anyone => scope == Scope::Invoke,
            Self::User { .. } => true,
            Self::Token(token) => {
                token.scopes.contains(&scope) || token.scopes.contains(&Scope::Admin)
            }
        }
    }

    /// Whether the caller may have anything to do with a function of this name.
    #[must_use]
    pub fn may_touch(&self, function: &str) -> bool {
        match self {
            Self::Anyone | Self::User { .. } => true,
            Self::Token(token) => token.functions.match_function(function),
        }
    }

    /// Whose functions the caller has to do with, and no others; none: an administrator, who says whose.
    #[must_use]
    pub fn tenant(&self) -> Option<Label> {
        match self {
            Self::Token(token) if !token.scopes.contains(&Scope::Admin) => {
                Some(token.tenant.clone())
            }
            _ => None,
        }
    }

    /// Whether it is known who it is.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Anyone)
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("a caller without a token"),
            Self::Token(token) => write!(f, "token {}", token.name),
            Self::User { uid } => write!(f, "uid {uid}"),
        }
    }
}
