//! Threads, futexes, signals and pipes, compared with Linux.

use crate::HEAD;
use crate::machine::in_machine_and_on_host;

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

#[test]
fn a_small_write_to_a_pipe_is_whole_or_waits() {
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
