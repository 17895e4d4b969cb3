//! What is known of packages, zygotes and handlers: plain data.

pub(crate) mod catalog;
pub(crate) mod entry;
pub(crate) mod estimate;
pub(crate) mod import_time;
pub(crate) mod lookups;
pub(crate) mod memory_model;
pub(crate) mod profile;
pub(crate) mod provenance;
pub(crate) mod set;
pub(crate) mod spending;
