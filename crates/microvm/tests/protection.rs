//! Memory protection, by a program that tries what each mapping does not allow, and catches the
//! signal.

mod machine;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process};
use microvm::vfs::TreeBuilder;

/// Prints a line for each check that fails, and how many there were.
const PROGRAM: &str = r##"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    #define PAGE 4096l
    #define MB (1l << 20)
    #define R PROT_READ
    #define W (PROT_READ | PROT_WRITE)
    #define X (PROT_READ | PROT_EXEC)
    #define RETURN ((char)0xc3)
    static sigjmp_buf back;
    static volatile int code, checks, bad;
    static void *volatile where;
    static void caught(int number, siginfo_t *info, void *context) {
        code = info->si_code; where = info->si_addr; siglongjmp(back, number);
    }
    static int load(volatile char *at) { int got = sigsetjmp(back, 1); if (got) return got; (void)*at; return 0; }
    static int store(volatile char *at) { int got = sigsetjmp(back, 1); if (got) return got; *at = RETURN; return 0; }
    static int call(void *at) { int got = sigsetjmp(back, 1); if (got) return got; ((void (*)(void))at)(); return 0; }
    static void check(int line, long got, long want) {
        checks++;
        if (got != want) { bad++; printf("line %d: %ld instead of %ld\n", line, got, want); }
    }
    #define IS(got, want) check(__LINE__, (long)(got), (long)(want))
    static char *map(long length, int rights) {
        return mmap(0, length, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    static void all_rights(char *at, int can_load, int can_store, int can_call) {
        IS(load(at), can_load ? 0 : SIGSEGV); IS(store(at), can_store ? 0 : SIGSEGV); IS(call(at), can_call ? 0 : SIGSEGV);
    }
    static void small(void) {
        char *pages = map(64 * PAGE, W);
        for (int page = 0; page < 64; page++) IS(pages[page * PAGE], 0);
        memset(pages, RETURN, 64 * PAGE);
        all_rights(pages, 1, 1, 0); IS(code, SEGV_ACCERR); IS(where, pages);
        mprotect(pages, PAGE, X); all_rights(pages, 1, 0, 1);
        mprotect(pages, PAGE, R); all_rights(pages, 1, 0, 0);
        mprotect(pages, PAGE, W | X); all_rights(pages, 1, 1, 1);
        mprotect(pages, PAGE, W); all_rights(pages, 1, 1, 0);
        mprotect(pages, PAGE, PROT_NONE); all_rights(pages, 0, 0, 0); IS(code, SEGV_ACCERR);
        all_rights(pages + PAGE, 1, 1, 0);
        mprotect(pages, PAGE, R); IS(pages[0], RETURN); IS(store(pages), SIGSEGV);
        IS(munmap(pages + 3 * PAGE, PAGE), 0);
        all_rights(pages + 3 * PAGE, 0, 0, 0); IS(code, SEGV_MAPERR); IS(where, pages + 3 * PAGE);
        IS(load(pages + 4 * PAGE - 1), SIGSEGV); IS(load(pages + 4 * PAGE), 0);
        IS(write(1, pages + 3 * PAGE, 1), -1); IS(errno, EFAULT);
        char *again = mmap(pages + 3 * PAGE, PAGE, W, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        IS(again, pages + 3 * PAGE); IS(*again, 0);
        IS(mmap(pages, PAGE, W, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED); IS(errno, EEXIST);
        mmap(pages + 4 * PAGE, 2 * PAGE, W, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        IS(pages[4 * PAGE] | pages[5 * PAGE], 0); IS(pages[6 * PAGE], RETURN);
        IS(madvise(pages + 10 * PAGE, PAGE, MADV_DONTNEED), 0); IS(pages[10 * PAGE], 0);
        char *moved = mremap(pages + 8 * PAGE, 8 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
        IS(moved[0], RETURN); IS(moved[2 * PAGE], 0); IS(moved[7 * PAGE], RETURN); IS(moved[63 * PAGE], 0);
        IS(moved == pages + 8 * PAGE || load(pages + 8 * PAGE) == SIGSEGV, 1);
        IS(mremap(moved, 64 * PAGE, 2 * PAGE, 0), moved); IS(load(moved + 2 * PAGE), SIGSEGV);
        munmap(moved, 2 * PAGE); munmap(pages, 64 * PAGE); all_rights(pages, 0, 0, 0);
    }
    static void large(void) {
        char *block = map(12 * MB, W);
        for (long page = 0; page < 12 * MB / PAGE; page++) { IS(block[page * PAGE], 0); block[page * PAGE] = page; }
        IS(mprotect(block + 4 * MB + 2 * PAGE, PAGE, R), 0);
        IS(store(block + 4 * MB + 2 * PAGE), SIGSEGV); IS(store(block + 4 * MB + PAGE), 0);
        IS(block[4 * MB + 5 * PAGE], (char)(4 * MB / PAGE + 5));
        IS(munmap(block + 6 * MB, PAGE), 0); IS(load(block + 6 * MB), SIGSEGV); IS(load(block + 6 * MB + PAGE), 0);
        mprotect(block, 2 * MB, PROT_NONE); IS(load(block + 100), SIGSEGV);
        mprotect(block, 2 * MB, R); IS(block[PAGE], 1); IS(store(block), SIGSEGV);
        mprotect(block, 2 * MB, W); IS(store(block), 0);
        munmap(block, 12 * MB); IS(load(block + 3 * MB), SIGSEGV);
        block = map(12 * MB, W); long seen = 0;
        for (long at = 0; at < 12 * MB; at += 512) seen |= block[at];
        IS(seen, 0); munmap(block, 12 * MB);
    }
    static void breaks(void) {
        char *top = sbrk(0); IS(sbrk(MB), top); memset(top, 7, MB); sbrk(-MB);
        IS(load(top + 64 * 1024), SIGSEGV); sbrk(MB); IS(top[64 * 1024], 0); sbrk(-MB);
    }
    int main() {
        struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
        sigaction(SIGSEGV, &action, 0);
        for (int round = 0; round < 3; round++) { small(); large(); breaks(); }
        IS(load((char *)8), SIGSEGV); IS(call(&checks), SIGSEGV); IS(store((char *)main), SIGSEGV);
        printf("%d checks, %d bad\n", checks, bad);
        return bad != 0;
    }
"##;

#[test]
fn every_missing_right_faults_and_a_new_mapping_is_zero() {
    let Some(host) = kvm() else { return };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("program"), compile(PROGRAM, &["-static"])).unwrap();
    let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices().build(0, 0);
    let options = Options { program: vec!["/program".into()], ..Options::default() };
    let mut process = Process::start(&host, tree, &options).unwrap();
    let pause = process.run().unwrap();
    let output: Vec<u8> = process.take_output().into_iter().flat_map(|(_, bytes)| bytes).collect();
    let output = String::from_utf8(output).unwrap();
    assert_eq!(pause, Pause::Exited(0), "{output}");
    assert!(output.ends_with("checks, 0 bad\n"), "{output}");
    let count: u32 = output.split(' ').next().unwrap().parse().unwrap();
    assert!(count > 9000, "{output}");

    // What it says is what Linux does.
    let program = directory.path().join("program");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let native = std::process::Command::new(program).output().unwrap();
    assert_eq!(String::from_utf8(native.stdout).unwrap(), output);
}
