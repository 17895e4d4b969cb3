//! Linux made safe: descriptors in, typed results out. No policy, no names of ours.
//!
//! What rustix offers is used as it is, by whoever needs it; this crate holds what it lacks: helpers that make
//! namespaces from a single-threaded process, ancillary data with pidfds, exit statuses of foreign processes,
//! mount attributes, names with the reason why they led nowhere, the steps by which a program gives up its rights, where in
//! the unified cgroup hierarchy groups may be made, and the probe that finds out what a host can do.

pub mod descriptors;
pub mod jail;
pub mod loopback;
pub mod mount;
pub mod names;
pub mod namespace;
pub mod network;
pub mod peer;
pub mod probe;
pub mod process;
pub mod scm;
pub mod terminal;
pub mod unified;
