//! The warden's loop: one command at a time, from the worker's socket to the kernel and back.
//!
//! Commands come first. Released sandboxes are taken apart one piece at a time when no command
//! waits, and also between commands when too many have gathered.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::process::PidFd;
use sys::scm::{self, TruncatedPacket};
use thiserror::Error;

use crate::cgroup::{Cgroups, Group};
use crate::filter::Filters;
use crate::identity::{Identities, MAX_AHEAD};
use crate::isolation::Isolation;
use crate::pacemaker::Pacemaker;
use crate::place::SharedNamespaces;
use crate::prepare::Interpreter;
use crate::protocol::{Answer, Command, Cpu, Host, Limits, MAX_PACKET, Network, Numbered, VERSION};
use crate::proxy::Proxies;
use crate::root::Root;
use crate::rootfs::{RootError, Roots, attach_proc, can_attach_proc};
use crate::slot::Sandbox;
use crate::spawn::SpawnError;
use crate::uids::Uids;
use crate::view::MAX_VIEWS;

/// Maximum number of sandboxes that the warden knows.
const MAX_SANDBOXES: u64 = 16_000;

/// Released sandboxes that wait until there is nothing else to do. Each holds descriptors, memory
/// and a cgroup that the next could have: without a bound, a worker under load that keeps nothing
/// runs out of descriptors within seconds.
const MAX_DYING: usize = 32;

/// Descriptors of the warden for one sandbox: its root and process, five files of its cgroup (where
/// there are three hierarchies), and a derived zygote's namespace or a root zygote's pipe.
const DESCRIPTORS_PER_SANDBOX: u64 = 8;

/// Descriptors for the warden itself, its views, what it makes ahead, and the making of one
/// sandbox.
const DESCRIPTORS_OF_WARDEN: u64 = 64 + (MAX_VIEWS + MAX_AHEAD) as u64;

/// Milliseconds without a command after which a namespace is made ahead. Longer than an interpreter
/// takes to start, which needs the processors.
const IDLE_MS: i64 = 12;

/// Why a command was not carried out.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    #[error("{0}")]
    Wrong(&'static str),
    /// The process has died. Reported as `ESRCH`: the cause may not concern the next one.
    #[error("the process is gone")]
    Gone,
    #[error("{step}")]
    Kernel { step: &'static str, source: io::Error },
    #[error("{0}")]
    Root(#[from] RootError),
    #[error("{0}")]
    Spawn(#[from] SpawnError),
}

pub(crate) fn kernel<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> CommandError {
    move |source| CommandError::Kernel { step, source: source.into() }
}

impl CommandError {
    fn answer(&self) -> Answer {
        let errno = match self {
            Self::Wrong(_) => None,
            Self::Gone => Some(libc::ESRCH),
            Self::Kernel { source, .. } => source.raw_os_error(),
            Self::Root(error) => error.source_error().raw_os_error(),
            Self::Spawn(error) => error.source.raw_os_error(),
        };
        let errno = errno.unwrap_or(0);
        Answer::Failed { step: self.to_string(), errno }
    }
}

pub(crate) type CommandResult = Result<(Answer, Vec<OwnedFd>), CommandError>;

/// The warden's whole state.
#[derive(Debug)]
pub struct Warden {
    pub(crate) proxies: Proxies,
    /// Dropped before the namespaces, which wait for all of the warden's children.
    pub(crate) pacemaker: Option<Pacemaker>,
    pub(crate) namespaces: SharedNamespaces,
    pub(crate) roots: Roots,
    pub(crate) cgroups: Cgroups,
    pub(crate) uids: Uids,
    pub(crate) sandboxes: HashMap<u64, Sandbox>,
    pub(crate) dying: VecDeque<u64>,
    /// Cgroups of earlier instances that no zygote forked, ready for the next ones.
    pub(crate) idle_groups: Vec<Group>,
    pub(crate) identities: Identities,
    pub(crate) filters: Filters,
    pub(crate) host: Host,
}

impl Warden {
    /// The warden's state before the first command; `roots` are those of the isolation,
    /// `descriptors` is this process's limit.
    #[must_use]
    pub fn new(
        namespaces: SharedNamespaces,
        roots: Roots,
        cgroups: Cgroups,
        uids: Uids,
        isolation: Isolation,
        descriptors: u64,
    ) -> Self {
        let held = descriptors.saturating_sub(DESCRIPTORS_OF_WARDEN) / DESCRIPTORS_PER_SANDBOX;
        let scopes = sys::probe::landlock() >= 6;
        let host = Host {
            version: VERSION,
            cgroups: cgroups.layout(),
            late_mounts: roots.late(),
            proc: !isolation.forks() || roots.late() && can_attach_proc(),
            isolation,
            scopes,
            cpu: cgroups.limits_cpu(),
            sandboxes: held.clamp(1, MAX_SANDBOXES),
        };
        // Without it all works as well, only slower now and then.
        let pacemaker = Pacemaker::start(&cgroups).ok().flatten();
        Self {
            proxies: Proxies::default(),
            pacemaker,
            filters: Filters::build(scopes, isolation),
            namespaces,
            roots,
            cgroups,
            uids,
            sandboxes: HashMap::new(),
            dying: VecDeque::new(),
            idle_groups: Vec::new(),
            identities: Identities::default(),
            host,
        }
    }

    /// Serves the worker until its socket closes; then everything is destroyed.
    ///
    /// # Errors
    /// When the socket breaks, or the shared namespaces is lost.
    pub fn serve(&mut self, worker: BorrowedFd<'_>) -> io::Result<()> {
        let mut packet = vec![0; MAX_PACKET];
        let mut reaped = false;
        loop {
            // Sandboxes that could not be taken apart have not quite ended.
            let wait = match (reaped, self.dying.is_empty(), self.identities.lacks()) {
                (true, ..) => 0,
                (false, false, _) => 2,
                (false, true, true) => IDLE_MS,
                (false, true, false) => 1000,
            };
            let limit = Timespec { tv_sec: wait / 1000, tv_nsec: wait % 1000 * 1_000_000 };
            let mut fds = vec![PollFd::new(&worker, PollFlags::IN)];
            let deaths = self.namespaces.deaths();
            fds.extend(deaths.iter().map(|it| PollFd::from_borrowed_fd(it.pipe(), PollFlags::IN)));
            match (poll(&mut fds, Some(&limit))?, wait) {
                (0, 1000) => self.thin_out(),
                (0, IDLE_MS) => self.make_identity_ahead(),
                _ => {}
            }
            loop {
                let received = match scm::receive(worker, &mut packet, false) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => return Ok(()),
                    other => other?,
                };
                if received.length == 0 {
                    return Ok(());
                }
                let (answer, fds) = self.answer(&packet[..received.length], received.fds);
                let bytes = serde_json::to_vec(&answer).map_err(io::Error::other)?;
                let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                match scm::send(worker, &bytes, &borrowed, true) {
                    // The worker has gone: with unread answers (ECONNRESET) or without.
                    Err(error)
                        if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) =>
                    {
                        return Ok(());
                    }
                    other => other?,
                };
                if self.dying.len() > MAX_DYING {
                    self.reap_one();
                }
            }
            reaped = self.reap_one();
            if let Some(deaths) = self.namespaces.deaths() {
                deaths.read();
            }
            self.proxies.reap();
            if !self.namespaces.alive() {
                return Err(io::Error::other("the sandboxes' pid 1 is gone"));
            }
        }
    }

    fn answer(
        &mut self,
        packet: &[u8],
        fds: Result<Vec<OwnedFd>, TruncatedPacket>,
    ) -> (Numbered<Answer>, Vec<OwnedFd>) {
        let command: Numbered<Command> = match serde_json::from_slice(packet) {
            Ok(command) => command,
            Err(_) => {
                let step = "read a command".to_owned();
                return (
                    Numbered { number: 0, body: Answer::Failed { step, errno: 0 } },
                    Vec::new(),
                );
            }
        };
        let fds = fds.map_err(|error| kernel("receive what comes along")(error));
        let (body, fds) = match fds.and_then(|fds| self.carry_out(command.body, fds)) {
            Ok(answered) => answered,
            Err(refused) => (refused.answer(), Vec::new()),
        };
        (Numbered { number: command.number, body }, fds)
    }

    fn carry_out(&mut self, command: Command, mut fds: Vec<OwnedFd>) -> CommandResult {
        match command {
            Command::Hello { version } if version == VERSION => {
                Ok((Answer::Host(self.host.clone()), Vec::new()))
            }
            Command::Hello { .. } => Err(CommandError::Wrong(
                "wool and wool-warden are not of one build: install both again",
            )),
            Command::Start { sandbox, python, packages, code, network, limits } => {
                self.check_new(sandbox)?;
                let limits = self.host.isolation.enforced(limits);
                let (packages, code) = (packages.as_deref(), code.as_deref());
                self.start(sandbox, Interpreter { python, packages, code, network, limits })
            }
            Command::Monitor { sandbox, limits } => {
                self.check_new(sandbox)?;
                let cpu = self.host.isolation.enforced(limits).cpu;
                self.monitor(sandbox, Limits { cpu, ..limits })
            }
            Command::Limit { sandbox, memory_bytes } => self.limit_memory(sandbox, memory_bytes),
            Command::Open { layers } => self.open_layers(&layers),
            Command::Prepare { sandbox, zygote, derive, packages, limits } => {
                self.check_new(sandbox)?;
                let limits = self.host.isolation.enforced(limits);
                self.prepare(sandbox, zygote, derive, packages.as_deref(), limits)
            }
            Command::Place { sandbox, packages, code, limits } => {
                let limits = self.host.isolation.enforced(limits);
                self.place_layers(sandbox, packages.as_deref(), &code, limits)
            }
            Command::Landed { sandbox } => {
                let pidfd = fds.pop().ok_or(CommandError::Wrong("a pidfd must come along"))?;
                self.landed(sandbox, pidfd.into())
            }
            Command::Reach { sandbox, networks, ports, names } => {
                self.reach(sandbox, &networks, &ports, names)
            }
            Command::Proxy => self.start_proxy(),
            Command::Examine { sandbox } => self.examine(sandbox),
            Command::Inspect { sandbox } => self.inspect(sandbox),
            Command::Release { sandbox } => {
                self.release(sandbox);
                done()
            }
            Command::Reaping => Ok((Answer::Reaping { sandboxes: self.dying.len() }, Vec::new())),
        }
    }

    fn check_new(&self, sandbox: u64) -> Result<(), CommandError> {
        if self.sandboxes.contains_key(&sandbox) {
            return Err(CommandError::Wrong("the name is taken"));
        }
        if self.sandboxes.len() as u64 >= self.host.sandboxes {
            // The kernel's own error for this: the worker then evicts.
            let source = io::Error::from_raw_os_error(libc::EMFILE);
            return Err(CommandError::Kernel { step: "take one more sandbox", source });
        }
        Ok(())
    }

    /// Attaches `/proc` to an instance's root, unless it has mounted its own.
    pub(crate) fn show_processes(&self, root: &Root, process: &PidFd) -> Result<(), CommandError> {
        if self.host.proc && self.host.isolation.forks() {
            attach_proc(root.as_fd(), process, self.host.isolation)
                .map_err(kernel("attach /proc"))?;
        }
        Ok(())
    }

    /// Limits the processors of a sandbox whose process exists, if its limits say so.
    pub(crate) fn limit_cpu(&self, group: &Group, cpu: Cpu) -> Result<(), CommandError> {
        if cpu == Cpu::UNLIMITED {
            return Ok(());
        }
        self.cgroups.limit_cpu(group, cpu).map_err(kernel("limit processors"))
    }

    /// Limits the kernel's socket buffers of a sandbox that may have connections by its memory
    /// limit.
    pub(crate) fn limit_sockets(
        &self,
        group: &Group,
        network: Network,
        limits: Limits,
    ) -> Result<(), CommandError> {
        if network == Network::None {
            return Ok(());
        }
        self.cgroups.limit_sockets(group, limits.memory_bytes).map_err(kernel("limit sockets"))
    }

    pub(crate) fn find(&mut self, sandbox: u64) -> Result<&mut Sandbox, CommandError> {
        match self.sandboxes.get_mut(&sandbox) {
            Some(found) if !found.dying => Ok(found),
            _ => Err(CommandError::Wrong("no such sandbox")),
        }
    }
}

pub(crate) fn done() -> CommandResult {
    Ok((Answer::Done, Vec::new()))
}
