//! Linux system calls with safe signatures: descriptors and paths in, typed results out.
//!
//! This is the lowest crate of the workspace. It holds no policy and knows no name of ours. Nearly
//! all `unsafe` outside of `microvm` is gathered here, each call with the invariant that makes it
//! sound. Where rustix or nix has a safe call, the other crates use that; this crate adds what they
//! lack.
//!
//! | module | content |
//! | --- | --- |
//! | [`namespace`], [`network`], [`loopback`] | user and network namespaces, made and entered by a process with one thread |
//! | [`mount`] | detached mount trees (`open_tree(2)`, `move_mount(2)`), mount attributes |
//! | [`process`], [`jail`] | pidfds, exit statuses, credentials, filters, and the steps of giving up privilege |
//! | [`scm`], [`peer`] | descriptors and credentials over Unix sockets |
//! | [`unified`], [`probe`] | groups of the cgroup hierarchy that can be used, and the abilities of a host |
//! | [`descriptors`], [`files`], [`names`], [`terminal`] | limits on descriptors, files that are replaced whole, name resolution with its cause of failure, lending a terminal |
//!
//! Errors are `io::Error` with the errno of the call that failed, unless a function says otherwise.
//! The man page of that call is the reference; comments name the kernel version where it matters.

pub mod descriptors;
pub mod files;
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
