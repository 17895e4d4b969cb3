//! Packages on disk: which are kept, what the engine's import cache learns of them, and how they are mended. What resolves
//! and installs them is the crate `packages`.

pub mod maintenance;
pub mod retention;
pub mod store;
