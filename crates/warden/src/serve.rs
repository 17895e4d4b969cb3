//! The warden's loop: one command at a time, from the worker's socket to the kernel and back.
//!
//! Commands come first. Released sandboxes are taken apart one piece at a time when no command
//! waits, and also between commands when too many have gathered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::scm::{self, TruncatedPacket};

use crate::limits::Limits;
use crate::outcome::{CommandError, CommandResult, done, kernel};
use crate::protocol::{Answer, Command, MAX_PACKET, Numbered, VERSION};
use crate::sandbox::land::Placed;
use crate::sandbox::prepare::Interpreter;
use crate::state::Warden;

/// Released sandboxes that wait until there is nothing else to do. Each holds descriptors, memory
/// and a cgroup that the next could have: without a bound, a worker under load that keeps nothing
/// runs out of descriptors within seconds.
const MAX_DYING: usize = 32;

/// Milliseconds without a command after which a namespace is made ahead. Longer than an interpreter
/// takes to start, which needs the processors.
const IDLE_MS: i64 = 12;

impl Warden {
    /// Serves the worker until its socket closes; then everything is destroyed.
    ///
    /// # Errors
    /// When the socket breaks, or the shared namespaces are lost.
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
                (0, 1000) => self.release_idle_groups(),
                (0, IDLE_MS) => {
                    self.identities.make_ahead(&mut self.uids, self.host.isolation);
                }
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
            Command::Start { sandbox, python, packages, code, opt, network, limits } => {
                self.check_new(sandbox)?;
                let limits = self.host.isolation.enforced(limits);
                let (packages, code) = (packages.as_deref(), code.as_deref());
                let opt = opt.as_deref();
                self.start(sandbox, Interpreter { python, packages, code, opt, network, limits })
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
            Command::Place { sandbox, packages, code, opt, limits } => {
                let limits = self.host.isolation.enforced(limits);
                let (packages, opt) = (packages.as_deref(), opt.as_deref());
                self.place_layers(sandbox, Placed { packages, code: &code, opt }, limits)
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
}
