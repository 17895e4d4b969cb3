//! A call: what comes in, what goes out, how long each stage took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use function::{DEFAULT_TENANT, VersionId, WholeName};
use sandbox::wire::{Convention, Failure};
use sandbox::{
    Death, Destination, InvocationId, Kind, Layer, Limits, Network, ProviderError, PythonSpec,
    Reset,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::package::Distribution;
use crate::secrets::SecretsUnreadable;

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
    /// Whose it is. Nothing that has run one tenant's code or imported its packages serves another's.
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
    /// Exactly what its lock holds, sorted by name; empty when it locked nothing, or when only the directory is known.
    #[serde(default)]
    pub distributions: Arc<[Distribution]>,
    /// Top-level modules of the locked distributions that it names itself: what a zygote for this set imports.
    pub imports: Vec<String>,
    /// Its code.
    pub code: Layer,
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
    /// Names of the environment variables that its own code sets, as the deploy read them there; `*` where it may set any others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Whether it may be forked from what has imported its packages ahead.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub import_cache: bool,
    /// Modules that it brings itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<String>,
    /// Distributions that it locked of which the first has code in the place of the second's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clashes: Vec<(String, String)>,
    /// Limits of each instance.
    pub limits: Limits,
    /// Network class.
    pub network: Network,
    /// Where it may connect to, where that class is [`Network::Egress`].
    #[serde(default = "nowhere", skip_serializing_if = "is_nowhere")]
    pub egress: Arc<[Destination]>,
    /// Longest call.
    pub timeout: Duration,
    /// Most instances at a time.
    pub concurrency: u32,
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

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Whom.
    pub handler: Arc<Handler>,
    /// With what.
    pub body: Bytes,
    /// The body's content type.
    pub content_type: String,
    /// The invocation's name.
    pub id: InvocationId,
}

/// Where the sandbox of a call came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// From nothing: a fresh interpreter, or a zygote had to be made first.
    Cold,
    /// Forked from a zygote that was there.
    Fork,
    /// An idle instance of the handler.
    Resume,
}

impl Start {
    /// As it stands in the `Lambswool-Start` header.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Fork => "fork",
            Self::Resume => "resume",
        }
    }
}

/// A stage of a call. Its name is at once the tracing span, the metric label and the `Server-Timing` entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Registry → handler version. Measured by the server.
    Resolve,
    /// Waiting for a permit.
    Admit,
    /// Looking for an idle instance, and resuming it.
    HandlerCache,
    /// Choosing a zygote, and making it when there is none.
    ImportCache,
    /// Forking the zygote into a new sandbox, until READY is checked.
    Fork,
    /// Importing the handler's code.
    Load,
    /// The handler itself, from request to reply.
    Call,
    /// Pausing and parking, or handing to the reaper.
    Park,
}

impl Stage {
    /// All of them, in the order of a call's path.
    pub const ALL: [Self; 8] = [
        Self::Resolve,
        Self::Admit,
        Self::HandlerCache,
        Self::ImportCache,
        Self::Fork,
        Self::Load,
        Self::Call,
        Self::Park,
    ];

    /// The stage's one name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Admit => "admit",
            Self::HandlerCache => "handler_cache",
            Self::ImportCache => "import_cache",
            Self::Fork => "fork",
            Self::Load => "load",
            Self::Call => "call",
            Self::Park => "park",
        }
    }
}

/// How long each stage took. Stages that a call did not pass are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stages(pub Vec<(Stage, Duration)>);

impl Stages {
    /// Adds a stage's duration; a stage passed twice (a retry) counts both.
    pub fn record(&mut self, stage: Stage, took: Duration) {
        match self.0.iter_mut().find(|(name, _)| *name == stage) {
            Some((_, total)) => *total += took,
            None => self.0.push((stage, took)),
        }
    }

    /// The value of a `Server-Timing` header: `fork;dur=0.812, load;dur=0.310`, milliseconds.
    #[must_use]
    pub fn server_timing(&self) -> String {
        let entries = self
            .0
            .iter()
            .map(|(stage, took)| format!("{};dur={:.3}", stage.as_str(), took.as_secs_f64() * 1e3));
        entries.collect::<Vec<_>>().join(", ")
    }
}

/// What a handler returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The result.
    pub body: Bytes,
    /// Its content type.
    pub content_type: String,
}

/// A call that was served, well or badly: the stages are told either way.
#[derive(Debug)]
pub struct Served {
    /// What came of it.
    pub result: Result<Outcome, CallError>,
    /// Where the sandbox came from; none when the call never got one.
    pub start: Option<Start>,
    /// How long each stage took.
    pub stages: Stages,
}

/// Why a call has no result.
#[derive(Debug, Error)]
pub enum CallError {
    /// Too many calls at once: 429, try again after the given time.
    #[error("too many calls at once; try again in {} ms", retry_after.as_millis())]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// The handler raised an exception: 502 with its traceback.
    #[error("{}: {}", .0.error_type, .0.message)]
    Raised(Failure),
    /// The handler's code could not be imported: 502 with the traceback.
    #[error("the code does not load: {}: {}", .0.error_type, .0.message)]
    NotLoaded(Failure),
    /// The handler's process died: 502.
    #[error("the handler died: {}", describe(*.0))]
    Died(Death),
    /// The handler did not answer in time: 504.
    #[error("no answer within {} s", limit.as_secs_f64())]
    TimedOut {
        /// The handler's timeout.
        limit: Duration,
    },
    /// The handler's answer breaks the protocol, or is larger than allowed: 502.
    #[error("the handler's answer is not acceptable: {0}")]
    BadAnswer(String),
    /// No sandbox could be made: 503.
    #[error("no sandbox could be made")]
    NoSandbox(#[source] ProviderError),
    /// The function's secrets cannot be read, and it is not loaded without them: 503.
    #[error(transparent)]
    NoSecrets(SecretsUnreadable),
    /// The provider ended, and every sandbox with it, whatever their handlers did: 503.
    #[error(
        "the worker lost its sandboxes while the function ran, and stops; the call may have had effects"
    )]
    Lost,
    /// The worker is stopping: 503.
    #[error("the worker is stopping")]
    Stopping,
}

fn describe(death: Death) -> String {
    match death {
        Death::OutOfMemory => {
            format!("{death}: the setting `memory` in [tool.lambswool] allows more")
        }
        _ => death.to_string(),
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
        }
    }

    #[test]
    fn a_stage_passed_twice_counts_both() {
        let mut stages = Stages::default();
        stages.record(Stage::Fork, Duration::from_micros(500));
        stages.record(Stage::Load, Duration::from_micros(250));
        stages.record(Stage::Fork, Duration::from_micros(500));
        assert_eq!(stages.server_timing(), "fork;dur=1.000, load;dur=0.250");
    }
}
