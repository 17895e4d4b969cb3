//! The real thing: uv from the package index, wheels, this machine's Pythons.

mod bundled;
mod index;
mod indexes;
mod installs;
#[path = "../../../layers/tests/layers/machine.rs"]
#[expect(dead_code, reason = "each crate's tests use a part of it")]
mod machine;
mod mending;
mod uv;
mod wheels;
