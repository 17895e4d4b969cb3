//! What the tests of real machines share: the host's KVM, and guests built from C or assembly.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use microvm::linux::{Options, Pause, Process};
use microvm::machine::Hypervisor;
use microvm::vfs::TreeBuilder;
use skips::skip;

/// The host's KVM. Where there is none the test has nothing to do: that is printed, and is a
/// failure where `LAMBSWOOL_REQUIRE` names `kvm`.
pub(crate) fn kvm() -> Option<Hypervisor> {
    Hypervisor::open().map_err(|error| skip("kvm", &error.to_string())).ok()
}

/// What a C program says in a machine, and what it says on this host.
pub(crate) fn in_machine_and_on_host(source: &str) -> Option<[String; 2]> {
    // A compiler that another thread starts has the program open for a moment, to which it was
    // written: it cannot be executed.
    static ALONE: Mutex<()> = Mutex::new(());
    let host = kvm()?;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("program");
    std::fs::write(&file, compile(source, &["-static", "-pthread"])).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
    let tree = tree.proc().scratch("/tmp").build(1 << 20, 4096);
    let options = Options { program: vec!["/program".into()], ..Options::default() };
    let mut process = Process::start(&host, tree, &options).unwrap();
    let pause = process.run().unwrap();
    let output = process.take_output().into_iter().flat_map(|(_, bytes)| bytes).collect();
    let inside = String::from_utf8(output).unwrap();
    assert_eq!(pause, Pause::Exited(0), "{inside}");
    let outside = Command::new(&file).env_clear().output().unwrap();
    assert!(outside.status.success(), "{outside:?}");
    Some([inside, String::from_utf8(outside.stdout).unwrap()])
}

/// Runs a program that says what it finds, in a machine and on the host: the same, and to its end.
pub(crate) fn assert_same(source: &str, last: &str) {
    let Some([inside, outside]) = in_machine_and_on_host(source) else { return };
    assert!(outside.ends_with(last), "{outside}");
    assert_eq!(inside, outside);
}

/// The repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles C to a unikernel.
pub(crate) fn unikernel(source: &str) -> Vec<u8> {
    unikernel_with(source, &[])
}

/// As [`unikernel`], with more flags.
pub(crate) fn unikernel_with(source: &str, more: &[&str]) -> Vec<u8> {
    let library = repository().join("guest/unikernel");
    let library = library.to_str().unwrap();
    let flags = [
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-pie",
        "-no-pie",
        "-I",
        library,
    ];
    compile(source, &[&flags[..], more].concat())
}

/// Flags for a program at fixed addresses, and a large array of its own, in megabytes.
pub(crate) const FIXED: [(&str, u32); 3] = [
    ("-Wl,-Ttext-segment=0x10000000", 1),
    ("-Wl,-Ttext-segment=0x10000000", 300),
    ("-Wl,-Ttext-segment=0x400000", 400),
];

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
