//! What a host can do.
