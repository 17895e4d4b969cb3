//! The provider of containers.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use egress::Rules;
use sandbox::wire::{Decoder, Reply};
use sandbox::{
    Instance, InstanceSpec, Network, Pending, Provider, ProviderError, PythonSpec, SandboxId,
    Zygote, ZygoteSpec,
};
use sys::process::PidFd;
use warden::protocol::{Answer, Command, Python};

use crate::client::{Client, unexpected};
use crate::container::ContainerInstance;
use crate::fork::read_packet;
use crate::handle::Handle;
use crate::imports::Steps;
use crate::reach::network;
use crate::shared::{ContainerOptions, Shared};
use crate::watch::watch;
use crate::zygote::ContainerZygote;

/// Timeout of an interpreter's start. It takes 10 ms; on a machine under heavy load seconds.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes lean containers.
#[derive(Debug, Clone)]
pub struct Containers {
    pub(crate) shared: Arc<Shared>,
}

impl Containers {
    /// A provider on top of a connected warden, without an operator's rules for outgoing
    /// connections.
    #[must_use]
    pub fn new(client: Client, options: ContainerOptions) -> Self {
        Self::bounded(client, options, Rules::default())
    }

    /// A provider with an operator's rules for outgoing connections.
    #[must_use]
    pub fn bounded(client: Client, options: ContainerOptions, rules: Rules) -> Self {
        Self { shared: Arc::new(Shared::new(client, options, rules)) }
    }

    /// The connection to the warden, by which other things than containers can be started.
    #[must_use]
    pub fn client(&self) -> Arc<Client> {
        Arc::clone(&self.shared.client)
    }

    /// A number that no other sandbox of this warden has, or will have.
    #[must_use]
    pub fn new_name(&self) -> SandboxId {
        self.shared.new_name()
    }

    /// What sandboxes can have on this host.
    #[must_use]
    pub fn host(&self) -> &warden::protocol::Host {
        self.shared.client.host()
    }

    /// Whether the warden still listens. If not, nothing can be made any more.
    #[must_use]
    pub fn alive(&self) -> bool {
        self.shared.client.alive()
    }

    /// Closes the connection to the warden, which then removes every sandbox and ends, even if this
    /// provider or its sandboxes are still held.
    pub fn close(&self) {
        self.shared.client.close();
    }

    /// Asks the warden how many released sandboxes are not yet gone, for [`Provider::reaping`].
    ///
    /// # Errors
    /// When the warden is gone.
    pub async fn count_reaping(&self) -> Result<usize, ProviderError> {
        match self.shared.client.call(Command::Reaping, &[]).await? {
            (Answer::Reaping { sandboxes }, _) => {
                self.shared.reaping.store(sandboxes, Ordering::Relaxed);
                Ok(sandboxes)
            }
            _ => Err(unexpected()),
        }
    }
}

impl Containers {
    async fn start_zygote(
        &self,
        spec: ZygoteSpec,
        steps: Steps,
    ) -> Result<ContainerZygote, ProviderError> {
        let shared = Arc::clone(&self.shared);
        let packages = spec.packages.as_ref().map(ToString::to_string);
        let what = (&spec.python, spec.network);
        let limits = shared.of_zygote(spec.limits);
        let layers = (packages, None, None);
        let started = start(&shared, what, layers, limits).await?;
        let control =
            watch(started.channel).map_err(ProviderError::step("watch the control socket"))?;
        let said = read_packet(&control, START_TIMEOUT).await;
        match said.ok().and_then(|said| serde_json::from_slice(&said).ok()) {
            Some(Reply::Ready { .. }) => {}
            _ => return Err(not_started(&started.handle, &started.process).await),
        }
        ContainerZygote::new(shared, started.handle, control, started.process, spec, &steps).await
    }
}

impl Provider for Containers {
    fn create_zygote(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        Box::pin(async move {
            let zygote =
                ContainerZygote::make(|steps| self.start_zygote(spec.clone(), steps)).await?;
            Ok(Box::new(zygote) as Box<dyn Zygote>)
        })
    }

    fn create_instance(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        Box::pin(async move {
            let packages = spec.packages.as_ref().map(ToString::to_string);
            let code = Some(spec.code.to_string());
            let what = (&spec.python, spec.network);
            let limits = self.shared.of_instance(spec.limits);
            let opt = spec.opt.as_ref().map(ToString::to_string);
            let started = start(&self.shared, what, (packages, code, opt), limits).await?;
            let Started { mut handle, channel, process } = started;
            let channel = Some(wait_ready(channel, &handle, &process).await?);
            let output = handle.take_output();
            let handle = Arc::new(handle);
            let reach = self.shared.proxy.reach(&handle, &spec).await?;
            let instance = ContainerInstance { handle, channel, output, process, reach };
            Ok(Box::new(instance) as Box<dyn Instance>)
        })
    }

    fn reaping(&self) -> usize {
        self.shared.reaping.load(Ordering::Relaxed)
    }
}

struct Started {
    handle: Handle,
    channel: OwnedFd,
    process: PidFd,
}

async fn start(
    shared: &Arc<Shared>,
    (python, class): (&PythonSpec, Network),
    (packages, code, opt): (Option<String>, Option<String>, Option<String>),
    limits: warden::protocol::Limits,
) -> Result<Started, ProviderError> {
    let name = shared.new_name();
    let python = Python {
        base: python.base.to_string(),
        guest: python.guest.to_string(),
        interpreter: python.interpreter.clone(),
    };
    let network = network(class);
    let mut handle = Handle::new(Arc::clone(&shared.client), name);
    let command = Command::Start { sandbox: name.0, python, packages, code, opt, network, limits };
    let (Answer::Started { files, .. }, fds) = shared.client.call(command, &[]).await? else {
        return Err(unexpected());
    };
    let mut fds = fds.into_iter();
    let (channel, process) = fds.next().zip(fds.next()).ok_or_else(unexpected)?;
    handle.take_files(files, fds);
    Ok(Started { handle, channel, process: PidFd::from(process) })
}

/// Waits for the READY frame of an instance that the warden started itself: no other process has
/// its channel.
async fn wait_ready(
    channel: OwnedFd,
    handle: &Handle,
    process: &PidFd,
) -> Result<OwnedFd, ProviderError> {
    let channel = watch(channel).map_err(ProviderError::step("watch the channel"))?;
    let mut decoder = Decoder::new(0);
    while let Ok(bytes) = read_packet(&channel, START_TIMEOUT).await {
        decoder.push(&bytes);
        match decoder.next_frame() {
            Ok(None) => continue,
            Ok(Some(frame)) if decoder.pending() == 0 => {
                if let Ok((Reply::Ready { .. }, _)) = Reply::decode(frame) {
                    return Ok(channel.into_inner());
                }
            }
            _ => {}
        }
        break;
    }
    Err(not_started(handle, process).await)
}

async fn not_started(handle: &Handle, process: &PidFd) -> ProviderError {
    match handle.autopsy(process).await {
        Ok((death, words)) => ProviderError::ended_early("the interpreter", death, &words),
        Err(error) => error,
    }
}
