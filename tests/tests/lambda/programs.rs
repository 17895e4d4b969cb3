//! Programs for functions that ask the runtime API for their events, each as a variable of the tests.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::machine;

/// A static program in Rust, built from what Cargo has fetched already. Later runs find it built.
pub(crate) fn rust() -> Option<(&'static str, String)> {
    let triple = format!("{ARCH}-unknown-linux-gnu");
    let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lambda-rust");
    let said = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--offline", "--target", &triple, "--target-dir"])
        .arg(&built)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lambda/rust"))
        .output();
    if !said.is_ok_and(|said| said.status.success()) {
        machine::skip("lambda_runtime", "needs `cargo fetch` in tests/tests/lambda/rust");
        return None;
    }
    Some(("RUST_PROGRAM", built.join(triple).join("debug/bootstrap").display().to_string()))
}

/// The machine's own Node.js, where it is one file that needs only usual libraries.
pub(crate) fn node() -> Option<(&'static str, String)> {
    let find = ["-p", "process.execPath"];
    let said = Command::new("node").args(find).output().ok().filter(|said| said.status.success());
    let Some(said) = said else {
        machine::skip("node", "needs Node.js");
        return None;
    };
    Some(("NODE", String::from_utf8_lossy(&said.stdout).trim().to_owned()))
}
