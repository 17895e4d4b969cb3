//! From recognised distributions to wheels of the store, and one set of them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use layers::base::Base;
use layers::staging::{self, Staging};
use layers::{Extent, FileError, Patience, Progress, Store};

use super::examine::hash_of;
use super::{Brought, Distribution};
use crate::install::fetch::{Origin, Unpacked};
use crate::install::wheel::{KIND, Wheel};
use crate::install::{AT_ONCE, InstallError, Packages, imports, verify, view};
use crate::installer::Bounds;

/// What uv calls itself in `INSTALLER`.
const INSTALLER: &str = "uv";

/// Makes wheels of what was recognised in `root`, where they are not there yet, and puts the set together. Files are linked,
/// not copied: nothing may write to those in `root` any more. Compiling ends with `patience`. Says also whether a wheel that
/// was broken was made anew.
///
/// # Errors
/// When a file cannot be read, linked or written, or the compiler fails; what was made until then stays.
pub fn install(
    store: &Store,
    base: &Base,
    root: &Path,
    brought: &Brought,
    bounds: Bounds,
    patience: &Patience,
    progress: &dyn Progress,
) -> Result<(Packages, bool), InstallError> {
    let mended = Mutex::default();
    let shelf = Shelf { store, base, root, bounds, patience, progress, mended };
    let distributions = &brought.distributions;
    let next = AtomicUsize::new(0);
    let made = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(distributions.len()) {
            scope.spawn(|| {
                while let Some(one) = distributions.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let wheel = shelf.wheel(one);
                    if wheel.is_err() {
                        next.store(distributions.len(), Ordering::Relaxed);
                    }
                    made.lock().unwrap_or_else(PoisonError::into_inner).push(wheel);
                }
            });
        }
    });
    let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut wheels = made.into_iter().collect::<Result<Vec<Wheel>, InstallError>>()?;
    let mended = shelf.mended.into_inner().unwrap_or_else(PoisonError::into_inner);
    verify::remake_holding(store, &mended.iter().map(String::as_str).collect())?;
    let mut mended = !mended.is_empty();
    let mut set = view::view(store, &wheels)?;
    if !set.looks_whole(store) {
        mended = true;
        view::remake(store, &set)?;
        set = view::view(store, &wheels)?;
    }
    wheels.sort_by(|a, b| a.name.cmp(&b.name));
    let imports = imports::worthwhile(&wheels, &[]);
    let packages =
        Packages { layer: set.layer, imports, wheels, clashes: set.clashes, fetched: false };
    Ok((packages, mended))
}

struct Shelf<'a> {
    store: &'a Store,
    base: &'a Base,
    root: &'a Path,
    bounds: Bounds,
    /// What compiling all of them may take.
    patience: &'a Patience,
    progress: &'a dyn Progress,
    /// Ids of wheels that were broken.
    mended: Mutex<Vec<String>>,
}

impl Shelf<'_> {
    fn wheel(&self, distribution: &Distribution) -> Result<Wheel, InstallError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let wheels = self.store.kind(KIND);
        let staging = Staging::begin(&wheels, &format!("bundled-{}-{number}", std::process::id()))?;
        let place = staging.path();
        let named = || format!("{} {}", distribution.name, distribution.version);
        let failed = |reason: io::Error| match reason.kind() {
            io::ErrorKind::AlreadyExists
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory => {
                InstallError::Unreadable { requirement: named(), reason }
            }
            _ => FileError::at("lay out", place)(reason).into(),
        };
        distribution.lay_out(self.root, place).map_err(failed)?;
        // What is there counts: a row need not say how large its file is.
        let bounds = self.bounds;
        if !bounds.hold(Extent::seen(place)) {
            return Err(InstallError::Excessive { requirement: named(), bounds });
        }
        let Some(unpacked) = Unpacked::of(place, self.base, &named())? else {
            let reason = io::ErrorKind::InvalidData.into();
            return Err(InstallError::Unreadable { requirement: named(), reason });
        };
        let _alone = staging::lock(&wheels, unpacked.id())?;
        let there = Wheel::find(self.store, unpacked.id());
        if let Some(whole) = there.as_ref().filter(|wheel| wheel.looks_whole(self.store)) {
            return Ok(whole.clone());
        }
        let (wheel, inventory) = unpacked.compiled(
            self.store,
            self.base,
            Origin::bundle(),
            self.patience,
            self.progress,
        )?;
        let target = wheel.path(self.store);
        if let Some(broken) = there {
            staging.settle()?;
            staging.exchange(&target, &self.store.retired(&wheel.id))?;
            // As it was described: an index may have given it, which gives it again.
            let wheel = Wheel { extent: wheel.extent, ..broken };
            wheel.describe(self.store, &inventory)?;
            let mut mended = self.mended.lock().unwrap_or_else(PoisonError::into_inner);
            mended.push(wheel.id.clone());
            return Ok(wheel);
        }
        // Without a description no set has ever used it: left by a crash.
        staging::remove(&target).map_err(FileError::at("remove", &target))?;
        staging.seal(&target)?;
        wheel.describe(self.store, &inventory)?;
        self.progress.line(&format!("+ {} {}, of the bundle", wheel.name, wheel.version));
        Ok(wheel)
    }
}

impl Distribution {
    /// Lays its files out in `place` as uv does.
    fn lay_out(&self, root: &Path, place: &Path) -> io::Result<()> {
        let mut made = BTreeSet::new();
        let mut link = |path: &str| -> io::Result<()> {
            if let Some((directory, _)) = path.rsplit_once('/')
                && made.insert(directory.to_owned())
            {
                fs::create_dir_all(place.join(directory))?;
            }
            let (from, to) = (root.join(path), place.join(path));
            match fs::hard_link(&from, &to) {
                // A file system lets a file have only so many names.
                Err(error) if error.kind() == io::ErrorKind::TooManyLinks => {
                    fs::copy(from, to).map(drop)
                }
                linked => linked,
            }
        };
        self.rows.iter().try_for_each(|row| link(&row.path))?;
        let info = place.join(&self.info);
        fs::create_dir_all(&info)?;
        fs::write(info.join("INSTALLER"), INSTALLER)?;
        fs::write(info.join("REQUESTED"), "")?;
        fs::write(info.join("RECORD"), self.record())?;
        if !self.commands.is_empty() {
            fs::create_dir(place.join("bin"))?;
        }
        for (name, target) in &self.commands {
            fs::write(place.join("bin").join(name), target.text())?;
        }
        Ok(())
    }

    /// Its `RECORD` as uv writes it, sorted, without hashes of commands.
    fn record(&self) -> String {
        let info = &self.info;
        let row = |path: String, content: &str| {
            let hashed = hash_of(content.as_bytes());
            (path, hashed.hash, hashed.size)
        };
        let files = self.rows.iter();
        let mut rows: Vec<_> =
            files.map(|row| (row.path.clone(), row.hash.clone(), row.size.clone())).collect();
        rows.push(row(format!("{info}/INSTALLER"), INSTALLER));
        rows.push(row(format!("{info}/REQUESTED"), ""));
        let unhashed = |path: String| (path, String::new(), String::new());
        rows.push(unhashed(format!("{info}/RECORD")));
        rows.extend(self.commands.iter().map(|(name, _)| unhashed(format!("bin/{name}"))));
        rows.sort();
        rows.iter().map(|(path, hash, size)| format!("{path},{hash},{size}\n")).collect()
    }
}
