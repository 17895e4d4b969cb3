//! The zygote that a call's instance is forked from.

use std::sync::Arc;

use sandbox::SandboxId;

use super::zygote::CachedZygote;
use crate::pages::Pages;

/// The choice of a zygote for one call.
#[derive(Debug)]
pub struct Pick {
    /// None: a fresh interpreter.
    pub(crate) zygote: Option<Arc<CachedZygote>>,
    /// The zygote had to be made first.
    pub(crate) cold: bool,
    /// The zygote has imported all that the handler is known to import.
    pub(crate) exact: bool,
    /// Whether to ask the handler what it imports.
    pub(crate) observe: bool,
}

impl Pick {
    /// A fresh interpreter.
    pub(crate) fn fresh() -> Self {
        Self { zygote: None, cold: true, exact: false, observe: false }
    }

    /// The zygote's memory pages.
    pub(crate) fn pages(&self) -> Option<Arc<Pages>> {
        self.zygote.as_ref().map(|cached| Arc::clone(&cached.pages))
    }

    /// The zygote; none: a fresh interpreter.
    #[must_use]
    pub fn zygote(&self) -> Option<SandboxId> {
        self.zygote.as_ref().map(|cached| cached.zygote.id())
    }

    /// Whether it has imported all that the handler is known to import.
    #[must_use]
    pub fn exact(&self) -> bool {
        self.exact
    }
}
