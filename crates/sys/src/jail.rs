//! How a program that was executed as root gives up the privilege that it will not need. Called by
//! a process with one thread, before it reads any untrusted byte; there is no way back.
//!
//! ```text
//!   leave_root:  ids ─► capabilities ─► undumpable     later steps need no privilege
//!   confine:     no new privileges ─► Landlock ─► filter     each would forbid the step before it
//! ```
//! A step that fails leaves the process half-way: it must end.

use std::io;

use thiserror::Error;

use crate::process::{
    become_user, drop_capabilities, install_filter, set_no_new_privileges, set_undumpable,
};

/// The step at which a program failed to confine itself.
#[derive(Debug, Error)]
#[error("{step}")]
pub struct JailError {
    step: &'static str,
    source: io::Error,
}

/// Maps an error to the step that failed with it.
pub fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> JailError {
    move |source| JailError { step, source: source.into() }
}

/// Takes the user and group id for good and gives up every capability. No process of that user can
/// trace this one. Clears the parent-death signal (`prctl(2)`).
///
/// # Errors
/// The step that failed.
pub fn leave_root(id: u32) -> Result<(), JailError> {
    become_user(id).map_err(step("take user id"))?;
    drop_capabilities().map_err(step("drop capabilities"))?;
    set_undumpable().map_err(step("become undumpable"))
}

/// Sets up the walls that need no privilege, so that a process of any user can have them.
/// `restrict` sets up Landlock.
///
/// # Errors
/// The step that failed.
pub fn confine(
    restrict: impl FnOnce() -> io::Result<()>,
    filter: &[libc::sock_filter],
) -> Result<(), JailError> {
    set_no_new_privileges().map_err(step("give up privileges"))?;
    restrict().map_err(step("restrict by Landlock"))?;
    install_filter(filter).map_err(step("install filter"))
}
