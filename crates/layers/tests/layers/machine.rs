//! What this machine has, the state that the tests share, and tests that must run as another user. The tests of
//! `packages` and `bundle` use it, too.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex};

use layers::base::{self, Base};
use layers::python::PythonRequest;
use layers::{Progress, Silent, Store};

/// Kept from run to run below the target directory, for all three crates: what is there is not made again.
pub(crate) static STORE: LazyLock<Store> =
    LazyLock::new(|| Store::open(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("state")).unwrap());

/// The base of the Python that is preferred here.
pub(crate) static BASE: LazyLock<Base> =
    LazyLock::new(|| base::default_or_build(&STORE, &PythonRequest::any(), &Silent).unwrap());

/// Tells that a test has nothing to do here; fails where `LAMBSWOOL_REQUIRE` says that it must.
pub(crate) fn skip(test: &str, what: &str, why: &str) {
    skips::skip(what, &format!("{test}: {why}"));
}

pub(crate) fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}

/// Runs one test of this binary again as a child of `wrapper`, with `LAYERS_CHILD` set to `state`.
pub(crate) fn again(wrapper: &[&str], test: &str, state: &Path) -> Output {
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).env("LAYERS_CHILD", state);
    command.output().unwrap()
}

/// The state directory of a test that was started by [`again`].
pub(crate) fn child_state() -> Option<PathBuf> {
    std::env::var_os("LAYERS_CHILD").map(PathBuf::from)
}

/// Runs Python with the base as its root directory, as a sandbox would.
pub(crate) fn in_chroot(root: &Path, script: &str) -> Output {
    let mut command = Command::new("chroot");
    command.arg(root).args(["/usr/bin/python3", "-I", "-S", "-B", "-c", script]);
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LANG", "C.UTF-8")
        .output()
        .unwrap()
}

/// Standard output of a command that must succeed.
pub(crate) fn told(output: &Output) -> String {
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}\n{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// How the base's Python marks its bytecode files.
pub(crate) fn tag() -> String {
    format!("cpython-{}", BASE.minor().replace('.', ""))
}

/// Whether a file holds a text. An imported module's code cannot be asked for its path: the import system sets it anew.
pub(crate) fn holds(file: &Path, text: &str) -> bool {
    let bytes = std::fs::read(file).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Keeps what it hears.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) steps: Mutex<Vec<String>>,
    pub(crate) lines: Mutex<Vec<String>>,
    pub(crate) bytes: Mutex<Vec<(u64, Option<u64>)>>,
}

impl Progress for Heard {
    fn step(&self, text: &str) {
        self.steps.lock().unwrap().push(text.to_owned());
    }
    fn line(&self, text: &str) {
        self.lines.lock().unwrap().push(text.to_owned());
    }
    fn bytes(&self, done: u64, total: Option<u64>) {
        self.bytes.lock().unwrap().push((done, total));
    }
}

impl Heard {
    pub(crate) fn made(&self) -> usize {
        self.steps.lock().unwrap().iter().filter(|step| step.starts_with("building a base")).count()
    }
}
