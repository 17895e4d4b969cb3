//! What a guest takes of the monitor's memory counts, however it hides it.

mod machine;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process};
use microvm::vfs::TreeBuilder;

/// Runs a program that first waits on its channel, from then on with so much memory and scratch. Its exit status.
fn run(source: &str, memory: u64, scratch: u64) -> Option<(i32, Process)> {
    let host = kvm()?;
    let directory = tempfile::tempdir().unwrap();
    let source = format!(
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n#include <stdio.h>\n#include <string.h>\n\
         #include <sys/mman.h>\n#include <sys/stat.h>\n#include <unistd.h>\n\
         int main() {{ char byte; read(3, &byte, 1);\n{source}\n}}"
    );
    std::fs::write(directory.path().join("program"), compile(&source, &["-static"])).unwrap();
    let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
    let options = Options { program: vec!["/program".into()], channel: true, ..Options::default() };
    let mut process =
        Process::start(&host, tree.scratch("/tmp").build(1 << 20, 64), &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Idle);
    process.limit(memory, scratch, 10_000);
    process.feed(b"x");
    let pause = process.run().unwrap();
    let Pause::Exited(status) = pause else { panic!("{pause:?}") };
    Some((status, process))
}

#[test]
fn memory_that_a_guest_hides_still_counts() {
    // Returns how many pieces of four megabytes it got.
    let source = r#"
        for (int count = 0; count < 60; count++) {
            char *piece = mmap(0, 4 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (piece == MAP_FAILED) return errno == ENOMEM ? count : 90;
            memset(piece, 1, 4 << 20);
            if (mprotect(piece, 4 << 20, PROT_NONE)) return 91;
        }
        return 92;"#;
    let Some((status, _)) = run(source, 32 << 20, 1 << 20) else { return };
    assert_eq!(status, 8);
}

#[test]
fn memory_that_was_never_touchable_does_not_count_and_what_is_given_back_does_not() {
    let source = r#"
        char *reserved = mmap(0, 512 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (reserved == MAP_FAILED) return 1;
        for (int round = 0; round < 20; round++) {
            if (mprotect(reserved, 16 << 20, 3)) return 2;
            memset(reserved, 1, 16 << 20);
            if (mprotect(reserved, 16 << 20, PROT_NONE)) return 3;
            /* Hidden and shown again it counts once, and is what it was. */
            if (mprotect(reserved, 16 << 20, 1) || reserved[5000] != 1) return 4;
            if (munmap(reserved, 16 << 20)) return 5;
            if (mmap(reserved, 16 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != reserved) return 6;
        }
        return 0;"#;
    let Some((status, _)) = run(source, 32 << 20, 1 << 20) else { return };
    assert_eq!(status, 0);
}

#[test]
fn names_and_links_count_as_scratch() {
    // Returns how many links of a thousand bytes it could make in 100 000, twice, with names of a hundred.
    let source = r#"
        char target[1012], name[128];
        memset(target, 'a', sizeof target - 1); target[sizeof target - 1] = 0;
        int counts[2];
        for (int round = 0; round < 2; round++) {
            int count = 0;
            for (; count < 1000; count++) {
                sprintf(name, "/tmp/%0100d", count);
                if (symlink(target, name)) { if (errno != ENOSPC) return 200; break; }
            }
            counts[round] = count;
            sprintf(name, "/tmp/%0100d", 0);
            /* A longer name takes room, too. */
            char longer[256]; sprintf(longer, "/tmp/%0250d", 0);
            if (rename(name, longer) != -1 || errno != ENOSPC) return 201;
            for (int at = 0; at < count; at++) {
                sprintf(name, "/tmp/%0100d", at);
                if (unlink(name)) return 202;
            }
        }
        return counts[0] == counts[1] ? counts[0] : 203;"#;
    let Some((status, process)) = run(source, 32 << 20, 100_000) else { return };
    assert_eq!(status, 100_000 / 1111);
    assert!(process.scratch_held() < 50_000, "{}", process.scratch_held());
}

#[test]
fn files_are_counted_however_they_grow_and_shrink() {
    // Returns 0: each way to take more than there is room for is refused, and what was given back is there again.
    let source = r#"
        static char block[50000];
        int file = open("/tmp/a", O_CREAT | O_RDWR, 0600);
        for (int round = 0; round < 5; round++) {
            if (write(file, block, sizeof block) != sizeof block) return 1;
            if (ftruncate(file, 99000)) return 2;
            if (ftruncate(file, 101000) != -1 || errno != ENOSPC) return 3;
            if (pwrite(file, block, 5000, 98000) != -1 || errno != ENOSPC) return 4;
            /* What is written where something is takes nothing more. */
            if (pwrite(file, block, 5000, 90000) != 5000) return 5;
            close(open("/tmp/a", O_RDWR | O_TRUNC));
            lseek(file, 0, SEEK_SET);
        }
        unlink("/tmp/a");
        /* Held open without a name it still counts. */
        if (write(file, block, sizeof block) != sizeof block) return 6;
        int other = open("/tmp/b", O_CREAT | O_RDWR, 0600);
        if (write(other, block, sizeof block) != -1 || errno != ENOSPC) return 7;
        close(file);
        if (write(other, block, sizeof block) != sizeof block) return 8;
        return 0;"#;
    let Some((status, _)) = run(source, 32 << 20, 100_000) else { return };
    assert_eq!(status, 0);
}

#[test]
fn what_nobody_takes_is_bounded_and_many_small_writes_take_no_more_than_they_hold() {
    let source = r#"
        char *much = mmap(0, 80 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (write(3, much, 65 << 20) != -1 || errno != ENOSPC) return 1;
        if (write(1, much, 65 << 20) != -1 || errno != ENOSPC) return 2;
        for (int at = 0; at < 5000; at++) if (write(1, "a", 1) != 1) return 3;
        for (int at = 0; at < 5000; at++) if (write(1 + at % 2, "", 0) != 0) return 5;
        return write(2, "b", 1) == 1 ? 0 : 4;"#;
    let Some((status, mut process)) = run(source, 128 << 20, 1 << 20) else { return };
    assert_eq!(status, 0);
    let output = process.take_output();
    assert_eq!(output.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [5000, 1]);
}
