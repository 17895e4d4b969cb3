//! Files that a guest has mapped: their bytes, and copies of them that are put off.

pub(crate) mod bytes;
pub(crate) mod deferred;
