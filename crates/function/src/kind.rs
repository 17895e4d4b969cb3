//! What a function runs in, and what a call finds of the one before.

use serde::{Deserialize, Serialize};

/// What a sandbox is. A zygote's kind is its children's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A container of namespaces.
    #[default]
    Container,
    /// A micro-VM. Where the host has none, nothing.
    Microvm,
    /// A micro-VM; where the host has none, a container.
    MicrovmOrContainer,
}

impl Kind {
    /// Whether it is the default; for serde.
    #[must_use]
    pub fn is_container(&self) -> bool {
        *self == Self::Container
    }
}

/// What a call finds of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reset {
    /// Whatever that left behind in the same instance.
    #[default]
    Never,
    /// Nothing: after each call the instance goes back to where its code had just been loaded. Micro-VMs only.
    Always,
}

impl Reset {
    /// Whether it is the default; for serde.
    #[must_use]
    pub fn is_never(&self) -> bool {
        *self == Self::Never
    }
}
