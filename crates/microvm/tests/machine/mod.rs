//! What the tests of real machines share: the host's KVM, and guests built from C or assembly.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use microvm::hypervisor::Hypervisor;

/// The host's KVM. Where there is none the test has nothing to do: that is printed, and is a failure where
/// `LAMBSWOOL_REQUIRE` names `kvm`.
pub(crate) fn kvm() -> Option<Hypervisor> {
    Hypervisor::open().map_err(|error| lacks("kvm", &error.to_string())).ok()
}

/// Says that this machine lacks what a test needs; a failure where `LAMBSWOOL_REQUIRE` names it.
pub(crate) fn lacks(name: &str, what: &str) {
    let required = std::env::var("LAMBSWOOL_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|required| required == name);
    assert!(!required, "{what}, and LAMBSWOOL_REQUIRE says that this machine has {name}");
    eprintln!("SKIPPED: {what}");
}

/// The repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles C to a unikernel.
pub(crate) fn unikernel(source: &str) -> Vec<u8> {
    let library = repository().join("guest/unikernel");
    compile(
        source,
        &[
            "-static",
            "-nostdlib",
            "-ffreestanding",
            "-fno-stack-protector",
            "-fno-pie",
            "-no-pie",
            "-I",
            library.to_str().unwrap(),
        ],
    )
}

/// A unikernel of these instructions.
pub(crate) fn assembly(body: &str) -> Vec<u8> {
    let lines: String = body.lines().map(|line| format!("\"{}\\n\"\n", line.trim())).collect();
    unikernel(&format!("__asm__(\".globl _start\\n_start:\\n\"\n{lines});"))
}

/// Compiles C with these flags.
pub(crate) fn compile(source: &str, flags: &[&str]) -> Vec<u8> {
    let out =
        tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap().into_temp_path();
    let mut compiler = Command::new("cc")
        .args(["-O1", "-x", "c", "-", "-o"])
        .arg(&out)
        .args(flags)
        .current_dir(repository())
        .stdin(Stdio::piped())
        .spawn()
        .expect("cc is needed");
    compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success());
    std::fs::read(&out).unwrap()
}
