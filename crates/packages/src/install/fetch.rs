//! From a locked requirement to a wheel in the store.
//!
//! ```text
//!   locked requirement ─► known? ─► its wheel
//!        │ no
//!        ▼ one at a time, of all locks
//!   uv fetches, checks the hash, unpacks ─► commands rehomed ─► named by content ─► compiled ─► sealed ─► described
//! ```
//!
//! What has no wheel is built first, in a sandbox, and then unpacked from where the built wheel is kept.
//!
//! Nothing of a wheel is run: uv unpacks it and the compiler parses it. What a crash leaves is swept with its staging
//! directory, or is a directory without description, which the next fetch describes.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use layers::base::Base;
use layers::child::Unfinished;
use layers::staging::{self, Staging};
use layers::{Extent, FileError, Patience, Progress, Silent, Store, bytecode};
use sandbox::Layer;
use toml::Table;

use super::error::InstallError;
use super::inventory::Inventory;
use super::wheel::{self, FORMAT, KIND, Locked, Wheel};
use super::{imports, programs, scripts, shipped_bytecode};
use crate::installer::{Builder, Installer, Site};
use crate::lock;
use crate::project::{self, Project};
use crate::sources::Sources;
use crate::uv::words::{unreachable, without_wheel, wrong_hash};
use crate::uv::{Fetching, Finished};
use crate::wheel_file::WheelError;

/// What fetching needs.
#[derive(Debug)]
pub(super) struct Fetcher<'a> {
    pub(super) store: &'a Store,
    pub(super) installer: &'a Installer,
    pub(super) base: &'a Base,
    /// A directory for what is downloaded: see [`crate::uv::Uv::fetching`].
    pub(super) cache: &'a Path,
    pub(super) progress: &'a dyn Progress,
    /// Bytes that have been unpacked, of all wheels together.
    pub(super) unpacked: AtomicU64,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(
        store: &'a Store,
        installer: &'a Installer,
        base: &'a Base,
        cache: &'a Path,
        progress: &'a dyn Progress,
    ) -> Self {
        Self { store, installer, base, cache, progress, unpacked: AtomicU64::new(0) }
    }

    /// The wheel of a locked requirement; none when its marker leaves it out on this machine.
    pub(super) fn wheel(
        &self,
        requirement: &str,
        sources: &Sources,
    ) -> Result<Option<Wheel>, InstallError> {
        let wheels = self.store.kind(KIND);
        let locked = Locked::new(requirement, self.base, sources);
        // Held until the wheel is remembered: a staging directory's own lock ends when it is sealed.
        let _turn = staging::lock(&wheels, locked.turn())?;
        // Another lock may have fetched it while this one waited.
        if let Some(wheel) = Wheel::of_lock(self.store, &locked) {
            return Ok(Some(wheel));
        }
        let staging = Staging::begin(&wheels, &format!("new-{}", locked.turn()))?;
        let Some((wheel, inventory)) = self.prepare(staging.path(), requirement, sources)? else {
            return Ok(None);
        };
        // Another lock with other hashes may give the same wheel at this moment.
        let _alone = staging::lock(&wheels, &wheel.id)?;
        let place = locked.place(&wheel);
        if let Some(there) = Wheel::find(self.store, &wheel.id) {
            let fetches_as_well = wheel.built.is_some() || there.built.is_none();
            if fetches_as_well && !there.is_of_bundle() {
                there.remember(self.store, place)?;
                return Ok(Some(there));
            }
            // The very same was built before, or came with a bundle: now a hash vouches for it.
            let wheel = Wheel { extent: there.extent, ..wheel };
            wheel.tell(self.store)?;
            wheel.remember(self.store, place)?;
            return Ok(Some(wheel));
        }
        let target = wheel.path(self.store);
        // Without a description no set has ever used it: left by a crash.
        staging::remove(&target).map_err(FileError::at("remove", &target))?;
        staging.seal(&target)?;
        wheel.describe(self.store, &inventory)?;
        wheel.remember(self.store, place)?;
        self.progress.line(&format!("+ {} {}", wheel.name, wheel.version));
        Ok(Some(wheel))
    }

    /// Fetches a wheel that is there once more and puts the new directory in the place of the old one, which stays for
    /// the sandboxes that run from it.
    pub(super) fn again(&self, broken: &Wheel) -> Result<(), InstallError> {
        if broken.is_of_bundle() {
            return Err(InstallError::OfBundle { wheel: broken.id.clone() });
        }
        let wheels = self.store.kind(KIND);
        let _alone = staging::lock(&wheels, &broken.id)?;
        let staging = Staging::begin(&wheels, &format!("new-{}", broken.id))?;
        let made = self.prepare(staging.path(), &broken.requirement, &broken.sources)?;
        let Some((wheel, inventory)) = made.filter(|(wheel, _)| wheel.id == broken.id) else {
            return Err(InstallError::Other { wheel: broken.id.clone() });
        };
        staging.settle()?;
        staging.exchange(&wheel.path(self.store), &self.store.retired(&wheel.id))?;
        wheel.describe(self.store, &inventory)?;
        Ok(())
    }

    fn prepare(
        &self,
        root: &Path,
        requirement: &str,
        sources: &Sources,
    ) -> Result<Option<(Wheel, Inventory)>, InstallError> {
        let sources = sources.for_finding();
        self.installer.indexes().admit(&[requirement.to_owned()], &sources)?;
        let built = self.unpack(root, requirement, &sources)?;
        let Some(unpacked) = Unpacked::of(root, self.base, &named(requirement))? else {
            return Ok(None);
        };
        let origin = Origin { requirement: requirement.to_owned(), built, sources };
        // It ends by itself: each source has its limits, and so have all together.
        let patience = Patience::endless();
        unpacked.compiled(self.store, self.base, origin, &patience, self.progress).map(Some)
    }

    /// Unpacks the wheel of a locked requirement, from the index or built here: then where it is kept.
    fn unpack(
        &self,
        root: &Path,
        requirement: &str,
        sources: &Sources,
    ) -> Result<Option<Layer>, InstallError> {
        let fetched = self.fetch(root, requirement, sources);
        let built = match (fetched, self.installer.builder()) {
            (Err(InstallError::NoWheel { .. }), Some(builder)) => {
                Some(self.build(root, requirement, sources, builder)?)
            }
            (fetched, _) => {
                fetched?;
                None
            }
        };
        // The installer's own lock on the directory.
        match std::fs::remove_file(root.join(".lock")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(FileError::at("remove", &root.join(".lock"))(error).into())
            }
            _ => Ok(built),
        }
    }

    fn fetch(&self, root: &Path, requirement: &str, sources: &Sources) -> Result<(), InstallError> {
        let project = Project::write(self.store, &[requirement.to_owned()], sources.table())?;
        let through = self.installer.uv().fetching(self.cache, &wheel::key(requirement, self.base));
        let command = |offline: bool| -> Result<Command, FileError> {
            let mut command = self.install(root, &project, &through)?;
            command.args(["--require-hashes", "--only-binary", ":all:"]);
            command.args(["-r", project::FILE, "-c", project::HASHES]);
            command.args(offline.then_some("--offline"));
            Ok(command)
        };
        // The hashes say what is installed, so a cache is as good as the index, and answers at once.
        let cached = match through.filled {
            true => self.run(&mut command(true)?, requirement, [root], &Silent)?.status.success(),
            false => false,
        };
        if !cached {
            // What it says of a missing wheel is no news where that is built.
            let quiet = self.installer.builder().is_some();
            let progress = if quiet { &Silent } else { self.progress };
            // Unpacked in its own cache, then linked; from a cache of the operator's, copied.
            let watched = [root].into_iter().chain((!through.filled).then_some(&*through.cache));
            let finished = self.run(&mut command(false)?, requirement, watched, progress)?;
            if !finished.status.success() {
                return Err(self.refused(finished.words));
            }
        }
        Ok(())
    }

    /// Runs uv as long as none of the directories becomes larger than allowed, and tells how they grow. Its words go elsewhere
    /// where they are no news.
    fn run<'d>(
        &self,
        command: &mut Command,
        requirement: &str,
        watched: impl IntoIterator<Item = &'d Path>,
        progress: &dyn Progress,
    ) -> Result<Finished, InstallError> {
        let (watched, bounds) = (Vec::from_iter(watched), self.installer.bounds());
        let told = Cell::new(0);
        let excessive = || {
            let extents: Vec<_> = watched.iter().map(|directory| Extent::seen(directory)).collect();
            // What is in the cache is linked to where it goes.
            let unpacked = extents.iter().map(|extent| extent.bytes).max().unwrap_or(0);
            let more = unpacked.saturating_sub(told.replace(unpacked.max(told.get())));
            let all = self.unpacked.fetch_add(more, Ordering::Relaxed) + more;
            if more > 0 {
                self.progress.bytes(all, None);
            }
            !extents.into_iter().all(|extent| bounds.hold(extent))
        };
        let ran = self.installer.run_watched(command, progress, excessive);
        // Also what was unpacked between two looks.
        if matches!(ran, Err(Unfinished::Excessive)) || excessive() {
            return Err(InstallError::Excessive { requirement: named(requirement), bounds });
        }
        Ok(ran?)
    }

    fn build(
        &self,
        root: &Path,
        requirement: &str,
        sources: &Sources,
        builder: &dyn Builder,
    ) -> Result<Layer, InstallError> {
        let Self { store, installer, base, progress, .. } = self;
        let progress = *progress;
        let Some((name, version)) = lock::distribution(requirement) else {
            return Err(self.refused(format!("{requirement:?} names no version")));
        };
        let hashes: Vec<&str> = requirement
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("--hash="))
            .collect();
        let site = Site { store, installer, base, sources, progress };
        let failed =
            |source| InstallError::Build { requirement: format!("{name} {version}"), source };
        let built = builder.wheel(site, &name, &version, Some(&hashes)).map_err(failed)?;
        let project = Project::write(store, &[], &Table::new())?;
        let through = self.installer.uv().fetching(self.cache, &wheel::key(requirement, base));
        let mut command = self.install(root, &project, &through)?;
        command.args(["--no-index", "--offline"]).arg(&built.path);
        let finished = self.run(&mut command, requirement, [root], progress)?;
        if !finished.status.success() {
            return Err(failed(WheelError::Unfit(finished.words).into()));
        }
        Ok(built.kept)
    }

    fn install(
        &self,
        root: &Path,
        project: &Project,
        through: &Fetching,
    ) -> Result<Command, FileError> {
        let words = ["pip", "install", "--quiet", "--no-deps"];
        let mut command =
            self.installer.command_with(self.store, self.base, &through.cache, &words)?;
        command.args(["--no-compile-bytecode", "--link-mode", through.link_mode]);
        command.arg("--target").arg(root).current_dir(project.path());
        Ok(command)
    }

    fn refused(&self, words: String) -> InstallError {
        if without_wheel(&words) {
            InstallError::NoWheel { python: self.base.version.clone(), words }
        } else if unreachable(&words) {
            InstallError::Unreachable { words }
        } else if wrong_hash(&words) {
            InstallError::Hash { words }
        } else {
            InstallError::Failed { words }
        }
    }
}

/// A wheel's files in a staging directory, named by their content and not compiled yet.
#[derive(Debug)]
pub(super) struct Unpacked<'a> {
    root: &'a Path,
    found: imports::Distribution,
    id: String,
}

/// Where a wheel comes from.
#[derive(Debug)]
pub(super) struct Origin {
    requirement: String,
    built: Option<Layer>,
    sources: Sources,
}

impl Origin {
    /// A function's bundle: no index is asked for it again.
    pub(super) fn bundle() -> Self {
        Self { requirement: String::new(), built: None, sources: Sources::default() }
    }
}

impl<'a> Unpacked<'a> {
    /// The wheel in `root`; none when there is none. `named` is what an error calls it.
    pub(super) fn of(
        root: &'a Path,
        base: &Base,
        named: &str,
    ) -> Result<Option<Self>, InstallError> {
        let failed = |action| {
            move |reason: io::Error| match reason.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::AlreadyExists => {
                    InstallError::Unreadable { requirement: named.to_owned(), reason }
                }
                _ => FileError::at(action, root)(reason).into(),
            }
        };
        let Some(found) = imports::read(root).map_err(failed("understand"))? else {
            return Ok(None);
        };
        scripts::rehome(root, &found.info).map_err(failed("rewrite commands in"))?;
        shipped_bytecode::remove(root, &found.info)?;
        programs::mark(root)?;
        // Before the bytecode, which is not always the same.
        let inventory = Inventory::take(root)?;
        let id = wheel::identify(&found.name, &found.version, base, &inventory);
        Ok(Some(Self { root, found, id }))
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn compiled(
        self,
        store: &Store,
        base: &Base,
        origin: Origin,
        patience: &Patience,
        progress: &dyn Progress,
    ) -> Result<(Wheel, Inventory), InstallError> {
        let Self { root, found, id } = self;
        let compiled =
            bytecode::compile_patiently(patience, &base.command(store), root, "/opt/python")
                .map_err(InstallError::Compile)?;
        compiled.tell(&format!("{} {}", found.name, found.version), progress);
        let inventory = Inventory::take(root)?;
        let wheel = Wheel {
            name: found.name,
            version: found.version,
            id,
            python: base.minor().to_owned(),
            modules: found.modules,
            needs: found.needs,
            extent: inventory.extent(),
            requirement: origin.requirement,
            built: origin.built,
            sources: origin.sources,
            format: FORMAT,
        };
        Ok((wheel, inventory))
    }
}

/// A locked requirement by its name and version.
fn named(requirement: &str) -> String {
    let named = lock::distribution(requirement);
    named.map_or_else(|| requirement.to_owned(), |(name, version)| format!("{name} {version}"))
}
