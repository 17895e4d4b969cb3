//! Packages on disk: which are kept, what the engine's import cache learns of them, and how they are mended.

pub mod maintenance;
pub mod retention;
pub mod store;
