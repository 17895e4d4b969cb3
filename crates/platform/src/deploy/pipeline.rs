//! The workshop that makes real layers.
//!
//! ```text
//!   bundle ─► unpacked ─► settings ─► base ─► manifest ─► lock ─► packages ─► code sealed ─► guest ─► Handler
//! ```
//!
//! Each step finds its layer on disk when an earlier deploy made it, so deploying the same again takes milliseconds.

use std::collections::BTreeSet;
use std::sync::Arc;

use bundle::code::{self, Bundle as Code, CodeError};
use bundle::manifest::{ManifestError, Settings};
use engine::{Handler, HandlerId};
use function::DEFAULT_TENANT;
use layers::base::{self, Base, BaseError};
use layers::python::{PythonError, PythonRequest};
use layers::{Patience, RunError, Store, guest};
use packages::lock::{self, Lock, LockError};
use packages::{InstallError, Packages, ViewError};
use sandbox::{Cpu, CpuBounds, Network, chain};
use thiserror::Error;

use crate::deploy::installer::Installer;
use crate::deploy::precedence::Precedence;
use crate::deploy::progress::Progress;
use crate::deploy::workshop::{Bundle, Made, MakeError, Packing, Workshop};
use crate::packages::store as shelf;

/// Makes layers in a state directory.
#[derive(Debug)]
pub struct Layered {
    store: Store,
    guest: Vec<(&'static str, &'static [u8])>,
    python: Option<PythonRequest>,
    installer: Installer,
    cpu: CpuBounds,
}

impl Layered {
    /// A workshop; `guest` are the guest's files, its native extension included; `python` is for functions that do
    /// not ask for another.
    #[must_use]
    pub fn new(
        store: Store,
        guest: Vec<(&'static str, &'static [u8])>,
        python: Option<PythonRequest>,
        installer: Installer,
    ) -> Self {
        Self { store, guest, python, installer, cpu: CpuBounds::NONE }
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

    fn unpack(&self, bundle: Bundle) -> Result<Code, MakeError> {
        let unpacked = match &bundle.packing {
            Packing::Source(module) => Code::from_py(&self.store, module, bundle.file),
            Packing::Zip => Code::from_zip(&self.store, bundle.file),
            // The reader tells a compressed archive by its first bytes.
            Packing::Tar | Packing::TarGz => Code::from_tar(&self.store, bundle.file),
        };
        unpacked.map_err(|error| match error {
            CodeError::File(_) | CodeError::Compile(_) => machine("bundle", &error),
            _ => function("bundle", &error),
        })
    }

    /// The base that the function asks for; the worker's default when that fits.
    fn base(&self, settings: &Settings, progress: &dyn Progress) -> Result<Base, MakeError> {
        let wanted = settings.python().map_err(|error| function("manifest", &error))?;
        if let Some(default) = &self.python {
            let base = base::default_or_build(&self.store, default, progress)
                .map_err(|e| machine("base", &e))?;
            if wanted.accepts(&base.version) {
                return Ok(base);
            }
        }
        base::default_or_build(&self.store, &wanted, progress).map_err(|error| match error {
            BaseError::Python(PythonError::Impossible { .. }) => function("manifest", &error),
            _ => machine("base", &error),
        })
    }

    fn packages(
        &self,
        base: &Base,
        wanted: &[String],
        settings: &Settings,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Option<(Lock, Packages)>, MakeError> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let installer =
            self.installer.get(patience, progress).map_err(|error| machine("installer", &error))?;
        let sources = settings.sources();
        let locked = match settings.is_locked() {
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
        let Some(lock) = locked else { return Ok(None) };
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
        Ok(Some((lock, installed)))
    }
}

impl Layered {
    /// What [`Workshop::make`] makes, with errors that may name places of the state directory.
    fn made(
        &self,
        name: &str,
        bundle: Bundle,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Made, MakeError> {
        let broken = |error: ManifestError| match error {
            ManifestError::File(_)
            | ManifestError::Run(RunError::Unfinished(_) | RunError::Failed { .. }) => {
                machine("manifest", &error)
            }
            _ => function("manifest", &error),
        };
        let over = bundle.over;
        let code = self.unpack(bundle)?;
        let settings = Settings::read(code.path(), over).map_err(broken)?;
        self.check_cpu(settings.cpu())?;
        let base = self.base(&settings, progress)?;
        let mut manifest =
            settings.inspect(code.path(), &base.command(&self.store)).map_err(broken)?;
        if !manifest.kind.is_container() && manifest.network != Network::None {
            return Err(function("manifest", &MachineWithNetwork(manifest.network.as_str())));
        }
        let packages =
            self.packages(&base, &manifest.requirements, &settings, patience, progress)?;
        let wheels = packages.iter().flat_map(|(_, packages)| &packages.wheels);
        let brought: BTreeSet<&str> = wheels
            .flat_map(|wheel| &wheel.modules)
            .map(|module| module.split('.').next().unwrap_or_default())
            .collect();
        let in_src = std::mem::take(&mut manifest.in_src).into_iter();
        let in_vain = in_src.filter(|(module, _)| !brought.contains(&**module));
        manifest.warnings.extend(in_vain.map(|(_, warning)| warning));
        let precedence = packages.as_ref().map(|(_, packages)| {
            let python_path = manifest.environment.get("PYTHONPATH").map_or("", String::as_str);
            let modules = packages.wheels.iter().flat_map(|wheel| &wheel.modules);
            let (root, clashes) = (code.path(), &packages.clashes);
            Precedence::of(root, python_path, &manifest.standard, modules, clashes)
        });
        let precedence = precedence.unwrap_or_default();
        if let Some(conflict) = precedence.conflict.as_ref().filter(|_| manifest.import_cache) {
            progress.line(&format!("none of its packages is imported ahead: {conflict}"));
        }
        let code = code.seal(&self.store, &base).map_err(|error| machine("code", &error))?;
        let guest = guest::install(&self.store, &base, &self.guest)
            .map_err(|error| machine("guest", &error))?;
        let said = serde_json::to_value(&manifest).map_err(|error| machine("manifest", &error))?;
        let (lock, packages) = packages.unzip();
        let distributions = packages.as_ref().map(shelf::distributions).unwrap_or_default();
        let (layer, imports) = packages.map(|packages| (packages.layer, packages.imports)).unzip();
        let handler = Handler {
            id: HandlerId(Arc::from("")),
            name: name.to_owned(),
            // The code has no say in it: the deploy sets whose it is.
            tenant: DEFAULT_TENANT.to_owned(),
            kind: manifest.kind,
            reset: manifest.reset,
            python: base.python(guest),
            packages: layer,
            distributions: distributions.into(),
            imports: imports.unwrap_or_default(),
            entries: code::entries(&self.store.layer_path(&code)),
            code,
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
        };
        let lock = lock.map(|lock| lock.text).unwrap_or_default();
        Ok(Made { handler, manifest: said, lock })
    }
}

impl Workshop for Layered {
    fn make(
        &self,
        name: &str,
        bundle: Bundle,
        patience: &Arc<Patience>,
        progress: &dyn Progress,
    ) -> Result<Made, MakeError> {
        self.made(name, bundle, patience, progress)
            .map_err(|error| error.without(self.store.state()))
    }

    fn take_mended(&self) -> bool {
        self.installer.take_mended()
    }
}

/// A function wants both.
#[derive(Debug, Error)]
#[error(
    "network = \"{0}\" is for containers, a micro-VM has no network: leave `isolation` out, or set network = \"none\""
)]
struct MachineWithNetwork(&'static str);

fn function(step: &'static str, error: &dyn std::error::Error) -> MakeError {
    MakeError::Function { step, message: chain(error) }
}

fn machine(step: &'static str, error: &dyn std::error::Error) -> MakeError {
    MakeError::Machine { step, message: chain(error) }
}
