//! Templates on disk: what comes back, and what is refused. The guest is a C program that is spoken
//! to by its channel.

mod machine;

use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use machine::{compile, kvm};
use microvm::linux::{Build, Options, Pause, Process, RestoreError, SaveError, Template, VERSION};
use microvm::machine::Hypervisor;
use microvm::vfs::{Tree, TreeBuilder};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Says what it has kept, whenever it is asked anything. It does first what it is asked to by a
/// letter.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
static char big[3 << 20];
static __thread int own = 5;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int handled;
static void handle(int number) { handled += number; }
/* Reads with a vector register set that is set nowhere else, and says what it holds behind the call. */
static long ask(char *asked, long room, double *kept) {
    long count;
    asm volatile("movsd %1, %%xmm9; movq $0, %1; syscall; movsd %%xmm9, %1"
        : "=a"(count), "+m"(*kept) : "0"(0L), "D"(3L), "S"(asked), "d"(room) : "rcx", "r11", "memory", "xmm9");
    return count;
}
static void *waits(void *nothing) { pthread_mutex_lock(&lock); return nothing; }
int main(void) {
    char *heap = malloc(5000000), *hidden = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int calls = 0, ends[2];
    pthread_t thread;
    memset(heap, 7, 5000000);
    big[123456] = 9;
    own = 6;
    hidden[5000] = 4;
    mprotect(hidden, 8192, PROT_NONE);
    int program = open("/program", O_RDONLY);
    char *shown = mmap(0, 4096, 3, MAP_PRIVATE, program, 0);
    close(program);
    int caught = open("/tmp/caught", O_CREAT | O_RDWR | O_APPEND, 0600);
    unlink("/tmp/caught");
    dup2(caught, 1);
    umask(027);
    signal(SIGUSR1, handle);
    double kept = 2.5;
    for (;;) {
        char asked[64], said[200];
        if (ask(asked, sizeof asked, &kept) <= 0) return 0;
        switch (asked[0]) {
        case 'c': close(open("/tmp/left", O_CREAT | O_WRONLY, 0600)); break;
        case 'o': open("/program", O_RDONLY); break;
        case 'm': mmap(0, 4096, PROT_READ, MAP_SHARED, caught, 0); break;
        case 'd': chdir("/tmp"); break;
        case 's': socketpair(AF_UNIX, SOCK_STREAM, 0, ends); break;
        case 'l': flock(caught, LOCK_SH); break;
        case 't':
            pthread_mutex_lock(&lock);
            pthread_create(&thread, 0, waits, 0);
            usleep(20000);
        }
        /* It is the file's again, also where only a snapshot tells which. */
        shown[1] = 0;
        madvise(shown, 4096, MADV_DONTNEED);
        big[77] = shown[1] != 'E';
        kill(getpid(), SIGUSR1);
        mprotect(hidden, 8192, PROT_READ);
        mode_t mask = umask(0);
        umask(mask);
        if (asked[0] == 'x') write(1, "text", 4);
        long length_of_caught = lseek(caught, 0, SEEK_END);
        int length = snprintf(said, sizeof said, "%d %d %d %d %d %d %o %.1f %ld %d", ++calls, heap[4999999],
            big[123456], big[77], own, hidden[5000], mask, kept, length_of_caught, handled);
        write(3, said, length);
    }
}
"#;
const FIRST: &str = "1 7 9 0 6 4 27 2.5 4 10";

/// A directory with the program in it.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<TempDir> = OnceLock::new();
    let made = DIRECTORY.get_or_init(|| {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = compile(PROGRAM, &["-static", "-pthread"]);
        std::fs::write(directory.path().join("program"), program).unwrap();
        directory
    });
    made.path()
}

fn tree_of(directory: &Path) -> Tree {
    let tree = TreeBuilder::default().layer("/", directory).unwrap().devices();
    tree.scratch("/tmp").build(1 << 20, 64)
}

fn tree() -> Tree {
    tree_of(directory())
}

fn build() -> Build {
    Build::of(&File::open("/proc/self/exe").unwrap()).unwrap()
}

/// A template of the program that waits to be asked, after it was asked this.
fn template(host: &Hypervisor, asked: &str) -> Template {
    let options = Options { program: vec!["/program".into()], channel: true, ..Options::default() };
    let mut process = Process::start(host, tree(), &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Idle);
    if !asked.is_empty() {
        drop(ask(&mut process, asked));
    }
    Template::seal(process).unwrap()
}

fn ask(process: &mut Process, asked: &str) -> String {
    process.feed(asked.as_bytes());
    assert_eq!(process.run().unwrap(), Pause::Idle);
    String::from_utf8(process.take_said()).unwrap()
}

fn save(host: &Hypervisor, template: &Template) -> Vec<u8> {
    let mut snapshot = Vec::new();
    template.save(host, build(), &mut snapshot).unwrap();
    snapshot
}

fn restore(host: &Hypervisor, snapshot: &[u8]) -> Result<Template, RestoreError> {
    Template::restore(host, build(), tree(), snapshot)
}

#[test]
fn a_template_from_disk_is_the_one_that_was_saved() {
    let Some(host) = kvm() else { return };
    let original = template(&host, "");
    let saved = save(&host, &original);
    let restored = restore(&host, &saved).unwrap();
    assert_eq!(restored.given(), original.given());
    let [mut before, mut after] =
        [&original, &restored].map(|template| template.spawn(&host).unwrap());
    let mappings: Vec<_> = before.space().regions().iter().collect();
    assert_eq!(mappings, after.space().regions().iter().collect::<Vec<_>>());
    for (range, _) in mappings {
        let bytes = |process: &Process| process.space().arena().bytes(range.clone()).to_vec();
        assert!(bytes(&before) == bytes(&after), "memory at {range:x?} differs");
    }
    for (count, clone) in [(0, &mut before), (1, &mut after)] {
        assert_eq!(ask(clone, "x"), FIRST, "{count}");
        assert_eq!(ask(clone, "x"), "2 7 9 0 6 4 27 2.5 8 20");
    }
    // And what is made of it can be saved again, as it was.
    let again = save(&host, &restored);
    let used = |snapshot: &[u8]| {
        let state = part(snapshot, part(snapshot, 12).end);
        serde_json::from_slice::<Value>(&snapshot[state]).unwrap()["used"].as_u64()
    };
    assert!(used(&saved) > Some(0));
    assert_eq!(used(&again), used(&saved), "it begins where the one that was saved stood");
    assert_eq!(ask(&mut restore(&host, &again).unwrap().spawn(&host).unwrap(), "x"), FIRST);
}

#[test]
fn a_machine_with_more_than_the_usual_is_not_saved() {
    let Some(host) = kvm() else { return };
    for (asked, what) in [
        ("c", "files of its own"),
        ("o", "files of layers"),
        ("m", "files of its own mapped"),
        ("d", "directory"),
        ("t", "thread"),
        ("s", "sockets"),
        ("l", "locks"),
    ] {
        match template(&host, asked).save(&host, build(), &mut Vec::new()) {
            Err(SaveError::Unusual(found)) => assert!(found.contains(what), "{asked}: {found}"),
            other => panic!("{asked}: {other:?}"),
        }
    }
}

/// Where a part begins and ends that stands behind its length.
fn part(snapshot: &[u8], at: usize) -> std::ops::Range<usize> {
    let length = u32::from_le_bytes(snapshot[at..at + 4].try_into().unwrap());
    at + 4..at + 4 + usize::try_from(length).unwrap()
}

/// The same snapshot with other facts, or with another state.
fn changed(snapshot: &[u8], which: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let facts = part(snapshot, 12);
    let range = if which == "facts" { facts } else { part(snapshot, facts.end) };
    let mut value = serde_json::from_slice(&snapshot[range.clone()]).unwrap();
    change(&mut value);
    let text = serde_json::to_vec(&value).unwrap();
    let length = u32::try_from(text.len()).unwrap().to_le_bytes();
    [&snapshot[..range.start - 4], &length, &text, &snapshot[range.end..]].concat()
}

#[test]
fn a_snapshot_from_elsewhere_is_refused_by_name() {
    let Some(host) = kvm() else { return };
    let good = save(&host, &template(&host, ""));
    let refused = |snapshot: &[u8]| restore(&host, snapshot).map(drop).unwrap_err();
    let with = |name: &str, value: Value| {
        refused(&changed(&good, "facts", |facts| {
            assert!(facts.get(name).is_some(), "{facts}");
            facts[name] = value;
        }))
    };
    assert!(matches!(refused(b"#!/bin/sh\nexit\n"), RestoreError::Foreign));
    let mut other = good.clone();
    other[8] += 1;
    assert!(matches!(refused(&other), RestoreError::Version(found) if found == VERSION + 1));
    let unknown = json!(vec![0; 32]);
    assert!(matches!(with("build", unknown.clone()), RestoreError::Build));
    assert!(matches!(with("processor", unknown.clone()), RestoreError::Processor));
    assert!(matches!(with("boot", json!("another")), RestoreError::Boot));
    assert!(matches!(with("ticks", json!([1, false])), RestoreError::Ticks));
    assert!(matches!(with("layers", unknown), RestoreError::Layers));
    // By the host that restores it, as by the file.
    let another = tempfile::tempdir().unwrap();
    std::fs::write(another.path().join("program"), "longer than before").unwrap();
    let builds = Build::of(&File::open(another.path().join("program")).unwrap()).unwrap();
    let by = |build, tree| Template::restore(&host, build, tree, &good[..]).map(drop).unwrap_err();
    assert!(matches!(by(builds, tree()), RestoreError::Build));
    assert!(matches!(by(build(), tree_of(another.path())), RestoreError::Layers));
}

#[test]
fn a_snapshot_that_ends_early_or_says_what_cannot_be_is_refused() {
    let Some(host) = kvm() else { return };
    let good = save(&host, &template(&host, ""));
    let state = part(&good, part(&good, 12).end);
    for end in [0, 5, 11, 14, 100, state.start + 3, state.end, state.end + 8, good.len() - 1] {
        assert!(matches!(restore(&host, &good[..end]), Err(RestoreError::Read(_))), "{end}");
    }
    let damaged = |snapshot: &[u8], what: &str| match restore(&host, snapshot) {
        Err(RestoreError::Damaged(found)) => assert!(found.contains(what), "{found}: {what}"),
        other => panic!("{what}: {other:?}"),
    };
    let says = |name: &str, at: &str, value: Value| {
        changed(&good, "state", |state| {
            let found = state.get_mut(name).and_then(|part| match at {
                "" => Some(part),
                at => part.pointer_mut(at),
            });
            *found.unwrap_or_else(|| panic!("{name}{at}")) = value;
        })
    };
    damaged(&says("cpu", "/registers/16", json!(1_u64 << 63)), "registers");
    damaged(&says("cpu", "/xsave", json!([])), "registers");
    damaged(&says("space", "/regions/0/1", json!(1_u64 << 40)), "mappings");
    damaged(&says("space", "/files/0/0", json!(1)), "mappings");
    // A directory.
    damaged(&says("space", "/files/0/2", json!(0)), "mappings of files");
    damaged(&says("space", "/given", json!(u64::MAX)), "mappings");
    damaged(&says("files", "/open/0", json!(null)), "descriptors");
    damaged(&says("files", "/open/0/offset", json!(u64::MAX)), "descriptors");
    damaged(&says("files", "/open/0/object/node", json!(u32::MAX)), "descriptors");
    // The program itself: a file of a layer, which is not open.
    damaged(&says("files", "/open/0/object/node", json!(1)), "descriptors");
    damaged(&says("scratch", "/0/parent", json!(9)), "scratch");
    damaged(&says("signals", "/actions", json!([])), "signals");
    damaged(&says("threads", "/last", json!(u64::MAX)), "threads");
    damaged(&says("told", "", json!(u64::MAX)), "time");
    damaged(&says("name", "", json!("more")), "a part");
    // The first page of memory goes where nothing is mapped.
    for start in [0, 1 << 62, !4095] {
        let mut moved = good.clone();
        moved[state.end..state.end + 8].copy_from_slice(&u64::to_le_bytes(start));
        damaged(&moved, "memory");
    }
    let mut long = good;
    long[state.start - 4..state.start].fill(0xff);
    damaged(&long, "length");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    /// What the state says, more often than memory; where a machine comes of it, that runs for a
    /// moment.
    #[test]
    fn no_bytes_of_a_snapshot_end_the_monitor(
        flips in prop::collection::vec((any::<u32>(), 0_u8..8, any::<bool>()), 1..4),
    ) {
        static SNAPSHOT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
        let Some(host) = kvm() else { return Ok(()) };
        let good = SNAPSHOT.get_or_init(|| Some(save(&host, &template(&host, ""))));
        let mut snapshot = good.clone().unwrap();
        let facts = part(&snapshot, 12);
        let state = facts.end..part(&snapshot, facts.end).end + 16;
        for (at, bit, anywhere) in flips {
            let range = if anywhere { 0..snapshot.len() } else { state.clone() };
            let at = range.start + usize::try_from(at).unwrap() % range.len();
            snapshot[at] ^= 1 << bit;
        }
        if let Ok(template) = restore(&host, &snapshot) {
            let mut process = template.spawn(&host).unwrap();
            let stopper = process.stopper();
            let watch = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                stopper.stop();
            });
            process.feed(b"x");
            drop(process.run());
            watch.join().unwrap();
        }
    }
}
