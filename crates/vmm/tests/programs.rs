//! Programs that no compiler made, in the jail into which `wool unikernel run` puts its monitor.
//! Whatever they do, the monitor ends with a status and says why; nothing kills it, its own filter
//! included.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;

/// Time that a program gets: some spin.
const PROGRAM_TIMEOUT: Duration = Duration::from_millis(300);

/// Whether the host has KVM. Where it has none that is printed, and is a failure where
/// `LAMBSWOOL_REQUIRE` names `kvm`.
fn has_kvm() -> bool {
    let has = File::options().read(true).write(true).open("/dev/kvm").is_ok();
    if !has {
        skips::skip("kvm", "no /dev/kvm");
    }
    has
}

/// What the fuzzer begins with.
fn programs() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/unikernels");
    let mut files: Vec<_> = fs::read_dir(corpus).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Headers more often than the rest: they say what is loaded where.
fn mutate(program: &mut [u8], rng: &mut Rng) {
    for _ in 0..rng.usize(1..6) {
        let end = if rng.bool() { program.len().min(400) } else { program.len() };
        let at = rng.usize(16..end);
        program[at] = match rng.u8(0..4) {
            0 => 0,
            1 => 0xff,
            2 => program[at] ^ 1 << rng.u8(0..8),
            _ => rng.u8(..),
        };
    }
}

#[test]
fn no_program_ends_its_monitor_in_any_way_but_its_own() {
    if !has_kvm() {
        return;
    }
    let programs = programs();
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let mut ended = 0;
    for seed in 0..seeds {
        let mut rng = Rng::with_seed(seed);
        let mut program = programs[rng.usize(0..programs.len())].clone();
        mutate(&mut program, &mut rng);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &program).unwrap();
        let mut monitor = Command::new(env!("CARGO_BIN_EXE_wool-vmm"))
            .args(["unikernel", "argument", "request"])
            .stdin(File::open(file.path()).unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = monitor.stderr.take().unwrap();
        // Some log without end: whatever comes is read, and its end kept.
        let heard = std::thread::spawn(move || {
            let (mut last, mut piece) = (Vec::new(), vec![0; 64 << 10]);
            while let Ok(count @ 1..) = pipe.read(&mut piece) {
                last.extend_from_slice(&piece[..count]);
                last.drain(..last.len().saturating_sub(4096));
            }
            String::from_utf8_lossy(&last).into_owned()
        });
        let begun = Instant::now();
        let status = loop {
            match monitor.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if begun.elapsed() > PROGRAM_TIMEOUT => break None,
                None => sleep(Duration::from_millis(2)),
            }
        };
        monitor.kill().unwrap();
        monitor.wait().unwrap();
        let words = heard.join().unwrap();
        assert!(!words.contains("panicked"), "seed {seed}: {words}");
        if let Some(status) = status {
            assert_eq!(status.signal(), None, "seed {seed}: {words}");
            ended += 1;
        }
    }
    assert!(ended > seeds / 4, "only {ended} of {seeds} programs ended: too few were judged");
}

#[test]
fn a_program_without_end_is_refused_before_it_fills_memory() {
    let begun = Instant::now();
    let ended = Command::new(env!("CARGO_BIN_EXE_wool-vmm"))
        .args(["unikernel", "argument"])
        .stdin(File::open("/dev/zero").unwrap())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && words.contains("more than 256 MiB"), "{words}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}
