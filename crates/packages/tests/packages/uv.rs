//! The installer that the tests share.

use std::sync::LazyLock;

use layers::{Patience, Silent};
use packages::installer::Installer;
use packages::uv::Uv;

use crate::machine::{STORE, skip};

/// The pinned uv, or none without a network.
static INSTALLER: LazyLock<Option<Installer>> =
    LazyLock::new(|| Uv::own(&STORE, &Patience::endless(), &Silent).ok().map(Installer::new));

/// The pinned uv, for wheels alone; a test that gets none has nothing to do.
pub(crate) fn uv_or_skip(test: &str) -> Option<&'static Installer> {
    if INSTALLER.is_none() {
        skip(test, "network", "the package index cannot be reached with pip");
    }
    INSTALLER.as_ref()
}
