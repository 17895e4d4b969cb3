//! Programs that say what their calls return, each in a machine and on the host: the same has to
//! come out.

mod machine;

use machine::in_machine_and_on_host;

const HEAD: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <limits.h>
    #include <linux/futex.h>
    #include <pthread.h>
    #include <sched.h>
    #include <stdio.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static long futex(unsigned *word, int operation, unsigned value, unsigned long more, unsigned *other, unsigned last) {
        return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, more, other, last);
    }
    static void say(const char *what, long result) {
        printf("%s: %ld %d\n", what, result, result < 0 ? errno : 0);
        fflush(stdout);
    }
"#;

#[test]
fn threads_that_wait_at_a_futex_are_moved_to_another() {
    let source = r#"
        enum { THREADS = 6 };
        static unsigned begin, here, there, woken;
        static void *work(void *argument) {
            futex(&begin, FUTEX_WAIT, 0, 0, 0, 0);
            __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
            return 0;
        }
        int main() {
            pthread_t threads[THREADS];
            for (int at = 0; at < THREADS; at++) pthread_create(threads + at, 0, work, 0);
            /* Once all of them were moved, all of them wait. */
            for (long moved = 0; moved < THREADS; sched_yield()) {
                long more = futex(&begin, FUTEX_REQUEUE, 0, INT_MAX, &here, 0);
                if (more < 0) return 9;
                moved += more;
            }
            here = 7;
            say("no waiter", futex(&begin, FUTEX_REQUEUE, 1, 1, &here, 0));
            say("one and two", futex(&here, FUTEX_REQUEUE, 1, 2, &there, 0));
            say("another value", futex(&here, FUTEX_CMP_REQUEUE, 1, 1, &there, 8));
            say("that value", futex(&here, FUTEX_CMP_REQUEUE, 0, 1, &there, 7));
            say("to itself", futex(&here, FUTEX_REQUEUE, 0, 5, &here, 0));
            say("less than none", futex(&here, FUTEX_REQUEUE, -1, 1, &there, 0));
            say("none moved", futex(&here, FUTEX_REQUEUE, 0, -1, &there, 0));
            say("half a word", futex((unsigned *)((char *)&here + 2), FUTEX_REQUEUE, 0, 1, &there, 0));
            say("to half a word", futex(&here, FUTEX_REQUEUE, 0, 1, (unsigned *)((char *)&there + 1), 0));
            say("nowhere", futex((unsigned *)64, FUTEX_CMP_REQUEUE, 0, 1, &there, 7));
            say("still here", futex(&here, FUTEX_WAKE, INT_MAX, 0, 0, 0));
            say("first there", futex(&there, FUTEX_WAKE, 1, 0, 0, 0));
            say("rest there", futex(&there, FUTEX_WAKE, INT_MAX, 0, 0, 0));
            for (int at = 0; at < THREADS; at++) pthread_join(threads[at], 0);
            say("woken", woken);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert!(outside.ends_with("woken: 6 0\n"), "{outside}");
    assert_eq!(inside, outside);
}

#[test]
fn a_condition_is_broadcast_as_musl_does_it() {
    // Each waiter has a lock of its own. The first one is woken; each woken one moves the next one
    // to the mutex, which it releases afterwards: no thread is woken in vain.
    let source = r#"
        enum { THREADS = 5 };
        static unsigned mutex, barriers[THREADS], waiting, done;
        static void lock(void) {
            while (__atomic_exchange_n(&mutex, 2, __ATOMIC_SEQ_CST)) futex(&mutex, FUTEX_WAIT, 2, 0, 0, 0);
        }
        static void unlock(void) {
            __atomic_store_n(&mutex, 0, __ATOMIC_SEQ_CST);
            futex(&mutex, FUTEX_WAKE, 1, 0, 0, 0);
        }
        static void *work(void *argument) {
            lock();
            unsigned mine = waiting++;
            barriers[mine] = 2;
            unlock();
            while (__atomic_load_n(barriers + mine, __ATOMIC_SEQ_CST) == 2) futex(barriers + mine, FUTEX_WAIT, 2, 0, 0, 0);
            lock();
            if (mine + 1 < THREADS) {
                __atomic_store_n(barriers + mine + 1, 0, __ATOMIC_SEQ_CST);
                futex(barriers + mine + 1, FUTEX_REQUEUE, 0, 1, &mutex, 0);
            }
            done++;
            unlock();
            return 0;
        }
        int main() {
            pthread_t threads[THREADS];
            for (int at = 0; at < THREADS; at++) pthread_create(threads + at, 0, work, 0);
            for (int all = 0; !all; sched_yield()) { lock(); all = waiting == THREADS; unlock(); }
            /* By then they sleep, most of the time. */
            for (int round = 0; round < 100; round++) sched_yield();
            __atomic_store_n(barriers, 0, __ATOMIC_SEQ_CST);
            futex(barriers, FUTEX_WAKE, 1, 0, 0, 0);
            for (int at = 0; at < THREADS; at++) pthread_join(threads[at], 0);
            say("done", done);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!((inside.as_str(), outside.as_str()), ("done: 5 0\n", "done: 5 0\n"));
}

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
fn signals_that_are_blocked_wait_until_they_are_not() {
    // What is blocked, unblocked, sent, handled and ignored, a thousand times, by chance and the
    // same each time. Handlers block others, send others, and return.
    let source = r#"
        #include <signal.h>
        #include <stdlib.h>
        static const int KINDS[] = {SIGUSR1, SIGUSR2, SIGCHLD, SIGURG};
        static unsigned long state = 88172645463325252;
        static unsigned chance(unsigned below) {
            state ^= state << 13; state ^= state >> 7; state ^= state << 17;
            return state % below;
        }
        static sigset_t one(int signal) {
            sigset_t set;
            sigemptyset(&set); sigaddset(&set, signal);
            return set;
        }
        static void seen(const char *what) {
            sigset_t blocked, waiting;
            say(what, sigpending(&waiting));
            sigprocmask(SIG_BLOCK, 0, &blocked);
            for (int at = 0; at < 4; at++) printf(" %d%d", sigismember(&blocked, KINDS[at]), sigismember(&waiting, KINDS[at]));
            printf("\n");
        }
        static int depth;
        static void handler(int signal) {
            depth++;
            printf("%d in %d\n", signal, depth);
            seen("within");
            if (depth < 4 && chance(3)) kill(getpid(), KINDS[chance(4)]);
            printf("%d out\n", signal);
            depth--;
        }
        int main() {
            struct sigaction action = {.sa_handler = handler};
            for (int at = 0; at < 4; at++) sigaction(KINDS[at], &action, 0);
            for (int round = 0; round < 1000; round++) {
                int signal = KINDS[chance(4)];
                sigset_t set = one(signal);
                switch (chance(8)) {
                case 0: case 1: say("block", sigprocmask(SIG_BLOCK, &set, 0)); break;
                case 2: say("unblock", sigprocmask(SIG_UNBLOCK, &set, 0)); break;
                case 3: case 4: say("kill", kill(getpid(), signal)); break;
                case 5: say("raise", raise(signal)); break;
                case 6: action.sa_handler = handler; sigemptyset(&action.sa_mask);
                    for (int more = chance(3); more; more--) sigaddset(&action.sa_mask, KINDS[chance(4)]);
                    action.sa_flags = chance(2) ? SA_NODEFER : 0;
                    say("handle", sigaction(signal, &action, 0)); break;
                case 7: action.sa_handler = signal == SIGURG && chance(2) ? SIG_DFL : SIG_IGN;
                    say("ignore", sigaction(signal, &action, 0)); break;
                }
                seen("outside");
            }
            say("nowhere", sigpending((void *)64));
            signal(SIGUSR1, SIG_DFL);
            sigset_t last = one(SIGUSR1);
            sigprocmask(SIG_BLOCK, &last, 0);
            kill(getpid(), SIGUSR1);
            say("not yet", 0);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert!(outside.ends_with("not yet: 0 0\n"), "{outside}");
    assert_eq!(inside, outside);
}

#[test]
fn a_handler_is_told_who_sent_its_signal_and_leaves_vectors_as_they_were() {
    let source = r#"
        #include <immintrin.h>
        #include <signal.h>
        #include <stdint.h>
        #include <string.h>
        #include <ucontext.h>
        static char *page; static unsigned rounding; static double changed;
        /* Of SSE and of x87, each by its own register. */
        static unsigned rounds(void) { short word; __asm__ volatile("fnstcw %0" : "=m"(word)); return _MM_GET_ROUNDING_MODE() | (word & 0xc00); }
        static void round_by(unsigned mode) {
            short word; __asm__ volatile("fnstcw %0" : "=m"(word));
            word = (word & ~0xc00) | mode >> 3; _MM_SET_ROUNDING_MODE(mode); __asm__ volatile("fldcw %0" :: "m"(word));
        }
        static void spoil(void) {
            __asm__ volatile("pxor %%xmm0, %%xmm0; pxor %%xmm8, %%xmm8; pxor %%xmm15, %%xmm15; fldz; fstp %%st(0)" ::: "xmm0", "xmm8", "xmm15");
            if (__builtin_cpu_supports("avx")) __asm__ volatile("vzeroall" ::: "xmm0", "xmm8", "xmm15");
            rounding = rounds(); round_by(_MM_ROUND_DOWN);
        }
        static void fault(int number, siginfo_t *info, void *context) { spoil(); mprotect(page, 4096, PROT_READ | PROT_WRITE); }
        static void tell(int number, siginfo_t *info, void *context) {
            struct _libc_fpstate *states = ((ucontext_t *)context)->uc_mcontext.fpregs;
            printf("%d: code %d own %d user %d states %d aligned %d\n", number, info->si_code, info->si_pid == getpid(), info->si_uid == getuid(), !!states, (uintptr_t)states % 64 == 0);
            uint32_t *software = (uint32_t *)((char *)states + 464);
            int whole = software[0] == 0x46505853 && software[1] == software[4] + 4 && *(uint32_t *)((char *)states + software[4]) == 0x46505845;
            printf("whole %d\n", whole);
            spoil();
            if (changed) memcpy(&states->_xmm[8], &changed, 8);
        }
        __attribute__((target("avx"))) static int avx(void) {
            int64_t kept[4] = {1, 2, 3, 4}; 
            __asm__ volatile("vmovdqu %0, %%ymm9; movb $1, (%1); vmovdqu %%ymm9, %0" : "+m"(kept) : "r"(page) : "xmm9", "memory");
            return kept[0] == 1 && kept[1] == 2 && kept[2] == 3 && kept[3] == 4;
        }
        static double by(int call) {
            double kept = 3.25; long result = call == SYS_kill ? getpid() : syscall(SYS_gettid);
            __asm__ volatile("movsd %1, %%xmm8; syscall; movsd %%xmm8, %1" : "=a"(result), "+m"(kept) : "0"((long)call), "D"(result), "S"((long)SIGUSR1) : "rcx", "r11", "xmm8", "memory");
            return kept;
        }
        int main() {
            struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
            sigaction(SIGSEGV, &action, 0);
            page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            double kept = 3.25; long double deep = 1.5L;
            round_by(_MM_ROUND_UP);
            __asm__ volatile("fldt %2; movsd %1, %%xmm8; movb $1, (%3); movsd %%xmm8, %0; fstpt %2" : "=m"(kept) : "m"(kept), "m"(deep), "r"(page) : "xmm8", "memory");
            printf("kept %.2f %.1Lf, rounds %x, in the handler %x\n", kept, deep, rounds(), rounding);
            mprotect(page, 4096, PROT_READ);
            printf("avx %d\n", __builtin_cpu_supports("avx") ? avx() : 1);
            action.sa_sigaction = tell;
            sigaction(SIGUSR1, &action, 0);
            printf("kill %.2f\n", by(SYS_kill));
            printf("tkill %.2f\n", by(SYS_tkill));
            printf("rounds %x\n", rounds());
            changed = 7.75;
            printf("changed %.2f\n", by(SYS_kill));
            changed = 0;
            /* And what waited. */
            sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR1);
            sigprocmask(SIG_BLOCK, &set, 0); raise(SIGUSR1); sigprocmask(SIG_UNBLOCK, &set, 0);
            sigprocmask(SIG_BLOCK, &set, 0); kill(getpid(), SIGUSR1); sigprocmask(SIG_UNBLOCK, &set, 0);
            /* On a stack of its own. */
            static char other[32768]; stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
            sigaltstack(&stack, 0); action.sa_flags |= SA_ONSTACK; sigaction(SIGUSR1, &action, 0);
            printf("on its own %.2f\n", by(SYS_kill));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert!(outside.contains("kept 3.25 1.5, rounds 4800, in the handler 0\n"), "{outside}");
    assert_eq!(inside, outside);
}

/// What programs about files and mappings have in common: a file of their own, and how they tell
/// what a page begins with.
const FILES: &str = r#"
    #include <fcntl.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/stat.h>
    static char name[] = "/tmp/compared-XXXXXX", text[3 * 4096];
    static int make(char letter, int length) {
        int fd = mkstemp(name);
        memset(text, letter, sizeof text);
        if (fd < 0 || write(fd, text, length) != length) _exit(99);
        return fd;
    }
    static void tell(const char *what, volatile char *at) {
        printf("%s: %d %d %d %d %d\n", what, at[0], at[1], at[99], at[4095], at[4096]);
    }
"#;

#[test]
fn what_is_written_to_a_file_is_seen_where_it_is_mapped_and_shared() {
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
fn what_is_copied_late_counts_where_regions_are_counted() {
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
fn a_directory_is_listed_once_and_all_of_it_while_it_changes() {
    let source = r#"
        #include <dirent.h>
        static char told[3000];
        static DIR *directory;
        static void path(char *to, const char *kind, int number) { sprintf(to, "%s-%d", kind, number); }
        /* Reads so many more; counts what was told twice. */
        static int next(int most) {
            int twice = 0;
            for (struct dirent *it; most-- > 0 && (it = readdir(directory)); )
                if (*it->d_name == 'o') twice += told[atoi(it->d_name + 4)]++ > 0;
            return twice;
        }
        int main() {
            char one[40], other[40];
            if (!mkdtemp(name) || chdir(name)) return 9;
            for (int at = 0; at < 2900; at++) { path(one, "old", at); close(open(one, O_WRONLY | O_CREAT, 0600)); }
            /* As a tree is taken away: each as soon as it is told. */
            directory = opendir(".");
            int count = 0;
            for (struct dirent *it; (it = readdir(directory)); ) if (*it->d_name != '.') { unlink(it->d_name); count++; }
            printf("all %d\n", count);
            say("empty", rmdir(name));
            closedir(directory);
            if (mkdir(name, 0700) || chdir(name)) return 8;
            /* Those that stay are told once, whatever comes, goes and gets another name. */
            for (int at = 0; at < 2900; at++) { path(one, "old", at); close(open(one, O_WRONLY | O_CREAT, 0600)); }
            directory = opendir(".");
            int twice = next(100);
            for (int at = 0; at < 2900; at += 3) { path(one, "old", at); unlink(one); path(one, "a", at); close(open(one, O_WRONLY | O_CREAT, 0600)); }
            for (int at = 1; at < 2900; at += 3) { path(one, "old", at); path(other, "z", at); rename(one, other); rename(other, one); }
            twice += next(99999);
            int missed = 0;
            /* What got its name back may be missed: tmpfs of Linux 6.12 does. */
            for (int at = 2; at < 2900; at += 3) missed += !told[at];
            printf("twice %d missed %d\n", twice, missed);
            /* To where it was, and to the beginning. */
            memset(told, 0, sizeof told); rewinddir(directory);
            next(50);
            long place = telldir(directory);
            char first[300]; strcpy(first, readdir(directory)->d_name);
            next(500); seekdir(directory, place);
            printf("again %d\n", !strcmp(first, readdir(directory)->d_name));
            rewinddir(directory); memset(told, 0, sizeof told);
            twice = next(99999); missed = 0;
            for (int at = 0; at < 2900; at++) missed += at % 3 && !told[at];
            printf("twice %d missed %d end %d\n", twice, missed, !readdir(directory));
            rewinddir(directory);
            while (1) { struct dirent *it = readdir(directory); if (!it) break; unlink(it->d_name); }
            say("gone", rmdir(name));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    let said =
        "all 2900\nempty: 0 0\ntwice 0 missed 0\nagain 1\ntwice 0 missed 0 end 1\ngone: 0 0\n";
    assert_eq!(inside, said);
}

#[test]
fn a_loop_over_a_directory_ends_whatever_it_does_with_each_name() {
    let source = r#"
        #include <dirent.h>
        enum { FILES = 5, MANY = 60 };
        static int made;
        static void touch(const char *path) { close(open(path, O_WRONLY | O_CREAT, 0600)); }
        static void suffix(const char *path) { char other[300]; sprintf(other, "%s.done", path); rename(path, other); }
        static void create(const char *path) { char other[40]; sprintf(other, "new-%d", made++); touch(other); }
        static void replace(const char *path) { touch("../staged"); rename("../staged", path); }
        static void take_away(const char *path) { unlink(path); create(path); }
        static void another_name(const char *path) { char other[300]; sprintf(other, "%s+", path); link(path, other); rename(other, "moved"); rename("moved", other); }
        /* How often it goes round: with all names read at once as C libraries do, or each by itself. */
        static int loop(void (*what)(const char *path), int each) {
            int rounds = 0; char one[40], bytes[32768];
            mkdir("d", 0700); chdir("d");
            for (int at = 0; at < FILES; at++) { sprintf(one, "old-%d", at); touch(one); }
            link("old-0", "older");
            int fd = open(".", O_RDONLY | O_DIRECTORY);
            for (long got; (got = syscall(SYS_getdents64, fd, bytes, each ? 40 : sizeof bytes)) > 0; )
                for (long at = 0; at < got && rounds < MANY; at += *(unsigned short *)(bytes + at + 16))
                    if (bytes[at + 19] != '.' && ++rounds < MANY) what(bytes + at + 19);
                    else if (rounds >= MANY) got = -1;
            /* And all that is there then, from the beginning. */
            lseek(fd, 0, SEEK_SET); int there = 0;
            for (long got; (got = syscall(SYS_getdents64, fd, bytes, sizeof bytes)) > 0; )
                for (long at = 0; at < got; at += *(unsigned short *)(bytes + at + 16)) {
                    there += bytes[at + 19] != '.'; unlink(bytes + at + 19);
                }
            close(fd); chdir(".."); say("gone", rmdir("d"));
            /* Where names are read one by one file systems differ in whether they tell what came meanwhile, and some never end. */
            return each ? rounds >= FILES && rounds < MANY : rounds * 100 + there;
        }
        int main() {
            if (!mkdtemp(name) || chdir(name)) return 9;
            void (*all[])(const char *path) = {suffix, create, replace, take_away, another_name};
            for (int which = 0; which < 5; which++) printf("%d: %d %d\n", which, loop(all[which], 0), getpid() == 1 ? loop(all[which], 1) : 1);
            chdir("/"); say("all gone", rmdir(name));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    let said = |line: &str| inside.lines().filter(|it| *it == line).count();
    assert_eq!(said("gone: 0 0"), 10, "{inside}");
    let lines = |said: &str| {
        let lines = said.lines().filter(|line| *line != "gone: 0 0");
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&inside), lines(&outside));
    let all = ["0: 606 1", "1: 612 1", "2: 606 1", "3: 606 1", "4: 612 1", "all gone: 0 0"];
    assert_eq!(lines(&inside), all);
}

#[test]
fn a_place_is_neither_read_nor_written_and_paths_begin_there() {
    let source = r#"
        #include <dirent.h>
        #include <sys/ioctl.h>
        #include <sys/statfs.h>
        int main() {
            char bytes[1000]; struct stat it; struct statfs system; struct timespec times[2] = {{1, 0}, {1, 0}};
            if (!mkdtemp(name) || chdir(name)) return 9;
            int fd = open("file", O_RDWR | O_CREAT, 0600); write(fd, "text", 4); close(fd);
            mkdir("d", 0700); close(open("d/inside", O_CREAT | O_WRONLY, 0600)); symlink("file", "link"); symlink("nowhere", "lost");
            const char *all[] = {"file", "d", "link", "lost", "missing", "file/"};
            for (int at = 0; at < 12; at++) {
                fd = open(all[at / 2], O_PATH | O_WRONLY | O_TRUNC | O_CREAT | (at % 2 ? O_NOFOLLOW : 0), 0600);
                printf("%s: %d %d\n", all[at / 2], fd >= 0, fd < 0 ? errno : 0);
                if (fd < 0) continue;
                say("read", read(fd, bytes, 4)); say("pread", pread(fd, bytes, 4, 0)); say("write", write(fd, "new", 3));
                say("truncate", ftruncate(fd, 1)); say("seek", lseek(fd, 0, SEEK_SET)); say("ioctl", ioctl(fd, FIONREAD, bytes));
                say("list", syscall(SYS_getdents64, fd, bytes, sizeof bytes)); say("sync", fsync(fd)); say("mode", fchmod(fd, 0755));
                say("owner", fchown(fd, -1, -1)); say("times", futimens(fd, times)); say("map", mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
                say("flags", fcntl(fd, F_GETFL) & (O_PATH | O_ACCMODE)); say("set flags", fcntl(fd, F_SETFL, O_APPEND));
                say("close on exec", fcntl(fd, F_SETFD, FD_CLOEXEC)); say("closes", fcntl(fd, F_GETFD));
                say("status", fstat(fd, &it)); printf("%o %d\n", it.st_mode & S_IFMT, it.st_size == 4);
                say("itself", fstatat(fd, "", &it, AT_EMPTY_PATH)); say("system", fstatfs(fd, &system));
                memset(bytes, 0, sizeof bytes); say("link", readlinkat(fd, "", bytes, sizeof bytes)); puts(bytes);
                int other = dup(fd); say("read other", read(other, bytes, 1)); say("close other", close(other));
                int inside = openat(fd, "inside", O_RDONLY); say("inside", inside >= 0 ? close(inside) : -1);
                say("enter", fchdir(fd)); chdir(name);
                say("close", close(fd)); say("closed", close(fd));
            }
            say("is still", stat("file", &it)); printf("%ld %o\n", (long)it.st_size, it.st_mode);
            say("no directory", open("file", O_PATH | O_DIRECTORY));
            say("truncated directory", open("d", O_RDONLY | O_TRUNC)); say("and so", open("d", O_RDONLY | O_DIRECTORY | O_TRUNC));
            say("mode of a file", fchmodat(AT_FDCWD, "file", 0640, AT_SYMLINK_NOFOLLOW));
            stat("file", &it); printf("%o\n", it.st_mode);
            say("mode of a link", fchmodat(AT_FDCWD, "link", 0640, AT_SYMLINK_NOFOLLOW));
            /* Held by it, though nothing else has it. */
            fd = open("file", O_PATH); unlink("file"); say("gone", fstat(fd, &it)); printf("%ld\n", (long)it.st_nlink); close(fd);
            unlink("link"); unlink("lost"); unlink("d/inside"); rmdir("d"); chdir("/"); say("all gone", rmdir(name));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert!(outside.ends_with("all gone: 0 0\n"), "{outside}");
    assert_eq!(inside, outside);
}

#[test]
fn what_is_said_of_memory_with_holes_holds_as_far_as_on_linux() {
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
fn calls_that_ask_little_answer_as_linux_does() {
    let source = r#"
        #include <poll.h>
        #include <signal.h>
        #include <time.h>
        int main() {
            unsigned ids[3], processor = 7, node = 7; struct timespec none = {0, 0}, wrong = {0, -1};
            say("users", getresuid(ids, ids + 1, ids + 2)); printf("%d\n", ids[0] == getuid() && ids[1] == geteuid() && ids[2] == getuid());
            say("groups", getresgid(ids, ids + 1, ids + 2)); printf("%d\n", ids[0] == getgid() && ids[1] == getegid() && ids[2] == getgid());
            say("nowhere", syscall(SYS_getresuid, 0, ids, ids));
            for (int policy = -1; policy < 7; policy++) { say("highest", sched_get_priority_max(policy)); say("lowest", sched_get_priority_min(policy)); }
            say("processor", syscall(SYS_getcpu, &processor, &node, 0)); printf("%d %d\n", processor < 4096, node < 64); say("no target", syscall(SYS_getcpu, 0, 0, 0));
            say("system", syncfs(1)); say("no system", syncfs(77));
            int ends[2]; pipe(ends); struct pollfd ask = {ends[0], POLLIN, 0}; sigset_t set; sigemptyset(&set);
            say("nothing", ppoll(&ask, 1, &none, &set)); write(ends[1], "x", 1);
            say("something", ppoll(&ask, 1, 0, 0)); say("never", ppoll(&ask, 1, &wrong, 0));
            unsigned long base = 0; say("base", syscall(SYS_arch_prctl, 0x1003, &base)); printf("%d\n", base == (unsigned long)pthread_self());
            say("base nowhere", syscall(SYS_arch_prctl, 0x1003, 64));
            static char page[4096]; say("lock", mlock(page, 4096)); say("unlock", munlock(page, 4096)); say("unlock all", munlockall()); sync();
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}

#[test]
fn a_files_times_are_kept_to_the_nanosecond() {
    let source = r#"
        static void times(const char *what, int fd) {
            struct stat it; fstat(fd, &it);
            printf("%s: %ld %ld, %ld %ld\n", what, it.st_atime, it.st_atim.tv_nsec, it.st_mtime, it.st_mtim.tv_nsec);
        }
        int main() {
            int fd = make('a', 10);
            struct timespec both[2] = {{1234567890, 123456789}, {-5, 999999999}};
            say("set", futimens(fd, both)); times("both", fd);
            both[0].tv_nsec = UTIME_OMIT; both[1].tv_sec = 7;
            say("set", utimensat(AT_FDCWD, name, both, 0)); times("one", fd);
            both[0] = (struct timespec){1, 1}; both[1].tv_nsec = UTIME_OMIT;
            say("set", futimens(fd, both)); times("other", fd);
            struct stat it; struct timespec before, after;
            /* Files go by the clock's ticks. */
            clock_gettime(CLOCK_REALTIME_COARSE, &before); write(fd, "b", 1); clock_gettime(CLOCK_REALTIME_COARSE, &after);
            fstat(fd, &it);
            long long low = before.tv_sec * 1000000000ll + before.tv_nsec, high = after.tv_sec * 1000000000ll + after.tv_nsec;
            long long at = it.st_mtime * 1000000000ll + it.st_mtim.tv_nsec;
            printf("written now: %d; %ld %ld\n", low <= at && at <= high + 20000000, it.st_atime, it.st_atim.tv_nsec);
            unlink(name);
            return 0;
        }"#;
    let source = format!("{HEAD}{FILES}#include <time.h>\n{source}");
    let Some([inside, outside]) = in_machine_and_on_host(&source) else { return };
    assert_eq!(inside, outside);
}

#[test]
fn what_is_written_to_a_shared_mapping_is_in_the_file() {
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

#[test]
fn small_calls_about_files_and_the_process_answer_as_linux_does() {
    let source = r#"
        #include <sys/resource.h>
        #include <sys/uio.h>
        int main() {
            int fd = make('a', 100), only = open(name, O_RDONLY), ends[2];
            pipe(ends);
            char one[8] = {0}, two[8] = {0};
            struct iovec parts[3] = {{one, 3}, {0, 0}, {two, 4}}, none = {one, 0};
            memcpy(one, "123", 3); memcpy(two, "4567", 4);
            say("pwritev", pwritev(fd, parts, 3, 10)); say("over the end", pwritev(fd, parts, 3, 98));
            memset(one, 0, 8); memset(two, 0, 8);
            say("preadv", preadv(fd, parts, 3, 10)); printf("%s %s\n", one, two);
            say("at the end", preadv(fd, parts, 3, 102)); say("behind", preadv(fd, parts, 3, 1000));
            say("negative", preadv(fd, parts, 3, -1)); say("nothing", preadv(fd, &none, 1, 0)); say("none", preadv(fd, parts, 0, 0));
            say("a pipe", preadv(ends[0], parts, 3, 0)); say("a reader", pwritev(only, parts, 3, 0)); say("closed", preadv(77, parts, 3, 0));
            say("where it stands", lseek(fd, 0, SEEK_CUR));
            say("second", preadv2(fd, parts, 3, 10, 0)); say("its own place", pwritev2(fd, parts, 3, -1, 0)); say("moved", lseek(fd, 0, SEEK_CUR));
            say("longer", fallocate(fd, 0, 100, 50)); say("is", lseek(fd, 0, SEEK_END)); say("not shorter", fallocate(fd, 0, 0, 5)); say("is", lseek(fd, 0, SEEK_END));
            say("kept", fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 5000)); say("is", lseek(fd, 0, SEEK_END));
            say("negative", fallocate(fd, 0, -1, 5)); say("empty", fallocate(fd, 0, 0, 0)); say("a reader", fallocate(only, 0, 0, 5)); say("a pipe", fallocate(ends[1], 0, 0, 5));
            say("posix", posix_fallocate(fd, 0, 300)); say("is", lseek(fd, 0, SEEK_END));
            say("data", lseek(fd, 5, SEEK_DATA)); say("hole", lseek(fd, 5, SEEK_HOLE)); say("behind", lseek(fd, 300, SEEK_DATA)); say("behind", lseek(fd, 300, SEEK_HOLE)); say("negative", lseek(fd, -1, SEEK_DATA));
            say("owner", fchown(fd, getuid(), getgid())); say("owner", chown(name, -1, -1)); say("owner", lchown(name, getuid(), -1)); say("owner", fchownat(AT_FDCWD, name, -1, getgid(), 0));
            say("of nothing", chown("/tmp/no-such", -1, -1)); say("closed", fchown(77, -1, -1));
            say("group", getpgid(0) == getpgrp()); say("of another", getpgid(99999999)); say("priority", getpriority(PRIO_PROCESS, 0) < -20); say("of what", getpriority(7, 0));
            say("scheduler", sched_getscheduler(0)); say("of another", sched_getscheduler(99999999));
            struct rlimit limit;
            say("limit", getrlimit(RLIMIT_RSS, &limit)); limit.rlim_cur = limit.rlim_max = 0; say("lower", setrlimit(RLIMIT_RSS, &limit));
            limit.rlim_cur = 1; say("above its own", setrlimit(RLIMIT_RSS, &limit));
            unlink(name);
            strcpy(strrchr(name, '-'), "-XXXXXX");
            char where[200];
            mkdtemp(name); chdir(name); say("there", getcwd(where, sizeof where) == 0); rmdir(name);
            say("gone", syscall(SYS_getcwd, where, sizeof where)); say("makes nothing", open("file", O_CREAT | O_WRONLY, 0600)); chdir("/"); say("back", getcwd(where, sizeof where) == 0);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}

#[test]
fn what_proc_tells_of_a_process_agrees_with_what_it_knows_itself() {
    let source = r#"
        #include <fcntl.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/prctl.h>
        #include <sys/stat.h>
        static char text[1 << 20];
        static long get(const char *path) {
            int file = open(path, O_RDONLY);
            if (file < 0) return -1;
            long length = read(file, text, sizeof text - 1);
            text[length < 0 ? 0 : length] = 0;
            close(file);
            return length;
        }
        /* The rights of what is mapped there, and whether it ends where it should. */
        static void mapping(const char *what, void *place) {
            get("/proc/self/maps");
            for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n")) {
                unsigned long start, end, offset, inode;
                char rights[8], name[256] = "";
                int found = sscanf(line, "%lx-%lx %7s %lx %*s %lu %255s", &start, &end, rights, &offset, &inode, name);
                if ((unsigned long)place < start || (unsigned long)place >= end) continue;
                const char *last = strrchr(name, '/');
                printf("%s: %d %s at %lx, %d %s\n", what, found > 4, rights, offset, inode > 0, last ? last : "");
                fflush(stdout);
                return;
            }
            printf("%s: no mapping\n", what);
        }
        int main() {
            prctl(PR_SET_NAME, "of a guest");
            char path[64], name[32], state;
            long pid, parent;
            int local;
            for (int way = 0; way < 2; way++) {
                snprintf(path, sizeof path, way ? "/proc/%d/stat" : "/proc/self/stat", getpid());
                get(path);
                printf("%d %c", sscanf(text, "%ld (%31[^)]) %c %ld", &pid, name, &state, &parent), state);
                char *field = text;
                for (int number = 1; field; number++) field = strchr(field + 1, ' ') ? : (printf(" of %d fields\n", number - 2), (char *)0);
                say(name, pid == getpid());
            }
            say("name", get("/proc/thread-self/comm"));
            say(text, 0);
            get("/proc/self/status");
            char *line = strstr(text, "\nPid:");
            say("pid", line && atol(line + 5) == getpid());
            say("threads", (line = strstr(text, "\nThreads:")) ? atol(line + 9) : -1);
            say("umask", (line = strstr(text, "\nUmask:")) ? strtol(line + 7, 0, 8) : -1);
            long size, resident;
            get("/proc/self/statm");
            say("statm", sscanf(text, "%ld %ld", &size, &resident) == 2 && size >= resident && resident > 0);
            get("/proc/meminfo");
            long total = atol(strstr(text, "MemTotal:") + 9), left = atol(strstr(text, "MemAvailable:") + 13);
            say("memory", total > left && left > 0);
            double up, idle;
            get("/proc/uptime");
            say("uptime", sscanf(text, "%lf %lf", &up, &idle) == 2 && up > 1);
            get("/proc/stat");
            say("since", (line = strstr(text, "\nbtime ")) && atol(line + 7) > 1500000000);
            double load[3];
            get("/proc/loadavg");
            say("load", sscanf(text, "%lf %lf %lf", load, load + 1, load + 2));

            mapping("stack", &local);
            mapping("code", (void *)main);
            int file = open("/tmp/shown", O_RDWR | O_CREAT, 0600);
            ftruncate(file, 8192);
            mapping("private", mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 4096));
            mapping("shared", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
            mapping("anonymous", mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            unlink("/tmp/shown");

            struct stat it;
            say("size", stat("/proc/self/maps", &it) ? -1 : it.st_size);
            say("kind", (it.st_mode & S_IFMT) == S_IFREG);
            say("made", open("/proc/self/other", O_RDONLY));
            say("another's", get("/proc/999999999/stat"));
            say("none", get("/proc/1x/stat"));
            file = open("/proc/self/comm", O_RDONLY);
            say("from", pread(file, text, 3, 3));
            say("behind", pread(file, text, 3, 300));
            say("part", read(file, text, 2));
            say("rest", read(file, text, sizeof text));
            say("end", read(file, text, sizeof text));
            say("again", lseek(file, 1, SEEK_SET) + read(file, text, sizeof text));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    for expected in
        ["4 R of 52 fields\n", "stack: 1 rw-p", "code: 1 r-xp", "r--p at 1000, 1 /shown"]
    {
        assert!(inside.contains(expected), "{expected}: {inside}");
    }
}

#[test]
fn what_is_written_to_a_pipe_is_whole_or_waits() {
    let source = r#"
        #include <fcntl.h>
        #include <poll.h>
        #include <string.h>
        #include <sys/socket.h>
        #include <sys/uio.h>
        enum { WRITERS = 3, RECORDS = 60 };
        static int ends[2], sockets[2];
        static char piece[200000];
        /* Each record says whose it is with each of its bytes. */
        static void *write_records(void *whose) {
            char record[1000];
            memset(record, (int)(long)whose, sizeof record);
            for (int at = 0; at < RECORDS; at++) if (write(ends[1], record, sizeof record) != sizeof record) return (void *)1;
            return 0;
        }
        static void *write_much(void *out) { return (void *)write(*(int *)out, piece, 40000); }
        static void *write_parts(void *out) {
            struct iovec parts[3] = {{piece, 20000}, {piece, 0}, {piece, 25000}};
            return (void *)writev(*(int *)out, parts, 3);
        }
        static long full(int out, size_t length) {
            long count = 0;
            while (write(out, piece, length) == (long)length) count++;
            return errno == EAGAIN ? count : -1;
        }
        static long drain(int in, long most) {
            long total = 0, got;
            while (total < most && (got = read(in, piece, most - total)) > 0) total += got;
            return total;
        }
        int main() {
            pthread_t threads[WRITERS];
            pipe(ends);
            for (long at = 0; at < WRITERS; at++) pthread_create(threads + at, 0, write_records, (void *)('a' + at));
            long torn = 0, total = 0, counts[WRITERS] = {0};
            char record[1000];
            for (int number = 0; number < WRITERS * RECORDS; number++) {
                for (size_t at = 0; at < sizeof record;) at += read(ends[0], record + at, sizeof record - at);
                for (size_t at = 1; at < sizeof record; at++) torn += record[at] != record[0];
                counts[record[0] - 'a']++;
            }
            void *failed;
            for (int at = 0; at < WRITERS; at++) { pthread_join(threads[at], &failed); total += (long)failed; say("of one", counts[at]); }
            say("torn", torn);
            say("failed", total);

            fcntl(ends[1], F_SETFL, O_NONBLOCK);
            say("atomic", full(ends[1], 4000));
            say("more", write(ends[1], piece, 4000));
            struct pollfd can = {ends[1], POLLOUT};
            say("can", poll(&can, 1, 0));
            say("read", drain(ends[0], 8000));
            say("can again", poll(&can, 1, 0));
            say("again", write(ends[1], piece, 4000));
            drain(ends[0], 15 * 4000);

            fcntl(ends[1], F_SETFL, 0);
            socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
            int *outs[2] = {ends + 1, sockets + 1}, ins[2] = {ends[0], sockets[0]};
            for (int way = 0; way < 2; way++) {
                void *written;
                pthread_create(threads, 0, write_much, outs[way]);
                pthread_create(threads + 1, 0, write_parts, outs[way]);
                say("both", drain(ins[way], 85000));
                pthread_join(threads[0], &written);
                say("much", (long)written);
                pthread_join(threads[1], &written);
                say("parts", (long)written);
            }
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert!(outside.ends_with("both: 85000 0\nmuch: 40000 0\nparts: 45000 0\n"), "{outside}");
    assert_eq!(inside, outside);
}

#[test]
fn a_thread_that_computes_does_not_keep_others_from_running() {
    let source = r#"
        #include <string.h>
        #include <time.h>
        enum { THREADS = 4 };
        static volatile long set, counts[THREADS], stop;
        static volatile double sums[THREADS];
        static void *sleeper(void *argument) {
            struct timespec a_while = {0, 20000000};
            nanosleep(&a_while, 0);
            set = 1;
            return 0;
        }
        /* Registers, vectors and flags are each thread's own, wherever it is interrupted. */
        static void *count(void *whose) {
            long number = (long)whose, wrong = 0;
            double sum = number, same = number;
            while (!stop) {
                for (int at = 0; at < 1000; at++) { sum += 0.5; same += 0.5; wrong += sum != same; }
                counts[number]++;
            }
            sums[number] = sum;
            return (void *)wrong;
        }
        int main() {
            pthread_t threads[THREADS];
            pthread_create(threads, 0, sleeper, 0);
            while (!set) {}
            pthread_join(threads[0], 0);
            say("set", set);
            for (long at = 0; at < THREADS; at++) pthread_create(threads + at, 0, count, (void *)at);
            for (int all = 0; !all;) { all = 1; for (int at = 0; at < THREADS; at++) all &= counts[at] > 100; }
            stop = 1;
            void *wrong;
            for (int at = 0; at < THREADS; at++) {
                pthread_join(threads[at], &wrong);
                say("wrong", (long)wrong);
                say("of all", sums[at] == at + 500.0 * counts[at]);
            }
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    assert_eq!(inside, format!("set: 1 0\n{}", "wrong: 0 0\nof all: 1 0\n".repeat(4)));
}

#[test]
fn limits_that_a_program_sets_for_itself_hold_as_on_linux() {
    let source = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <pthread.h>
        #include <signal.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/resource.h>
        #include <sys/stat.h>
        #include <time.h>
        static volatile int got;
        static void note(int number) { got = number; }
        static void set(const char *what, int kind, long soft, long hard) {
            struct rlimit it = {soft, hard};
            say(what, setrlimit(kind, &it));
            getrlimit(kind, &it);
            printf("%ld %ld\n", (long)it.rlim_cur, (long)it.rlim_max);
        }
        static void *nothing(void *unused) { return unused; }
        int main() {
            /* Root may do more. */
            if (getuid() == 0 && (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))) return 1;
            const int kinds[] = {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_RSS, RLIMIT_AS, RLIMIT_LOCKS, RLIMIT_MEMLOCK};
            for (int place = 0; place < 7; place++) {
                int kind = kinds[place];
                struct rlimit it;
                if (getrlimit(kind, &it)) return 2;
                long before = it.rlim_max;
                it.rlim_cur = 5; it.rlim_max = 3;
                say("soft above hard", setrlimit(kind, &it));
                it.rlim_cur = it.rlim_max = before;
                say("as it is", setrlimit(kind, &it));
            }
            set("locks", RLIMIT_LOCKS, 0, 0); set("locks again", RLIMIT_LOCKS, 1, 1); set("locks wrong", RLIMIT_LOCKS, 1, 0);
            set("memlock", RLIMIT_MEMLOCK, 4096, 8192); set("memlock up", RLIMIT_MEMLOCK, 8192, 8192);
            set("memlock above", RLIMIT_MEMLOCK, 8193, 8193);
            struct rlimit it = {1, 1};
            say("no such kind", setrlimit(16, &it)); say("no such kind", getrlimit(16, &it)); say("negative", getrlimit(-1, &it));
            say("of nowhere", prlimit(0, RLIMIT_CORE, (void *)8, 0)); say("both", prlimit(getpid(), RLIMIT_RSS, &it, &it));
            say("of another", prlimit(99999999, RLIMIT_CORE, 0, &it));

            int file = open("/tmp/limited-" "file", O_CREAT | O_RDWR | O_TRUNC, 0600), more;
            unlink("/tmp/limited-file");
            set("files", RLIMIT_NOFILE, 12, 20);
            while ((more = dup(file)) >= 0) ;
            say("no more", dup(file)); say("number", dup2(file, 12)); say("from", fcntl(file, F_DUPFD, 12)); say("opened", open("/dev/null", O_RDONLY));
            int ends[2]; say("pipe", pipe(ends));
            set("more files", RLIMIT_NOFILE, 14, 20); say("one more", dup(file)); say("that one", dup2(file, 13));
            set("fewer", RLIMIT_NOFILE, 3, 20); say("still there", fcntl(13, F_GETFD)); close(5); say("none", dup(file));
            set("many again", RLIMIT_NOFILE, 20, 20);

            set("length", RLIMIT_FSIZE, 100, 1000);
            signal(SIGXFSZ, note);
            char bytes[200] = {0};
            say("a part", write(file, bytes, 200)); say("signal", got);
            say("none", write(file, bytes, 1)); say("signal", got); got = 0;
            say("behind", pwrite(file, bytes, 1, 150)); say("signal", got); got = 0;
            say("longer", ftruncate(file, 101)); say("signal", got); got = 0;
            say("as long", ftruncate(file, 100)); say("shorter", ftruncate(file, 50)); say("up to it", pwrite(file, bytes, 100, 20)); say("signal", got);
            signal(SIGXFSZ, SIG_IGN); say("ignored", pwrite(file, bytes, 1, 100));
            int pipes[2]; close(6); close(7); say("pipe", pipe(pipes)); say("a pipe has no length", write(pipes[1], bytes, 200));
            set("long again", RLIMIT_FSIZE, 1000, 1000); say("long", pwrite(file, bytes, 200, 100));

            set("address space", RLIMIT_AS, 1 << 20, RLIM_INFINITY);
            say("no room", mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
            say("nor for what is not touched", mmap(0, 2 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
            set("room again", RLIMIT_AS, RLIM_INFINITY, RLIM_INFINITY);
            say("room", mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);

            signal(SIGXCPU, note); got = 0;
            set("a second of the processor", RLIMIT_CPU, 1, 10);
            while (!got) ;
            say("over", got);
            struct timespec used; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
            say("after one", used.tv_sec + used.tv_nsec / 1e9 > 0.9);
            set("shorter", RLIMIT_CPU, 5, 5); set("no longer", RLIMIT_CPU, 6, 6);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}

#[test]
fn descriptors_are_found_by_name_as_on_linux() {
    let source = r#"
        #define _GNU_SOURCE
        #include <dirent.h>
        #include <errno.h>
        #include <fcntl.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/socket.h>
        #include <sys/stat.h>
        int main() {
            char name[64], text[300], *at;
            struct stat it, other;
            int file = open("/tmp/by-number", O_CREAT | O_RDWR | O_TRUNC, 0600), ends[2], both[2];
            say("written", write(file, "hello", 5)); pipe(ends); socketpair(AF_UNIX, SOCK_STREAM, 0, both);
            const char *ways[] = {"/dev/fd/%d", "/proc/self/fd/%d", "/proc/thread-self/fd/%d"};
            for (int way = 0; way < 3; way++) {
                sprintf(name, ways[way], file);
                int again = open(name, O_RDONLY);
                say("again", again >= 0); memset(text, 0, 10); say("from its beginning", read(again, text, 9)); puts(text); close(again);
                say("of it", stat(name, &it) || fstat(file, &other) || it.st_ino != other.st_ino);
                say("a link", lstat(name, &it) || !S_ISLNK(it.st_mode));
                say("access", access(name, R_OK)); say("to", readlink(name, text, sizeof text)); text[14] = 0; puts(text);
            }
            sprintf(name, "/dev/fd/%d", file);
            say("not followed", open(name, O_NOFOLLOW)); say("not made", open(name, O_CREAT | O_EXCL | O_WRONLY, 0600));
            say("longer name", open("/dev/fd/3/more", O_RDONLY)); int below = open("/tmp", O_RDONLY | O_DIRECTORY); sprintf(text, "/dev/fd/%d/by-number", below); say("below one", open(text, O_RDONLY) >= 0); say("no number", open("/dev/fd/x", O_RDONLY)); say("zeros", open("/dev/fd/003", O_RDONLY)); say("closed", open("/dev/fd/77", O_RDONLY)); say("closed", stat("/dev/fd/77", &it));
            unlink("/tmp/by-number");
            say("still", open(name, O_RDONLY) >= 0); say("length", (int)readlink(name, text, sizeof text) > 10);
            say("emptied", open(name, O_WRONLY | O_TRUNC) >= 0); say("empty", fstat(file, &it) || it.st_size != 0);
            sprintf(name, "/dev/fd/%d", ends[0]);
            int writes = open(name, O_WRONLY);
            say("other end", writes >= 0); say("through it", write(writes, "abc", 3)); say("comes", read(ends[0], text, 3));
            say("a pipe", stat(name, &it) || !S_ISFIFO(it.st_mode)); readlink(name, text, sizeof text); text[6] = 0; puts(text);
            sprintf(name, "/dev/fd/%d", both[0]);
            say("no socket", open(name, O_RDWR)); readlink(name, text, sizeof text); text[8] = 0; puts(text);
            DIR *all = opendir("/proc/self/fd");
            int count = 0, right = 1;
            for (struct dirent *entry; (entry = readdir(all)); ) {
                if (entry->d_name[0] == '.') continue;
                count++; right &= fcntl(atoi(entry->d_name), F_GETFD) >= 0 && entry->d_type == DT_LNK;
            }
            say("each is open", right); say("some", count >= 8);
            say("a directory", open("/dev/fd/", O_WRONLY)); say("its own", chdir("/proc/self/fd")); say("from there", openat(AT_FDCWD, "0", O_RDONLY) >= 0);
            say("changes", chdir("/")); say("bits", fchmodat(AT_FDCWD, "/proc/self/fd/3", 0640, 0)); say("are", fstat(3, &it) ? -1 : it.st_mode & 0777);
            FILE *out = fopen("/dev/stdout", "w");
            fflush(stdout); fputs("by its name\n", out); fclose(out); puts("and by its number");
            say("input", open("/dev/stdin", O_RDONLY) >= 0);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}
