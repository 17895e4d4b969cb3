//! Making sandboxes: an interpreter from nothing, and slots for forks.
//!
//! ```text
//!   start:    uid ─► root ─► cgroup ─► channel ─► spawn
//!   prepare:  ids, user namespace ─► root (where mounts come late, or for a zygote) ─► cgroup ─► channel
//! ```
//! A step that fails gives back what the earlier ones took. Once a process runs, it is released
//! like every other sandbox, by [`Warden::release`]: what it holds is given out again only after
//! its death.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, Uid, fchown};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use sys::namespace::{IdMap, Parent, user_namespace};

use crate::cgroup::{self, Group};
use crate::confine::filter::Role;
use crate::defence::Defence;
use crate::isolation::Isolation;
use crate::limits::{Cpu, Limits, Network};
use crate::outcome::{CommandError, CommandResult, kernel};
use crate::process::spawn::{self, UserNamespace};
use crate::protocol::{Answer, Files, Python};
use crate::rootfs::Contents;
use crate::rootfs::empty::EmptyingProgress;
use crate::sandbox::identity::Identity;
use crate::sandbox::record::{FileId, Kind, Sandbox, Zygote};
use crate::state::Warden;
use crate::uids::{Allotment, Block, INNER, Uids};

impl Warden {
    pub(crate) fn start(&mut self, name: u64, what: Interpreter<'_>) -> CommandResult {
        if let Some(pacemaker) = &mut self.pacemaker {
            pacemaker.beat();
        }
        let role = if what.code.is_some() { Role::Instance } else { Role::Zygote };
        if role == Role::Zygote && !self.host.isolation.forks() {
            return Err(CommandError::Wrong(
                "nothing is forked into a mount namespace of its own: set zygotes = \"none\", or an isolation without own=mnt",
            ));
        }
        let (identity, allotment, block) = match role {
            Role::Instance => {
                let identity = self.identities.take(&mut self.uids, self.host.isolation)?;
                let allotment = Allotment::Single(identity.uid);
                (identity, allotment, None)
            }
            Role::Zygote => {
                let spent = CommandError::Wrong("no kernel uid is free");
                let block = self.uids.take_block().ok_or(spent)?;
                let identity = Identity { uid: block.first, namespace: UserNamespace::Initial };
                (identity, Allotment::Block(block.first), Some(block))
            }
        };
        let (mut sandbox, ours) = match self.start_as(name, role, what, identity) {
            Ok(started) => started,
            Err(refused) => {
                self.give_back(allotment, None);
                return Err(refused);
            }
        };
        sandbox.allotment = allotment;
        if let Some(ids) = block {
            let stderr = sandbox.stderr.as_ref().and_then(|pipe| rustix::fs::fstat(pipe).ok());
            let stderr = stderr.as_ref().map(FileId::from).unwrap_or_default();
            sandbox.kind = Kind::Zygote(Zygote::new(None, ids, stderr));
        }
        self.show_or_release(name, sandbox, ours)
    }

    /// Records a sandbox whose process runs, and answers the worker. Whatever fails from here on,
    /// it is destroyed like any other, and what it holds is given back.
    pub(crate) fn show_or_release(
        &mut self,
        name: u64,
        sandbox: Sandbox,
        ours: WorkerEnds,
    ) -> CommandResult {
        self.sandboxes.insert(name, sandbox);
        let shown = self.show(name, ours);
        if shown.is_err() {
            self.release(name);
        }
        shown
    }

    /// The worker's part of a started sandbox, and the steps that need its process.
    fn show(&self, name: u64, WorkerEnds { channel, output }: WorkerEnds) -> CommandResult {
        let sandbox = self.sandboxes.get(&name).ok_or(CommandError::Wrong("no such sandbox"))?;
        let process = sandbox.process.as_ref().ok_or(CommandError::Wrong("it has no process"))?;
        self.limit_cpu(&sandbox.group, sandbox.limits.cpu)?;
        if let (Kind::Instance, Some(root)) = (&sandbox.kind, &sandbox.root) {
            self.show_processes(root, process)?;
        }
        let files = self.cgroup_files(&sandbox.group, sandbox.uid)?;
        let shared = process.as_fd().try_clone_to_owned().map_err(kernel("share pidfd"))?;
        let (files, further) = split(files, output);
        let rest = [channel, shared].into_iter().chain(further).collect();
        Ok((Answer::Started { uid: sandbox.uid, files }, rest))
    }

    fn start_as(
        &mut self,
        name: u64,
        role: Role,
        what: Interpreter<'_>,
        identity: Identity,
    ) -> Result<(Sandbox, WorkerEnds), CommandError> {
        let Identity { uid, namespace } = identity;
        let Interpreter { python, packages, code, opt, network, limits } = what;
        let contents = Contents { packages, code, opt, uid, network, limits };
        let root = self.roots.make(&python, contents)?;
        let (output, written) = match role {
            Role::Instance => Some(output_pipe(uid)?).unzip(),
            Role::Zygote => (None, None),
        };
        let group = self.group_for(name, role, limits, uid).map_err(kernel("make cgroup"))?;
        let kind = if role == Role::Zygote { SocketType::SEQPACKET } else { SocketType::STREAM };
        let started = channel(kind).and_then(|(ours, theirs)| {
            self.limit_sockets(&group, network, limits)?;
            let filter = self.filters.of(role, network);
            let what = spawn::Start {
                role,
                interpreter: &python.interpreter,
                root: &root,
                isolation: self.host.isolation,
                network,
                channel: theirs.as_fd(),
                output: written.as_ref().map(AsFd::as_fd),
                uid,
                namespace: &namespace,
                group: &group,
                filter,
            };
            let (process, stderr) = spawn::start(&self.namespaces, &self.cgroups, &what)?;
            Ok((ours, process, stderr))
        });
        let (channel, process, stderr) = match started {
            Ok(started) => started,
            Err(refused) => {
                // No process has come of it, or it has been waited for.
                self.cgroups.kill(&group);
                self.cgroups.remove(&group);
                return Err(refused);
            }
        };
        let sandbox = Sandbox {
            kind: Kind::Instance,
            uid,
            allotment: Allotment::Single(uid),
            group,
            root: Some(root),
            python,
            network,
            reaches: None,
            limits,
            process: Some(process),
            zygote: None,
            stderr,
            inside: None,
            child: true,
            dying: false,
            scratch: EmptyingProgress::default(),
            held: EmptyingProgress::default(),
            counted: false,
        };
        Ok((sandbox, WorkerEnds { channel, output }))
    }

    /// The group's files, by which `holder` can move its own processes there and no others.
    fn cgroup_files(&self, group: &Group, holder: u32) -> Result<cgroup::Files, CommandError> {
        let opener = if self.host.isolation.has(Defence::CgroupCredentials) { holder } else { 0 };
        self.cgroups.files(group, opener).map_err(kernel("open cgroup"))
    }

    fn group_for(&mut self, name: u64, role: Role, limits: Limits, uid: u32) -> io::Result<Group> {
        if role == Role::Instance
            && let Some(idle) = self.idle_groups.pop()
        {
            if self.cgroups.limit(&idle, limits).is_ok() {
                return Ok(idle);
            }
            self.cgroups.remove(&idle);
        }
        self.cgroups.make(name, limits, uid)
    }

    pub(crate) fn prepare(
        &mut self,
        name: u64,
        zygote: u64,
        derive: bool,
        packages: Option<&str>,
        limits: Limits,
    ) -> CommandResult {
        if let Some(pacemaker) = &mut self.pacemaker {
            pacemaker.beat();
        }
        self.forks_at_full_speed(zygote)?;
        let parent = match self.sandboxes.get_mut(&zygote) {
            Some(found) if !found.dying => found,
            _ => return Err(CommandError::Wrong("no such sandbox")),
        };
        let (uid, network) = (parent.uid, parent.network);
        let (python, group) = (parent.python.clone(), parent.group.clone());
        let own =
            parent.as_zygote_mut().ok_or(CommandError::Wrong("an instance is never forked"))?;
        let parent = Origin { name: zygote, python, network, uid, group };
        let ids = take_ids(&mut self.uids, own, derive, self.host.isolation)?;
        let idle = if derive { None } else { own.idle_groups.pop() };
        let allotment = ids.allotment;
        let made = own_namespace(own, uid, &ids).and_then(|namespace| {
            let holder = Holder { ids, namespace, derive };
            self.furnish(name, parent, holder, packages, limits, idle.clone())
        });
        if made.is_err() {
            // No process has held the uids yet.
            self.give_back(allotment, Some(zygote));
            // Its zygote may have put a process there, and must end first: for now the cgroup goes
            // behind the others.
            if let Some(group) = idle
                && !self.cgroups.remove(&group)
                && let Some(own) = self.sandboxes.get_mut(&zygote).and_then(Sandbox::as_zygote_mut)
            {
                own.idle_groups.insert(0, group);
            }
        }
        made
    }

    /// A zygote has its own processor limit while it imports. From its first slot on it only forks,
    /// for functions with limits of their own, and its forks begin where it is itself.
    fn forks_at_full_speed(&mut self, zygote: u64) -> Result<(), CommandError> {
        let found = self.find(zygote)?;
        let group = found.group.clone();
        if std::mem::replace(&mut found.limits.cpu, Cpu::UNLIMITED) == Cpu::UNLIMITED {
            return Ok(());
        }
        self.cgroups.unlimit_cpu(&group).map_err(kernel("free a zygote's processors"))
    }

    /// Makes what a fork needs beyond its ids: root, channel, cgroup. `idle` is an earlier slot's.
    fn furnish(
        &mut self,
        name: u64,
        parent: Origin,
        Holder { ids, namespace, derive }: Holder,
        packages: Option<&str>,
        limits: Limits,
        idle: Option<Group>,
    ) -> CommandResult {
        let Origin { python, network, .. } = parent;
        let late = self.host.late_mounts;
        let root = if derive || late {
            let contents =
                Contents { packages, code: None, opt: None, uid: ids.uid, network, limits };
            Some(self.roots.make(&python, contents)?)
        } else {
            None
        };
        // Before the cgroup: once there is one, only steps about the cgroup itself can fail.
        let mut fds = Vec::new();
        if let Some(root) = &root {
            fds.push(root.as_fd().try_clone_to_owned().map_err(kernel("share root"))?);
        }
        let (output, written) =
            if derive { (None, None) } else { Some(output_pipe(ids.uid)?).unzip() };
        let kind = if derive { SocketType::SEQPACKET } else { SocketType::STREAM };
        let (ours, theirs) = channel(kind)?;
        fds.push(theirs);
        fds.push(namespace.try_clone().map_err(kernel("share user namespace"))?);
        let owner = if derive { ids.uid } else { 0 };
        let group = match idle {
            Some(group) => {
                self.cgroups.limit(&group, limits).map_err(kernel("limit cgroup"))?;
                group
            }
            None => self
                .cgroups
                .make_slot(&parent.group, name, limits, owner)
                .map_err(kernel("make cgroup"))?,
        };
        let opened = self
            .limit_sockets(&group, network, limits)
            .and_then(|()| self.cgroup_files(&group, parent.uid));
        let files = match opened {
            Ok(files) => files,
            Err(refused) => {
                self.cgroups.remove(&group);
                return Err(refused);
            }
        };
        let cgroups = files.procs.len();
        let (named, rest) = split_with_procs(files, output, &mut fds);
        let (has_root, has_output) = (root.is_some(), written.is_some());
        fds.extend(written);
        fds.push(ours);
        fds.extend(rest);
        let kind = if derive {
            let block = Block::new(ids.uid, ids.count);
            // Not the root's pipe: a derived zygote writes only to its channel.
            Kind::Zygote(Zygote::new(Some(namespace), block, FileId::default()))
        } else {
            Kind::Instance
        };
        let sandbox = Sandbox {
            kind,
            uid: ids.uid,
            allotment: ids.allotment,
            group,
            root,
            python,
            network,
            reaches: None,
            limits,
            process: None,
            zygote: Some(parent.name),
            stderr: None,
            inside: None,
            child: false,
            dying: false,
            scratch: EmptyingProgress::default(),
            held: EmptyingProgress::default(),
            counted: false,
        };
        self.sandboxes.insert(name, sandbox);
        let zygote = self.sandboxes.get_mut(&parent.name);
        if let Some(own) = zygote.and_then(Sandbox::as_zygote_mut) {
            own.children += 1;
        }
        let answer = Answer::Slot {
            uid: ids.uid,
            inner_uid: INNER,
            cgroups,
            root: has_root,
            output: has_output,
            files: named,
        };
        Ok((answer, fds))
    }
}

/// What to start from nothing: an instance if it has code, otherwise a zygote.
pub(crate) struct Interpreter<'a> {
    pub(crate) python: Python,
    pub(crate) packages: Option<&'a str>,
    pub(crate) code: Option<&'a str>,
    pub(crate) opt: Option<&'a str>,
    pub(crate) network: Network,
    pub(crate) limits: Limits,
}

/// The worker's ends of a sandbox's sockets and pipes.
pub(crate) struct WorkerEnds {
    pub(crate) channel: OwnedFd,
    /// The reading end of an instance's output.
    pub(crate) output: Option<OwnedFd>,
}

/// A zygote, as its slots see it.
struct Origin {
    name: u64,
    python: Python,
    network: Network,
    uid: u32,
    group: Group,
}

/// The process for which a slot is made: a derived zygote, or an instance.
struct Holder {
    ids: Ids,
    namespace: OwnedFd,
    derive: bool,
}

/// The ids of a slot.
struct Ids {
    /// First id, in the initial namespace.
    uid: u32,
    /// The same id in the zygote's namespace.
    outside: u32,
    count: u32,
    allotment: Allotment,
}

fn take_ids(
    uids: &mut Uids,
    zygote: &mut Zygote,
    derive: bool,
    isolation: Isolation,
) -> Result<Ids, CommandError> {
    let spent = || CommandError::Wrong("the zygote has no kernel uid left");
    let first = zygote.ids.first;
    if derive && zygote.namespace.is_none() {
        let block = uids.take_block().ok_or(CommandError::Wrong("no kernel uid is free"))?;
        let (uid, allotment) = (block.first, Allotment::Block(block.first));
        return Ok(Ids { uid, outside: uid, count: block.count, allotment });
    }
    let (offset, count, allotment) = if derive {
        let count = zygote.ids.share();
        if count == 0 {
            return Err(CommandError::Wrong("zygotes are derived at most four deep"));
        }
        let offset = zygote.ids.take_share().ok_or_else(spent)?;
        (offset, count, Allotment::Share(offset))
    } else {
        let offset = match isolation.has(Defence::OwnUid) {
            true => zygote.ids.take_one().ok_or_else(spent)?,
            false => 1,
        };
        (offset, 1, Allotment::One(offset))
    };
    let uid = first + offset;
    let outside = if zygote.namespace.is_some() { INNER + offset } else { uid };
    Ok(Ids { uid, outside, count, allotment })
}

/// A user namespace below the zygote's, which the zygote may enter.
fn own_namespace(zygote: &Zygote, zygote_uid: u32, ids: &Ids) -> Result<OwnedFd, CommandError> {
    let (parent, owner) = match &zygote.namespace {
        Some(namespace) => (Parent::Inside(namespace.as_fd()), INNER),
        None => (Parent::Initial, zygote_uid),
    };
    let map = IdMap { inside: INNER, outside: ids.outside, count: ids.count };
    user_namespace(parent, owner, map).map_err(kernel("make user namespace"))
}

fn channel(kind: SocketType) -> Result<(OwnedFd, OwnedFd), CommandError> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .map_err(kernel("make channel"))
}

/// A pipe for an instance's descriptors 1 and 2: the worker's end, and the instance's. The pipe
/// belongs to the instance's uid, so that it can also open it by its name in `/proc`.
fn output_pipe(uid: u32) -> Result<(OwnedFd, OwnedFd), CommandError> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(kernel("make output"))?;
    fchown(&theirs, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))
        .map_err(kernel("give output away"))?;
    Ok((ours, theirs))
}

fn split(files: cgroup::Files, output: Option<OwnedFd>) -> (Files, Vec<OwnedFd>) {
    split_with_procs(files, output, &mut Vec::new())
}

fn split_with_procs(
    files: cgroup::Files,
    output: Option<OwnedFd>,
    fds: &mut Vec<OwnedFd>,
) -> (Files, Vec<OwnedFd>) {
    fds.extend(files.procs);
    let cgroup::Files { freezer, memory, .. } = files;
    let (has_output, has_freezer, has_memory) =
        (output.is_some(), freezer.is_some(), memory.is_some());
    let named = Files { output: has_output, freezer: has_freezer, memory: has_memory };
    (named, [output, freezer, memory].into_iter().flatten().collect())
}
