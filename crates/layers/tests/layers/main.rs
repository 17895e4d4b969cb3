//! The real thing: this machine's Pythons, uv from the package index, wheels, chroot.

mod bases;
mod functions;
mod index;
mod indexes;
mod installs;
mod machine;
mod mending;
mod wheels;
