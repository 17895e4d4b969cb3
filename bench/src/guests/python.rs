//! CPython as a guest, of the base that the worker built, and the same on the host.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::Program;
use crate::baselines::rootfs::Rootfs;

/// Where a guest finds the libraries.
const PACKAGES: &str = "/opt/packages";

/// What scripts begin with. `ready` waits; `answer` says how long the work took that is given to it.
const PRELUDE: &str = "
import os, sys, time
def ready():
    if os.read(3, 1) != b'?':
        os._exit(0)
def answer(work):
    while True:
        ready()
        began = time.perf_counter()
        work()
        os.write(3, b'x%.6f' % ((time.perf_counter() - began) * 1e3))
";

/// A guest that runs a script, which has [`PRELUDE`] before it and waits so many times until it answers.
pub(crate) fn python(rootfs: &Rootfs, packages: &Path, script: &str, waits: usize) -> Program {
    let script = format!("{PRELUDE}sys.path.append('{PACKAGES}')\n{script}");
    let words = [&rootfs.interpreter, "-I", "-S", "-B", "-c", &script].map(ToString::to_string);
    let environment = ["LANG=C.UTF-8", "OPENBLAS_NUM_THREADS=1"].map(ToString::to_string);
    Program {
        layers: vec![("/", rootfs.root.clone()), (PACKAGES, PathBuf::from(packages))],
        words: words.to_vec(),
        environment: environment.to_vec(),
        waits,
    }
}

/// A process of the host's, of the same interpreter with the same libraries, that runs a script.
pub(crate) fn on_the_host(rootfs: &Rootfs, packages: &Path, script: &str) -> Command {
    let mut command = rootfs.python();
    let script = format!("import os, sys\nsys.path.append(sys.argv[1])\n{script}");
    command.args(["-I", "-S", "-B", "-c", &script]).arg(packages).env("OPENBLAS_NUM_THREADS", "1");
    command
}
