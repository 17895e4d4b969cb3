//! Mappings of files, compared with Linux.

use crate::machine::in_machine_and_on_host;
use crate::{FILES, HEAD};

#[test]
fn bytes_written_to_a_file_are_seen_in_shared_mappings() {
    let source = r#"
        int main() {
            int fd = make('a', 8192), other = open(name, O_RDONLY);
            char *at = mmap(0, 16384, PROT_READ, MAP_SHARED, fd, 0), *second = mmap(0, 4096, PROT_READ, MAP_SHARED, other, 4096);
            tell("begin", at);
            pwrite(fd, "bb", 2, 0); tell("pwrite", at);
            pwrite(fd, "c", 1, 4095); pwrite(fd, "de", 2, 4096); tell("over the page", at);
            printf("%c%c\n", second[0], second[1]);
            lseek(fd, 4095, SEEK_SET); write(fd, "fg", 2); tell("write", at);
            printf("%c\n", second[0]);
            /* Behind the end, up to the page's, there are zeros; what the file once had there does not come back. */
            ftruncate(fd, 4097); printf("%d %d\n", at[4096], at[4097]);
            ftruncate(fd, 8192); printf("%d %d\n", at[4096], at[4097]);
            ftruncate(fd, 0); ftruncate(fd, 8192); tell("emptied", at);
            pwrite(fd, "longer", 6, 12288 - 6); printf("%d %c %c\n", at[8192], at[12288 - 6], at[12287]);
            truncate(name, 1); truncate(name, 12288); tell("by name", at);
            memset(text, 'h', sizeof text); pwrite(fd, text, sizeof text, 0); tell("all", at);
            close(open(name, O_WRONLY | O_TRUNC)); write(other, "x", 1); ftruncate(fd, 12288); tell("opened anew", at);
            pwrite(fd, text, sizeof text, 0);
            /* What is cut out is no longer followed; the rest is. */
            say("hole", munmap(at + 4096, 4096));
            char *own = mmap(at + 4096, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            memset(own, 'o', 4096);
            memset(text, 'i', sizeof text); pwrite(fd, text, sizeof text, 0);
            tell("with a hole", at); printf("%c %c %c\n", own[4095], at[8192], at[12287]);
            /* Moved and grown it shows what the file has further behind. */
            char *moved = mremap(at + 8192, 4096, 3 * 4096, MREMAP_MAYMOVE);
            if (moved == MAP_FAILED) return 9;
            memset(text, 'j', sizeof text); pwrite(fd, text, 8193, 8192);
            printf("%c %c %c\n", moved[0], moved[4096], moved[8192]);
            pwrite(fd, "k", 1, 8192); printf("%c\n", moved[0]);
            /* Two that are not one. */
            say("grown over two", (long)mremap(at, 8192, 16384, MREMAP_MAYMOVE));
            /* A private one is not followed where it was written to. */
            char *copy = mmap(0, 4096, 3, MAP_PRIVATE, fd, 0);
            copy[0] = 'p'; pwrite(fd, "q", 1, 0); printf("%c %c\n", copy[0], at[0]);
            say("read only", mprotect(second, 4096, 3));
            say("not its own to write", (long)mmap(0, 4096, 3, MAP_SHARED, other, 0));
            /* Without a name and a descriptor it is still there, and no other file has its number. */
            unlink(name); close(fd); close(other);
            strcpy(strrchr(name, '-'), "-XXXXXX");
            int next = make('z', 4096);
            tell("without a name", at); printf("%c\n", second[0]);
            munmap(at, 4096); munmap(second, 4096); munmap(copy, 4096);
            unlink(name);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    assert!(outside.contains("pwrite: 98 98 97 97 97\n"), "{outside}");
}

/// A read-only mapping is copied late: any access to it finds the file.
#[test]
fn a_mapping_that_is_only_read_shows_the_file_whatever_comes_first() {
    let source = r#"
        #include <setjmp.h>
        #include <signal.h>
        #include <stdlib.h>
        enum { PAGE = 4096, ALL = 8 * PAGE };
        static int self;
        static char *fresh(int rights) { return mmap(0, ALL, rights, MAP_PRIVATE, self, PAGE); }
        static void sums(const char *what, const char *at, int pages) {
            /* Nothing is asked for between the look at the first page and that at the last. */
            unsigned long sums[8] = {0};
            for (int page = 0; page < pages; page++)
                for (int byte = 0; byte < PAGE; byte++) sums[page] = sums[page] * 31 + at[page * PAGE + byte];
            printf("%s:", what);
            for (int page = 0; page < pages; page++) printf(" %lx", sums[page]);
            puts("");
        }
        static jmp_buf back; static int may_fault;
        static void caught(int signal) { (void)signal; if (!may_fault) _exit(9); may_fault = 0; siglongjmp(back, 1); }
        #define TRY (may_fault = 1, !sigsetjmp(back, 1))
        int main(int count, char **arguments) {
            self = open(arguments[0], O_RDONLY);
            signal(SIGSEGV, caught);
            sums("touched", fresh(PROT_READ), 8);
            sums("behind its start", fresh(PROT_READ) + 3 * PAGE, 4);
            sums("executable", fresh(PROT_READ | PROT_EXEC), 8);
            char *all = fresh(PROT_READ);
            char *over = mmap(all + PAGE, PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); *over = 7;
            over = mmap(all + 3 * PAGE, 2 * PAGE, 3, MAP_PRIVATE | MAP_FIXED, self, 0); *over = 8;
            sums("mapped over", all, 8);
            all = fresh(PROT_READ);
            mmap(all, ALL, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            sums("all of it mapped over", all, 8);
            char *one = fresh(PROT_READ), *other = fresh(PROT_READ);
            sums("one of two", one, 8); sums("the other", other, 8);
            all = fresh(PROT_READ);
            say("of no file", mmap(all, PAGE, 1, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED);
            say("at no page", mmap(all + 2 * PAGE, PAGE, 1, MAP_PRIVATE | MAP_FIXED, self, 1) == MAP_FAILED);
            sums("mapped over in vain", all, 8);
            static char got[2 * PAGE];
            int ends[2]; pipe(ends);
            all = fresh(PROT_READ);
            say("written from", write(ends[1], all + PAGE, 2 * PAGE)); say("read", read(ends[0], got, 2 * PAGE));
            sums("by a call", got, 2);
            all = fresh(PROT_READ);
            say("unmapped in part", munmap(all + PAGE, 2 * PAGE)); sums("what is left", all + 3 * PAGE, 5);
            all = fresh(PROT_READ);
            say("hidden", mprotect(all + PAGE, PAGE, PROT_NONE)); say("shown", mprotect(all + PAGE, PAGE, PROT_READ));
            sums("hidden and shown", all, 8);
            /* As a dynamic linker does it where there is room between its parts. */
            all = fresh(PROT_READ);
            say("hidden but for the first", mprotect(all + PAGE, 6 * PAGE, PROT_NONE));
            mmap(all + 3 * PAGE, PAGE, 1, MAP_PRIVATE | MAP_FIXED, self, 2 * PAGE);
            sums("the first", all, 1); sums("a part", all + 3 * PAGE, 1); sums("the last", all + 7 * PAGE, 1);
            if (TRY) sums("a hole", all + 2 * PAGE, 1); else puts("a hole is hidden");
            say("a hole is shown", mprotect(all + 2 * PAGE, PAGE, PROT_READ)); sums("it", all + 2 * PAGE, 1);
            all = fresh(PROT_READ);
            say("hidden with what is behind it", mprotect(all + 7 * PAGE, 64 * PAGE, PROT_NONE) == 0 || errno == ENOMEM);
            sums("before it", all, 7);
            all = fresh(PROT_READ);
            say("from within a page", mprotect(all + 16, PAGE, PROT_NONE)); sums("not hidden", all, 8);
            all = fresh(PROT_READ | PROT_EXEC);
            say("one byte", mprotect(all + 5 * PAGE + 9, 1, PROT_NONE)); sums("nor is it", all, 8);
            all = fresh(PROT_READ);
            say("no byte", mprotect(all + PAGE, 0, PROT_NONE)); say("unknown rights", mprotect(all, PAGE, 16)); sums("nor they", all, 8);
            /* More parts than anybody owes at a time. */
            char *many = mmap(0, 64 * PAGE, PROT_READ, MAP_PRIVATE, self, 0);
            for (int page = 1; page < 64; page += 2) if (mprotect(many + page * PAGE, PAGE, PROT_NONE)) return 8;
            for (int page = 0; page < 64; page += 2) sums("of many", many + page * PAGE, 1);
            if (TRY) sums("one of many", many + 63 * PAGE, 1); else puts("one of many is hidden");
            /* Where it says itself where, it need not be owed; and what is owed meanwhile stays so. */
            char *room = mmap(0, 4 * ALL, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); munmap(room + ALL, 7 * PAGE);
            all = fresh(PROT_READ);
            char *there = mmap(room + ALL, 7 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_FIXED_NOREPLACE, self, PAGE);
            say("there", there == room + ALL); sums("what was owed", all, 8); sums("there", room + ALL, 7);
            all = fresh(PROT_READ);
            say("made writable", mprotect(all, ALL, 3)); all[PAGE] ^= 1; sums("written to", all, 8);
            all = mremap(fresh(PROT_READ), 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE); sums("moved", all, 8);
            all = fresh(PROT_READ);
            if (TRY) all[PAGE] = 1; else puts("not to be written");
            sums("after a fault", all, 8);
            off_t size = lseek(self, 0, SEEK_END);
            all = mmap(0, size, PROT_READ, MAP_PRIVATE, self, 0);
            sums("the end of the file", all + ((size - 1) & ~(PAGE - 1)), 1);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    assert!(outside.contains("not to be written\n") && outside.contains("a hole is hidden\n"));
}

#[test]
fn pages_of_a_file_that_are_given_back_are_the_files_again() {
    let source = r#"
        #ifndef MADV_FREE
        #define MADV_FREE 8
        #endif
        static const char constant[8192] __attribute__((aligned(4096))) = {'c', 'o'};
        static char data[8192] __attribute__((aligned(4096))) = {'d', 'a'};
        int main(int count, char **arguments) {
            int fd = make('a', 8000), self = open(arguments[0], O_RDONLY);
            char *own = mmap(0, 8192, 3, MAP_PRIVATE, fd, 0), *shared = mmap(0, 8192, 1, MAP_SHARED, fd, 0);
            char *program = mmap(0, 8192, 3, MAP_PRIVATE, self, 0), *nobodys = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *all[] = {own, shared, program, nobodys, (char *)constant, data};
            program[1] = nobodys[0] = nobodys[4096] = data[0] = own[0] = own[4096] = 'x';
            for (int at = 0; at < 6; at++) say("given back", madvise(all[at], 8192, MADV_DONTNEED));
            for (int at = 0; at < 6; at++) printf("%d %d %d\n", all[at][0], all[at][1], all[at][4096]);
            printf("%d\n", own[8000]);
            /* What was written to the file meanwhile is there, too. */
            own[0] = 'x'; pwrite(fd, "b", 1, 1);
            say("one page", madvise(own, 4096, MADV_DONTNEED)); printf("%c%c\n", own[0], own[1]);
            mprotect(own, 8192, PROT_NONE);
            say("hidden", madvise(own, 8192, MADV_DONTNEED));
            mprotect(own, 8192, 1); printf("%c%c\n", own[0], own[1]);
            say("half a page", madvise(own + 1, 4096, MADV_DONTNEED));
            for (int at = 0; at < 6; at++) say("freed", madvise(all[at], 8192, MADV_FREE));
            printf("%c %c\n", own[0], shared[0]);
            /* The code that runs here. */
            unsigned long code = (unsigned long)main & ~4095ul;
            say("code", madvise((void *)code, 4096, MADV_DONTNEED));
            ftruncate(fd, 1);
            say("shorter", madvise(own, 4096, MADV_DONTNEED)); printf("%d %d\n", own[0], own[1]);
            unlink(name);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    assert!(outside.contains("100 97 0\n"), "{outside}");
}

#[test]
fn bytes_written_to_a_shared_mapping_are_in_the_file() {
    let source = r#"
        static void file(const char *what, int fd) {
            char first[4] = {0}; struct stat it; fstat(fd, &it);
            printf("%s: %ld %ld", what, (long)pread(fd, first, 2, 0), (long)it.st_size);
            printf(" %s", first); pread(fd, first, 2, 4096); printf(" %s\n", first);
        }
        int main() {
            int fd = make('a', 8192), other = open(name, O_RDWR);
            char *at = mmap(0, 8192, 3, MAP_SHARED, fd, 0);
            memcpy(at, "bb", 2); at[4096] = 'c'; file("written", other);
            /* Both ways, byte by byte. */
            pwrite(other, "d", 1, 1); at[0] = 'e'; at[4097] = 'f'; file("both", fd); tell("both", at);
            say("msync", msync(at, 8192, MS_SYNC));
            ftruncate(fd, 4097); at[0] = 'g'; file("shorter", other);
            ftruncate(fd, 8192); printf("%d\n", at[4097]); file("longer", other);
            at[4096] = 'h';
            say("page", munmap(at + 4096, 4096)); at[1] = 'i'; file("half of it", fd);
            char *copy = mmap(0, 4096, 3, MAP_PRIVATE, fd, 0); printf("%c%c\n", copy[0], copy[1]);
            copy[0] = 'x'; file("copy", fd);
            say("copy given back", madvise(copy, 4096, MADV_DONTNEED)); printf("%c%c\n", copy[0], copy[1]);
            at[0] = 'j'; say("given back", madvise(at, 4096, MADV_DONTNEED)); printf("%c\n", at[0]);
            char *grown = mremap(at, 4096, 8192, MREMAP_MAYMOVE);
            if (grown == MAP_FAILED) return 8;
            tell("grown", grown - 0); grown[4097] = 'k'; grown[1] = 'l'; file("grown", other);
            munmap(grown, 8192); file("unmapped", fd);
            /* Read only at first. */
            at = mmap(0, 4096, 1, MAP_SHARED, fd, 0);
            say("opened to writing", mprotect(at, 4096, 3)); at[0] = 'm'; file("later", other);
            say("and no more", mprotect(at, 4096, 1)); file("still", other);
            pwrite(fd, "n", 1, 0); printf("%c\n", at[0]);
            /* Something else takes its place. */
            mprotect(at, 4096, 3); at[1] = 'o';
            mmap(at, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); file("replaced", fd);
            /* As semaphores are made: a file that is linked to its name, and then has none. */
            char second[64]; sprintf(second, "%s-2", name);
            at = mmap(0, 4096, 3, MAP_SHARED, fd, 0);
            struct stat it;
            say("link", link(name, second)); fstat(fd, &it); printf("links %ld\n", (long)it.st_nlink);
            say("again", link(name, second)); say("of nothing", link("/tmp/no-such", second));
            say("of a directory", link("/tmp", "/tmp/compared-link")); say("behind a slash", link(second, "/tmp/compared-none/"));
            say("unlink", unlink(name)); fstat(fd, &it); printf("links %ld\n", (long)it.st_nlink);
            close(fd); at[0] = 'p'; file("by its other name", other); close(other);
            other = open(second, O_RDONLY); at[1] = 'q'; file("opened", other); close(other);
            say("unlink", unlink(second)); at[0] = 'r'; printf("%c%c\n", at[0], at[1]);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    assert!(outside.contains("written: 2 8192 bb ca\n"), "{outside}");
}
