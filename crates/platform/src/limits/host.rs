//! What this host allows, and what it does not enforce, as the worker found it when it started.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many sandboxes there may be at once, zygotes and what they keep ready included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// Most sandboxes.
    pub sandboxes: usize,
    /// What allows no more.
    pub bound_by: String,
}

/// A limit or a line of defence that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unenforced {
    /// The limit or defence that is missing.
    pub what: String,
    /// Why, and what would change it.
    pub because: String,
}

impl fmt::Display for Unenforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.because)
    }
}
