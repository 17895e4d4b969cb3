//! Specifications of sandboxes: layers, Python, limits, network.

use std::fmt;
use std::path::{Component, Path};
use std::str::FromStr;
use std::sync::Arc;

use function::{Destination, Kind, Limits, Network, Reset};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ProviderError;

/// A read-only directory of the root file system, named by its path relative to the state
/// directory's `layers/` (for example `packages/4f1c…`). Never absolute, never with `..`, never
/// empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Layer(String);

/// Why a text is no [`Layer`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error("a layer is a relative path of plain names, not {0:?}")]
pub struct LayerError(String);

impl Layer {
    /// The path relative to `layers/`.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl TryFrom<String> for Layer {
    type Error = LayerError;

    fn try_from(text: String) -> Result<Self, LayerError> {
        let plain = !text.is_empty()
            && !text.contains('\0')
            && !text.contains("//")
            && !text.ends_with('/')
            && Path::new(&text).components().all(|c| matches!(c, Component::Normal(_)))
            && !text.split('/').any(|name| name == ".");
        if plain { Ok(Self(text)) } else { Err(LayerError(text)) }
    }
}

impl FromStr for Layer {
    type Err = LayerError;

    fn from_str(text: &str) -> Result<Self, LayerError> {
        Self::try_from(text.to_owned())
    }
}

impl From<Layer> for String {
    fn from(layer: Layer) -> Self {
        layer.0
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The Python that a sandbox starts from: a base layer, and the files of Lambswool's guest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PythonSpec {
    /// Interpreter, standard library and system libraries; becomes `/`.
    pub base: Layer,
    /// Lambswool's guest; becomes `/opt/lambswool`.
    pub guest: Layer,
    /// The interpreter's path inside the base, for example `/usr/bin/python3`.
    pub interpreter: String,
}

/// A zygote: it exists to be forked and is never called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZygoteSpec {
    /// Container or micro-VM. A derived zygote keeps its parent's.
    pub kind: Kind,
    /// The Python it runs. A derived zygote keeps its parent's.
    pub python: PythonSpec,
    /// The exact package set that it may import from, as `/opt/python`; none for a root zygote.
    pub packages: Option<Layer>,
    /// Modules to import before the zygote is offered for forking.
    pub imports: Vec<String>,
    /// The network class of the zygote and all its forks.
    pub network: Network,
    /// The only tenant whose functions are forked from this zygote. Code that runs in a zygote has
    /// power over its children, and so has an attacker who breaks out of it. So no memory or file
    /// of one tenant reaches another. A derived zygote keeps its parent's tenant.
    pub tenant: Arc<str>,
    /// Limits of the zygote itself; its forks have limits of their own.
    pub limits: Limits,
}

/// An instance: it serves one handler and is never forked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Container or micro-VM: must equal its zygote's kind.
    pub kind: Kind,
    /// How much of its state a call finds from the call before.
    pub reset: Reset,
    /// The Python it runs.
    pub python: PythonSpec,
    /// The handler's exact package set, as `/opt/python`.
    pub packages: Option<Layer>,
    /// The handler's code, as `/var/task`.
    pub code: Layer,
    /// Its layers, as `/opt`, where the guest's files lie above them. They have its packages, too: [`Self::packages`] is none then.
    pub opt: Option<Layer>,
    /// The network class: must equal its zygote's.
    pub network: Network,
    /// Destinations it may connect to, if the class is [`Network::Egress`].
    pub egress: Arc<[Destination]>,
    /// The function it belongs to, as `tenant/function`, with its zygote's tenant. Limits on
    /// connections and lookups are divided by this name.
    pub owner: Arc<str>,
    /// Limits on memory, processes and time.
    pub limits: Limits,
}

impl ZygoteSpec {
    /// Refuses an instance that must not be forked from this zygote.
    ///
    /// # Errors
    /// [`ProviderError::Refused`] when kind, Python, network class or tenant differ.
    pub fn check_fork(&self, spec: &InstanceSpec) -> Result<(), ProviderError> {
        self.check(spec.kind, &spec.python, spec.network, spec.tenant())
    }

    /// Refuses a zygote that must not be derived from this one.
    ///
    /// # Errors
    /// As [`Self::check_fork`].
    pub fn check_derive(&self, spec: &Self) -> Result<(), ProviderError> {
        self.check(spec.kind, &spec.python, spec.network, &spec.tenant)
    }

    fn check(
        &self,
        kind: Kind,
        python: &PythonSpec,
        network: Network,
        tenant: &str,
    ) -> Result<(), ProviderError> {
        let other = match () {
            () if kind != self.kind => "kind of sandbox",
            () if *python != self.python => "Python",
            () if network != self.network => "network class",
            () if tenant != &*self.tenant => "tenant",
            () => return Ok(()),
        };
        Err(ProviderError::Refused(format!("fork into another {other}")))
    }
}

impl InstanceSpec {
    /// The tenant of its owner, which must be its zygote's: [`ZygoteSpec::tenant`].
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.owner.split('/').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_never_leaves_its_directory() {
        for bad in ["", "/etc", "a/../b", "..", "a//b", "a/", "./a", "a/./b", "a\0b"] {
            assert!(bad.parse::<Layer>().is_err(), "{bad:?}");
        }
        assert_eq!("packages/4f1c".parse::<Layer>().unwrap().to_string(), "packages/4f1c");
    }

    #[test]
    fn nothing_is_forked_into_another_kind_python_network_class_or_tenant() {
        let layer = |path: &str| path.parse::<Layer>().unwrap();
        let python = PythonSpec {
            base: layer("base/b"),
            guest: layer("guest/g"),
            interpreter: "/usr/bin/python3".to_owned(),
        };
        let zygote = ZygoteSpec {
            kind: Kind::Container,
            python: python.clone(),
            packages: None,
            imports: Vec::new(),
            network: Network::None,
            tenant: "acme".into(),
            limits: Limits::default(),
        };
        let instance = InstanceSpec {
            kind: Kind::Container,
            reset: Reset::Never,
            python: python.clone(),
            packages: Some(layer("packages/p")),
            code: layer("code/c"),
            opt: None,
            network: Network::None,
            egress: [].into(),
            owner: "acme/report".into(),
            limits: Limits::default(),
        };
        zygote.check_fork(&instance).unwrap();
        zygote
            .check_derive(&ZygoteSpec { imports: vec!["json".to_owned()], ..zygote.clone() })
            .unwrap();

        let (kind, network) = (Kind::Microvm, Network::Host);
        let python = PythonSpec { base: layer("base/other"), ..python };
        let refused = |checked: Result<(), ProviderError>, what: &str| {
            let error = checked.unwrap_err().to_string();
            assert!(error.ends_with(&format!("fork into another {what}")), "{error}");
        };
        let fork = |spec: InstanceSpec, what| refused(zygote.check_fork(&spec), what);
        fork(InstanceSpec { kind, ..instance.clone() }, "kind of sandbox");
        fork(InstanceSpec { python: python.clone(), ..instance.clone() }, "Python");
        fork(InstanceSpec { network, ..instance.clone() }, "network class");
        fork(InstanceSpec { owner: "other/report".into(), ..instance.clone() }, "tenant");
        let derive = |spec: ZygoteSpec, what| refused(zygote.check_derive(&spec), what);
        derive(ZygoteSpec { kind, ..zygote.clone() }, "kind of sandbox");
        derive(ZygoteSpec { python, ..zygote.clone() }, "Python");
        derive(ZygoteSpec { network, ..zygote.clone() }, "network class");
        derive(ZygoteSpec { tenant: "other".into(), ..zygote.clone() }, "tenant");
    }
}
