//! Services with AWS's interfaces, on this machine: a store of objects, and queues.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::machine;

/// Its one account, as `test_objects.py` and the worker know it.
const KEYS: (&str, &str) = ("wool", "sheep-secret");

/// What serves S3 from a directory: <https://github.com/versity/versitygw>.
const PACKAGE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// A store that is served until this is dropped.
pub(crate) struct ObjectStore {
    server: Child,
    port: u16,
    _files: tempfile::TempDir,
}

impl ObjectStore {
    /// Starts one; none, and a skip is printed, where it cannot be had.
    pub(crate) fn start() -> Option<Self> {
        let program = program()?;
        let files = tempfile::tempdir().unwrap();
        let port = free_port();
        let server = Command::new(program)
            .args(["--access", KEYS.0, "--secret", KEYS.1, "--port"])
            .arg(format!("127.0.0.1:{port}"))
            .args(["--iam-dir", "", "posix", "--nometa"])
            .arg(files.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let store = Self { server, port, _files: files };
        wait_for(port);
        Some(store)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What a worker is told in order to read from it.
    pub(crate) fn settings(&self) -> [(&'static str, String); 3] {
        [
            ("WOOL_LAMBDA_ENDPOINTS", format!("s3={}", self.url())),
            ("AWS_ACCESS_KEY_ID", KEYS.0.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", KEYS.1.to_owned()),
        ]
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Queues that are served until this is dropped.
pub(crate) struct Queues {
    server: Child,
    port: u16,
}

impl Queues {
    /// Starts them with the program of this Python's environment; none, and a skip is printed, where it has none.
    pub(crate) fn start(python: &Path) -> Option<Self> {
        let port = free_port();
        let server = Command::new(python.with_file_name("moto_server"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(server) = server else {
            machine::skip("sqs", "needs moto_server: `make test` puts it into .venv");
            return None;
        };
        let queues = Self { server, port };
        wait_for(port);
        Some(queues)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until something listens.
fn wait_for(port: u16) {
    for _ in 0..600 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("nothing listens at port {port}");
}

/// The server's program: that of PATH, or one that Go makes once for this checkout.
fn program() -> Option<PathBuf> {
    let found = Command::new("versitygw").arg("--version").output();
    if found.is_ok_and(|it| it.status.success()) {
        return Some("versitygw".into());
    }
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tools");
    let program = tools.join("versitygw");
    if !program.exists() {
        let mut go = Command::new("go");
        go.args(["install", PACKAGE]).env("GOBIN", &tools).stdout(Stdio::null());
        if !go.status().is_ok_and(|status| status.success()) {
            machine::skip("s3", &format!("needs versitygw: `go install {PACKAGE}`"));
            return None;
        }
    }
    Some(program)
}
