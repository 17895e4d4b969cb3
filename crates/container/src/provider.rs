//! Containers as the engine sees them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use egress::Rules;
use sandbox::wire::{Decoder, Reply};
use sandbox::{
    CpuBounds, Instance, InstanceSpec, Limits, Network, Pending, Provider, ProviderError,
    PythonSpec, SandboxId, Zygote, ZygoteSpec,
};
use sys::process::PidFd;
use warden::protocol::{Answer, Command, Python};

use crate::client::{Client, unexpected};
use crate::container::{ContainerInstance, in_the_wardens_words};
use crate::fork::read_packet;
use crate::handle::Handle;
use crate::imports::Steps;
use crate::reach::{Proxy, network};
use crate::watch::watch;
use crate::zygote::ContainerZygote;

/// A bare interpreter is up in 10 ms; on a machine under heavy load in seconds.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Settings of the provider.
#[derive(Clone, Copy, Debug)]
pub struct ContainerOptions {
    /// Slots that each zygote keeps prepared.
    pub slots: usize,
    /// Forks that a busy zygote keeps landed and waiting for code; two where it is not busy. They hide the fork, and what
    /// the kernel makes a rare cgroup attach wait; each costs about a megabyte.
    pub spares: usize,
    /// Bounds of every sandbox's processors.
    pub cpu: CpuBounds,
}

impl Default for ContainerOptions {
    fn default() -> Self {
        Self { slots: 4, spares: 8, cpu: CpuBounds::NONE }
    }
}

/// Makes lean containers.
#[derive(Debug, Clone)]
pub struct Containers {
    pub(crate) shared: Arc<Shared>,
}

/// What all containers of one provider share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Arc<Client>,
    pub(crate) options: ContainerOptions,
    pub(crate) proxy: Proxy,
    names: AtomicU64,
    reaping: AtomicUsize,
}

impl Shared {
    /// The limits of an instance that asks for these.
    pub(crate) fn of_instance(&self, asked: Limits) -> warden::protocol::Limits {
        in_the_wardens_words(Limits { cpu: self.options.cpu.of_instance(asked.cpu), ..asked })
    }

    /// The limits of a zygote that asks for these.
    pub(crate) fn of_zygote(&self, asked: Limits) -> warden::protocol::Limits {
        in_the_wardens_words(Limits { cpu: self.options.cpu.bounded(asked.cpu), ..asked })
    }

    pub(crate) fn new_name(&self) -> SandboxId {
        SandboxId(self.names.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Containers {
    /// A provider on top of a connected warden. What functions may reach is bounded by our own rules alone.
    #[must_use]
    pub fn new(client: Client, options: ContainerOptions) -> Self {
        Self::bounded(client, options, Rules::default())
    }

    /// The same, where these rules bound what functions may reach.
    #[must_use]
    pub fn bounded(client: Client, options: ContainerOptions, rules: Rules) -> Self {
        let (client, proxy) = (Arc::new(client), Proxy::new(rules));
        let (names, reaping) = (AtomicU64::new(0), AtomicUsize::new(0));
        Self { shared: Arc::new(Shared { client, options, proxy, names, reaping }) }
    }

    /// The connection to the warden: for who has it start other things than containers.
    #[must_use]
    pub fn client(&self) -> Arc<Client> {
        Arc::clone(&self.shared.client)
    }

    /// A name that no other sandbox of this warden has, or will have.
    #[must_use]
    pub fn new_name(&self) -> SandboxId {
        self.shared.new_name()
    }

    /// What sandboxes have on this host.
    #[must_use]
    pub fn host(&self) -> &warden::protocol::Host {
        self.shared.client.host()
    }

    /// Whether the warden still listens: if not, nothing can be made any more.
    #[must_use]
    pub fn alive(&self) -> bool {
        self.shared.client.alive()
    }

    /// Lets go of the warden, which then removes every sandbox and ends, whoever still holds this provider or one of them.
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
        let started = start(&shared, what, packages, None, limits).await?;
        let control =
            watch(started.channel).map_err(ProviderError::step("watch the control socket"))?;
        let said = read_packet(&control, START_PATIENCE).await;
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
            let started = start(&self.shared, what, packages, code, limits).await?;
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
    packages: Option<String>,
    code: Option<String>,
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
    let command = Command::Start { sandbox: name.0, python, packages, code, network, limits };
    let (Answer::Started { files, .. }, fds) = shared.client.call(command, &[]).await? else {
        return Err(unexpected());
    };
    let mut fds = fds.into_iter();
    let (channel, process) = fds.next().zip(fds.next()).ok_or_else(unexpected)?;
    handle.take_files(files, fds);
    Ok(Started { handle, channel, process: PidFd::from(process) })
}

/// Waits for the READY frame of an instance that the warden started itself: nobody else holds its channel.
async fn wait_ready(
    channel: OwnedFd,
    handle: &Handle,
    process: &PidFd,
) -> Result<OwnedFd, ProviderError> {
    let channel = watch(channel).map_err(ProviderError::step("watch the channel"))?;
    let mut decoder = Decoder::new(0);
    while let Ok(bytes) = read_packet(&channel, START_PATIENCE).await {
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
