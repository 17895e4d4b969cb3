//! Mappings without a file, compared with Linux.

use crate::machine::in_machine_and_on_host;
use crate::{FILES, HEAD};

#[test]
fn only_calls_that_would_make_too_many_regions_are_refused() {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let source = r#"
        int main() {
            const long PAGE = 4096, PAGES = 140000;
            const int FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
            /* What printing needs is mapped from here on. */
            say("begin", 0);
            char *all = mmap(0, PAGES * PAGE, PROT_NONE, FLAGS, -1, 0);
            long holes = 0;
            while (holes < PAGES / 2 - 1 && munmap(all + (2 * holes + 1) * PAGE, PAGE) == 0) holes++;
            say("one hole too many", errno == ENOMEM && holes > 65000 && holes < 65530 ? 0 : holes);
            char *rest = all + 2 * holes * PAGE, *end = all + PAGES * PAGE;
            say("rights in the middle", mprotect(rest + PAGE, PAGE, PROT_READ));
            say("rights of the end", mprotect(end - PAGE, PAGE, PROT_READ));
            say("rights of all", mprotect(all, PAGE, PROT_READ));
            say("a hole by mapping", mmap(rest + PAGE, PAGE, PROT_READ, FLAGS | MAP_FIXED, -1, 0) == MAP_FAILED);
            say("what was there", msync(rest, 3 * PAGE, MS_ASYNC));
            say("an end", munmap(end - PAGE, PAGE));
            say("a beginning", munmap(rest, PAGE));
            say("a whole one", munmap(all, PAGE));
            say("a hole again", munmap(rest + 2 * PAGE, PAGE));
            say("and one more", munmap(rest + 4 * PAGE, PAGE));
            say("room for three", munmap(all, 7 * PAGE));
            say("rights again", mprotect(rest + 5 * PAGE, PAGE, PROT_READ));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert!(inside.starts_with("begin: 0 0\none hole too many: 0 0\n"), "{inside}");
    if most.trim() == "65530" {
        assert_eq!(inside, outside);
    } else {
        eprintln!("SKIPPED: this host has set its processes another limit of regions, {most}");
    }
}

#[test]
fn shared_memory_of_no_file_keeps_what_it_has_when_it_is_given_back() {
    let source = r#"
        #include <fcntl.h>
        #ifndef MADV_FREE
        #define MADV_FREE 8
        #endif
        static char *all;
        static void show(void) { for (int at = 0; at < 6; at++) printf("%d ", all[at * 4096]); puts(""); }
        int main() {
            all = mmap(0, 6 * 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            for (int at = 0; at < 6; at++) all[at * 4096] = at + 1;
            say("all", madvise(all, 6 * 4096, MADV_DONTNEED)); show();
            say("freed", madvise(all, 4096, MADV_FREE)); show();
            say("its own", mmap(all + 4096, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == all + 4096);
            all[4096] = 9;
            say("all", madvise(all, 6 * 4096, MADV_DONTNEED)); show();
            say("several", mremap(all, 2 * 4096, 8 * 4096, MREMAP_MAYMOVE) == MAP_FAILED);
            say("hidden", mprotect(all + 3 * 4096, 4096, PROT_NONE));
            say("given back", madvise(all + 2 * 4096, 3 * 4096, MADV_DONTNEED));
            say("seen", mprotect(all + 3 * 4096, 4096, 3)); show();
            say("gone", munmap(all + 5 * 4096, 4096));
            say("anew", mmap(all + 5 * 4096, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == all + 5 * 4096);
            all[5 * 4096] = 9;
            say("all", madvise(all, 6 * 4096, MADV_DONTNEED)); show();
            all = mmap(0, 6 * 4096, 3, MAP_SHARED, open("/dev/zero", O_RDWR), 0);
            for (int at = 0; at < 6; at++) all[at * 4096] = at + 1;
            say("of a device", madvise(all, 6 * 4096, MADV_DONTNEED)); show();
            char *other = mmap(0, 2 * 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            other[0] = 4;
            other = mremap(other, 4096, 64 * 4096, MREMAP_MAYMOVE);
            say("moved", madvise(other, 4096, MADV_DONTNEED)); printf("%d\n", other[0]);
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}

#[test]
fn a_mapping_is_shared_or_private_and_nothing_else() {
    let source = r#"
        int main(int count, char **arguments) {
            int self = open(arguments[0], O_RDONLY);
            for (int kind = 0; kind < 8; kind++) {
                say("without a file", mmap(0, 4096, 3, kind | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
                say("of a file", mmap(0, 4096, 1, kind, self, 0) == MAP_FAILED ? -1 : 0);
            }
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}

#[test]
fn a_range_with_holes_is_changed_as_far_as_on_linux() {
    let source = r#"
        static volatile char *make(void) {
            char *at = mmap(0, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int page = 0; page < 5; page++) at[page * 4096] = 'a' + page;
            munmap(at + 2 * 4096, 4096);
            return at;
        }
        /* Whether it can be written to: the kernel finds out. */
        static int writable(volatile char *at) {
            int ends[2]; pipe(ends); write(ends[1], "x", 1);
            int can = read(ends[0], (char *)at, 1) == 1;
            close(ends[0]); close(ends[1]); return can;
        }
        int main() {
            volatile char *at = make();
            say("forget", madvise((char *)at, 5 * 4096, MADV_DONTNEED));
            printf("%d %d %d %d\n", at[0], at[4096], at[3 * 4096], at[4 * 4096]);
            at[0] = 'x'; say("a hole alone", madvise((char *)at + 2 * 4096, 4096, MADV_DONTNEED)); say("and first", madvise((char *)at + 2 * 4096, 2 * 4096, MADV_DONTNEED));
            printf("%d\n", at[0]);
            at = make();
            say("protect", mprotect((char *)at, 5 * 4096, PROT_READ));
            printf("%d %d %d %d\n", writable(at), writable(at + 4096), writable(at + 3 * 4096), writable(at + 4 * 4096));
            say("a hole first", mprotect((char *)at + 2 * 4096, 2 * 4096, PROT_READ)); printf("%d\n", writable(at + 3 * 4096));
            say("a hole last", mprotect((char *)at + 4096, 2 * 4096, PROT_READ | PROT_WRITE)); printf("%d\n", writable(at + 4096));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}

#[test]
fn deferred_copies_count_towards_the_limit_of_regions() {
    let source = r#"
        #include <setjmp.h>
        #include <signal.h>
        #include <stdlib.h>
        enum { PAGE = 4096, MANY = 140000 };
        static jmp_buf back; static int may_fault;
        static void caught(int signal) { (void)signal; if (!may_fault) _exit(9); may_fault = 0; siglongjmp(back, 1); }
        #define TRY (may_fault = 1, !sigsetjmp(back, 1))
        int main(int count, char **arguments) {
            setvbuf(stdout, malloc(1 << 16), _IOFBF, 1 << 16);
            signal(SIGSEGV, caught);
            int self = open(arguments[0], O_RDONLY);
            char *hold = mmap(0, 400 * PAGE, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *all = mmap(0, MANY * (long)PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            long page = 1;
            while (page < MANY - 1 && mprotect(all + page * PAGE, PAGE, PROT_READ) == 0) page += 2;
            /* Room for the file, and for some regions more, which then go to others. */
            page -= 100; munmap(all + page * PAGE, (MANY - page) * PAGE);
            char *at = mmap(0, 8 * PAGE, PROT_READ, MAP_PRIVATE, self, PAGE), *more = hold + PAGE;
            while (mmap(more, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == more) more += 2 * PAGE;
            say("one too many", mprotect(at + PAGE, PAGE, PROT_NONE));
            for (volatile int look = 0; look < 8; look++)
                if (TRY) printf("%d: %d\n", look, at[look * PAGE]); else printf("%d is lost\n", look);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    assert!(outside.starts_with("one too many: -1 12\n"), "{outside}");
}
