//! Memory that is mapped and not touched costs nothing, as on Linux.

mod machine;

use std::fs;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::vfs::TreeBuilder;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A program that waits on its channel, and then does `work`.
fn idle(host: &Hypervisor, work: &str) -> (Process, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let source = format!(
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n#include <pthread.h>\n\
         #include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n\
         #include <sys/resource.h>\n#include <sys/statvfs.h>\n#include <unistd.h>\n\
         #define MIB (1l << 20)\n\
         static char *map(long bytes, int rights) {{\n\
             return mmap(0, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);\n\
         }}\n\
         static void *deep(void *pages) {{\n\
             volatile char own[300000];\n\
             for (int at = 0; at < (long)pages; at++) own[sizeof own - 1 - at * 4096] = 1;\n\
             return 0;\n\
         }}\n\
         int main() {{ char byte; read(3, &byte, 1);\n{work}\n}}"
    );
    fs::write(directory.path().join("program"), compile(&source, &["-static"])).unwrap();
    let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
    let options = Options { program: vec!["/program".into()], channel: true, ..Options::default() };
    let mut process =
        Process::start(host, tree.scratch("/tmp").build(64 << 20, 64), &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Idle);
    (process, directory)
}

/// Has a process within 32 MiB go on.
fn go_on(process: &mut Process, scanner: &Scanner) -> Pause {
    process.limit(32 * MIB, 64 * MIB, 64);
    process.measure_by(scanner);
    process.feed(b"x");
    process.run().unwrap()
}

/// How a program ends in a clone within 32 MiB, and again after a reset.
fn ends(work: &str) -> Option<Pause> {
    let host = kvm()?;
    let scanner = Scanner::open().unwrap();
    let (process, _files) = idle(&host, work);
    let template = Template::seal(process).unwrap();
    let mut clone = template.spawn(&host).unwrap();
    let end = go_on(&mut clone, &scanner);
    let mut clone = template.reset(clone, &scanner).unwrap().0;
    assert_eq!(template.differences(&mut clone, &scanner).unwrap(), Vec::<String>::new());
    assert_eq!(go_on(&mut clone, &scanner), end, "after a reset");
    Some(end)
}

fn works(work: &str) {
    if let Some(end) = ends(work) {
        assert_eq!(end, Pause::Exited(0));
    }
}

fn is_too_much(work: &str) {
    if let Some(end) = ends(work) {
        assert_eq!(end, Pause::OutOfMemory);
    }
}

#[test]
fn far_more_than_the_limit_is_mapped_and_touched_here_and_there() {
    works(
        r#"
        char *all = map(1000 * MIB, 3);
        if (all == MAP_FAILED) return 1;
        for (int round = 1; round < 4; round++) {
            for (long at = 0; at < 1000 * MIB; at += MIB) all[at + at / MIB % 200 * 4096] = round;
            for (long at = 0; at < 1000 * MIB; at += MIB) {
                if (all[at + at / MIB % 200 * 4096] != round || all[at + 255 * 4096]) return 2;
            }
        }
        return 0;"#,
    );
}

#[test]
fn memory_within_the_limit_that_is_not_touched_makes_room_for_more() {
    let source = r#"
        char *first = map(24 * MIB, 3), *second = map(24 * MIB, 3);
        memset(second, 7, 24 * MIB);
        for (long at = 0; at < 24 * MIB; at++) if (second[at] != 7) return 1;
        memset(first, 8, 4 * MIB);
        LAST
        return first[5] == 8 && second[24 * MIB - 1] == 7 ? 0 : 2;"#;
    works(&source.replace("LAST", ""));
    is_too_much(&source.replace("LAST", "memset(first, 8, 24 * MIB);"));
}

#[test]
fn memory_given_back_makes_room() {
    works(
        r#"
        char *all = map(150 * MIB, 3);
        for (int round = 0; round < 12; round++) {
            char *part = all + round % 6 * 24 * MIB;
            for (long at = 0; at < 24 * MIB; at += 4096) if (part[at]) return 1;
            memset(part, 5, 24 * MIB);
            if (round % 3 == 0 && madvise(part, 24 * MIB, MADV_DONTNEED)) return 2;
            if (round % 3 == 1 && madvise(part, 24 * MIB, MADV_FREE)) return 3;
            if (round % 3 == 2 && mmap(part, 24 * MIB, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != part) return 4;
        }
        return 0;"#,
    );
}

#[test]
fn reserved_memory_is_put_in_reach_far_beyond_the_limit() {
    works(
        r#"
        char *all = map(1000 * MIB, PROT_NONE);
        if (all == MAP_FAILED || mprotect(all, 1000 * MIB, 3)) return 1;
        for (long at = 0; at < 1000 * MIB; at += 4 * MIB) all[at] = 1;
        if (mprotect(all, 1000 * MIB, PROT_NONE) || mprotect(all, 1000 * MIB, PROT_READ)) return 2;
        for (long at = 0; at < 1000 * MIB; at += 4 * MIB) if (all[at] != 1 || all[at + 4096]) return 3;
        return 0;"#,
    );
}

#[test]
fn a_mapping_that_grows_far_beyond_the_limit_keeps_its_bytes() {
    works(
        r#"
        char *all = map(8 * MIB, 3);
        memset(all, 3, 8 * MIB);
        for (long now = 8; now < 512; now *= 2) {
            mmap(all + now * MIB, 4096, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            char *grown = mremap(all, now * MIB, 2 * now * MIB, MREMAP_MAYMOVE);
            if (grown == MAP_FAILED || grown == all) return 1;
            all = grown;
            for (long at = 0; at < 8 * MIB; at++) if (all[at] != 3) return 2;
            all[2 * now * MIB - 1] = 4;
        }
        /* The break grows, too, as far as there are addresses. */
        char *end = sbrk(50 * MIB);
        if (end == (char *)-1) return 3;
        end[49 * MIB] = 1;
        return all[16 * MIB - 1] == 4 ? 0 : 4;"#,
    );
}

#[test]
fn calls_read_and_write_memory_that_was_never_touched() {
    let source = r#"
        char *all = map(200 * MIB, 3), *other = map(SIZE * MIB, 3);
        int zeros = open("/dev/zero", O_RDONLY), file = open("/tmp/file", O_CREAT | O_RDWR, 0600);
        if (write(file, all + 100 * MIB, 4 * MIB) != 4 * MIB) return 1;
        if (pread(file, all + 101 * MIB, 4 * MIB, 0) != 4 * MIB || all[103 * MIB]) return 2;
        if (pwrite(file, "text", 4, 5) != 4 || pread(file, all + 50 * MIB, 9, 0) != 9) return 3;
        if (memcmp(all + 50 * MIB + 5, "text", 4)) return 4;
        if (read(zeros, other, SIZE * MIB) != SIZE * MIB) return 5;
        return 0;"#;
    works(&source.replace("SIZE", "20"));
    is_too_much(&source.replace("SIZE", "40"));
}

#[test]
fn many_threads_have_stacks_and_touch_little_of_them() {
    works(
        r#"
        pthread_t threads[64];
        for (int round = 0; round < 3; round++) {
            for (long at = 0; at < 64; at++) {
                if (pthread_create(threads + at, 0, deep, (void *)(at % 70))) return 1;
            }
            for (int at = 0; at < 64; at++) if (pthread_join(threads[at], 0)) return 2;
        }
        return 0;"#,
    );
}

#[test]
fn a_programs_own_limit_binds_what_it_maps() {
    works(
        r#"
        struct rlimit limit = {300 * MIB, 300 * MIB};
        if (setrlimit(RLIMIT_AS, &limit)) return 1;
        if (map(400 * MIB, 3) != MAP_FAILED || errno != ENOMEM) return 2;
        return map(200 * MIB, 3) == MAP_FAILED ? 3 : 0;"#,
    );
}

#[test]
fn memory_takes_the_room_that_scratch_shares_and_gives_it_back() {
    let Some(host) = kvm() else { return };
    let source = r#"
        char *all = map(100 * MIB, 3), block[1 << 16];
        memset(block, 1, sizeof block);
        int file = open("/tmp/file", O_CREAT | O_RDWR, 0600), count = 0;
        memset(all, 1, 50 * MIB);
        /* Of 64 MiB memory has 18 and a little. */
        struct statvfs system;
        if (fstatvfs(file, &system) || system.f_blocks * 4096 != 64 * MIB) return 4;
        if (system.f_bavail * 4096 < 45 * MIB || system.f_bavail * 4096 > 46 * MIB) return 5;
        while (write(file, block, sizeof block) == sizeof block) count++;
        if (count < 45 * 16 || count > 46 * 16) return 1;
        munmap(all, 50 * MIB);
        while (write(file, block, sizeof block) == sizeof block) count++;
        if (count < 64 * 16 - 2 || count > 64 * 16) return 2;
        write(3, "", 1);
        memset(all + 50 * MIB, 1, 50 * MIB);
        return 3;"#;
    let (process, _files) = idle(&host, source);
    let mut clone = Template::seal(process).unwrap().spawn(&host).unwrap();
    clone.limit(32 * MIB, 64 * MIB, 64);
    clone.share_scratch(40 * MIB);
    clone.measure_by(&Scanner::open().unwrap());
    clone.feed(b"x");
    assert_eq!(clone.run().unwrap(), Pause::OutOfMemory);
    assert_eq!(clone.take_said().len(), 1);
}

#[test]
fn only_a_mapping_for_which_there_are_no_addresses_is_refused() {
    works(
        r#"
        if (map(8192 * MIB, 3) != MAP_FAILED || errno != ENOMEM) return 1;
        char *much = malloc(1500 * MIB);
        if (!much) return 2;
        much[700 * MIB] = 1;
        free(much);
        return malloc(1l << 40) ? 3 : 0;"#,
    );
}

#[test]
fn a_machine_that_touches_too_much_is_ended() {
    let source = "char *all = map(100 * MIB, 3);\nfor (long at = 0; at < 100 * MIB; at += 4096) all[at] = 1;\nreturn 0;";
    is_too_much(source);
    is_too_much("char *all = sbrk(50 * MIB); memset(all, 1, 50 * MIB); return 0;");
    is_too_much(
        "char *all = mmap(0, 100 * MIB, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); memset(all, 1, 100 * MIB); return 0;",
    );
}

#[test]
fn what_one_call_writes_counts_before_any_of_it_is_there() {
    let Some(host) = kvm() else { return };
    let scanner = Scanner::open().unwrap();
    let source = r#"
        char *base = map(2000 * MIB, PROT_NONE);
        int zeros = open("/dev/zero", O_RDONLY);
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        for (long at = 0; at < 40 * 48 * MIB; at += 48 * MIB) {
            if (mmap(base + at, 24 * MIB, 3, flags, -1, 0) != base + at) return 1;
            if (mmap(base + at + 24 * MIB, 24 * MIB, 3, flags, -1, 0) == MAP_FAILED) return 2;
            read(zeros, base + at, 48 * MIB);
            munmap(base + at + 24 * MIB, 24 * MIB);
        }
        return 0;"#;
    let mut clone = Template::seal(idle(&host, source).0).unwrap().spawn(&host).unwrap();
    assert_eq!(go_on(&mut clone, &scanner), Pause::OutOfMemory);
    let weight = clone.weigh(&scanner).unwrap();
    assert!(weight <= 33 * MIB, "{weight}");
}

/// A template of a clone that has done its work up to its next wait.
fn loaded(host: &Hypervisor, work: &str, scanner: &Scanner) -> Template {
    let mut clone = Template::seal(idle(host, work).0).unwrap().spawn(host).unwrap();
    assert_eq!(go_on(&mut clone, scanner), Pause::Idle);
    Template::seal_clone(clone, scanner).unwrap()
}

#[test]
fn memory_mapped_while_a_function_loads_counts_when_a_call_touches_it() {
    let Some(host) = kvm() else { return };
    let scanner = Scanner::open().unwrap();
    let source = r#"
        char *all = map(1000 * MIB, 3), *part;
        all[900 * MIB] = 9;
        for (int round = 0; round < 3; round++) {
            read(3, &byte, 1);
            part = all + round * 300 * MIB;
            for (long at = 0; at < 20 * MIB; at += 512) if (part[at]) return 1;
            memset(part, 1, 20 * MIB);
            if (all[900 * MIB] != 9) return 2;
            read(3, &byte, 1);
            if (madvise(part, 20 * MIB, MADV_DONTNEED) || part[5]) return 3;
        }
        read(3, &byte, 1);
        memset(all, 1, 40 * MIB);
        return 4;"#;
    let template = loaded(&host, source, &scanner);
    let mut clone = template.spawn(&host).unwrap();
    for _ in 0..2 {
        for _ in 0..3 {
            assert_eq!(go_on(&mut clone, &scanner), Pause::Idle);
            let weight = clone.weigh(&scanner).unwrap();
            assert!((20 * MIB..24 * MIB).contains(&weight), "{weight}");
            assert_eq!(go_on(&mut clone, &scanner), Pause::Idle);
        }
        assert_eq!(go_on(&mut clone, &scanner), Pause::OutOfMemory);
        clone = template.reset(clone, &scanner).unwrap().0;
        assert_eq!(template.differences(&mut clone, &scanner).unwrap(), Vec::<String>::new());
        let weight = clone.weigh(&scanner).unwrap();
        assert!(weight < 4 * MIB, "{weight}");
    }
}

#[test]
fn memory_that_is_not_touched_while_a_function_loads_leaves_room_for_calls() {
    let Some(host) = kvm() else { return };
    let scanner = Scanner::open().unwrap();
    let source = r#"
        char *first = map(24 * MIB, 3);
        first[20 * MIB] = 1;
        read(3, &byte, 1);
        char *second = map(24 * MIB, 3);
        memset(second, 2, 24 * MIB);
        return first[20 * MIB] == 1 && !first[5] && second[5] == 2 ? 0 : 1;"#;
    let mut clone = loaded(&host, source, &scanner).spawn(&host).unwrap();
    // Without a scanner, which would take it back now.
    clone.limit(32 * MIB, 64 * MIB, 64);
    clone.feed(b"x");
    assert_eq!(clone.run().unwrap(), Pause::Exited(0));
}
