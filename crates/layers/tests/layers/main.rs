//! The real thing: this machine's Pythons, chroot.

mod bases;
mod guests;
#[expect(dead_code, reason = "each crate's tests use a part of it")]
mod machine;
