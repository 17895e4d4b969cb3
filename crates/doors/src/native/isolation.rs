//! What a function runs in, and what a call finds of the one before, as commands and the API say it.

use bundle::manifest::Overrides;
use sandbox::Kind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a function runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// A container of namespaces
    Container,
    /// A micro-VM: needs KVM
    Microvm,
}

impl Isolation {
    /// What that kind is here, where there are micro-VMs or not.
    pub fn of(kind: Kind, has_machines: impl FnOnce() -> bool) -> Self {
        match kind {
            Kind::Microvm => Self::Microvm,
            Kind::MicrovmOrContainer if has_machines() => Self::Microvm,
            Kind::MicrovmOrContainer | Kind::Container => Self::Container,
        }
    }

    /// As everybody writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Microvm => "microvm",
        }
    }
}

/// What a call finds of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reset {
    /// Whatever that left behind in the same instance
    Never,
    /// Nothing: micro-VMs only
    Always,
}

impl Reset {
    /// As everybody writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
        }
    }
}

impl From<sandbox::Reset> for Reset {
    fn from(reset: sandbox::Reset) -> Self {
        match reset {
            sandbox::Reset::Never => Self::Never,
            sandbox::Reset::Always => Self::Always,
        }
    }
}

/// What a deploy says of both; it counts whatever the function says itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Instead {
    /// What to run it in [default: what the function says, else a container]
    #[arg(long, value_name = "KIND")]
    pub isolation: Option<Isolation>,
    /// Whether each call finds it as it was loaded: `always` needs a micro-VM [default: what the function says, else never]
    #[arg(long, value_name = "WHEN")]
    pub reset: Option<Reset>,
}

impl Instead {
    /// The same as a query: with an ampersand before each part.
    pub fn query(self) -> String {
        let isolation =
            self.isolation.map(|isolation| format!("&isolation={}", isolation.as_str()));
        let reset = self.reset.map(|reset| format!("&reset={}", reset.as_str()));
        [isolation, reset].into_iter().flatten().collect()
    }
}

impl From<Instead> for Overrides {
    fn from(Instead { isolation, reset }: Instead) -> Self {
        let kind = isolation.map(|isolation| match isolation {
            Isolation::Container => Kind::Container,
            Isolation::Microvm => Kind::Microvm,
        });
        let reset = reset.map(|reset| match reset {
            Reset::Never => sandbox::Reset::Never,
            Reset::Always => sandbox::Reset::Always,
        });
        Self { kind, reset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_out_is_shown_as_what_it_leads_to() {
        let of = |kind, has_machines| Isolation::of(kind, || has_machines).as_str();
        assert_eq!(of(Kind::MicrovmOrContainer, true), "microvm");
        assert_eq!(of(Kind::MicrovmOrContainer, false), "container");
        assert_eq!((of(Kind::Microvm, false), of(Kind::Container, true)), ("microvm", "container"));
    }
}
