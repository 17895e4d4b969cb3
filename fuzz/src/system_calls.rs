//! System calls from inside a micro-VM: real ones, by a real guest, with whatever arguments. Whatever becomes of the guest,
//! the monitor answers, keeps the guest within its limits, touches nothing of the host's, and can put everything back.
//!
//! An input is a script of up to 64 calls, 20 bytes each:
//!
//! ```text
//!   ├─ call u16 ─┼─ six arguments: kind u8, value u16 ─┤
//! ```

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use microvm::linux::{Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::memory::layout::{MAP_START, PAGE};
use microvm::vfs::TreeBuilder;
use tempfile::TempDir;

use crate::kvm::{Watch, kvm};
use crate::scratch::scratch;

/// As `guests/caller.c` has them.
const CALLS: usize = 64;
const HEAD: usize = 4096;
const AREA: u64 = 65536;
const PLAIN: u64 = 0;
const RESULT: u64 = 1;
const IN_AREA: u64 = 2;
const POKE: u64 = u64::MAX;

const RECORD: usize = 20;
const PATIENCE: Duration = Duration::from_millis(200);
const MEMORY: u64 = 16 << 20;
const SCRATCH: u64 = 1 << 20;
const NODES: u32 = 64;

/// Numbers of calls that Linux has, and some more.
const NUMBERS: u16 = 470;

/// Values at which something ends.
const EDGES: [u64; 32] = [
    0,
    1,
    7,
    8,
    4095,
    4096,
    4097,
    0xffff,
    0x1_0000,
    0x1f_f000,
    0x20_0000,
    0x400_0000,
    0x1000_0000,
    0x2fff_f000,
    0x3000_0000,
    0x7fff_f000,
    0x8000_0000,
    0xdfff_f000,
    0xe000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff,
    0x8000_0000_0000,
    0x7fff_ffff_ffff_f000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_8000_0000,
    0xffff_ffff_ffff_f000,
    0xffff_ffff_ffff_ff9c,
    0xffff_ffff_ffff_fffe,
    0xffff_ffff_ffff_ffff,
    0x0101_0101_0101_0101,
];

/// What lies at the start of the area, 64 bytes each: names to begin with, and records that calls read.
const NAMES: [&str; 16] = [
    "/tmp/a",
    "/tmp/b",
    "/tmp/d",
    "/tmp/d/a",
    "/tmp/../tmp/b",
    "/tmp/loop",
    "a",
    "..",
    ".",
    "",
    "/",
    "/caller",
    "/dev/zero",
    "/dev/urandom",
    "/tmp/d/../../outside",
    "/proc/self/exe",
];
const NAME_BYTES: usize = 64;

pub(crate) fn fuzz(bytes: &[u8]) {
    thread_local!(static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) });
    let Some(host) = kvm() else { return };
    STAGE.with_borrow_mut(|stage| stage.get_or_insert_with(|| Stage::new(host)).play(bytes));
}

/// A guest that waits for a script, and what must not change.
struct Stage {
    host: &'static Hypervisor,
    template: Template,
    scanner: Scanner,
    /// Linux ≥ 6.7.
    can_reset: bool,
    /// None only while it plays.
    process: Option<Process>,
    outside: Outside,
}

impl Stage {
    fn new(host: &'static Hypervisor) -> Self {
        let directory = scratch();
        let layer = directory.path().join("layer");
        fs::create_dir(&layer).expect("there is room for a directory");
        compile(&layer.join("caller"));
        let tree = TreeBuilder::default().layer("/", &layer).expect("it can be listed");
        let tree = tree.devices().proc().text("/etc/hostname", "guest\n").scratch("/tmp");
        let program = vec!["/caller".to_owned()];
        let options = Options { program, channel: true, ..Options::default() };
        let mut process =
            Process::start(host, tree.build(SCRATCH, NODES), &options).expect("a guest can start");
        assert_eq!(process.run().expect("a machine"), Pause::Idle);
        let said: [u8; 8] = process.take_said().try_into().expect("it says where its area is");
        assert_eq!(u64::from_le_bytes(said) % PAGE, 0);
        let template = Template::seal(process).expect("it can be frozen");
        let process = template.spawn(host).expect("a clone");
        let scanner = Scanner::open().expect("/proc/self/pagemap can be opened");
        let can_reset = process.weigh(&scanner).is_ok();
        let (process, outside) = (Some(process), Outside::of(directory));
        Self { host, template, scanner, can_reset, process, outside }
    }

    fn play(&mut self, bytes: &[u8]) {
        let mut process = self.process.take().expect("nothing broke before");
        process.limit(MEMORY, SCRATCH, NODES);
        process.stopper().clear();
        process.feed(&script(bytes));
        let pause = {
            let _watch = Watch::over(process.stopper(), PATIENCE);
            process.run().expect("no call loses the machine")
        };
        assert!(process.scratch_held() <= 2 * SCRATCH, "scratch holds {}", process.scratch_held());
        let own = process.weigh(&self.scanner).unwrap_or(0);
        // Page tables and what it began with beside what it may map.
        assert!(own <= MEMORY + 2 * SCRATCH + (16 << 20), "the guest has {own} bytes of its own");
        self.process = Some(self.put_back(process, pause));
        self.outside.check();
    }

    fn put_back(&mut self, process: Process, pause: Pause) -> Process {
        if !self.can_reset {
            drop(process);
            return self.template.spawn(self.host).expect("a clone");
        }
        let (mut process, _) =
            self.template.reset(process, &self.scanner).expect("it can be put back");
        let differences = self.template.differences(&mut process, &self.scanner);
        let differences = differences.expect("a machine");
        assert!(differences.is_empty(), "after {pause:?}: {differences:#?}");
        process
    }
}

/// The script as the guest reads it.
fn script(bytes: &[u8]) -> Vec<u8> {
    let calls: Vec<&[u8]> = bytes.chunks_exact(RECORD).take(CALLS).collect();
    let mut words = vec![calls.len() as u64];
    for record in &calls {
        let number = u16::from_le_bytes([record[0], record[1]]) % (NUMBERS + 1);
        words.push(if number == NUMBERS { POKE } else { u64::from(number) });
        for argument in record[2..].chunks_exact(3) {
            let value = u16::from_le_bytes([argument[1], argument[2]]);
            let (kind, value) = meaning(argument[0], value.into());
            words.extend([kind, value]);
        }
    }
    words.resize(1 + CALLS * 13, 0);
    let mut script: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut head = vec![0; HEAD];
    for (at, name) in NAMES.iter().enumerate() {
        head[at * NAME_BYTES..at * NAME_BYTES + name.len()].copy_from_slice(name.as_bytes());
    }
    script.extend(head);
    script
}

/// What an argument stands for: how the guest takes it, and a value.
fn meaning(kind: u8, value: u64) -> (u64, u64) {
    match kind % 10 {
        0 => (PLAIN, value),
        1 => (RESULT, value),
        2 => (IN_AREA, value),
        3 => (IN_AREA, value * PAGE % AREA),
        // A name at the start of the area.
        4 => (IN_AREA, value % NAMES.len() as u64 * NAME_BYTES as u64),
        5 => (PLAIN, EDGES[usize::from(value.to_le_bytes()[0]) % EDGES.len()]),
        6 => (PLAIN, MAP_START + value * PAGE),
        7 => (PLAIN, value.wrapping_neg()),
        8 => (PLAIN, (value & 0xff) << (value >> 8 & 63)),
        // The last words of the area, and what lies behind them.
        _ => (IN_AREA, AREA - 64 + value % 128),
    }
}

fn compile(to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/caller.c");
    let flags = ["-O1", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector"];
    let mut cc = Command::new("cc");
    let cc = cc.args(flags).args(["-fno-pie", "-no-pie", "-o"]).arg(to).arg(source);
    assert!(cc.status().expect("cc is needed").success());
}

/// What a guest has no way to: this process's descriptors and directory, and a file beside its layer.
struct Outside {
    directory: TempDir,
    here: PathBuf,
    descriptors: usize,
}

impl Outside {
    const FILE: &str = "outside";
    const TEXT: &str = "nobody changes this";

    fn of(directory: TempDir) -> Self {
        fs::write(directory.path().join(Self::FILE), Self::TEXT).expect("there is room for a file");
        let here = std::env::current_dir().expect("there is one");
        Self { directory, here, descriptors: open() }
    }

    fn check(&self) {
        let text = fs::read_to_string(self.directory.path().join(Self::FILE)).ok();
        assert_eq!(text.as_deref(), Some(Self::TEXT));
        assert_eq!(std::env::current_dir().ok().as_ref(), Some(&self.here));
        let names = fs::read_dir(self.directory.path()).map_or(0, Iterator::count);
        assert_eq!(names, 2, "something was made beside the layer");
        assert_eq!(open(), self.descriptors, "descriptors were opened or closed");
    }
}

/// Descriptors of this process.
fn open() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
