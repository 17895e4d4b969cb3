//! What a function says of itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{AttachedLayer, Destination, Kind, Lambda, Limits, Network, Reset, Told};

/// How a handler is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Convention {
    /// `def handler(event, context)`, AWS Lambda's.
    Lambda,
    /// `def f(event)`, OpenLambda's.
    OpenLambda,
}

/// The settings of one version, as its files and its deploy gave them. Holds no path of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The module inside the code, dotted.
    pub module: String,
    /// The function in the module.
    pub function: String,
    /// How the function is called.
    pub convention: Convention,
    /// Packages: one PEP 508 requirement each, followed by its hashes where the file had any.
    pub requirements: Vec<String>,
    /// The Pythons that it runs on, as a version specifier.
    pub requires_python: Option<String>,
    /// The Python that it asks for: `3.12`.
    pub python: Option<String>,
    /// What it runs in.
    #[serde(default, skip_serializing_if = "Kind::is_container")]
    pub kind: Kind,
    /// What a call finds of the one before.
    #[serde(default, skip_serializing_if = "Reset::is_never")]
    pub reset: Reset,
    /// Limits of each instance.
    pub limits: Limits,
    /// What it may reach.
    pub network: Network,
    /// Where it may connect to when `network` is [`Network::Egress`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<Destination>,
    /// The longest that a call may take.
    pub timeout: Duration,
    /// Most instances at a time.
    pub concurrency: u32,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// Names of the environment variables that its files set; `*` where they may set any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Whether its packages may be imported before its own first line runs.
    pub import_cache: bool,
    /// Whether bodies pass through as bytes.
    pub binary: bool,
    /// Whether its deploy declared all of this: no file of it is read for settings.
    #[serde(default, skip_serializing_if = "is_false")]
    pub declared: bool,
    /// Whether distributions that its bundle brings are its packages. Which ones follows from the
    /// bundle's files.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bundled: bool,
    /// What AWS Lambda's API was told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Box<Told>>,
    /// Of a function that is called as AWS Lambda's runtime calls it: what it expects of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda: Option<Lambda>,
    /// The layers below `/opt`, the first at the bottom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<AttachedLayer>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}
