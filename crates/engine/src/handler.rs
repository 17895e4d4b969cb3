//! A deployed version of a function, ready to run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use function::{DEFAULT_TENANT, Lambda, VersionId, WholeName};
use sandbox::wire::Convention;
use sandbox::{Destination, Kind, Layer, Limits, Network, PythonSpec, Reset};
use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;

fn default_tenant() -> String {
    DEFAULT_TENANT.to_owned()
}

/// Left out where handlers are written; for serde.
fn is_default_tenant(tenant: &str) -> bool {
    tenant == DEFAULT_TENANT
}

fn yes() -> bool {
    true
}

/// Left out likewise.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_yes(value: &bool) -> bool {
    *value
}

fn nowhere() -> Arc<[Destination]> {
    [].into()
}

/// Left out likewise.
fn is_nowhere(destinations: &Arc<[Destination]>) -> bool {
    destinations.is_empty()
}

/// One immutable version of a deployed function, ready to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handler {
    /// Its identity; equal ids mean equal handlers.
    pub id: VersionId,
    /// The name it was deployed under.
    pub name: String,
    /// Whose it is. Nothing that has run one tenant's code or imported its packages serves
    /// another's.
    #[serde(default = "default_tenant", skip_serializing_if = "is_default_tenant")]
    pub tenant: String,
    /// What it runs in.
    #[serde(default, skip_serializing_if = "Kind::is_container")]
    pub kind: Kind,
    /// What a call finds of the one before.
    #[serde(default, skip_serializing_if = "Reset::is_never")]
    pub reset: Reset,
    /// The Python it runs on.
    pub python: PythonSpec,
    /// Its exact package set; none when it locked nothing.
    pub packages: Option<Layer>,
    /// Exactly what its lock holds, sorted by name; empty when it locked nothing, or when only the
    /// directory is known.
    #[serde(default)]
    pub distributions: Arc<[Distribution]>,
    /// Top-level modules of the locked distributions that it names itself: what a zygote for this
    /// set imports.
    pub imports: Vec<String>,
    /// The layer that holds its code.
    pub code: Layer,
    /// The directory that its layers make together, if it has any: its `/opt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opt: Option<Layer>,
    /// The names in its code's uppermost directory, where they are few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<String>>,
    /// The module inside the code, dotted.
    pub module: String,
    /// The function in the module.
    pub function: String,
    /// How it is called.
    pub convention: Convention,
    /// Whether bodies pass through as bytes.
    pub binary: bool,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// Names of the environment variables that its own code sets, as the deploy read them there;
    /// `*` where it may set any others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Whether it may be forked from what has imported its packages ahead.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub import_cache: bool,
    /// Modules that it brings itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<String>,
    /// Pairs of locked distributions: the first has code in the place of the second's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clashes: Vec<(String, String)>,
    /// Limits of each instance.
    pub limits: Limits,
    /// Its network class, which its zygotes share.
    pub network: Network,
    /// Where it may connect to, where that class is [`Network::Egress`].
    #[serde(default = "nowhere", skip_serializing_if = "is_nowhere")]
    pub egress: Arc<[Destination]>,
    /// Longest duration of a call.
    pub timeout: Duration,
    /// Most instances at a time.
    pub concurrency: u32,
    /// What it expects of AWS's runtime, where it is called as that calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda: Option<Arc<Lambda>>,
}

impl Handler {
    /// The name of its function, tenant included.
    #[must_use]
    pub fn whole_name(&self) -> WholeName {
        WholeName::stored(self.tenant.clone(), self.name.clone())
    }

    /// Of what it locked, what may have been imported ahead where it is forked from.
    #[must_use]
    pub fn imported_ahead(&self) -> &[Distribution] {
        if self.import_cache { &self.distributions } else { &[] }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One with a package, for the tests of this crate.
    pub(crate) fn handler() -> Handler {
        let layer = |name: &str| name.parse().unwrap();
        let (base, guest) = (layer("base/b"), layer("guest/g"));
        Handler {
            id: VersionId(Arc::from("h")),
            name: "h".to_owned(),
            tenant: DEFAULT_TENANT.to_owned(),
            kind: Kind::Container,
            reset: Reset::Never,
            python: PythonSpec { base, guest, interpreter: String::new() },
            packages: Some(layer("packages/p")),
            distributions: Arc::from([]),
            imports: vec!["a".to_owned()],
            code: layer("code/c"),
            opt: None,
            module: "main".to_owned(),
            function: "handler".to_owned(),
            convention: Convention::Lambda,
            binary: false,
            environment: BTreeMap::new(),
            sets: Vec::new(),
            import_cache: true,
            own: Vec::new(),
            clashes: Vec::new(),
            entries: None,
            limits: Limits::default(),
            egress: nowhere(),
            network: Network::None,
            timeout: Duration::from_secs(1),
            concurrency: 1,
            lambda: None,
        }
    }
}
