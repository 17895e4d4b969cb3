//! How a program that was executed as root gives up what it will not need. By a process of one thread, before it reads from
//! anybody; there is no way back.
//!
//! ```text
//!   leave_root:  ids ─► capabilities ─► undumpable     what follows needs no privilege
//!   confine:     no new privileges ─► Landlock ─► filter     which would forbid what comes before it
//! ```
//! A step that fails leaves the process half-way: it must end.

use std::io;

use thiserror::Error;

use crate::process::{
    become_user, drop_capabilities, install_filter, set_no_new_privileges, set_undumpable,
};

/// Why there is no jail.
#[derive(Debug, Error)]
#[error("{step}")]
pub struct JailError {
    step: &'static str,
    source: io::Error,
}

/// Names the step of going to jail that an error ended.
pub fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> JailError {
    move |source| JailError { step, source: source.into() }
}

/// Takes the user and group id for good and gives up every capability; nobody of that user traces this process. Clears the
/// parent-death signal (`prctl(2)`).
///
/// # Errors
/// The step that failed.
pub fn leave_root(id: u32) -> Result<(), JailError> {
    become_user(id).map_err(step("take user id"))?;
    drop_capabilities().map_err(step("drop capabilities"))?;
    set_undumpable().map_err(step("become undumpable"))
}

/// The walls that need nobody's help, and so whatever a user runs as himself can have, too. `restrict` sets up Landlock.
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
