//! What a guest takes of the monitor's memory counts, however it hides it.

mod machine;

use std::fs::File;
use std::os::unix::fs::FileExt;

use machine::{compile, kvm};
use microvm::linux::{MAX_LAYER_FILES, Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::memory::layout::ARENA_BYTES;
use microvm::vfs::TreeBuilder;
use tempfile::TempDir;

/// A program that does one thing, waits on its channel, and does another; and its files, among them
/// two hundred in `/many`.
fn idle(host: &Hypervisor, first: &str, second: &str) -> (Process, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let source = format!(
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n#include <stdio.h>\n#include <string.h>\n\
         #include <sys/mman.h>\n#include <sys/socket.h>\n#include <sys/stat.h>\n#include <unistd.h>\n\
         int main() {{ char byte;\n{first}\nread(3, &byte, 1);\n{second}\n}}"
    );
    std::fs::write(directory.path().join("program"), compile(&source, &["-static"])).unwrap();
    std::fs::create_dir(directory.path().join("many")).unwrap();
    for number in 0..200 {
        std::fs::write(directory.path().join(format!("many/{number}")), "x").unwrap();
    }
    let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
    let options = Options { program: vec!["/program".into()], channel: true, ..Options::default() };
    let mut process =
        Process::start(host, tree.scratch("/tmp").build(1 << 20, 64), &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Idle);
    (process, directory)
}

/// Runs one that waits for a byte, within so much memory and scratch. Its exit status.
fn go_on(process: &mut Process, memory: u64, scratch: u64) -> i32 {
    process.limit(memory, scratch, 10_000);
    process.feed(b"x");
    let pause = process.run().unwrap();
    let Pause::Exited(status) = pause else { panic!("{pause:?}") };
    status
}

/// As [`go_on`], for one that ends because it touches too much memory. How many bytes it said
/// before.
fn until_exhausted(process: &mut Process, memory: u64, scratch: u64) -> usize {
    process.limit(memory, scratch, 10_000);
    process.feed(b"x");
    assert_eq!(process.run().unwrap(), Pause::OutOfMemory);
    process.take_said().len()
}

/// Runs a program that first waits on its channel, from then on with so much memory and scratch.
/// Its exit status.
fn run(source: &str, memory: u64, scratch: u64) -> Option<(i32, Process)> {
    let host = kvm()?;
    let (mut process, _files) = idle(&host, "", source);
    Some((go_on(&mut process, memory, scratch), process))
}

#[test]
fn memory_that_a_guest_hides_still_counts() {
    // Says a byte for each piece of four megabytes.
    let source = r#"
        for (int count = 0; count < 60; count++) {
            char *piece = mmap(0, 4 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (piece == MAP_FAILED) return 90;
            memset(piece, 1, 4 << 20);
            if (mprotect(piece, 4 << 20, PROT_NONE) || write(3, "", 1) != 1) return 91;
        }
        return 92;"#;
    let Some(host) = kvm() else { return };
    assert_eq!(until_exhausted(&mut idle(&host, "", source).0, 32 << 20, 1 << 20), 8);
}

/// Whether this host has huge pages for those who ask; said if not.
fn huge_pages() -> bool {
    let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    let enabled = std::fs::read_to_string(enabled).unwrap_or_default();
    let there = enabled.contains("[madvise]") || enabled.contains("[always]");
    if !there {
        skips::skip("huge_pages", "this host has no transparent huge pages");
    }
    there
}

#[test]
fn scattered_touches_take_single_pages_of_the_host_and_no_huge_one() {
    // Reserved, and put in reach a page in each block; mapped beside what was; and what was mapped
    // and given back.
    let second = r#"
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        for (int round = 0; round < 3; round++) {
            char *all = mmap(0, 1000 << 20, PROT_NONE, flags, -1, 0);
            if (all == MAP_FAILED) return 1;
            for (long at = 0; at < 1000 << 20; at += 2 << 20) {
                if (round == 1) munmap(all + at, 2 << 20);
                if (round == 1 && mmap(all + at, 4096, 3, flags | MAP_FIXED, -1, 0) != all + at) return 2;
                if (round != 1 && mprotect(all + at, 4096, 3)) return 3;
                all[at] = 1;
            }
            if (round < 2 && munmap(all, 1000 << 20)) return 4;
            char *whole = mmap(0, 16 << 20, 3, flags, -1, 0);
            if (whole == MAP_FAILED) return 5;
            memset(whole, 1, 16 << 20);
            munmap(whole, 16 << 20);
        }
        return 0;"#;
    let Some(host) = kvm().filter(|_| huge_pages()) else { return };
    let template = Template::seal(idle(&host, "", second).0).unwrap();
    let mut clone = template.spawn(&host).unwrap();
    assert_eq!(go_on(&mut clone, 32 << 20, 1 << 20), 0);
    let weight = clone.weigh(&Scanner::open().unwrap()).unwrap();
    assert!(weight < (32 + 16) << 20, "{weight}");
}

#[test]
fn the_rest_of_a_block_leaves_its_huge_page_and_keeps_its_bytes() {
    let second = r#"
        for (int round = 0; round < 8; round++) {
            char *all = mmap(0, 18 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (all == MAP_FAILED) return 1;
            memset(all, 7, 18 << 20);
            for (long at = 0; at < 18 << 20; at += 2 << 20) {
                const long kept = round % 4 * 170 * 4096;
                if (kept && munmap(all + at, kept)) return 2;
                if (munmap(all + at + kept + 4096, (2 << 20) - kept - 4096)) return 3;
                for (int byte = 0; byte < 4096; byte++) if (all[at + kept + byte] != 7) return 4;
            }
        }
        return 0;"#;
    let Some(host) = kvm().filter(|_| huge_pages()) else { return };
    let template = Template::seal(idle(&host, "", second).0).unwrap();
    let mut clone = template.spawn(&host).unwrap();
    let before = clone.space().regions().clone();
    assert_eq!(go_on(&mut clone, 32 << 20, 1 << 20), 0);
    let new = clone.space().regions().iter().filter(|(range, _)| !before.touch(range.clone()));
    let new: Vec<_> = new.map(|(range, _)| range.start).collect();
    assert_eq!(new.len(), 8 * 9);
    let entry = |file: &str, number: u64| {
        let mut bytes = [0; 8];
        let read = File::open(file).and_then(|it| it.read_exact_at(&mut bytes, number * 8));
        read.ok().map(|()| u64::from_ne_bytes(bytes))
    };
    let base = clone.space().arena().address();
    for start in new {
        let place = entry("/proc/self/pagemap", (base + start) / 4096).unwrap();
        assert!(place >> 63 == 1, "{start:#x} is in memory");
        let Some(flags) = entry("/proc/kpageflags", place & ((1 << 55) - 1)) else {
            skips::skip("root", "only root may look at the kernel's pages");
            return;
        };
        // A head, a tail, a transparent huge page: Documentation/admin-guide/mm/pagemap.rst.
        assert_eq!(flags & (1 << 15 | 1 << 16 | 1 << 22), 0, "{start:#x}: {flags:#x}");
    }
}

#[test]
fn many_ranges_of_huge_pages_take_few_mappings_of_the_host() {
    let second = r#"
        char *all = mmap(0, 400 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) return 1;
        for (long at = 0; at < 400 << 20; at += 4 << 20) all[at + (2 << 20)] = 5;
        for (long at = 0; at < 400 << 20; at += 4 << 20) if (munmap(all + at, 2 << 20)) return 2;
        for (long at = 0; at < 400 << 20; at += 4 << 20) if (all[at + (2 << 20)] != 5) return 3;
        return 0;"#;
    let Some(host) = kvm() else { return };
    let template = Template::seal(idle(&host, "", second).0).unwrap();
    let mut clone = template.spawn(&host).unwrap();
    assert_eq!(go_on(&mut clone, 500 << 20, 1 << 20), 0);
    let base = clone.space().arena().address();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let starts =
        maps.lines().filter_map(|line| u64::from_str_radix(line.split_once('-')?.0, 16).ok());
    let count = starts.filter(|start| (base..base + ARENA_BYTES).contains(start)).count();
    assert!(count < 80, "{count}");
}

#[test]
fn a_mapping_that_moves_to_grow_counts_once_and_keeps_its_bytes() {
    // Says a byte for each megabyte of something that grows by an eighth each time and cannot stay
    // where it is.
    let source = r#"
        unsigned long now = 1 << 20, more, said = 0;
        unsigned *all = mmap(0, now, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (unsigned long at = 0; at < now / 4; at += 512) all[at] = at + 1;
        for (;; now = more) {
            more = (now + now / 8 + 4095) & ~4095ul;
            mmap((char *)all + now, 4096, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            unsigned *grown = mremap(all, now, more, MREMAP_MAYMOVE);
            if (grown == MAP_FAILED) return 94;
            if (grown == all) return 91;
            all = grown;
            for (unsigned long at = now / 4; at < more / 4; at += 512) { if (all[at]) return 92; all[at] = at + 1; }
            for (unsigned long at = 0; at < more / 4; at += 512) if (all[at] != at + 1 || all[at + 1]) return 93;
            for (; said < more >> 20; said++) if (write(3, "", 1) != 1) return 95;
        }"#;
    let Some(host) = kvm() else { return };
    let (mut process, _files) = idle(&host, "", source);
    // At most an eighth is missing.
    let fits = |megabytes: usize| (56..=64).contains(&megabytes);
    let got = until_exhausted(&mut process, 64 << 20, 1 << 20);
    assert!(fits(got), "{got}");
    let (process, _files) = idle(&host, "", source);
    let template = Template::seal(process).unwrap();
    let got = until_exhausted(&mut template.spawn(&host).unwrap(), 64 << 20, 1 << 20);
    assert!(fits(got), "{got} in a clone");
}

#[test]
fn a_files_further_names_count_as_files() {
    // Of 64 nodes one is the directory, and one the file.
    let source = r#"
        char name[64], next[64];
        close(open("/tmp/file", O_CREAT | O_WRONLY, 0600));
        for (int round = 0; round < 3; round++) {
            int count = 0;
            for (;; count++) { sprintf(name, "/tmp/%d", count); if (link("/tmp/file", name)) break; }
            if (errno != ENOSPC || count != 62) return count;
            if (open("/tmp/more", O_CREAT | O_WRONLY, 0600) >= 0 || errno != ENOSPC) return 91;
            struct stat it;
            if (stat("/tmp/file", &it) || it.st_nlink != 63) return 92;
            while (count--) { sprintf(name, "/tmp/%d", count); if (unlink(name)) return 93; }
        }
        return 90;"#;
    let Some(host) = kvm() else { return };
    let (mut process, _files) = idle(&host, "", source);
    process.limit(32 << 20, 1 << 20, 64);
    process.feed(b"x");
    assert_eq!(process.run().unwrap(), Pause::Exited(90));
}

#[test]
fn memory_never_accessible_or_given_back_does_not_count() {
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
fn files_that_are_mapped_without_rights_count() {
    // Returns how many pieces of four megabytes it got.
    let source = r#"
        int file = open("/many/1", O_RDONLY);
        for (int count = 0; count < 60; count++) {
            char *piece = mmap(0, 4 << 20, PROT_NONE, MAP_PRIVATE, file, 0);
            if (piece == MAP_FAILED) return errno == ENOMEM ? count : 90;
            /* What it holds is there once it may be read. */
            if (mprotect(piece, 4096, PROT_READ) || piece[0] != 'x') return 91;
        }
        return 92;"#;
    let Some((status, _)) = run(source, 32 << 20, 1 << 20) else { return };
    assert_eq!(status, 8);
}

#[test]
fn memory_that_a_template_reserved_takes_nothing_when_a_clone_forgets_it() {
    let Some(host) = kvm() else { return };
    let first =
        "char *reserved = mmap(0, 64 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);";
    let second = r#"
        if (madvise(reserved, 64 << 20, MADV_DONTNEED)) return 90;
        /* What counts is zero afterwards. */
        if (mprotect(reserved, 1 << 20, 3)) return 91;
        memset(reserved, 1, 1 << 20);
        if (madvise(reserved, 64 << 20, MADV_DONTNEED) || reserved[5000] != 0) return 92;
        return 0;"#;
    let template = Template::seal(idle(&host, first, second).0).unwrap();
    let mut clone = template.spawn(&host).unwrap();
    assert_eq!(go_on(&mut clone, 32 << 20, 1 << 20), 0);
    let weight = clone.weigh(&Scanner::open().unwrap()).unwrap();
    assert!(weight < 16 << 20, "{weight}");
}

#[test]
fn names_and_links_count_as_scratch() {
    // Returns how many links of a thousand bytes it could make in 100 000, twice, with names of a
    // hundred.
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
    // Returns 0: each way to take more than there is room for is refused or cut, and what was given
    // back is there again.
    let source = r#"
        static char block[50000];
        int file = open("/tmp/a", O_CREAT | O_RDWR, 0600);
        for (int round = 0; round < 5; round++) {
            if (write(file, block, sizeof block) != sizeof block) return 1;
            if (ftruncate(file, 99000)) return 2;
            if (ftruncate(file, 101000) != -1 || errno != ENOSPC) return 3;
            ssize_t fits = pwrite(file, block, 5000, 98000);
            if (fits < 1000 || fits > 2000) return 4;
            if (pwrite(file, block, 5000, 98000 + fits) != -1 || errno != ENOSPC) return 9;
            /* What is written where something is takes nothing more. */
            if (pwrite(file, block, 5000, 90000) != 5000) return 5;
            close(open("/tmp/a", O_RDWR | O_TRUNC));
            lseek(file, 0, SEEK_SET);
        }
        unlink("/tmp/a");
        /* Held open without a name it still counts. */
        if (write(file, block, sizeof block) != sizeof block) return 6;
        int other = open("/tmp/b", O_CREAT | O_RDWR, 0600);
        ssize_t fits = write(other, block, sizeof block);
        if (fits <= 0 || fits >= (ssize_t)sizeof block) return 7;
        if (write(other, block, sizeof block) != -1 || errno != ENOSPC) return 10;
        close(file);
        if (write(other, block, 40000) != 40000) return 8;
        return 0;"#;
    let Some((status, _)) = run(source, 32 << 20, 100_000) else { return };
    assert_eq!(status, 0);
}

#[test]
fn untaken_output_is_bounded_also_in_many_small_writes() {
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

#[test]
fn memory_of_its_templates_that_a_clone_hides_counts() {
    let Some(host) = kvm() else { return };
    let first = "char *shared = mmap(0, 64 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(shared, 1, 64 << 20);";
    // Says a byte for each further piece of eight megabytes.
    let second = r#"
        if (munmap(shared, 64 << 20)) return 90;
        /* The template's bytes must not show: each page is made a page of zeros, and the clone's own. */
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap(shared, 64 << 20, PROT_NONE, flags, -1, 0) != shared) return 91;
        for (int count = 0; count < 60; count++) {
            char *piece = mmap(0, 8 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (piece == MAP_FAILED) return 92;
            memset(piece, 1, 8 << 20);
            if (write(3, "", 1) != 1) return 94;
        }
        return 93;"#;
    let template = Template::seal(idle(&host, first, second).0).unwrap();
    let mut clone = template.spawn(&host).unwrap();
    assert_eq!(until_exhausted(&mut clone, 32 << 20, 1 << 20), 4);
}

/// Touches 24 megabytes between two waits; then says whether scratch is full, and a byte for each
/// further piece of four.
const TAKES_TWICE: [&str; 2] = [
    "char *piece;",
    r#"
        piece = mmap(0, 24 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED) return 90;
        memset(piece, 1, 24 << 20);
        int file = open("/tmp/file", O_CREAT | O_RDWR, 0600);
        read(3, &byte, 1);
        static char block[30000];
        if (write(file, block, sizeof block) != sizeof block) write(3, "full", 4);
        for (int count = 0; count < 60; count++) {
            piece = mmap(0, 4 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (piece == MAP_FAILED) return 92;
            memset(piece, 1, 4 << 20);
            if (write(3, "", 1) != 1) return 94;
        }
        return 93;"#,
];

#[test]
fn a_clone_of_a_clone_has_its_memory_once() {
    let Some(host) = kvm() else { return };
    let [first, second] = TAKES_TWICE;
    let template = Template::seal(idle(&host, first, second).0).unwrap();
    let mut loaded = template.spawn(&host).unwrap();
    loaded.limit(32 << 20, 1 << 20, 64);
    loaded.feed(b"x");
    assert_eq!(loaded.run().unwrap(), Pause::Idle);
    let loaded = Template::seal_clone(loaded, &Scanner::open().unwrap()).unwrap();
    assert_eq!(loaded.given(), template.given());
    let mut clone = loaded.spawn(&host).unwrap();
    assert_eq!(until_exhausted(&mut clone, 32 << 20, 1 << 20), 2);
    // A higher limit leaves more room; a limit below what was taken leaves none.
    let mut clone = loaded.spawn(&host).unwrap();
    assert_eq!(until_exhausted(&mut clone, 40 << 20, 1 << 20), 4);
    let mut clone = loaded.spawn(&host).unwrap();
    assert_eq!(until_exhausted(&mut clone, 16 << 20, 1 << 20), 0);
}

#[test]
fn a_reset_leaves_a_clone_its_own_limits() {
    let Some(host) = kvm() else { return };
    let scanner = Scanner::open().unwrap();
    let [first, second] = TAKES_TWICE;
    // The template's scratch has room for a megabyte.
    let template = Template::seal(idle(&host, first, second).0).unwrap();
    let mut clone = template.spawn(&host).unwrap();
    clone.limit(28 << 20, 20_000, 64);
    for _ in 0..2 {
        for pause in [Pause::Idle, Pause::OutOfMemory] {
            clone.feed(b"x");
            assert_eq!(clone.run().unwrap(), pause);
        }
        assert_eq!(clone.take_said().len(), "full".len() + 1);
        clone = template.reset(clone, &scanner).unwrap().0;
    }
}

#[test]
fn bytes_in_pipes_and_untaken_output_weigh() {
    let Some(host) = kvm() else { return };
    const MIB: u64 = 1 << 20;
    let first = r#"
        static char block[1 << 20];
        int ends[16][2];
        for (int at = 0; at < 16; at++) if (pipe(ends[at]) || write(ends[at][1], block, 1 << 16) != 1 << 16) return 1;
        if (write(1, block, sizeof block) != sizeof block || write(3, block, sizeof block) != sizeof block) return 2;"#;
    let second = r#"
        for (int at = 0; at < 16; at++) close(ends[at][0]), close(ends[at][1]);
        read(3, &byte, 1);
        return 0;"#;
    let (mut process, _files) = idle(&host, first, second);
    let scanner = Scanner::open().unwrap();
    let weigh = |process: &Process| process.weigh(&scanner).unwrap();
    let mut before = weigh(&process);
    assert!(before >= 3 * MIB, "{before}");
    let mut lighter = |process: &Process| {
        let now = weigh(process);
        let less = before - now;
        before = now;
        less
    };
    assert_eq!(process.take_said().len() as u64, MIB);
    assert!(lighter(&process) >= MIB);
    drop(process.take_output());
    assert!(lighter(&process) >= MIB);
    process.feed(b"x");
    assert_eq!(process.run().unwrap(), Pause::Idle);
    // But for what holds the byte that it was fed.
    assert!(lighter(&process) >= MIB - 100);
    // What it has not read yet is its own, too.
    let unread = vec![0; 1 << 20];
    process.feed(&unread);
    let full = process.weigh(&Scanner::open().unwrap()).unwrap();
    assert!(full >= MIB, "{full}");
}

#[test]
fn a_guest_has_so_many_files_of_layers_open_and_no_more() {
    let source = r#"
        char name[32];
        int count = 0, last = -1;
        for (; count < 200; count++) {
            sprintf(name, "/many/%d", count);
            int got = open(name, O_RDONLY);
            if (got < 0 && errno != EMFILE) return 240;
            if (got < 0) break;
            last = got;
        }
        /* What is open already takes no further descriptor of the host's, and neither does scratch. */
        if (open("/many/0", O_RDONLY) < 0 || open("/tmp/own", O_CREAT | O_RDWR, 0600) < 0) return 241;
        if (dup(last) < 0 || close(last)) return 242;
        if (open("/many/199", O_RDONLY) != -1 || errno != EMFILE) return 243;
        if (close(last - 1) || open("/many/199", O_RDONLY) < 0) return 244;
        return count;"#;
    let Some((status, _)) = run(source, 32 << 20, 1 << 20) else { return };
    assert_eq!(usize::try_from(status).unwrap(), MAX_LAYER_FILES);
}

#[test]
fn without_a_free_descriptor_no_pipes_or_sockets_are_made() {
    let Some(host) = kvm() else { return };
    let first = "while (dup(3) >= 0) {}";
    let second = r#"
        int ends[2];
        for (int at = 0; at < 10000; at++) {
            if (pipe(ends) == 0 || errno != EMFILE) return 1;
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 || errno != EMFILE) return 2;
        }
        /* With one left, which the first of two takes in vain. */
        close(1023);
        for (int at = 0; at < 100; at++) if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 || errno != EMFILE) return 5;
        close(1022);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 3;
        if (write(ends[0], "left", 4) != 4 || read(ends[1], &byte, 1) != 1 || byte != 'l') return 4;
        return 7;"#;
    let (mut process, _files) = idle(&host, first, second);
    let before = process.weigh(&Scanner::open().unwrap()).unwrap();
    assert_eq!(go_on(&mut process, 32 << 20, 1 << 20), 7);
    let more = process.weigh(&Scanner::open().unwrap()).unwrap() - before;
    assert!(more < 200_000, "{more}");
}

#[test]
fn bytes_in_sockets_weigh_and_have_a_limit() {
    // Both ways of each pair, as much as fits; then one side of each is closed, with its unread
    // bytes.
    let fill = r#"
        static char block[1 << 20];
        int ends[16][2];
        for (int at = 0; at < 16; at++) {
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends[at])) return 1;
            for (int side = 0; side < 2; side++) {
                if (send(ends[at][side], block, sizeof block, 0) != 1 << 16) return 2;
                if (send(ends[at][side], block, 1, 0) != -1 || errno != EAGAIN) return 3;
            }
        }"#;
    let Some(host) = kvm() else { return };
    let close = "for (int at = 0; at < 16; at++) close(ends[at][0]); read(3, &byte, 1); return 0;";
    let (mut process, _files) = idle(&host, fill, close);
    let scanner = Scanner::open().unwrap();
    let full = process.weigh(&scanner).unwrap();
    process.feed(b"x");
    assert_eq!(process.run().unwrap(), Pause::Idle);
    let less = full - process.weigh(&scanner).unwrap();
    // But for what holds the byte that it was fed.
    assert!(((1 << 20) - 100..2 << 20).contains(&less), "{less}");
}
