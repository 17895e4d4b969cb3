//! Making: an interpreter from nothing, and slots for forks.
//!
//! ```text
//!   start:    uid ─► root ─► cgroup ─► channel ─► spawn
//!   prepare:  ids, user namespace ─► root (where mounts come late, or for a zygote) ─► cgroup ─► channel
//! ```
//! A step that fails gives back what the earlier ones took.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sys::namespace::{IdMap, Parent, user_namespace};

use crate::cgroup::{self, Group};
use crate::filter::Role;
use crate::protocol::{Answer, Files, Limits, Python};
use crate::rootfs::{Contents, attach_proc};
use crate::serve::{Answered, Refused, Warden, kernel};
use crate::slot::{Kind, Sandbox, Zygote};
use crate::spawn;
use crate::uids::{Block, INNER, RANGE, Uids};

impl Warden {
    pub(crate) fn start(
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

    pub(crate) fn prepare(
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
