//! The workshop that makes real layers.
//!
//! ```text
//!   admit        bundle ─► unpacked ─► settings ─► base ─► manifest ─► lock ─► files kept ─► VersionRecord
//!   materialise  VersionRecord ─► packages ─► code sealed ─► guest ─► Handler
//! ```
//!
//! Each step finds its layer on disk when an earlier deploy made it, so deploying the same again takes milliseconds.

mod opt;

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bundle::code::{self, Bundle as Code, CodeError};
use bundle::manifest::{self, Declared, Inspected, Manifest, ManifestError, Overrides, Settings};
use engine::Handler;
use function::{BundleDigest, Lambda, PackageLock, VersionRecord, WholeName, lambda};
use layers::base::{self, Base, BaseError};
use layers::python::{PythonError, PythonRequest};
use layers::{Patience, RunError, Store, guest};
use packages::lock::{self, Lock, LockError};
use packages::{InstallError, Packages, ViewError, bundled};
use sandbox::{Cpu, CpuBounds, Network, chain};
use store::Bundles;
use thiserror::Error;

use self::opt::{check_layers, uses_runtime_set};
use crate::deploy::installer::Installer;
use crate::deploy::precedence::Precedence;
use crate::deploy::progress::Progress;
use crate::deploy::runtime_set;
use crate::deploy::split::{self, Parts, Split};
use crate::deploy::workshop::{
    Admitted, Bundle, Files, KeptLayer, Made, MakeError, Opened, Packing, SettingsFrom, Workshop,
};
use crate::packages::store as shelf;

/// What compiling the packages of one bundle may take. A bundle of any size compiles within a minute.
const COMPILING: Duration = Duration::from_secs(600);

/// Makes layers in a state directory.
#[derive(Debug)]
pub struct Layered {
    store: Store,
    bundles: Arc<dyn Bundles>,
    guest: Vec<(&'static str, &'static [u8])>,
    python: Option<PythonRequest>,
    installer: Installer,
    cpu: CpuBounds,
    /// Whether a bundle's packages took the place of broken ones.
    mended: AtomicBool,
}

impl Layered {
    /// A workshop that makes layers in `store` and keeps bundles in `bundles`; `guest` are the guest's files, its native
    /// extension included; `python` is for functions that do not ask for another.
    #[must_use]
    pub fn new(
        store: Store,
        bundles: Arc<dyn Bundles>,
        guest: Vec<(&'static str, &'static [u8])>,
        python: Option<PythonRequest>,
        installer: Installer,
    ) -> Self {
        Self {
            store,
            bundles,
            guest,
            python,
            installer,
            cpu: CpuBounds::NONE,
            mended: AtomicBool::default(),
        }
    }

    /// The same, on a machine where functions have no more of the processors than that.
    #[must_use]
    pub fn with_cpu(self, cpu: CpuBounds) -> Self {
        Self { cpu, ..self }
    }

    /// Refuses what this machine would not give it.
    fn check_cpu(&self, asked: Cpu) -> Result<(), MakeError> {
        match (asked.quota, self.cpu.most) {
            (Some(asked), Some(most)) if asked > most => Err(MakeError::Function {
                step: "manifest",
                message: format!(
                    "it asks for {asked} processors, and this worker gives no function more than {most}: ask for at most cpu = {most}, or have the operator raise cpu_max"
                ),
            }),
            _ => Ok(()),
        }
    }

    fn unpack(&self, packing: &Packing, file: File) -> Result<Code, MakeError> {
        let unpacked = match packing {
            Packing::Source(module) => Code::from_py(&self.store, module, file),
            Packing::Zip => Code::from_zip(&self.store, file),
            // The reader tells a compressed archive by its first bytes.
            Packing::Tar | Packing::TarGz => Code::from_tar(&self.store, file),
        };
        unpacked.map_err(|error| match error {
            CodeError::File(_) | CodeError::Compile(_) => machine("bundle", &error),
            _ => function("bundle", &error),
        })
    }

    /// Reads what an unpacked bundle says. `record`: what was made of it before, if it was.
    fn open(
        &self,
        code: Code,
        over: Overrides,
        record: Option<&VersionRecord>,
        progress: &dyn Progress,
    ) -> Result<(Opened, Manifest, Vec<String>), MakeError> {
        let settings = Settings::read(code.path(), over).map_err(unreadable)?;
        self.check_cpu(settings.cpu())?;
        let wanted = settings.python().map_err(unreadable)?;
        let wanted = match record {
            // Its own words fit more than one: only this one has the packages that it was locked with.
            Some(VersionRecord { python, .. }) => {
                wanted.of_minor(python).map_err(|error| machine("base", &error))?
            }
            None => wanted,
        };
        let impossible = |error: &PythonError| matches!(error, PythonError::Impossible { .. });
        let base = self.base(&wanted, impossible, progress)?;
        // Packages that are listed are all that a function has, whatever lies beside its code.
        let bundled = match record {
            Some(record) => record.manifest.bundled,
            None => settings.lists_none() && split::is_wanted(settings.environment()),
        };
        let own = split::top_of(settings.entry_file());
        let Parts { code, split, warnings: stay } = self.split(code, own, bundled, progress)?;
        let interpreter = base.command(&self.store);
        let inspected = settings.inspect(code.path(), &interpreter).map_err(unreadable)?;
        let Inspected { mut manifest, mut warnings, in_src, standard } = inspected;
        manifest.bundled = split.is_some();
        warnings.extend(stay);
        let (sources, locked) = (settings.sources().clone(), settings.is_locked());
        let opened = Opened { code, split, sources, locked, base, standard, in_src };
        Ok((opened, manifest, warnings))
    }

    /// Takes an unpacked bundle with settings that were declared: code, and packages that it brings.
    fn open_declared(
        &self,
        code: Code,
        declared: &Declared,
        progress: &dyn Progress,
    ) -> Result<(Opened, Manifest, Vec<String>), MakeError> {
        declared.check().map_err(unreadable)?;
        self.check_cpu(declared.limits.cpu)?;
        let wanted = declared.python().map_err(unreadable)?;
        let not_here = |error: &PythonError| matches!(error, PythonError::NoneFits { .. });
        let base = self.base(&wanted, not_here, progress)?;
        // What a program of the function's own reads is not ours to move.
        let is_program = declared.runtime.as_ref().is_some_and(|it| lambda::is_program(&it.name));
        let wanted = !is_program && split::is_wanted(&declared.environment);
        let parts = self.split(code, split::top_of(&declared.handler), wanted, progress)?;
        let interpreter = base.command(&self.store);
        let inspected = declared.inspect(parts.code.path(), &interpreter).map_err(unreadable)?;
        let Inspected { mut manifest, mut warnings, .. } = inspected;
        manifest.bundled = parts.split.is_some();
        warnings.extend_from_slice(&parts.warnings);
        Ok((self.as_it_is(parts, base)?, manifest, warnings))
    }

    /// Tells what of a bundle is packages, if that is wanted.
    fn split(
        &self,
        code: Code,
        own: &str,
        wanted: bool,
        progress: &dyn Progress,
    ) -> Result<Parts, MakeError> {
        if !wanted {
            return Ok(Parts::whole(code));
        }
        let parts = Parts::of(&self.store, code, own).map_err(|error| machine("bundle", &error))?;
        if let Some(split) = &parts.split {
            progress.line(&split.told());
        }
        Ok(parts)
    }

    /// A bundle that says nothing of itself.
    fn as_it_is(&self, parts: Parts, base: Base) -> Result<Opened, MakeError> {
        let Parts { code, split, .. } = parts;
        let standard = match &split {
            Some(_) => manifest::standard(&base.command(&self.store)),
            None => Ok(BTreeSet::new()),
        };
        let standard = standard.map_err(|error| machine("base", &error))?;
        let (sources, in_src) = Default::default();
        Ok(Opened { code, split, sources, locked: false, base, standard, in_src })
    }

    /// The base that is asked for; the worker's default when that fits. `is_functions`: of which errors the function's author
    /// is told.
    fn base(
        &self,
        wanted: &PythonRequest,
        is_functions: impl Fn(&PythonError) -> bool,
        progress: &dyn Progress,
    ) -> Result<Base, MakeError> {
        if let Some(default) = &self.python {
            let base = base::default_or_build(&self.store, default, progress)
                .map_err(|e| machine("base", &e))?;
            if wanted.accepts(&base.version) {
                return Ok(base);
            }
        }
        base::default_or_build(&self.store, wanted, progress).map_err(|error| match &error {
            BaseError::Python(python) if is_functions(python) => function("manifest", &error),
            _ => machine("base", &error),
        })
    }

    fn lock(
        &self,
        opened: &Opened,
        wanted: &[String],
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Option<PackageLock>, MakeError> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let installer =
            self.installer.get(patience, progress).map_err(|error| machine("installer", &error))?;
        let (base, sources) = (&opened.base, &opened.sources);
        let locked = match opened.locked {
            true => lock::keep(&installer, base, wanted, sources),
            false => lock::resolve(&self.store, &installer, base, wanted, sources, progress),
        };
        let locked = locked.map_err(|error| match error {
            LockError::NotAllowed(_)
            | LockError::NoWheel { .. }
            | LockError::NoSource { .. }
            | LockError::Hash { .. }
            | LockError::Unhashed { .. }
            | LockError::Malformed { .. }
            | LockError::Unsatisfiable { .. } => function("packages", &error),
            LockError::Build { ref source, .. } if source.is_of_the_package() => {
                function("packages", &error)
            }
            _ => machine("packages", &error),
        })?;
        Ok(locked.map(|Lock { text, direct, .. }| PackageLock { text, direct }))
    }

    fn install(
        &self,
        opened: &Opened,
        locked: Option<&PackageLock>,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Option<Packages>, MakeError> {
        let Some(PackageLock { text, direct }) = locked else { return Ok(None) };
        let installer =
            self.installer.get(patience, progress).map_err(|error| machine("installer", &error))?;
        let (base, sources) = (&opened.base, &opened.sources);
        let lock = Lock::of(text, direct.clone(), base);
        let installed = packages::install(&self.store, &installer, base, &lock, sources, progress)
            .map_err(|error| match error {
                InstallError::NotAllowed(_)
                | InstallError::NoWheel { .. }
                | InstallError::Hash { .. }
                | InstallError::Unreadable { .. }
                | InstallError::Excessive { .. }
                | InstallError::View(ViewError::FileAndDirectory { .. }) => {
                    function("packages", &error)
                }
                InstallError::Build { ref source, .. } if source.is_of_the_package() => {
                    function("packages", &error)
                }
                _ => machine("packages", &error),
            })?;
        // A deploy whose packages were all there is a hit, whatever a set of them had to be put together for it.
        let result = if installed.fetched { "miss" } else { "hit" };
        metrics::counter!("lambswool_cache_total", "cache" => "install", "result" => result)
            .increment(1);
        Ok(Some(installed))
    }

    /// Makes packages of what a bundle brings.
    fn shelve(
        &self,
        split: &Split,
        base: &Base,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Packages, InstallError> {
        let Split { whole, brought } = split;
        let waiting = Arc::clone(patience);
        let compiling = Patience::of(COMPILING, move || waiting.given_up());
        let bounds = self.installer.bounds();
        let root = whole.path();
        let made = bundled::install(&self.store, base, root, brought, bounds, &compiling, progress);
        let (packages, mended) = made?;
        self.mended.fetch_or(mended, Ordering::Relaxed);
        Ok(packages)
    }
}

impl Layered {
    /// [`Workshop::admit`], with errors that may name places of the state directory.
    fn admitted(
        &self,
        name: &WholeName,
        bundle: Bundle,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Admitted, MakeError> {
        let Bundle { files, settings } = bundle;
        let code = match files {
            Files::Sent { packing, file } => self.unpack(&packing, file)?,
            Files::Kept(digest) => self.kept(&digest)?,
        };
        let (opened, mut manifest, mut warnings) = match &settings {
            SettingsFrom::Files(over) => self.open(code, *over, None, progress)?,
            SettingsFrom::Declared(declared) => self.open_declared(code, declared, progress)?,
        };
        let is_program = manifest.lambda.as_ref().is_some_and(Lambda::is_program);
        if is_program && !manifest.kind.is_container() {
            return Err(function("manifest", &MachineWithProgram));
        }
        if !manifest.kind.is_container() && manifest.network != Network::None {
            return Err(function("manifest", &MachineWithNetwork(manifest.network.as_str())));
        }
        check_layers(&manifest, opened.whole().bytes)?;
        let is_of_aws = manifest.lambda.is_some() && !is_program && opened.split.is_none();
        let lock = if is_of_aws && uses_runtime_set(&opened, &manifest.layers) {
            manifest.requirements = vec![runtime_set::REQUIREMENT.to_owned()];
            self.lock(&opened, &manifest.requirements, patience, progress).unwrap_or_else(|error| {
                manifest.requirements.clear();
                warnings.push(format!(
                    "{} is not there, which its code imports and its archive does not bring: {error}",
                    runtime_set::REQUIREMENT
                ));
                None
            })
        } else {
            self.lock(&opened, &manifest.requirements, patience, progress)?
        };
        let digest = opened.whole().digest();
        let kept = self.bundles.put(&digest, &mut |archive| opened.whole().pack(archive));
        kept.map_err(|error| machine("bundle", &error))?;
        let record = VersionRecord {
            tenant: name.tenant().to_owned(),
            name: name.name().to_owned(),
            python: opened.base.minor().to_owned(),
            bundle: digest,
            manifest,
            lock,
        };
        Ok(Admitted { record, warnings, opened: Some(opened) })
    }

    /// The files of a kept bundle.
    fn kept(&self, digest: &BundleDigest) -> Result<Code, MakeError> {
        let kept = self.bundles.get(digest).map_err(|error| machine("bundle", &error))?;
        let kept = kept.ok_or_else(|| machine("bundle", &Gone(digest.clone())))?;
        match Code::from_tar(&self.store, kept) {
            Ok(code) if code.digest() == *digest => Ok(code),
            Err(CodeError::File(error)) => Err(machine("bundle", &error)),
            _ => {
                // The next deploy of these files keeps them anew.
                let removed = self.bundles.remove(digest);
                removed.map_err(|error| machine("bundle", &error))?;
                Err(machine("bundle", &Damaged(digest.clone())))
            }
        }
    }

    /// The kept bundle of a version, opened as it was when it was admitted.
    fn reopen(&self, record: &VersionRecord, progress: &dyn Progress) -> Result<Opened, MakeError> {
        let code = self.kept(&record.bundle)?;
        if record.manifest.declared {
            let wanted = PythonRequest::version_of(&record.python);
            let wanted = wanted.map_err(|error| machine("base", &error))?;
            let base = self.base(&wanted, |_| false, progress)?;
            let own = split::top_of(&record.manifest.module);
            return self.as_it_is(self.split(code, own, record.manifest.bundled, progress)?, base);
        }
        let (kind, reset) = (Some(record.manifest.kind), Some(record.manifest.reset));
        let over = Overrides { kind, reset };
        Ok(self.open(code, over, Some(record), progress)?.0)
    }

    /// [`Workshop::materialise`], with errors that may name places of the state directory.
    fn made(
        &self,
        record: &VersionRecord,
        opened: Opened,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Made, MakeError> {
        let VersionRecord { tenant, name, manifest, lock, .. } = record;
        let mut opened = opened;
        let mut stays = None;
        let packages = match opened.split.take() {
            Some(split) => match self.shelve(&split, &opened.base, patience, progress) {
                Ok(packages) => Some(packages),
                Err(error) if error.is_of_content() && !patience.given_up() => {
                    stays = Some(split::all_stays(&error));
                    // Unpacked anew: making wheels sets the modes of the files that they are linked to.
                    opened.code = self.kept(&record.bundle)?;
                    None
                }
                Err(error) => return Err(machine("packages", &error)),
            },
            None => self.install(&opened, lock.as_ref(), patience, progress)?,
        };
        let mut warnings = in_vain(&opened, packages.as_ref());
        warnings.extend(stays);
        let precedence = precedence(&opened, manifest, packages.as_ref());
        if let Some(conflict) = precedence.conflict.as_ref().filter(|_| manifest.import_cache) {
            progress.line(&format!("none of its packages is imported ahead: {conflict}"));
        }
        let Opened { code, base, .. } = opened;
        let code = code.seal(&self.store, &base).map_err(|error| machine("code", &error))?;
        let set = packages.as_ref().map(|packages| &packages.layer);
        let opt = self.opt(&manifest.layers, set, &base)?;
        let guest = guest::install(&self.store, &base, &self.guest)
            .map_err(|error| machine("guest", &error))?;
        let distributions = packages.as_ref().map(shelf::distributions).unwrap_or_default();
        let (layer, imports) = packages.map(|packages| (packages.layer, packages.imports)).unzip();
        let manifest = manifest.clone();
        let handler = Handler {
            id: record.id(),
            name: name.clone(),
            tenant: tenant.clone(),
            kind: manifest.kind,
            reset: manifest.reset,
            python: base.python(guest),
            packages: layer,
            distributions: distributions.into(),
            imports: imports.unwrap_or_default(),
            entries: code::entries(&self.store.layer_path(&code)),
            code,
            opt,
            module: manifest.module,
            function: manifest.function,
            convention: manifest.convention,
            binary: manifest.binary,
            environment: manifest.environment,
            sets: manifest.sets,
            import_cache: manifest.import_cache && precedence.conflict.is_none(),
            own: precedence.own,
            clashes: precedence.clashes,
            limits: manifest.limits,
            network: manifest.network,
            egress: manifest.egress.into(),
            timeout: manifest.timeout,
            concurrency: manifest.concurrency,
            lambda: manifest.lambda.map(Arc::new),
        };
        Ok(Made { handler, warnings })
    }
}

impl Workshop for Layered {
    fn admit(
        &self,
        name: &WholeName,
        bundle: Bundle,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Admitted, MakeError> {
        self.admitted(name, bundle, patience, progress)
            .map_err(|error| error.without(self.store.state()))
    }

    fn materialise(
        &self,
        record: &VersionRecord,
        opened: Option<Opened>,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Made, MakeError> {
        let opened = opened.map_or_else(|| self.reopen(record, progress), Ok);
        opened
            .and_then(|opened| self.made(record, opened, patience, progress))
            .map_err(|error| error.without(self.store.state()))
    }

    fn keep_layer(&self, archive: File) -> Result<KeptLayer, MakeError> {
        self.kept_layer(archive).map_err(|error| error.without(self.store.state()))
    }

    fn take_mended(&self) -> bool {
        let of_bundles = self.mended.swap(false, Ordering::Relaxed);
        self.installer.take_mended() || of_bundles
    }
}

/// Warnings about modules in `src/` that no package brings either.
fn in_vain(opened: &Opened, packages: Option<&Packages>) -> Vec<String> {
    let wheels = packages.iter().flat_map(|packages| &packages.wheels);
    let brought: BTreeSet<&str> = wheels
        .flat_map(|wheel| &wheel.modules)
        .map(|module| module.split('.').next().unwrap_or_default())
        .collect();
    let in_src = opened.in_src.iter();
    let in_vain = in_src.filter(|(module, _)| !brought.contains(&**module));
    in_vain.map(|(_, warning)| warning.clone()).collect()
}

fn precedence(opened: &Opened, manifest: &Manifest, packages: Option<&Packages>) -> Precedence {
    let Some(packages) = packages else { return Precedence::default() };
    let python_path = manifest.environment.get("PYTHONPATH").map_or("", String::as_str);
    let modules = packages.wheels.iter().flat_map(|wheel| &wheel.modules);
    let (root, clashes) = (opened.code.path(), &packages.clashes);
    let layers = manifest.layers.iter().flat_map(|layer| layer.modules.iter().cloned());
    Precedence::of(root, python_path, layers, &opened.standard, modules, clashes)
}

fn unreadable(error: ManifestError) -> MakeError {
    match error {
        ManifestError::File(_)
        | ManifestError::Run(RunError::Unfinished(_) | RunError::Failed { .. }) => {
            machine("manifest", &error)
        }
        _ => function("manifest", &error),
    }
}

/// A kept bundle that is no longer there.
#[derive(Debug, Error)]
#[error("the kept files of bundle {0} are gone: deploy the function again")]
struct Gone(BundleDigest);

/// A kept bundle that is not what was deployed.
#[derive(Debug, Error)]
#[error("the kept files of bundle {0} were changed on disk: deploy the function again")]
struct Damaged(BundleDigest);

/// A function wants both.
#[derive(Debug, Error)]
#[error(
    "network = \"{0}\" is for containers, a micro-VM has no network: leave `isolation` out, or set network = \"none\""
)]
struct MachineWithNetwork(&'static str);

/// A program asks for its events on loopback, and starts as another process.
#[derive(Debug, Error)]
#[error(
    "a function with a `bootstrap` runs in a container, a micro-VM has no loopback: leave LAMBSWOOL_ISOLATION out"
)]
struct MachineWithProgram;

fn function(step: &'static str, error: &dyn std::error::Error) -> MakeError {
    MakeError::Function { step, message: chain(error) }
}

fn machine(step: &'static str, error: &dyn std::error::Error) -> MakeError {
    MakeError::Machine { step, message: chain(error) }
}
