//! Files that a guest has mapped: their bytes, and copies that are put off.

pub(crate) mod bytes;
pub(crate) mod deferred;
