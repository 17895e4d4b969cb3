//! One command at a time, from the worker's socket to the kernel and back.
//!
//! Commands come first; what was released is taken apart one piece at a time when nobody waits.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use seccompiler::BpfProgram;
use sys::namespace::{IdMap, Parent, user_namespace};
use sys::process::{Ended, PidFd};
use sys::scm;
use thiserror::Error;

use crate::cgroup::{self, Cgroups, Group};
use crate::filter::{self, Role};
use crate::place::Place;
use crate::protocol::{
    Answer, Command, Files, Host, Limits, MAX_PACKET, Numbered, Python, VERSION,
};
use crate::rootfs::{Contents, RootError, Roots, Way, attach_proc, resize_scratch};
use crate::slot::{Kind, Sandbox, Zygote};
use crate::spawn::{self, SpawnError};
use crate::uids::{Block, INNER, RANGE, Uids};

/// Sandboxes that the warden knows at most: each costs about five of its descriptors.
const MOST_SANDBOXES: usize = 16_384;
/// Idle cgroups that a zygote keeps for its next slots.
const IDLE_GROUPS: usize = 64;

/// Why a command was not carried out.
#[derive(Debug, Error)]
enum Refused {
    #[error("{0}")]
    Wrong(&'static str),
    #[error("{step}")]
    Kernel { step: &'static str, source: io::Error },
    #[error("{0}")]
    Root(#[from] RootError),
    #[error("{0}")]
    Spawn(#[from] SpawnError),
}

fn kernel<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Refused {
    move |source| Refused::Kernel { step, source: source.into() }
}

impl Refused {
    fn answer(&self) -> Answer {
        let source = match self {
            Self::Wrong(_) => None,
            Self::Kernel { source, .. } => Some(source),
            Self::Root(error) => Some(error.source_error()),
            Self::Spawn(error) => Some(&error.source),
        };
        let errno = source.and_then(io::Error::raw_os_error).unwrap_or(0);
        Answer::Failed { step: self.to_string(), errno }
    }
}

type Answered = Result<(Answer, Vec<OwnedFd>), Refused>;

/// The warden's whole state.
#[derive(Debug)]
pub struct Warden {
    place: Place,
    roots: Roots,
    cgroups: Cgroups,
    uids: Uids,
    sandboxes: HashMap<u64, Sandbox>,
    dying: VecDeque<u64>,
    zygote_filter: BpfProgram,
    instance_filter: BpfProgram,
    host: Host,
}

impl Warden {
    /// Puts it together.
    ///
    /// # Errors
    /// On an architecture without a seccomp filter.
    pub fn new(
        place: Place,
        roots: Roots,
        cgroups: Cgroups,
    ) -> Result<Self, seccompiler::BackendError> {
        let scopes = landlock_version() >= 6;
        let host = Host {
            version: VERSION,
            cgroups: cgroups.layout(),
            late_mounts: roots.way() == Way::Detached,
            proc: roots.way() == Way::Detached && can_mount_proc(),
            scopes,
        };
        Ok(Self {
            zygote_filter: filter::build(Role::Zygote, scopes)?,
            instance_filter: filter::build(Role::Instance, scopes)?,
            place,
            roots,
            cgroups,
            uids: Uids::default(),
            sandboxes: HashMap::new(),
            dying: VecDeque::new(),
            host,
        })
    }

    /// Serves the worker until its socket closes; then everything is destroyed.
    ///
    /// # Errors
    /// When the socket breaks, or the sandboxes' place is lost.
    pub fn serve(&mut self, worker: BorrowedFd<'_>) -> io::Result<()> {
        let mut packet = vec![0; MAX_PACKET];
        loop {
            let mut fds = [PollFd::new(&worker, PollFlags::IN)];
            let wait = if self.dying.is_empty() { 1000 } else { 2 };
            let limit = Timespec { tv_sec: wait / 1000, tv_nsec: wait % 1000 * 1_000_000 };
            poll(&mut fds, Some(&limit))?;
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
                    // The worker went, with answers unread (ECONNRESET) or none.
                    Err(error)
                        if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) =>
                    {
                        return Ok(());
                    }
                    other => other?,
                };
            }
            self.reap_one();
            if !self.place.alive() {
                return Err(io::Error::other("the sandboxes' pid 1 is gone"));
            }
        }
    }

    fn answer(&mut self, packet: &[u8], fds: Vec<OwnedFd>) -> (Numbered<Answer>, Vec<OwnedFd>) {
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
        let (body, fds) = match self.carry_out(command.body, fds) {
            Ok(answered) => answered,
            Err(refused) => (refused.answer(), Vec::new()),
        };
        (Numbered { number: command.number, body }, fds)
    }

    fn carry_out(&mut self, command: Command, mut fds: Vec<OwnedFd>) -> Answered {
        match command {
            Command::Hello { version } if version == VERSION => {
                Ok((Answer::Host(self.host.clone()), Vec::new()))
            }
            Command::Hello { .. } => {
                Err(Refused::Wrong("wool and wool-warden are not of one build: install both again"))
            }
            Command::Start { sandbox, python, packages, code, limits } => {
                self.check_new(sandbox)?;
                self.start(sandbox, python, packages.as_deref(), code.as_deref(), limits)
            }
            Command::Prepare { sandbox, zygote, derive, packages, limits } => {
                self.check_new(sandbox)?;
                self.prepare(sandbox, zygote, derive, packages.as_deref(), limits)
            }
            Command::Place { sandbox, packages, code, limits } => {
                self.place_layers(sandbox, packages.as_deref(), &code, limits)
            }
            Command::Landed { sandbox } => {
                let pidfd = fds.pop().ok_or(Refused::Wrong("a pidfd must come along"))?;
                self.landed(sandbox, pidfd.into())
            }
            Command::Limit { sandbox, limits } => self.limit(sandbox, limits),
            Command::Inspect { sandbox } => self.inspect(sandbox),
            Command::Release { sandbox } => {
                self.release(sandbox);
                done()
            }
            Command::Reaping => Ok((Answer::Reaping { sandboxes: self.dying.len() }, Vec::new())),
        }
    }

    fn check_new(&self, sandbox: u64) -> Result<(), Refused> {
        if self.sandboxes.contains_key(&sandbox) {
            return Err(Refused::Wrong("the name is taken"));
        }
        if self.sandboxes.len() >= MOST_SANDBOXES {
            return Err(Refused::Wrong("too many sandboxes"));
        }
        Ok(())
    }

    fn find(&mut self, sandbox: u64) -> Result<&mut Sandbox, Refused> {
        match self.sandboxes.get_mut(&sandbox) {
            Some(found) if !found.dying => Ok(found),
            _ => Err(Refused::Wrong("no such sandbox")),
        }
    }

    fn start(
        &mut self,
        name: u64,
        python: Python,
        packages: Option<&str>,
        code: Option<&str>,
        limits: Limits,
    ) -> Answered {
        let role = if code.is_some() { Role::Instance } else { Role::Zygote };
        let uid = self.uids.take_one().ok_or(Refused::Wrong("no kernel uid is free"))?;
        let contents = Contents { packages, code, uid, limits };
        let root = self.roots.make(&python, contents)?;
        let group = self.cgroups.make(name, limits, uid).map_err(kernel("make cgroup"))?;
        let kind = if role == Role::Zygote { SocketType::SEQPACKET } else { SocketType::STREAM };
        let started = channel(kind).and_then(|(ours, theirs)| {
            let filter = match role {
                Role::Zygote => &self.zygote_filter,
                Role::Instance => &self.instance_filter,
            };
            let what = spawn::Start {
                role,
                interpreter: &python.interpreter,
                root: root.as_fd(),
                channel: theirs.as_fd(),
                uid,
                group: &group,
                filter,
            };
            let (process, stderr) = spawn::start(&self.place, &self.cgroups, &what)?;
            if role == Role::Instance && self.host.proc {
                attach_proc(root.as_fd(), &process).map_err(kernel("attach /proc"))?;
            }
            let files = self.cgroups.files(&group, uid).map_err(kernel("open cgroup"))?;
            Ok((ours, process, stderr, files))
        });
        let (ours, process, stderr, files) = match started {
            Ok(started) => started,
            Err(refused) => {
                self.cgroups.kill(&group);
                self.cgroups.remove(&group);
                return Err(refused);
            }
        };
        let kind = match role {
            Role::Instance => Kind::Instance,
            Role::Zygote => Kind::Zygote(Zygote {
                namespace: None,
                range: None,
                children: 0,
                idle_groups: Vec::new(),
            }),
        };
        let shared = process.as_fd().try_clone_to_owned().map_err(kernel("share pidfd"))?;
        let (files, cgroup_files) = split(files);
        let rest = [ours, shared].into_iter().chain(cgroup_files).collect();
        let sandbox = Sandbox {
            kind,
            uid,
            group,
            root: Some(root),
            python,
            limits,
            process: Some(process),
            zygote: None,
            stderr: Some(stderr),
            child: true,
            dying: false,
        };
        self.sandboxes.insert(name, sandbox);
        Ok((Answer::Started { uid, files }, rest))
    }

    fn prepare(
        &mut self,
        name: u64,
        zygote: u64,
        derive: bool,
        packages: Option<&str>,
        limits: Limits,
    ) -> Answered {
        let parent = match self.sandboxes.get_mut(&zygote) {
            Some(found) if !found.dying => found,
            _ => return Err(Refused::Wrong("no such sandbox")),
        };
        let (python, zygote_uid, zygote_group) =
            (parent.python.clone(), parent.uid, parent.group.clone());
        let own = parent.as_zygote_mut().ok_or(Refused::Wrong("an instance is never forked"))?;
        let idle = if derive { None } else { own.idle_groups.pop() };
        let ids = take_ids(&mut self.uids, own, zygote_uid, derive);
        let range = ids.as_ref().ok().and_then(|ids| ids.range);
        let made = ids.and_then(|ids| {
            let found = (python, zygote_uid, zygote_group);
            self.furnish(name, zygote, found, derive, packages, limits, ids, idle.clone())
        });
        if made.is_err() {
            // Nobody was given an id of it yet.
            if let Some(first) = range {
                self.uids.return_range(first);
            }
            if let Some(group) = idle {
                self.cgroups.remove(&group);
            }
        }
        made
    }

    #[expect(clippy::too_many_arguments, reason = "the one caller's own variables")]
    fn furnish(
        &mut self,
        name: u64,
        zygote: u64,
        (python, zygote_uid, zygote_group): (Python, u32, Group),
        derive: bool,
        packages: Option<&str>,
        limits: Limits,
        ids: Ids,
        idle: Option<Group>,
    ) -> Answered {
        let late = self.host.late_mounts;
        let root = if derive || late {
            let contents = Contents { packages, code: None, uid: ids.uid, limits };
            Some(self.roots.make(&python, contents)?)
        } else {
            None
        };
        let owner = if derive { ids.uid } else { 0 };
        let group = match idle {
            Some(group) => {
                self.cgroups.limit(&group, limits).map_err(kernel("limit cgroup"))?;
                group
            }
            None => self
                .cgroups
                .make_slot(&zygote_group, name, limits, owner)
                .map_err(kernel("make cgroup"))?,
        };
        let opened = self.cgroups.files(&group, zygote_uid).map_err(kernel("open cgroup"));
        let kind = if derive { SocketType::SEQPACKET } else { SocketType::STREAM };
        let (files, (ours, theirs)) = match opened.and_then(|files| Ok((files, channel(kind)?))) {
            Ok(both) => both,
            Err(refused) => {
                self.cgroups.remove(&group);
                return Err(refused);
            }
        };
        let mut fds = Vec::new();
        if let Some(root) = &root {
            fds.push(root.try_clone().map_err(kernel("share root"))?);
        }
        fds.push(theirs);
        fds.push(ids.namespace.try_clone().map_err(kernel("share user namespace"))?);
        let cgroups = files.procs.len();
        let has_root = root.is_some();
        let (named, rest) = split_with_procs(files, &mut fds);
        fds.push(ours);
        fds.extend(rest);
        let kind = if derive {
            Kind::Zygote(Zygote {
                namespace: Some((ids.namespace, Block::new(ids.uid, ids.count))),
                range: ids.range,
                children: 0,
                idle_groups: Vec::new(),
            })
        } else {
            Kind::Instance
        };
        let sandbox = Sandbox {
            kind,
            uid: ids.uid,
            group,
            root,
            python,
            limits,
            process: None,
            zygote: Some(zygote),
            stderr: None,
            child: false,
            dying: false,
        };
        self.sandboxes.insert(name, sandbox);
        if let Some(own) = self.sandboxes.get_mut(&zygote).and_then(Sandbox::as_zygote_mut) {
            own.children += 1;
        }
        let answer =
            Answer::Slot { uid: ids.uid, inner_uid: INNER, cgroups, root: has_root, files: named };
        Ok((answer, fds))
    }

    fn place_layers(
        &mut self,
        name: u64,
        packages: Option<&str>,
        code: &str,
        limits: Limits,
    ) -> Answered {
        let sandbox = self.find(name)?;
        let (uid, python, before) = (sandbox.uid, sandbox.python.clone(), sandbox.limits);
        let contents = Contents { packages, code: Some(code), uid, limits };
        let root = sandbox.root.as_ref().map(OwnedFd::try_clone).transpose();
        let root = root.map_err(kernel("share root"))?;
        let mut fds = Vec::new();
        match root {
            Some(root) => {
                self.roots.complete(root.as_fd(), contents)?;
                if (limits.scratch_bytes, limits.scratch_inodes)
                    != (before.scratch_bytes, before.scratch_inodes)
                {
                    resize_scratch(root.as_fd(), limits).map_err(kernel("resize scratch"))?;
                }
            }
            None => {
                let root = self.roots.make(&python, contents)?;
                fds.push(root.try_clone().map_err(kernel("share root"))?);
                self.find(name)?.root = Some(root);
            }
        }
        if (limits.memory_bytes, limits.pids) != (before.memory_bytes, before.pids) {
            let group = self.find(name)?.group.clone();
            self.cgroups.limit(&group, limits).map_err(kernel("limit cgroup"))?;
        }
        self.find(name)?.limits = limits;
        Ok((Answer::Done, fds))
    }

    fn landed(&mut self, name: u64, process: PidFd) -> Answered {
        let proc = self.host.proc;
        let sandbox = self.find(name)?;
        if sandbox.process.is_some() {
            return Err(Refused::Wrong("the slot is taken"));
        }
        let (uid, group) = (sandbox.uid, sandbox.group.clone());
        let instance = matches!(sandbox.kind, Kind::Instance);
        let who = process.identity().ok_or(Refused::Wrong("the process is gone"))?;
        if who.uids.iter().any(|id| *id != uid) {
            return Err(Refused::Wrong("the process has another uid than its slot"));
        }
        if !self.cgroups.contains(&group, who.pid) {
            return Err(Refused::Wrong("the process is outside its slot's cgroups"));
        }
        if instance && !self.place.holds_apart(who.pid) {
            return Err(Refused::Wrong("the process has no pid namespace of its own"));
        }
        // The pidfd keeps the number from naming another process: it still lived after the looks.
        if !process.alive() {
            return Err(Refused::Wrong("the process is gone"));
        }
        let sandbox = self.find(name)?;
        if proc
            && instance
            && let Some(root) = &sandbox.root
        {
            attach_proc(root.as_fd(), &process).map_err(kernel("attach /proc"))?;
        }
        sandbox.process = Some(process);
        done()
    }

    fn limit(&mut self, name: u64, limits: Limits) -> Answered {
        let sandbox = self.find(name)?;
        if let Some(root) = &sandbox.root {
            resize_scratch(root.as_fd(), limits).map_err(kernel("resize scratch"))?;
        }
        sandbox.limits = limits;
        let group = sandbox.group.clone();
        self.cgroups.limit(&group, limits).map_err(kernel("limit cgroup"))?;
        done()
    }

    fn inspect(&mut self, name: u64) -> Answered {
        let sandbox = self.find(name)?;
        let group = sandbox.group.clone();
        let ended = sandbox.process.as_ref().and_then(PidFd::ended);
        let mut text = [0; 4096];
        let stderr = sandbox
            .stderr
            .as_ref()
            .map_or(0, |pipe| rustix::io::read(pipe, &mut text).unwrap_or(0));
        let answer = Answer::Died {
            out_of_memory: self.cgroups.out_of_memory(&group),
            exited: match ended {
                Some(Ended::Exited(status)) => Some(status),
                _ => None,
            },
            signal: match ended {
                Some(Ended::Signal(number)) => Some(number),
                _ => None,
            },
            stderr: String::from_utf8_lossy(&text[..stderr]).into_owned(),
        };
        Ok((answer, Vec::new()))
    }

    /// Takes it from the worker's sight and begins to kill it.
    fn release(&mut self, name: u64) {
        let Some(sandbox) = self.sandboxes.get_mut(&name) else {
            return;
        };
        if sandbox.dying {
            return;
        }
        sandbox.dying = true;
        // A frozen process would not die (version 1); an instance's pid 1 takes everything in its namespace along.
        self.cgroups.thaw(&sandbox.group);
        if let Some(process) = &sandbox.process {
            let _ = process.kill();
        }
        for group in sandbox.groups() {
            self.cgroups.kill(group);
        }
        sandbox.root = None;
        self.dying.push_back(name);
    }

    /// Takes apart one dying sandbox, as far as it is dead.
    fn reap_one(&mut self) {
        let Some(name) = self.dying.pop_front() else {
            return;
        };
        if !self.reap(name) {
            self.dying.push_back(name);
        }
    }

    fn reap(&mut self, name: u64) -> bool {
        let Some(sandbox) = self.sandboxes.get_mut(&name) else {
            return true;
        };
        if sandbox.process.as_ref().is_some_and(PidFd::alive) {
            return false;
        }
        if sandbox.child {
            if let Some(pid) = sandbox.process.as_ref().and_then(PidFd::child_number) {
                // SAFETY: a child of ours that has ended; no status is asked for.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
            }
            sandbox.child = false;
        }
        if sandbox.as_zygote().is_some_and(|zygote| zygote.children > 0) {
            // Its last child brings it back here. What it has left running in its own cgroups ends now: it may have
            // kept descriptors of cgroups that were given back, and put processes there.
            let mut quiet = true;
            for group in sandbox.groups().filter(|group| !self.cgroups.empty(group)) {
                self.cgroups.kill(group);
                quiet = false;
            }
            return quiet;
        }
        let (group, parent) = (sandbox.group.clone(), sandbox.zygote);
        let instance = matches!(sandbox.kind, Kind::Instance);
        let idle = match sandbox.as_zygote_mut() {
            Some(zygote) => std::mem::take(&mut zygote.idle_groups),
            None => Vec::new(),
        };
        let mut stay = Vec::new();
        for group in idle {
            if !self.cgroups.remove(&group) {
                self.cgroups.kill(&group);
                stay.push(group);
            }
        }
        if !stay.is_empty() {
            if let Some(zygote) = self.sandboxes.get_mut(&name).and_then(Sandbox::as_zygote_mut) {
                zygote.idle_groups = stay;
            }
            return false;
        }
        let kept = instance && parent.is_some_and(|parent| self.keep_group(parent, &group));
        if !kept && !self.cgroups.remove(&group) {
            // Something in it still dies; a slot's process may not even be known.
            self.cgroups.kill(&group);
            return false;
        }
        if let Some(mut sandbox) = self.sandboxes.remove(&name)
            && let Some(range) = sandbox.as_zygote_mut().and_then(|zygote| zygote.range)
        {
            self.uids.return_range(range);
        }
        if let Some(parent) = parent {
            self.child_gone(parent);
        }
        true
    }

    fn child_gone(&mut self, parent: u64) {
        let Some(zygote) = self.sandboxes.get_mut(&parent) else {
            return;
        };
        let dying = zygote.dying;
        if let Some(own) = zygote.as_zygote_mut() {
            own.children = own.children.saturating_sub(1);
            if dying && own.children == 0 && !self.dying.contains(&parent) {
                self.dying.push_back(parent);
            }
        }
    }

    /// Gives an instance's cgroup back to its zygote, if both may still be used.
    fn keep_group(&mut self, zygote: u64, group: &Group) -> bool {
        let Some(parent) = self.sandboxes.get_mut(&zygote) else {
            return false;
        };
        if parent.dying || !self.cgroups.reusable(group) {
            return false;
        }
        match parent.as_zygote_mut() {
            Some(own) if own.idle_groups.len() < IDLE_GROUPS => {
                own.idle_groups.push(group.clone());
                true
            }
            _ => false,
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        self.cgroups.clear();
    }
}

/// The ids and the user namespace of a slot.
struct Ids {
    /// In the initial namespace.
    uid: u32,
    count: u32,
    range: Option<u32>,
    namespace: OwnedFd,
}

fn take_ids(
    uids: &mut Uids,
    zygote: &mut Zygote,
    zygote_uid: u32,
    derive: bool,
) -> Result<Ids, Refused> {
    let spent = || Refused::Wrong("the zygote has handed out all its kernel uids: replace it");
    let (uid, count, range, parent, owner, outside) = match &mut zygote.namespace {
        None if derive => {
            let first = uids.take_range().ok_or(Refused::Wrong("no kernel uid is free"))?;
            (first, RANGE, Some(first), Parent::Initial, zygote_uid, first)
        }
        None => {
            let uid = uids.take_one().ok_or(Refused::Wrong("no kernel uid is free"))?;
            (uid, 1, None, Parent::Initial, zygote_uid, uid)
        }
        Some((namespace, block)) => {
            let count = if derive { block.share() } else { 1 };
            if count == 0 {
                return Err(Refused::Wrong("zygotes are derived at most four deep"));
            }
            let offset = block.take(count).ok_or_else(spent)?;
            let parent = Parent::Inside((*namespace).as_fd());
            (block.first + offset, count, None, parent, INNER, INNER + offset)
        }
    };
    let map = IdMap { inside: INNER, outside, count };
    match user_namespace(parent, owner, map) {
        Ok(namespace) => Ok(Ids { uid, count, range, namespace }),
        Err(source) => {
            if let Some(first) = range {
                uids.return_range(first);
            }
            Err(Refused::Kernel { step: "make user namespace", source })
        }
    }
}

fn done() -> Answered {
    Ok((Answer::Done, Vec::new()))
}

fn channel(kind: SocketType) -> Result<(OwnedFd, OwnedFd), Refused> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .map_err(kernel("make channel"))
}

fn split(files: cgroup::Files) -> (Files, Vec<OwnedFd>) {
    split_with_procs(files, &mut Vec::new())
}

fn split_with_procs(files: cgroup::Files, fds: &mut Vec<OwnedFd>) -> (Files, Vec<OwnedFd>) {
    fds.extend(files.procs);
    let named = Files { freezer: files.freezer.is_some(), memory: files.memory.is_some() };
    (named, files.freezer.into_iter().chain(files.memory).collect())
}

fn landlock_version() -> i64 {
    // SAFETY: with this flag the call takes no attributes and returns the version.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) }
}

fn can_mount_proc() -> bool {
    std::fs::File::open("/proc/self/ns/pid")
        .and_then(|namespace| sys::mount::Tree::proc_of(namespace.as_fd()))
        .is_ok()
}
