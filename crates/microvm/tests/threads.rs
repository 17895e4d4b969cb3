//! Threads of a guest, on its one processor.

mod machine;

use std::path::Path;
use std::time::Duration;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::vfs::TreeBuilder;

const HEAD: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <poll.h>
    #include <pthread.h>
    #include <sched.h>
    #include <semaphore.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
"#;

/// A process of a C program that knows of threads.
fn start(host: &Hypervisor, source: &str) -> Process {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(&format!("{HEAD}{source}"), &["-static", "-pthread"]);
    std::fs::write(directory.path().join("program"), program).unwrap();
    process(host, directory.path())
}

fn process(host: &Hypervisor, directory: &Path) -> Process {
    let tree = TreeBuilder::default().layer("/", directory).unwrap().devices();
    let options = Options { program: vec!["/program".into()], channel: true, ..Options::default() };
    Process::start(host, tree.scratch("/tmp").build(1 << 20, 64), &options).unwrap()
}

/// How a C program ends.
fn run(source: &str) -> Option<Pause> {
    let host = kvm()?;
    let mut process = start(&host, source);
    let pause = process.run().unwrap();
    let unknown = process.unknown_calls();
    assert!(unknown.is_empty(), "{unknown:?}");
    Some(pause)
}

#[test]
fn a_threads_stack_has_eight_megabytes_and_counts_only_those_touched() {
    // The deepest has all of it but what C libraries keep for themselves. What is on a stack is
    // found by calls, and by handlers.
    let source = r#"
        enum { DEPTH = 7600 };
        static int ends[2];
        static void handler(int signal) { volatile char own[4000]; own[0] = signal; }
        __attribute__((noinline)) static int told(void) {
            char there[300000], here[8] = "";
            raise(SIGUSR1);
            there[0] = 'd';
            return write(ends[1], there, 1) == 1 && read(ends[0], here, 1) == 1 && here[0] == 'd';
        }
        __attribute__((noinline)) static int deep(int left) {
            volatile char own[960];
            own[0] = left;
            if (left % 1000 == 0 && !told()) return 100000;
            return left && deep(left - 1) != left - 1 ? 100000 : (own[0] == (char)left ? left : 100000);
        }
        static void *work(void *depth) { return (void *)(long)(deep((long)depth) == (long)depth ? 7 : 8); }
        static void *wait(void *lock) { pthread_mutex_lock(lock); pthread_mutex_unlock(lock); return (void *)7; }
        static int call(long depth) {
            pthread_t thread;
            void *result = (void *)9;
            if (pthread_create(&thread, 0, work, (void *)depth) || pthread_join(thread, &result)) return 10;
            return (long)result;
        }
        int main() {
            char byte;
            signal(SIGUSR1, handler);
            if (pipe(ends)) return 1;
            read(3, &byte, 1);
            if (call(DEPTH) != 7 || call(10) != 7 || call(DEPTH) != 7) return 2;
            static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
            pthread_mutex_lock(&lock);
            pthread_t many[40];
            for (int at = 0; at < 40; at++) if (pthread_create(many + at, 0, wait, &lock)) return 3;
            pthread_mutex_unlock(&lock);
            for (int at = 0; at < 40; at++) if (pthread_join(many[at], 0)) return 4;
            /* There are six megabytes left or so: a stack that needs more ends the process. */
            read(3, &byte, 1);
            return call(DEPTH);
        }"#;
    let Some(host) = kvm() else { return };
    let mut process = start(&host, source);
    assert_eq!(process.run().unwrap(), Pause::Idle);
    process.limit(24 << 20, 1 << 20, 64);
    process.feed(b"x");
    assert_eq!(process.run().unwrap(), Pause::Idle);
    let template = Template::seal(process).unwrap();
    let scanner = Scanner::open().unwrap();
    let mut clone = template.spawn(&host).unwrap();
    for (memory, whether) in [(16 << 20, true), (2 << 20, false), (16 << 20, true)] {
        clone.limit(memory, 1 << 20, 64);
        clone.feed(b"x");
        let pause = clone.run().unwrap();
        let ended = match pause {
            Pause::Exited(7) => true,
            Pause::OutOfMemory => false,
            _ => panic!("{pause:?}"),
        };
        assert_eq!(ended, whether, "with {memory}: {pause:?}");
        clone = template.reset(clone, &scanner).unwrap().0;
        assert_eq!(template.differences(&mut clone, &scanner).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn threads_hand_over_to_each_other_and_are_joined() {
    let source = r#"
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
        static int turn, sum;
        static _Thread_local double own;
        static void *work(void *argument) {
            int number = (long)argument;
            own = number + 0.5;
            for (int round = 0; round < 50; round++) {
                pthread_mutex_lock(&lock);
                while (turn % 5 != number) pthread_cond_wait(&changed, &lock);
                turn++; sum += number;
                pthread_cond_broadcast(&changed);
                pthread_mutex_unlock(&lock);
            }
            return (void *)(long)(own * 2);
        }
        int main() {
            pthread_t threads[5];
            for (long at = 0; at < 5; at++) if (pthread_create(threads + at, 0, work, (void *)at)) return 1;
            for (long at = 0; at < 5; at++) {
                void *result;
                if (pthread_join(threads[at], &result) || (long)result != at * 2 + 1) return 2;
            }
            return turn == 250 && sum == 500 ? 7 : 3;
        }"#;
    let Some(pause) = run(source) else { return };
    assert_eq!(pause, Pause::Exited(7));
}

#[test]
fn vectors_and_floating_point_are_a_threads_own() {
    let source = r#"
        static volatile int turn;
        static void *work(void *argument) {
            double mine = (long)argument, sum = 0;
            /* The compiler has no reason to keep it anywhere but in a register. */
            register double kept __asm__("xmm9") = mine;
            for (int round = 0; round < 200; round++) {
                __asm__ volatile("" : "+x"(kept));
                sum += kept;
                syscall(SYS_sched_yield);
                __asm__ volatile("" : "+x"(kept));
                if (kept != mine) exit(9);
            }
            return (void *)(long)(sum / 200);
        }
        int main() {
            pthread_t threads[3];
            for (long at = 0; at < 3; at++) pthread_create(threads + at, 0, work, (void *)(at + 10));
            for (long at = 0; at < 3; at++) {
                void *result; pthread_join(threads[at], &result);
                if ((long)result != at + 10) return 2;
            }
            return 7;
        }"#;
    let Some(pause) = run(source) else { return };
    assert_eq!(pause, Pause::Exited(7));
}

#[test]
fn a_thread_that_waits_for_a_pipe_a_poll_or_a_time_lets_others_run() {
    let source = r#"
        static int ends[2], others[2];
        static sem_t heard;
        static void *write_late(void *argument) {
            struct timespec nap = {0, 20000000};
            nanosleep(&nap, 0);
            if (write(ends[1], "a", 1) != 1) exit(10);
            sem_wait(&heard);
            nanosleep(&nap, 0);
            if (write(others[1], "b", 1) != 1) exit(11);
            return 0;
        }
        int main() {
            pthread_t thread; char byte;
            if (pipe(ends) || pipe(others)) return 1;
            struct pollfd ask = {others[0], POLLIN, 0};
            /* No thread writes: the time passes, for a poll and for a semaphore. */
            if (poll(&ask, 1, 30) != 0) return 2;
            sem_t never; sem_init(&never, 0, 0); sem_init(&heard, 0, 0);
            struct timespec until; clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 30000000; if (until.tv_nsec >= 1000000000) { until.tv_sec++; until.tv_nsec -= 1000000000; }
            if (sem_timedwait(&never, &until) != -1 || errno != ETIMEDOUT) return 3;
            pthread_create(&thread, 0, write_late, 0);
            if (read(ends[0], &byte, 1) != 1 || byte != 'a') return 4;
            sem_post(&heard);
            if (poll(&ask, 1, 60000) != 1 || read(others[0], &byte, 1) != 1 || byte != 'b') return 5;
            pthread_join(thread, 0);
            return 7;
        }"#;
    let Some(pause) = run(source) else { return };
    assert_eq!(pause, Pause::Exited(7));
}

#[test]
fn a_thread_that_makes_calls_does_not_keep_others_from_theirs() {
    let source = r#"
        static volatile int done;
        static void *work(void *argument) { done = 1; return 0; }
        int main() {
            pthread_t thread;
            pthread_create(&thread, 0, work, 0);
            while (!done) getppid();
            return 7;
        }"#;
    let Some(pause) = run(source) else { return };
    assert_eq!(pause, Pause::Exited(7));
}

#[test]
fn many_short_sleeps_do_not_starve_a_computing_thread() {
    // Whose time is over are as soon ready again as all of them have had their turns.
    let source = r#"
        static volatile int done;
        static void *sleeps(void *argument) {
            struct timespec time = {0, 1000000};
            while (!done) nanosleep(&time, 0);
            return 0;
        }
        static void *computes(void *argument) {
            for (volatile long steps = 0; steps < 100000000; steps++);
            done = 1;
            return 0;
        }
        int main() {
            pthread_t thread; pthread_attr_t small;
            pthread_attr_init(&small); pthread_attr_setstacksize(&small, 65536);
            for (int more = 0; more < 100; more++) if (pthread_create(&thread, &small, sleeps, 0)) return 1;
            pthread_create(&thread, 0, computes, 0);
            sleeps(0);
            exit(7);
        }"#;
    let Some(host) = kvm() else { return };
    let mut process = start(&host, source);
    let stopper = process.stopper();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(30));
        stopper.stop();
    });
    assert_eq!(process.run().unwrap(), Pause::Exited(7));
}

#[test]
fn a_wait_that_is_made_once_more_again_and_again_has_one_limit_of_time() {
    // One thread's turns begin with each millisecond of the other's, between which the first looks
    // at its pipe once more.
    let source = r#"
        static volatile int done;
        static volatile long beats;
        static void *sleeps(void *argument) {
            struct timespec time = {0, 1000000};
            while (!done) { nanosleep(&time, 0); beats++; }
            return 0;
        }
        static void *yields(void *argument) { while (!done) sched_yield(); return 0; }
        int main() {
            pthread_t threads[2]; int ends[2];
            pipe(ends);
            struct pollfd one = {ends[0], POLLIN, 0};
            pthread_create(threads, 0, sleeps, 0); pthread_create(threads + 1, 0, yields, 0);
            for (int round = 0; round < 30; round++) if (poll(&one, 1, 20)) return 1;
            done = 1;
            pthread_join(threads[0], 0); pthread_join(threads[1], 0);
            /* Twice as many as there are milliseconds. */
            return beats < 1200 ? 7 : 2;
        }"#;
    let Some(pause) = run(source) else { return };
    assert_eq!(pause, Pause::Exited(7));
}

#[test]
fn a_dead_lock_is_an_error_that_ends_the_program() {
    // Glibc expects no error of a futex but those it knows.
    let source = r#"
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static void *work(void *argument) { pthread_mutex_lock(&lock); return 0; }
        int main() {
            pthread_t thread;
            unsigned word = 3;
            if (syscall(SYS_futex, &word, 0, 3, 0, 0, 0) != -1 || errno != EDEADLK) return 1;
            if (syscall(SYS_futex, &word, 0, 4, 0, 0, 0) != -1 || errno != EAGAIN) return 2;
            pthread_mutex_lock(&lock);
            pthread_create(&thread, 0, work, 0);
            pthread_join(thread, 0);
            return 3;
        }"#;
    let Some(pause) = run(source) else { return };
    assert_eq!(pause, Pause::Killed(6, None));
}

#[test]
fn a_thread_that_spins_is_stopped_from_outside_and_so_is_one_that_sleeps() {
    let Some(host) = kvm() else { return };
    for body in ["for (;;) {}", "for (;;) sched_yield();", "for (;;) sleep(1000);"] {
        let source = format!(
            "static void *work(void *argument) {{ {body} return 0; }}
             int main() {{ pthread_t thread; pthread_create(&thread, 0, work, 0); pthread_join(thread, 0); return 1; }}"
        );
        let mut process = start(&host, &source);
        let stopper = process.stopper();
        let outside = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            stopper.stop();
        });
        assert_eq!(process.run().unwrap(), Pause::Stopped, "{body}");
        outside.join().unwrap();
    }
}

#[test]
fn threads_have_a_limit_and_each_end_makes_room() {
    let source = r#"
        static pthread_barrier_t all;
        static void *wait(void *argument) { pthread_barrier_wait(&all); return 0; }
        static void *nothing(void *argument) { return 0; }
        int main() {
            static pthread_t threads[200]; int count = 0;
            for (int round = 0; round < 2; round++) {
                for (count = 0; count < 200; count++) {
                    if (count == 0) pthread_barrier_init(&all, 0, 128);
                    int why = pthread_create(threads + count, 0, wait, 0);
                    if (why == EAGAIN) break;
                    if (why) return 1;
                }
                if (count != 127) return 2;
                pthread_barrier_wait(&all);
                for (int at = 0; at < count; at++) pthread_join(threads[at], 0);
            }
            for (int round = 0; round < 300; round++) {
                if (pthread_create(threads, 0, nothing, 0)) return 3;
                pthread_join(threads[0], 0);
            }
            return 7;
        }"#;
    let Some(pause) = run(source) else { return };
    assert_eq!(pause, Pause::Exited(7));
}

#[test]
fn unknown_threads_are_refused_and_a_signal_reaches_its_thread() {
    let source = r#"
        static pthread_t first;
        static volatile int heard;
        static sem_t go;
        static void handler(int number) { heard++; }
        static void *work(void *argument) { sem_wait(&go); return 0; }
        int main() {
            if (fork() != -1 || errno != ENOSYS || vfork() != -1 || errno != ENOSYS) return 1;
            if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != -1 || errno != ENOSYS) return 2;
            first = pthread_self(); sem_init(&go, 0, 0); signal(SIGUSR1, handler);
            pthread_t thread; pthread_create(&thread, 0, work, 0);
            if (pthread_kill(thread, 0)) return 3;
            if (pthread_kill(first, SIGUSR1) || heard != 1) return 4;
            if (pthread_kill(thread, SIGUSR1)) return 5;
            while (heard != 2) sched_yield();
            if (syscall(SYS_tgkill, 1, 77, 0) != -1 || errno != ESRCH) return 6;
            sem_post(&go); pthread_join(thread, 0);
            if (syscall(SYS_gettid) != 1) return 8;
            return 7;
        }"#;
    let Some(pause) = run(source) else { return };
    assert_eq!(pause, Pause::Exited(7));
}

/// One thread counts for another, which talks; `+` starts one more that waits for ever.
const COUNTING: &str = r#"
    static sem_t ask, answer;
    static char count = 'a';
    static void *work(void *argument) {
        for (;;) { sem_wait(&ask); count++; sem_post(&answer); }
    }
    static sem_t never;
    static void *rest(void *argument) { for (;;) sem_wait(&never); }
    int main() {
        pthread_t thread; char letter;
        sem_init(&ask, 0, 0); sem_init(&answer, 0, 0);
        pthread_create(&thread, 0, work, 0);
        while (read(3, &letter, 1) == 1) {
            if (letter == '+') pthread_create(&thread, 0, rest, 0);
            sem_post(&ask); sem_wait(&answer);
            write(3, &count, 1);
        }
        return 0;
    }
"#;

#[test]
fn clones_have_their_templates_threads_and_a_reset_puts_them_back() {
    let Some(host) = kvm() else { return };
    let mut origin = start(&host, COUNTING);
    assert_eq!(origin.run().unwrap(), Pause::Idle);
    let ask = |process: &mut Process, letter: &[u8]| {
        process.feed(letter);
        assert_eq!(process.run().unwrap(), Pause::Idle);
        process.take_said()
    };
    assert_eq!(ask(&mut origin, b"?"), b"b");
    let template = Template::seal(origin).unwrap();
    let scanner = Scanner::open().unwrap();
    let mut clones = [0; 2].map(|_| template.spawn(&host).unwrap());
    for clone in &mut clones {
        assert_eq!(ask(clone, b"?"), b"c");
        assert_eq!(ask(clone, b"?"), b"d");
    }
    let [mut process, _] = clones;
    for letter in [b"?", b"+"] {
        assert_ne!(ask(&mut process, letter), b"");
        let found = template.differences(&mut process, &scanner).unwrap();
        assert_eq!(found.iter().any(|it| it.starts_with("threads")), letter == b"+", "{found:?}");
        process = template.reset(process, &scanner).unwrap().0;
        let found = template.differences(&mut process, &scanner).unwrap();
        assert_eq!(found, Vec::<String>::new());
        assert_eq!(ask(&mut process, b"?"), b"c");
    }
}
