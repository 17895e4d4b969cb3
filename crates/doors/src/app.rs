//! What all doors work with: the use cases, and the socket that a request came through.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Settings;
use crate::request::Budgets;
use platform::access::{Admitted, Issuer, Tokens};
use platform::audit::Audit;
use platform::control::Control;
use platform::deploy::Deployer;
use platform::events::Events;
use platform::functions::{Attachments, FunctionReader, LayerVersions, Releases};
use platform::invoke::Invoker;
use platform::limits::Capacity;
use platform::limits::Unenforced;
use platform::logs::Logs;
use platform::objects::Objects;
use platform::packages::maintenance::Stock;
use platform::provisioned::Provisioner;
use platform::secrets::SecretEditor;
use platform::sources::Sources;

/// Everything that a request may need.
#[derive(Debug)]
pub struct App {
    /// The door's part of the settings.
    pub settings: Settings,
    /// The directory of bundles on their way in.
    pub spool: PathBuf,
    /// Whom the Unix socket lets in.
    pub admitted: Admitted,
    /// Whose token a secret is.
    pub tokens: Arc<Tokens>,
    /// Makes and removes tokens.
    pub issuer: Issuer,
    /// What was changed, and by whom.
    pub audit: Arc<Audit>,
    /// Lists and shows functions.
    pub functions: FunctionReader,
    /// Publishes versions of functions, and keeps aliases.
    pub releases: Releases,
    /// What APIs keep beside functions.
    pub attachments: Attachments,
    /// Shows, lists and removes versions of layers.
    pub layers: LayerVersions,
    /// Deploys and removes functions.
    pub deployer: Arc<Deployer>,
    /// Calls functions.
    pub invoker: Arc<Invoker>,
    /// Runs events that no client waits for.
    pub events: Arc<Events>,
    /// Lists, sets and removes secrets.
    pub secrets: SecretEditor,
    /// Looks after packages.
    pub stock: Arc<Stock>,
    /// Opens archives that deploys name in a store of objects.
    pub objects: Objects,
    /// Polls queues whose messages functions are called with.
    pub sources: Arc<Sources>,
    /// Has instances ready that were promised.
    pub provisioner: Arc<Provisioner>,
    /// Opens logs of functions.
    pub logs: Arc<Logs>,
    /// How the worker is; stops it.
    pub control: Control,
    /// Where it listens.
    pub url: String,
    /// How many sandboxes there may be.
    pub capacity: Capacity,
    /// What sandboxes lack here.
    pub unenforced: Vec<Unenforced>,
    /// What requests may take that come over TCP.
    pub tcp_budgets: Budgets,
    /// What requests may take that come through the Unix socket.
    pub unix_budgets: Budgets,
}

impl App {
    /// What requests may take that come through a listener.
    pub(crate) fn budgets(&self, listener: Listener) -> &Budgets {
        match listener {
            Listener::Loopback | Listener::Network => &self.tcp_budgets,
            Listener::Unix => &self.unix_budgets,
        }
    }
}

/// Which socket a request comes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// TCP on a loopback address: any user of the machine, any web page in a browser.
    Loopback,
    /// TCP on another address: any machine that reaches it.
    Network,
    /// The Unix socket: whom [`Admitted`] lets in.
    Unix,
}
