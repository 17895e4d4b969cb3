//! Clones by fork of the monitor. A program of its own, with one thread: that is what can be
//! forked.

#![expect(clippy::print_stdout, reason = "says what a test harness would")]

mod machine;

use std::panic::{AssertUnwindSafe, catch_unwind};

use machine::{compile, kvm};
use microvm::linux::{ForkError, ForkSide, Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::MemoryKind;
use microvm::memory::Scanner;
use microvm::vfs::TreeBuilder;
use rustix::process::{WaitOptions, waitpid};

/// Answers each byte: `+` counts up, in memory, in a register, in a file and by a mapping of its
/// own; `?` says the count, if all four agree and rights are what they were.
const PROGRAM: &str = r##"
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <unistd.h>
    static unsigned char counts[64 << 12];
    int main() {
        unsigned char *mapped = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *closed = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        double vector = 0;
        int file = open("/tmp/count", O_RDWR | O_CREAT, 0600);
        for (int at = 0; at < sizeof counts; at += 4096) counts[at] = 0;
        for (;;) {
            unsigned char letter, answer, filed = 0;
            if (read(3, &letter, 1) != 1) return 0;
            if (letter == '+') {
                for (int at = 0; at < sizeof counts; at += 4096) counts[at]++;
                mapped[0]++; vector += 1;
                pwrite(file, counts, 1, 0);
            }
            pread(file, &filed, 1, 0);
            answer = counts[0];
            for (int at = 0; at < sizeof counts; at += 4096) if (counts[at] != answer) answer = 201;
            if (mapped[0] != answer || filed != answer || vector != answer) answer = 202;
            if (write(file, closed, 1) != -1 || errno != EFAULT) answer = 203;
            write(3, &answer, 1);
        }
    }
"##;

fn start(memory: MemoryKind, host: &Hypervisor, directory: &std::path::Path) -> Process {
    let tree = TreeBuilder::default().layer("/", directory).unwrap().devices();
    let tree = tree.scratch("/tmp").build(1 << 20, 16);
    let options = Options { program: vec!["/program".into()], channel: true, ..Options::default() };
    let mut process = Process::start_in(memory, host, tree, &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Idle);
    process
}

fn ask(process: &mut Process, letter: u8) -> u8 {
    process.feed(&[letter]);
    assert_eq!(process.run().unwrap(), Pause::Idle);
    process.take_said()[0]
}

/// Forks; the clone does this, and has to come through it. Returns the original.
fn fork(process: Process, host: &Hypervisor, clone_does: impl FnOnce(Process)) -> Process {
    match process.fork(host).unwrap() {
        ForkSide::Clone(clone) => {
            let passed = catch_unwind(AssertUnwindSafe(|| clone_does(clone))).is_ok();
            // SAFETY: ends the process at once; nothing of the original's is run twice.
            unsafe { libc::_exit(i32::from(!passed)) }
        }
        ForkSide::Original(process, clone) => {
            let (_, status) = waitpid(Some(clone), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(status.exit_status(), Some(0), "the clone failed: see above");
            process
        }
    }
}

/// Counts on both sides, each for itself; clones can be forked as well.
fn counts_apart(mut process: Process, host: &Hypervisor) {
    assert_eq!(ask(&mut process, b'+'), 1);
    for round in 1..4 {
        process = fork(process, host, |mut clone| {
            assert_eq!(ask(&mut clone, b'?'), round);
            for more in 1..10 {
                assert_eq!(ask(&mut clone, b'+'), round + more);
            }
            let mut clone =
                fork(clone, host, |mut second| assert_eq!(ask(&mut second, b'+'), round + 10));
            assert_eq!(ask(&mut clone, b'?'), round + 9);
        });
        assert_eq!(ask(&mut process, b'?'), round);
        assert_eq!(ask(&mut process, b'+'), round + 1);
    }
}

fn a_fork_goes_on_where_its_original_stands_and_neither_sees_the_other(
    host: &Hypervisor,
    directory: &std::path::Path,
) {
    for memory in [MemoryKind::Anonymous, MemoryKind::AnonymousHuge] {
        counts_apart(start(memory, host, directory), host);
    }
}

fn a_clone_of_a_template_can_be_forked_and_the_fork_be_reset(
    host: &Hypervisor,
    directory: &std::path::Path,
) {
    let template = Template::seal(start(MemoryKind::File, host, directory)).unwrap();
    counts_apart(template.spawn(host).unwrap(), host);
    fork(template.spawn(host).unwrap(), host, |mut clone| {
        // The clone's own pages, not the original's.
        let scanner = Scanner::open().unwrap();
        assert_eq!(ask(&mut clone, b'+'), 1);
        let (mut clone, _) = template.reset(clone, &scanner).unwrap();
        assert_eq!(template.differences(&mut clone, &scanner).unwrap(), Vec::<String>::new());
        assert_eq!(ask(&mut clone, b'?'), 0);
    });
}

/// Touches a part of what it has mapped before the fork, and then all of what it maps.
const WORKS: &str = r#"
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    enum { MIB = 1 << 20 };
    int main() {
        char byte;
        read(3, &byte, 1);
        char *first = mmap(0, 24 * MIB, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        read(3, &byte, 1);
        memset(first, byte, 4 * MIB);
        char *second = mmap(0, 24 * MIB, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(second, byte + 1, 24 * MIB);
        for (int at = 0; at < 4 * MIB; at++) if (first[at] != byte) return 1;
        for (int at = 0; at < 24 * MIB; at++) if (second[at] != byte + 1) return 2;
        return 0;
    }
"#;

fn memory_that_a_fork_touched_is_not_taken_from_it(host: &Hypervisor, _: &std::path::Path) {
    let scanner = Scanner::open().unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("program"), compile(WORKS, &["-static"])).unwrap();
    let template = start(MemoryKind::File, host, directory.path());
    let mut process = Template::seal(template).unwrap().spawn(host).unwrap();
    process.limit(32 << 20, 1 << 20, 16);
    process.measure_by(&scanner);
    process.feed(b"x");
    assert_eq!(process.run().unwrap(), Pause::Idle);
    let works = |process: &mut Process| {
        process.feed(b"x");
        assert_eq!(process.run().unwrap(), Pause::Exited(0));
    };
    let mut process = fork(process, host, |mut clone| works(&mut clone));
    works(&mut process);
}

fn memory_that_both_would_write_to_is_not_forked(host: &Hypervisor, directory: &std::path::Path) {
    let refused = start(MemoryKind::File, host, directory).fork(host);
    assert!(matches!(refused, Err(ForkError::Shared)), "{refused:?}");
}

fn a_monitor_with_threads_is_not_forked(host: &Hypervisor, directory: &std::path::Path) {
    let process = start(MemoryKind::Anonymous, host, directory);
    let (over, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || wait.recv().is_err());
    let refused = process.fork(host);
    assert!(matches!(refused, Err(ForkError::Threads)), "{refused:?}");
    drop(over);
    assert!(other.join().unwrap());
}

fn main() {
    let Some(host) = kvm() else { return };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("program"), compile(PROGRAM, &["-static"])).unwrap();
    type Test = fn(&Hypervisor, &std::path::Path);
    let tests: [(&str, Test); 5] = [
        (
            "a_fork_goes_on_where_its_original_stands_and_neither_sees_the_other",
            a_fork_goes_on_where_its_original_stands_and_neither_sees_the_other,
        ),
        (
            "a_clone_of_a_template_can_be_forked_and_the_fork_be_reset",
            a_clone_of_a_template_can_be_forked_and_the_fork_be_reset,
        ),
        (
            "memory_that_a_fork_touched_is_not_taken_from_it",
            memory_that_a_fork_touched_is_not_taken_from_it,
        ),
        (
            "memory_that_both_would_write_to_is_not_forked",
            memory_that_both_would_write_to_is_not_forked,
        ),
        ("a_monitor_with_threads_is_not_forked", a_monitor_with_threads_is_not_forked),
    ];
    for (name, test) in tests {
        test(&host, directory.path());
        println!("test {name} ... ok");
    }
    println!("test result: ok. {} passed; 0 failed; 0 ignored", tests.len());
}
