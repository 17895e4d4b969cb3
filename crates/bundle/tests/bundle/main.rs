//! The real thing: bundles, parsed and compiled by this machine's Python.

mod functions;
#[path = "../../../layers/tests/layers/machine.rs"]
#[expect(dead_code, reason = "each crate's tests use a part of it")]
mod machine;
