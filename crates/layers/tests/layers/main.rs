//! The real thing: this machine's Pythons, uv from the package index, wheels, chroot.

mod bases;
mod functions;
mod installs;
mod machine;
