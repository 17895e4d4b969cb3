//! Readers of strangers' bytes that nothing outside this crate calls, for the workspace's fuzzer to
//! call. No interface: they come and go with what they read. What they return is told in as far as
//! the fuzzer judges it.

use std::io;
use std::path::Path;

use crate::wheel_file::WheelError;
use crate::{install, lock, requirements, wheel_file};

/// Reads a wheel through that is to be of this name and version.
///
/// # Errors
/// When it is not acceptable.
pub fn wheel(name: &str, version: &str, file: &str, bytes: &[u8]) -> Result<(), WheelError> {
    wheel_file::check(name, version, file, io::Cursor::new(bytes)).map(drop)
}

/// Reads what an unpacked wheel says of itself. Its distribution's name and version, which become a
/// directory's name.
///
/// # Errors
/// When it does not say it.
pub fn distribution(root: &Path) -> io::Result<Option<(String, String)>> {
    let found = install::read_distribution(root)?;
    Ok(found.map(|distribution| (distribution.name, distribution.version)))
}

/// Gives a command of a wheel the sandbox's interpreter; none when it is no Python command.
#[must_use]
pub fn command(content: &[u8]) -> Option<Vec<u8>> {
    install::rehomed(content)
}

/// Reads the list of a wheel's files, as it is kept beside it, and writes it again.
#[must_use]
pub fn inventory(text: &str) -> Option<String> {
    install::Inventory::parse(text).map(|inventory| inventory.text())
}

/// The lines of a requirements file.
#[must_use]
pub fn logical_lines(text: &str) -> Vec<String> {
    requirements::logical_lines(text)
}

/// The name of the package that a requirement is about.
#[must_use]
pub fn name(requirement: &str) -> Option<String> {
    requirements::name(requirement)
}

/// The requirements of what an installer printed, and the distributions in them.
#[must_use]
pub fn lock(text: &str) -> (String, Vec<(String, String)>) {
    let listed = lock::listed(text);
    let distributions = listed.lines().filter_map(lock::distribution).collect();
    (listed, distributions)
}
