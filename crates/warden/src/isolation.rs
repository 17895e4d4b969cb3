//! Recipes of isolation: three independent choices, and the named recipes that combine them.
//!
//! | | `lean` | `sock` | `general` |
//! | --- | --- | --- | --- |
//! | `root` | `detached`: in no mount table | `bind`: in the warden's mount table | `bind` |
//! | `own`: namespaces beside the PID namespace | `cgroup` | `ipc+uts` | `mnt+net+ipc+uts+cgroup` |
//! | the root is entered by | chroot | chroot | pivot_root (with `mnt`) |
//! | `cgroups` | `pooled` | `pooled` | `fresh` |
//! | zygotes | yes | yes | no (with `mnt`) |
//!
//! `lean` is Lambswool's own. `sock` is the container of the SOCK paper (§4.1), `general` the one
//! that Docker makes: both are there for comparison. An ablation is a recipe with a changed choice:
//! `lean,own=net`. Uids, capabilities, `no_new_privs`, seccomp, Landlock and the PID namespace are
//! the same in all recipes. A build with debug assertions can switch one off by its name, to show
//! what it stops: `lean,unsafe-without=own-uid+filter-keys`. A release refuses that.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::defence::{Defence, Defences, SWITCHABLE};
use crate::limits::{Cpu, Limits, Network};

/// One recipe. As text: a name, then changes, as in `sock,cgroups=fresh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Isolation {
    /// Where roots are attached.
    pub root: RootMount,
    /// Namespaces that each sandbox has to itself, beside its PID namespace.
    pub own: Namespaces,
    /// Where cgroups come from.
    pub cgroups: CgroupSource,
    /// Lines of defence that are switched off: none in a release.
    pub without: Defences,
}

/// Where the root file system of a sandbox is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootMount {
    /// In no mount table: a detached tree. Staged where the kernel cannot attach to one (before
    /// Linux 6.15).
    Detached,
    /// In no mount table, but assembled in the warden's, before the fork.
    Staged,
    /// In the warden's mount table, for as long as the sandbox lives.
    Bind,
}

/// Where the cgroup of a sandbox comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupSource {
    /// From a pool of earlier sandboxes' cgroups, while there are any.
    Pooled,
    /// Made for the sandbox and removed with it.
    Fresh,
}

/// A set of kinds of namespaces, as the kernel's own `CLONE_NEW*` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces(i32);

impl Namespaces {
    /// The empty set of kinds.
    pub const NONE: Self = Self(0);
    /// Mounts. The root is entered by `pivot_root`, and no fork can enter it.
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS);
    /// Network: with loopback, which is up.
    pub const NETWORK: Self = Self(libc::CLONE_NEWNET);
    /// System V IPC and POSIX message queues.
    pub const IPC: Self = Self(libc::CLONE_NEWIPC);
    /// Host name and NIS domain name.
    pub const UTS: Self = Self(libc::CLONE_NEWUTS);
    /// The view of the cgroup hierarchy.
    pub const CGROUP: Self = Self(libc::CLONE_NEWCGROUP);

    /// The kinds by their names in `/proc/<pid>/ns`.
    const NAMED: [(&str, Self); 5] = [
        ("mnt", Self::MOUNT),
        ("net", Self::NETWORK),
        ("ipc", Self::IPC),
        ("uts", Self::UTS),
        ("cgroup", Self::CGROUP),
    ];

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether these are all in the set.
    #[must_use]
    pub const fn has(self, these: Self) -> bool {
        self.0 & these.0 == these.0
    }

    /// The kernel's bits (`CLONE_NEW*`).
    #[must_use]
    pub const fn bits(self) -> i32 {
        self.0
    }
}

impl Network {
    /// The namespaces that a sandbox in this network makes for itself, where the isolation has
    /// `own`.
    #[must_use]
    pub fn own(self, instance: bool, own: Namespaces) -> Namespaces {
        match self {
            Self::Egress if instance => own.and(Namespaces::NETWORK),
            Self::None | Self::Egress => own,
            Self::Host => Namespaces(own.0 & !Namespaces::NETWORK.0),
        }
    }
}

impl Isolation {
    /// Lambswool's own recipe.
    pub const LEAN: Self = Self {
        root: RootMount::Detached,
        // Runtimes look for their limits at the cgroup path that the kernel reports: `/`, as in a
        // view.
        own: Namespaces::CGROUP,
        cgroups: CgroupSource::Pooled,
        without: Defences::NONE,
    };
    /// SOCK's: bind mounts and chroot, no mount or network namespace, cgroups from a pool.
    pub const SOCK: Self = Self {
        root: RootMount::Bind,
        own: Namespaces::IPC.and(Namespaces::UTS),
        cgroups: CgroupSource::Pooled,
        without: Defences::NONE,
    };
    /// Docker's: every namespace but the user's, and everything made for the one container.
    pub const GENERAL: Self = Self {
        root: RootMount::Bind,
        own: Namespaces::MOUNT
            .and(Namespaces::NETWORK)
            .and(Namespaces::IPC)
            .and(Namespaces::UTS)
            .and(Namespaces::CGROUP),
        cgroups: CgroupSource::Fresh,
        without: Defences::NONE,
    };

    const RECIPES: [(&str, Self); 3] =
        [("lean", Self::LEAN), ("sock", Self::SOCK), ("general", Self::GENERAL)];

    /// Whether sandboxes can be forked from zygotes. A fork cannot enter a mount namespace of its
    /// own: its zygote would have to mount, and no Python process may.
    #[must_use]
    pub fn forks(self) -> bool {
        !self.own.has(Namespaces::MOUNT)
    }

    /// Whether a line of defence is in force. Always, in a release.
    #[must_use]
    pub const fn has(self, defence: Defence) -> bool {
        !self.without.has(defence)
    }

    /// The enforced limits: the requested ones, or beyond anything real where the defence is
    /// switched off.
    #[must_use]
    pub fn enforced(self, asked: Limits) -> Limits {
        let unless = |defence, limit: u64, none: u64| if self.has(defence) { limit } else { none };
        Limits {
            memory_bytes: unless(Defence::LimitMemory, asked.memory_bytes, 1 << 50),
            shown_bytes: asked.shown_bytes,
            // The kernel's maximum (`PID_MAX_LIMIT`).
            pids: if self.has(Defence::LimitPids) { asked.pids } else { 1 << 22 },
            scratch_bytes: unless(Defence::LimitScratchBytes, asked.scratch_bytes, 1 << 40),
            scratch_inodes: match self.has(Defence::LimitScratchFiles) {
                true => asked.scratch_inodes,
                false => 1 << 30,
            },
            cpu: if self.has(Defence::LimitCpu) { asked.cpu } else { Cpu::UNLIMITED },
        }
    }

    /// The protections of the default recipe that this one lacks.
    #[must_use]
    pub fn weaker(self) -> Vec<&'static str> {
        let mut weaker = Vec::new();
        if self.root == RootMount::Bind && self.forks() {
            weaker.push(
                "a hostile package in a zygote that leaves its chroot is kept from the host's files by the permissions of one directory only",
            );
        }
        if self.own.has(Namespaces::NETWORK) {
            weaker.push("sandboxes have a loopback of their own");
        }
        weaker.extend(self.without.iter().map(Defence::without));
        weaker
    }
}

impl Default for Isolation {
    fn default() -> Self {
        Self::LEAN
    }
}

/// Why a text is no [`Isolation`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IsolationError {
    /// The recipe's name is unknown.
    #[error(
        "no isolation is called {0:?}: lean, sock or general, then changes as in \"lean,own=net,cgroups=fresh\""
    )]
    Recipe(String),
    /// A change is unknown.
    #[error(
        "{0:?} changes no isolation: root=detached|staged|bind, own=mnt+net+ipc+uts+cgroup (any of them, or nothing), cgroups=pooled|fresh"
    )]
    Change(String),
    /// A defence's name is unknown.
    #[error("{0:?} names no defence: crates/warden/src/defence.rs lists them")]
    Defence(String),
    /// A release is asked to switch a defence off.
    #[error(
        "a release switches no defence off: leave `unsafe-without` out, or use a build with debug assertions (`cargo build`)"
    )]
    Release,
}

impl FromStr for Isolation {
    type Err = IsolationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let recipe = Self::RECIPES.into_iter().find(|(known, _)| *known == name);
        let (_, mut isolation) = recipe.ok_or_else(|| IsolationError::Recipe(name.to_owned()))?;
        for part in parts {
            let unknown = || IsolationError::Change(part.to_owned());
            match part.split_once('=').ok_or_else(unknown)? {
                ("root", "detached") => isolation.root = RootMount::Detached,
                ("root", "staged") => isolation.root = RootMount::Staged,
                ("root", "bind") => isolation.root = RootMount::Bind,
                ("own", names) => isolation.own = Namespaces::parse(names).ok_or_else(unknown)?,
                ("cgroups", "pooled") => isolation.cgroups = CgroupSource::Pooled,
                ("cgroups", "fresh") => isolation.cgroups = CgroupSource::Fresh,
                ("unsafe-without", _) if !SWITCHABLE => return Err(IsolationError::Release),
                ("unsafe-without", names) => {
                    let unknown = || IsolationError::Defence(names.to_owned());
                    isolation.without = Defences::parse(names).ok_or_else(unknown)?;
                }
                _ => return Err(unknown()),
            }
        }
        Ok(isolation)
    }
}

impl Namespaces {
    fn parse(names: &str) -> Option<Self> {
        names.split('+').filter(|name| !name.is_empty()).try_fold(Self::NONE, |all, name| {
            let (_, one) = Self::NAMED.into_iter().find(|(known, _)| *known == name)?;
            Some(all.and(one))
        })
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Self::RECIPES.iter().find(|(_, recipe)| recipe == self) {
            return f.write_str(name);
        }
        let root = match self.root {
            RootMount::Detached => "detached",
            RootMount::Staged => "staged",
            RootMount::Bind => "bind",
        };
        let cgroups = match self.cgroups {
            CgroupSource::Pooled => "pooled",
            CgroupSource::Fresh => "fresh",
        };
        write!(f, "lean,root={root},own={},cgroups={cgroups}", self.own)?;
        if !self.without.is_empty() {
            write!(f, ",unsafe-without={}", self.without)?;
        }
        Ok(())
    }
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMED.iter().filter(|(_, one)| self.has(*one)).map(|(name, _)| *name);
        f.write_str(&names.collect::<Vec<_>>().join("+"))
    }
}

impl TryFrom<String> for Isolation {
    type Error = IsolationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Isolation> for String {
    fn from(isolation: Isolation) -> Self {
        isolation.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ablation_is_a_recipe_with_one_choice_changed() {
        let ablation: Isolation = "general,cgroups=pooled".parse().unwrap();
        assert_eq!(ablation, Isolation { cgroups: CgroupSource::Pooled, ..Isolation::GENERAL });
        let ablation: Isolation = "lean, own=net+ipc".parse().unwrap();
        assert_eq!(ablation.own, Namespaces::NETWORK.and(Namespaces::IPC));
        assert_eq!("sock,own=".parse::<Isolation>().unwrap().own, Namespaces::NONE);
    }

    #[test]
    fn every_isolation_is_read_back_as_it_is_written() {
        for root in [RootMount::Detached, RootMount::Staged, RootMount::Bind] {
            for own in 0..32 {
                let chosen =
                    Namespaces::NAMED.iter().enumerate().filter(|(at, _)| own >> at & 1 == 1);
                let own = chosen.fold(Namespaces::NONE, |all, (_, (_, one))| all.and(*one));
                for cgroups in [CgroupSource::Pooled, CgroupSource::Fresh] {
                    let isolation = Isolation { root, own, cgroups, without: Defences::NONE };
                    assert_eq!(isolation.to_string().parse(), Ok(isolation));
                }
            }
        }
        assert_eq!(Isolation::GENERAL.to_string(), "general");
    }

    #[test]
    fn a_misspelt_name_is_reported_with_the_known_names() {
        let refused = |text: &str| text.parse::<Isolation>().unwrap_err().to_string();
        assert!(refused("docker").contains("lean, sock or general"));
        assert!(refused("").contains("lean, sock or general"));
        // The PID namespace is no choice: every instance has one.
        for bad in ["lean,own=pid", "lean,root", "lean,roots=bind", "lean,cgroups=", "lean,"] {
            assert!(refused(bad).contains("own=mnt+net+ipc+uts+cgroup"), "{bad}");
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_defence_that_is_off_is_reported_and_limits_nothing() {
        let cpu = Cpu { quota: Some(500), weight: None };
        let asked = Limits {
            memory_bytes: 64 << 20,
            shown_bytes: 64 << 20,
            pids: 8,
            scratch_bytes: 1 << 20,
            scratch_inodes: 9,
            cpu,
        };
        assert_eq!(Isolation::LEAN.enforced(asked), asked);
        assert!(Isolation::LEAN.weaker().is_empty());
        let ablated: Isolation = "lean,unsafe-without=limit-pids".parse().unwrap();
        assert_eq!(ablated.enforced(asked), Limits { pids: 1 << 22, ..asked });
        assert_eq!(ablated.weaker(), [Defence::LimitPids.without()]);
        assert_eq!(ablated.to_string().parse(), Ok(ablated));
        let refused = "lean,unsafe-without=moat".parse::<Isolation>();
        assert_eq!(refused, Err(IsolationError::Defence("moat".to_owned())));
    }
}
