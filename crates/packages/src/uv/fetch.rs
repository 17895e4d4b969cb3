//! Fetching the pinned uv with the host's pip.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use layers::child::Unfinished;
use layers::python::{self, HostPython};
use layers::staging::Staging;
use layers::{FileError, Patience, Progress, Store};

use super::{UvError, run, said};

/// The version that is fetched.
pub(super) const VERSION: &str = "0.13.9";

/// How long pip may take to say that it is there: it imports much, and may have to compile it.
const PIP_ASIDE: Duration = Duration::from_secs(60);

/// Its wheels for Linux: x86-64 and aarch64, glibc and musl.
const HASHES: [&str; 4] = [
    "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
    "2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25",
    "ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375",
    "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
];

/// Fetches it to `program`. A second caller waits for the first.
pub(super) fn fetch(
    store: &Store,
    program: &Path,
    patience: &Patience,
    progress: &dyn Progress,
) -> Result<(), UvError> {
    let staging = Staging::begin(&store.uv(), &format!("uv-{VERSION}"))?;
    if program.is_file() {
        return Ok(());
    }
    progress.step(&format!("fetching uv {VERSION}"));
    let python = with_pip(patience)?.ok_or(UvError::NoPip)?;
    let wheel = download(&python, staging.path(), patience, progress)?;
    let size = fs::metadata(&wheel).map_err(FileError::at("look at", &wheel))?.len();
    progress.bytes(size, Some(size));
    let unpacked = staging.path().join("uv");
    unpack(&wheel, &unpacked).map_err(UvError::Wheel)?;
    fs::rename(&unpacked, program).map_err(FileError::at("rename into place", program))?;
    Ok(())
}

/// The first Python whose pip answers. One that hangs is passed over.
fn with_pip(patience: &Patience) -> Result<Option<HostPython>, Unfinished> {
    for python in python::discover() {
        let mut command = std::process::Command::new(&python.executable);
        match said(command.args(["-m", "pip", "--version"]), patience, PIP_ASIDE) {
            Ok(Some(_)) => return Ok(Some(python)),
            Ok(None) | Err(Unfinished::Start { .. } | Unfinished::TooLong { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn download(
    python: &HostPython,
    to: &Path,
    patience: &Patience,
    progress: &dyn Progress,
) -> Result<PathBuf, UvError> {
    let requirements = to.join("requirements.txt");
    let hashes: String = HASHES.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
    fs::write(&requirements, format!("uv=={VERSION}{hashes}\n"))
        .map_err(FileError::at("write", &requirements))?;
    let wheels = to.join("wheels");
    let mut command = std::process::Command::new(&python.executable);
    command
        .args(["-m", "pip", "download", "--only-binary", ":all:", "--no-deps", "--require-hashes"])
        .args(["--progress-bar", "off", "--disable-pip-version-check", "--requirement"])
        .arg(&requirements)
        .arg("--dest")
        .arg(&wheels);
    let finished = run(&mut command, true, patience, progress)?;
    if !finished.status.success() {
        return Err(UvError::Fetch { words: finished.words });
    }
    let entries = fs::read_dir(&wheels).map_err(FileError::at("list", &wheels))?;
    let wheel = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|p| p.extension().is_some_and(|e| e == "whl"));
    wheel.ok_or(UvError::Fetch { words: finished.output })
}

/// Takes the binary out of the wheel, whose hash vouches for it, and makes it last.
fn unpack(wheel: &Path, to: &Path) -> io::Result<()> {
    let mut archive = zip::ZipArchive::new(File::open(wheel)?)?;
    let mut binary = archive.by_name(&format!("uv-{VERSION}.data/scripts/uv"))?;
    let mut program = File::create(to)?;
    io::copy(&mut binary, &mut program)?;
    program.set_permissions(fs::Permissions::from_mode(0o755))?;
    program.sync_all()
}
