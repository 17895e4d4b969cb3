//! A sandbox between its fork and its end: attaching layers, accepting a landed process, answering
//! questions about it.

use std::os::fd::AsFd;

use sys::process::{Identity, PidFd, ProcessEnd};

use crate::cgroup::Group;
use crate::defence::Defence;
use crate::limits::Limits;
use crate::outcome::{CommandError, CommandResult, done, kernel};
use crate::protocol::Answer;
use crate::rootfs::Contents;
use crate::rootfs::scratch::resize_scratch;
use crate::sandbox::record::Kind;
use crate::state::Warden;

/// The layers of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) packages: Option<&'a str>,
    pub(crate) code: &'a str,
    pub(crate) opt: Option<&'a str>,
}

impl Warden {
    pub(crate) fn place_layers(
        &mut self,
        name: u64,
        Placed { packages, code, opt }: Placed<'_>,
        limits: Limits,
    ) -> CommandResult {
        let sandbox = self.find(name)?;
        let (uid, python, before) = (sandbox.uid, sandbox.python.clone(), sandbox.limits);
        let network = sandbox.network;
        let contents = Contents { packages, code: Some(code), opt, uid, network, limits };
        let root = sandbox.root.as_ref().map(|root| root.as_fd().try_clone_to_owned()).transpose();
        let root = root.map_err(kernel("share root"))?;
        let mut fds = Vec::new();
        match root {
            Some(root) => {
                self.roots.complete(root.as_fd(), &python, contents, before)?;
                if (limits.scratch_bytes, limits.scratch_inodes)
                    != (before.scratch_bytes, before.scratch_inodes)
                {
                    resize_scratch(root.as_fd(), limits).map_err(kernel("resize scratch"))?;
                }
            }
            None => {
                let root = self.roots.make(&python, contents)?;
                fds.push(root.as_fd().try_clone_to_owned().map_err(kernel("share root"))?);
                self.find(name)?.root = Some(root);
            }
        }
        if (limits.memory_bytes, limits.pids) != (before.memory_bytes, before.pids) {
            let group = self.find(name)?.group.clone();
            self.cgroups.limit(&group, limits).map_err(kernel("limit cgroup"))?;
            self.limit_sockets(&group, network, limits)?;
        }
        let sandbox = self.find(name)?;
        sandbox.limits = limits;
        // Otherwise at its landing.
        if sandbox.process.is_some() {
            let group = sandbox.group.clone();
            self.limit_cpu(&group, limits.cpu)?;
        }
        Ok((Answer::Done, fds))
    }

    pub(crate) fn landed(&mut self, name: u64, process: PidFd) -> CommandResult {
        let sandbox = self.find(name)?;
        if sandbox.process.is_some() {
            return Err(CommandError::Wrong("the slot is taken"));
        }
        let (uid, group) = (sandbox.uid, sandbox.group.clone());
        let instance = matches!(sandbox.kind, Kind::Instance);
        let who = process.identity().ok_or(CommandError::Gone)?;
        let inside = self.namespaces.number_inside(who.pid);
        let wrong = self.misplaced(instance, uid, &group, &who);
        // Earlier reports are about other processes.
        if let Some(deaths) = self.namespaces.deaths() {
            deaths.read();
        }
        // The pidfd keeps the number from naming another process: the process still lived after the
        // checks. The checks mean nothing for a dead one.
        if !process.alive() {
            return Err(CommandError::Gone);
        }
        if let Some(what) = wrong {
            return Err(CommandError::Wrong(what));
        }
        if let (Some(inside), Some(deaths)) = (inside, self.namespaces.deaths()) {
            deaths.expect(inside, name);
        }
        self.find(name)?.inside = inside;
        if instance && let Some(root) = self.sandboxes.get(&name).and_then(|s| s.root.as_ref()) {
            self.show_processes(root, &process)?;
        }
        let sandbox = self.find(name)?;
        sandbox.process = Some(process);
        let cpu = sandbox.limits.cpu;
        self.limit_cpu(&group, cpu)?;
        done()
    }

    /// A sign that the process is not the child that was to land in a slot, if there is one.
    fn misplaced(
        &mut self,
        instance: bool,
        uid: u32,
        group: &Group,
        who: &Identity,
    ) -> Option<&'static str> {
        let isolation = self.host.isolation;
        if isolation.has(Defence::CheckUid) && who.uids.iter().any(|id| *id != uid) {
            return Some("the process has another uid than its slot");
        }
        if isolation.has(Defence::CheckCgroup) && !self.cgroups.contains(group, who.pid) {
            return Some("the process is outside its slot's cgroups");
        }
        let apart =
            isolation.has(Defence::PidNamespace) && isolation.has(Defence::CheckPidNamespace);
        (instance && apart && !self.namespaces.has_own_pid_namespace(who.pid))
            .then_some("the process has no pid namespace of its own")
    }

    pub(crate) fn inspect(&mut self, name: u64) -> CommandResult {
        let sandbox = self.find(name)?;
        let group = sandbox.group.clone();
        let (mut ended, inside) = (sandbox.process.as_ref().and_then(PidFd::ended), sandbox.inside);
        let gone = sandbox.process.as_ref().is_some_and(|process| !process.alive());
        let mut text = [0; 4096];
        let stderr = sandbox.stderr.as_ref();
        let stderr = stderr.map_or(0, |pipe| rustix::io::read(pipe, &mut text).unwrap_or(0));
        let awaited = ended.is_none() && gone && inside.is_some();
        if awaited {
            ended = self.namespaces.deaths().and_then(|deaths| deaths.of(name));
        }
        let answer = Answer::Died {
            untold: awaited && ended.is_none(),
            out_of_memory: self.cgroups.out_of_memory(&group),
            exited: match ended {
                Some(ProcessEnd::Exited(status)) => Some(status),
                _ => None,
            },
            signal: match ended {
                Some(ProcessEnd::Signal(number)) => Some(number),
                _ => None,
            },
            stderr: String::from_utf8_lossy(&text[..stderr]).into_owned(),
        };
        Ok((answer, Vec::new()))
    }
}
