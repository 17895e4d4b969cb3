//! Root file systems: a template per Python, cloned for every sandbox, completed with the sandbox's
//! own layers.
//!
//! ```text
//!   /               base      read-only            ┐
//!   /opt/lambswool  guest     read-only            │ template, made once
//!   /dev            devices   read-only, shared    │
//!   /proc           links     read-only, shared    ┘
//!   /opt            layers    read-only            ┐  where a function has any, with the guest again
//!   /opt/python     packages  read-only            │
//!   /var/task       code      read-only            │ per sandbox
//!   /sys            view of processors and memory (`view`)
//!   /tmp, /dev/shm  tmpfs of the sandbox's uid     │
//!   /etc/resolv.conf  in the host's network: its   │
//!   /proc           its own processes, where known ┘
//! ```
//!
//! Three ways. **Detached** (Linux ≥ 6.15): the template is a detached tree, its clones are
//! detached trees, and mounts are attached to a clone even while a process lives in it. 7 µs a
//! clone, nothing enters any mount table. **Staged** (before that): the template is attached in the
//! warden's private mount namespace; a sandbox's mounts are attached onto it, the whole is cloned,
//! and they are detached again. The clone is then complete and must be known before the fork.
//! **Bind** (an isolation for measurements): the template is attached as when staged; each
//! sandbox's clone of it is attached as well, at a directory of its own, and so grows the warden's
//! mount table for as long as the sandbox lives.

pub mod empty;
pub mod root;
pub(crate) mod scratch;
mod stages;
pub(crate) mod view;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, makedev, mkdirat, mknodat, openat2};
use rustix::mount::{UnmountFlags, unmount};
use sys::mount::{Attributes, Tree, show_only_processes};
use sys::process::PidFd;
use thiserror::Error;

use self::root::Root;
use self::scratch::{common_scratch, own_scratch};
use self::stages::Stages;
use self::view::Views;
use crate::defence::Defence;
use crate::isolation::{Isolation, RootMount};
use crate::limits::{Limits, Network};
use crate::protocol::Python;

/// The resolver's configuration, relative to a root.
const RESOLVER: &str = "etc/resolv.conf";

/// Why a root file system could not be made.
#[derive(Debug, Error)]
pub enum RootError {
    /// A layer does not exist, its name leads out of the layers' directory, or it has another
    /// owner.
    #[error("open layer {layer}")]
    Layer {
        /// Path of the layer.
        layer: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A mount could not be made.
    #[error("{step}")]
    Mount {
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl RootError {
    /// The kernel's error.
    #[must_use]
    pub fn source_error(&self) -> &io::Error {
        match self {
            Self::Layer { source, .. } | Self::Mount { source, .. } => source,
        }
    }
}

fn mounting(step: &'static str) -> impl FnOnce(io::Error) -> RootError {
    move |source| RootError::Mount { step, source }
}

/// The content of a sandbox's root beyond the template.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// Layer of `/opt/python`.
    pub packages: Option<&'a str>,
    /// Layer of `/var/task`.
    pub code: Option<&'a str>,
    /// Layer of `/opt`: what a function's own layers hold.
    pub opt: Option<&'a str>,
    /// Owner of the scratch file systems.
    pub uid: u32,
    /// Network that `/etc/resolv.conf` is for.
    pub network: Network,
    /// Limits: sizes of the scratch file systems.
    pub limits: Limits,
}

fn owner(dir: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::fs::fstat(dir)?.st_uid)
}

/// Whether an open directory has been removed.
fn is_removed(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(dir).is_ok_and(|data| data.st_nlink == 0)
}

#[derive(Debug)]
struct Template {
    tree: OwnedFd,
    guest: OwnedFd,
    /// The mount point of the template, when staged.
    stage: Option<PathBuf>,
}

/// All templates, and the directory of layers.
#[derive(Debug)]
pub struct Roots {
    layers: OwnedFd,
    /// Owner of all layers.
    owner: u32,
    stages: Stages,
    made: u64,
    way: RootMount,
    isolation: Isolation,
    /// The scratch of all sandboxes where they have none of their own.
    common: Option<OwnedFd>,
    views: Views,
    templates: HashMap<(String, String), Template>,
}

impl Roots {
    /// `layers` is the directory of layers and `stages` one to mount on, both opened in the
    /// warden's own mount namespace. Where the kernel cannot attach to detached trees,
    /// [`RootMount::Detached`] becomes [`RootMount::Staged`].
    ///
    /// # Errors
    /// When nothing can be mounted at all.
    pub fn new(
        layers: OwnedFd,
        stages: BorrowedFd<'_>,
        isolation: Isolation,
    ) -> Result<Self, RootError> {
        let way = match isolation.root {
            RootMount::Detached if !can_attach_to_detached() => RootMount::Staged,
            other => other,
        };
        // Mount points go with the warden, however it ends. Only the warden may enter: a hostile
        // zygote can use a slot's capabilities to leave its chroot, and where roots are in the
        // mount table would climb on to the host's.
        let mode = if isolation.has(Defence::PrivateStages) { "0700" } else { "0755" };
        let stages = Stages::over(stages, mode).map_err(mounting("mount the stages"))?;
        let common = match isolation.has(Defence::OwnScratch) {
            true => None,
            false => Some(common_scratch(&stages).map_err(mounting("make scratch"))?),
        };
        let owner = owner(layers.as_fd()).map_err(mounting("examine the layers"))?;
        let views =
            Views::new(stages.clone(), way == RootMount::Staged || !can_attach_to_detached());
        let templates = HashMap::new();
        Ok(Self { layers, owner, stages, made: 0, way, isolation, common, views, templates })
    }

    /// Whether mounts can be attached to a root in use: [`Roots::complete`] and [`attach_proc`].
    #[must_use]
    pub fn late(&self) -> bool {
        self.way != RootMount::Staged
    }

    /// A new root. Where mounts may come late, `contents` may be completed later
    /// ([`Roots::complete`]); otherwise it must be complete.
    ///
    /// # Errors
    /// When a layer is missing or a mount fails.
    pub fn make(&mut self, python: &Python, contents: Contents<'_>) -> Result<Root, RootError> {
        self.template(python)?;
        let key = (python.base.clone(), python.guest.clone());
        let Some(template) = self.templates.get(&key) else {
            return Err(mounting("find template")(io::ErrorKind::NotFound.into()));
        };
        let view = self.views.of(contents.limits).map_err(mounting("make a view"))?;
        if let (RootMount::Staged, Some(stage)) = (self.way, &template.stage) {
            return self.make_staged(template.tree.as_fd(), stage, python, contents, view);
        }
        let tree =
            Tree::clone_of(template.tree.as_fd(), true).map_err(mounting("clone template"))?;
        let root = if self.way == RootMount::Bind {
            self.made += 1;
            let name = format!("root-{}", self.made);
            Root::attach(tree, &self.stages, &name).map_err(mounting("attach root"))?
        } else {
            Root::from(tree)
        };
        self.attach(root.as_fd(), python, contents)?;
        self.attach_own(root.as_fd(), contents, view)?;
        Ok(root)
    }

    /// Attaches layers to a root that is in use, and a new view if its limits were others before
    /// (`before`). Only where [`Roots::late`].
    ///
    /// # Errors
    /// When a layer is missing or a mount fails.
    pub fn complete(
        &mut self,
        root: BorrowedFd<'_>,
        python: &Python,
        contents: Contents<'_>,
        before: Limits,
    ) -> Result<(), RootError> {
        self.attach(root, python, contents)?;
        if view::Key::from(before) == view::Key::from(contents.limits) {
            return Ok(());
        }
        let view = self.views.of(contents.limits).map_err(mounting("make a view"))?;
        view.attach(root, "sys").map_err(mounting("attach /sys"))
    }

    /// A layer as a detached tree, for a process that sees no path of this machine.
    ///
    /// # Errors
    /// When there is no layer of this name.
    pub fn open(&self, layer: &str) -> Result<OwnedFd, RootError> {
        self.layer(layer).map(Tree::into_fd)
    }

    fn attach(
        &self,
        root: BorrowedFd<'_>,
        python: &Python,
        contents: Contents<'_>,
    ) -> Result<(), RootError> {
        if let Some(opt) = contents.opt {
            self.attach_opt(root, python, opt)?;
        }
        if let Some(packages) = contents.packages {
            let layer = self.layer(packages)?;
            layer.attach(root, "opt/python").map_err(mounting("attach packages"))?;
        }
        if let Some(code) = contents.code {
            self.layer(code)?.attach(root, "var/task").map_err(mounting("attach code"))?;
        }
        Ok(())
    }

    /// Attaches a function's layers at `/opt`, with the guest above them: no layer takes its place.
    fn attach_opt(
        &self,
        root: BorrowedFd<'_>,
        python: &Python,
        opt: &str,
    ) -> Result<(), RootError> {
        let (layers, guest) = (self.layer(opt)?, self.layer(&python.guest)?);
        if self.way == RootMount::Detached {
            // Both in one step: a process that lives in the root may look for the guest meanwhile.
            guest.attach(layers.as_fd(), "lambswool").map_err(mounting("attach guest"))?;
            return layers.attach(root, "opt").map_err(mounting("attach layers"));
        }
        layers.attach(root, "opt").map_err(mounting("attach layers"))?;
        guest.attach(root, "opt/lambswool").map_err(mounting("attach guest"))
    }

    fn make_staged(
        &self,
        template: BorrowedFd<'_>,
        stage: &Path,
        python: &Python,
        contents: Contents<'_>,
        view: Tree,
    ) -> Result<Root, RootError> {
        let attached = self
            .attach(template, python, contents)
            .and_then(|()| self.attach_own(template, contents, view));
        let cloned =
            attached.and_then(|()| Tree::clone_of(template, true).map_err(mounting("clone stage")));
        // Detached in any case: the stage must be as it was.
        for path in ["var/task", "opt/python", "opt", "dev/shm", "tmp", "sys", RESOLVER] {
            let _ = unmount(stage.join(path), UnmountFlags::DETACH);
        }
        Ok(Root::from(cloned?))
    }

    /// Attaches what each root has from its beginning: a view, scratch, and in the host's network
    /// the host's resolver.
    fn attach_own(
        &self,
        root: BorrowedFd<'_>,
        contents: Contents<'_>,
        view: Tree,
    ) -> Result<(), RootError> {
        view.attach(root, "sys").map_err(mounting("attach /sys"))?;
        let scratch = || match &self.common {
            Some(common) => Tree::clone_of(common.as_fd(), false),
            None => own_scratch(contents.uid, contents.limits),
        };
        if contents.network == Network::Host {
            self.attach_resolver(root).map_err(mounting("attach /etc/resolv.conf"))?;
        }
        scratch().and_then(|tree| tree.attach(root, "tmp")).map_err(mounting("attach /tmp"))?;
        scratch().and_then(|tree| tree.attach(root, "dev/shm")).map_err(mounting("attach /dev/shm"))
    }

    fn attach_resolver(&self, root: BorrowedFd<'_>) -> io::Result<()> {
        // The link may lead anywhere: the host's name service may keep the file elsewhere.
        let path = Path::new("/").join(RESOLVER);
        let file = match rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            // A resolver then asks the host itself (resolv.conf(5)), and the base's file says so.
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        let tree = Tree::clone_of(file.as_fd(), false)?;
        tree.restrict(Attributes::layer(true, true), false)?;
        tree.attach(root, RESOLVER)
    }

    fn template(&mut self, python: &Python) -> Result<(), RootError> {
        let key = (python.base.clone(), python.guest.clone());
        match self.templates.get(&key) {
            Some(Template { tree, guest, .. })
                if !is_removed(tree.as_fd()) && !is_removed(guest.as_fd()) =>
            {
                return Ok(());
            }
            // Another base may be at its path now.
            Some(Template { stage: Some(stage), .. }) => {
                let _ = unmount(stage, UnmountFlags::DETACH);
            }
            _ => {}
        }
        let base = self.layer(&python.base)?;
        let guest = self.layer(&python.guest)?;
        let held = guest.as_fd().try_clone_to_owned().map_err(mounting("hold the guest"))?;
        let devices = devices().map_err(mounting("make devices"))?;
        let links = view::links().map_err(mounting("make links"))?;
        let template = match self.way {
            RootMount::Detached => {
                guest.attach(base.as_fd(), "opt/lambswool").map_err(mounting("attach guest"))?;
                devices.attach(base.as_fd(), "dev").map_err(mounting("attach devices"))?;
                links.attach(base.as_fd(), "proc").map_err(mounting("attach links"))?;
                base.make_private().map_err(mounting("make private"))?;
                Template { tree: base.into_fd(), guest: held, stage: None }
            }
            RootMount::Staged | RootMount::Bind => {
                self.made += 1;
                let stage = self.stages.path(&format!("template-{}", self.made));
                std::fs::create_dir_all(&stage).map_err(mounting("make stage"))?;
                base.make_private().map_err(mounting("make private"))?;
                let path = stage.to_string_lossy();
                base.attach(rustix::fs::CWD, &path).map_err(mounting("attach stage"))?;
                let root = rustix::fs::open(
                    &stage,
                    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                    Mode::empty(),
                )
                .map_err(|error| mounting("open stage")(error.into()))?;
                guest.attach(root.as_fd(), "opt/lambswool").map_err(mounting("attach guest"))?;
                devices.attach(root.as_fd(), "dev").map_err(mounting("attach devices"))?;
                links.attach(root.as_fd(), "proc").map_err(mounting("attach links"))?;
                Template { tree: root, guest: held, stage: Some(stage) }
            }
        };
        self.templates.insert(key, template);
        Ok(())
    }

    /// A layer as a read-only tree. Resolved beneath the layers' directory, through no link of any
    /// kind, and with that directory's owner: an account can rename what another user keeps in one
    /// of its directories.
    fn layer(&self, name: &str) -> Result<Tree, RootError> {
        let failed = |source: io::Error| RootError::Layer { layer: name.to_owned(), source };
        let resolve = match self.isolation.has(Defence::LayersBeneath) {
            true => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
            false => ResolveFlags::empty(),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat2(&self.layers, name, flags, Mode::empty(), resolve)
            .map_err(|error| failed(error.into()))?;
        if self.isolation.has(Defence::LayersBeneath)
            && owner(dir.as_fd()).map_err(failed)? != self.owner
        {
            return Err(failed(rustix::io::Errno::PERM.into()));
        }
        let tree = Tree::clone_of(dir.as_fd(), false).map_err(failed)?;
        let read_only = self.isolation.has(Defence::ReadOnlyLayers);
        let no_devices = self.isolation.has(Defence::NoDevices);
        tree.restrict(Attributes::layer(read_only, no_devices), false).map_err(failed)?;
        Ok(tree)
    }
}

/// Attaches `/proc` with the processes of the sandbox's own PID namespace to its root, while it
/// runs. Only where [`Roots::late`].
///
/// # Errors
/// Before Linux 6.17, and when the sandbox is gone.
pub fn attach_proc(root: BorrowedFd<'_>, process: &PidFd, isolation: Isolation) -> io::Result<()> {
    let namespace = process.pid_namespace()?;
    // Complete before any process can look there.
    let proc = Tree::proc_of(Some(namespace.as_fd()), isolation.has(Defence::ReadOnlyProc))?;
    for name in view::MACHINE_FILES {
        Tree::clone_at(root, &format!("proc/{name}"))?.attach(proc.as_fd(), name)?;
    }
    if isolation.has(Defence::ProcSubset) {
        show_only_processes(proc.as_fd(), "")?;
    }
    proc.attach(root, "proc")
}

/// Mounts the same at the caller's own `/proc`, in its own mount namespace: before any other
/// program runs there.
///
/// # Errors
/// As `fsmount(2)`, `move_mount(2)`.
pub(crate) fn mount_proc(isolation: Isolation) -> io::Result<()> {
    use rustix::fs::CWD;
    let links = view::MACHINE_FILES.map(|name| Tree::clone_at(CWD, &format!("/proc/{name}")));
    let proc = Tree::proc_of(None, isolation.has(Defence::ReadOnlyProc))?;
    // Attached first: before Linux 6.15 nothing can be attached to it otherwise.
    proc.attach(CWD, "/proc")?;
    for (name, link) in view::MACHINE_FILES.iter().zip(links) {
        link?.attach(CWD, &format!("/proc/{name}"))?;
    }
    if isolation.has(Defence::ProcSubset) {
        show_only_processes(CWD, "/proc")?;
    }
    Ok(())
}

/// Whether [`attach_proc`] works on this kernel.
pub(crate) fn can_attach_proc() -> bool {
    let try_it = || -> io::Result<()> {
        let namespace = std::fs::File::open("/proc/self/ns/pid")?;
        show_only_processes(Tree::proc_of(Some(namespace.as_fd()), true)?.as_fd(), "")
    };
    try_it().is_ok()
}

/// `/dev`: one file system for all, on which device nodes work and nothing can be changed.
fn devices() -> io::Result<Tree> {
    let tree = Tree::device_tmpfs()?;
    for (name, minor) in [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)] {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(&tree, name, FileType::CharacterDevice, mode, makedev(1, minor))?;
        // The caller's umask has changed the requested mode.
        rustix::fs::chmodat(&tree, name, mode, rustix::fs::AtFlags::empty())?;
    }
    mkdirat(&tree, "shm", Mode::from_raw_mode(0o755))?;
    let links = [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")];
    for (name, below) in links {
        rustix::fs::symlinkat(format!("/proc/self/fd{below}"), &tree, name)?;
    }
    tree.restrict(Attributes::DEVICES, false)?;
    Ok(tree)
}

fn can_attach_to_detached() -> bool {
    let try_it = || -> io::Result<()> {
        let outer = Tree::tmpfs(&[])?;
        mkdirat(&outer, "inner", Mode::from_raw_mode(0o755))?;
        Tree::tmpfs(&[])?.attach(outer.as_fd(), "inner")?;
        Tree::clone_of(outer.as_fd(), true).map(drop)
    };
    try_it().is_ok()
}
