//! Signals that come from outside what a thread does, alarms above all: each program in a machine
//! and on the host.

mod machine;

use std::time::Duration;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process, Template};
use microvm::memory::Scanner;
use microvm::vfs::TreeBuilder;

const HEAD: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <poll.h>
    #include <pthread.h>
    #include <semaphore.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/time.h>
    #include <time.h>
    #include <unistd.h>
    static void say(const char *what, long result) {
        printf("%s: %ld %d\n", what, result, result < 0 ? errno : 0);
        fflush(stdout);
    }
    static volatile int heard, by_first;
    static pthread_t first;
    static void handler(int number) { heard++; by_first += pthread_equal(pthread_self(), first); }
    static void hear(int number, int flags) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
        sigaction(number, &action, 0);
        first = pthread_self();
    }
    /* Who blocks all signals: while the first thread is in its handler they would come to this one. */
    static void begin(pthread_t *thread, void *(*work)(void *)) {
        sigset_t all, before;
        sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, &before);
        pthread_create(thread, 0, work, 0);
        pthread_sigmask(SIG_SETMASK, &before, 0);
    }
    static void alarm_in(int milliseconds, int every) {
        struct itimerval time = {{0, every * 1000}, {0, milliseconds * 1000}};
        setitimer(ITIMER_REAL, &time, 0);
    }
"#;

fn assert_same(source: &str, last: &str) {
    machine::assert_same(&format!("{HEAD}{source}"), last);
}

#[test]
fn an_alarm_interrupts_what_computes_and_leaves_its_vectors_alone() {
    let source = r#"
        static volatile double sums[2];
        static void scatters(int number) {
            /* Other vectors than the program's. */
            double other = 0;
            for (int at = 0; at < 1000; at++) other += at * 0.25 + heard;
            sums[1] = other;
            heard++;
        }
        int main() {
            signal(SIGALRM, scatters);
            alarm_in(10, 1);
            double sum = 0;
            long rounds = 0;
            for (; heard < 50; rounds++) sum += 1.0;
            alarm_in(0, 0);
            say("all counted", sum == rounds);
            say("interrupted", rounds > 1000);
            return 0;
        }"#;
    assert_same(source, "interrupted: 1 0\n");
}

#[test]
fn waiting_calls_are_interrupted_or_restarted_as_on_linux() {
    let source = r#"
        int main() {
            int ends[2]; char byte; sem_t locked; struct pollfd one;
            pipe(ends); sem_init(&locked, 0, 0);
            one = (struct pollfd){ends[0], POLLIN, 0};
            for (int round = 0; round < 2; round++) {
                hear(SIGALRM, round ? SA_RESTART : 0);
                /* Again and again: the first may come before there is anything to interrupt. */
                #define ALARMED(what, call) alarm_in(20, 20); say(what, call); alarm_in(0, 0)
                ALARMED("pause", pause());
                ALARMED("poll", poll(&one, 1, 20000));
                fd_set set; FD_ZERO(&set); FD_SET(ends[0], &set);
                ALARMED("select", select(ends[0] + 1, &set, 0, 0, 0));
                struct timespec time = {100, 0}, rest = {0, 0};
                ALARMED("nanosleep", nanosleep(&time, &rest));
                say("rest", rest.tv_sec == 99 && rest.tv_nsec > 100000000);
                time.tv_sec = 4000000000; rest.tv_sec = 7;
                ALARMED("until", clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, &rest));
                say("no rest", rest.tv_sec);
                ALARMED("sleep", sleep(90) > 80);
                say("heard", heard >= 6);
                if (!round) {
                    ALARMED("read", read(ends[0], &byte, 1));
                    ALARMED("semaphore", sem_wait(&locked));
                }
            }
            return 0;
        }"#;
    assert_same(source, "no rest: 7 0\nsleep: 1 0\nheard: 1 0\n");
}

#[test]
fn a_read_goes_on_behind_a_handler_that_wants_it_to() {
    let source = r#"
        static int ends[2];
        static void *writes(void *nothing) {
            while (heard < 5) usleep(1000);
            write(ends[1], "x", 1);
            return 0;
        }
        int main() {
            pthread_t thread; char byte = 0;
            pipe(ends); hear(SIGALRM, SA_RESTART);
            begin(&thread, writes);
            alarm_in(10, 5);
            say("read", read(ends[0], &byte, 1));
            alarm_in(0, 0);
            say("byte", byte);
            say("heard", heard >= 5); say("by the first thread", by_first == heard);
            pthread_join(thread, 0);
            return 0;
        }"#;
    assert_same(source, "by the first thread: 1 0\n");
}

#[test]
fn the_first_thread_is_interrupted_whatever_others_do() {
    let source = r#"
        static volatile int done;
        static void *computes(void *nothing) { while (!done); return 0; }
        static void *sends(void *nothing) {
            long sent = 0;
            do usleep(20000), sent |= kill(getpid(), SIGUSR1); while (done != 2);
            return (void *)sent;
        }
        static void *ends(void *nothing) { usleep(1000); return 0; }
        int main() {
            pthread_t thread; void *result; sigset_t set;
            hear(SIGALRM, 0); hear(SIGUSR1, 0);
            begin(&thread, computes);
            alarm_in(30, 30); say("sleep", sleep(90) > 80); alarm_in(0, 0);
            done = 1; pthread_join(thread, 0);
            /* One that waits, too, and one that has ended. */
            begin(&thread, ends);
            alarm_in(30, 30); say("sleep", sleep(90) > 80); alarm_in(0, 0);
            pthread_join(thread, 0);
            begin(&thread, sends);
            say("sleep", sleep(90) > 80);
            done = 2; pthread_join(thread, &result); say("sent", (long)result);
            say("heard", heard >= 3); say("by the first thread", heard - by_first);
            /* Which blocks it: then it waits. */
            heard = 0;
            sigemptyset(&set); sigaddset(&set, SIGALRM); sigprocmask(SIG_BLOCK, &set, 0);
            alarm_in(5, 0); usleep(30000);
            say("not yet", heard);
            sigpending(&set); say("waits", sigismember(&set, SIGALRM));
            sigprocmask(SIG_UNBLOCK, &set, 0);
            say("then", heard);
            signal(SIGALRM, SIG_IGN);
            alarm_in(5, 0); say("ignored", usleep(30000));
            return 0;
        }"#;
    assert_same(source, "then: 1 0\nignored: 0 0\n");
}

#[test]
fn a_wait_that_another_thread_keeps_waking_is_interrupted() {
    let source = r#"
        #include <sched.h>
        static volatile int done;
        static void *yields(void *nothing) { while (!done) sched_yield(); return 0; }
        int main() {
            pthread_t thread; int missed = 0;
            hear(SIGALRM, 0);
            begin(&thread, yields);
            for (int round = 0; round < 100; round++) {
                heard = 0; alarm_in(20, 0);
                missed += poll(0, 0, 80) == 0 && heard;
            }
            done = 1; pthread_join(thread, 0);
            /* Where the machine is very busy an alarm comes before the wait begins. */
            say("mostly", missed < 15);
            return 0;
        }"#;
    assert_same(source, "mostly: 1 0\n");
}

#[test]
fn a_signal_to_a_thread_is_that_ones_whether_it_waits_or_blocks_it() {
    let source = r#"
        static sem_t go, there;
        static int ends[2];
        static void *other(void *restarts) {
            sigset_t set; char byte = 0;
            say("by the other", pthread_equal(pthread_self(), first));
            sem_post(&there);
            say("read", read(ends[0], &byte, 1)); say("byte", byte);
            sigemptyset(&set); sigaddset(&set, SIGUSR1); pthread_sigmask(SIG_BLOCK, &set, 0);
            sem_post(&there); sem_wait(&go);
            sigpending(&set); say("waits here", sigismember(&set, SIGUSR1)); say("not heard", heard);
            sigemptyset(&set); sigaddset(&set, SIGUSR1); pthread_sigmask(SIG_UNBLOCK, &set, 0);
            say("heard", heard); say("by the first thread", by_first);
            sem_post(&there); sem_wait(&go);
            return 0;
        }
        int main() {
            pthread_t thread; sigset_t set;
            sem_init(&go, 0, 0); sem_init(&there, 0, 0); pipe(ends);
            for (int round = 0; round < 2; round++) {
                heard = 0; hear(SIGUSR1, round ? SA_RESTART : 0);
                pthread_create(&thread, 0, other, 0);
                sem_wait(&there); usleep(50000);
                long sent = pthread_kill(thread, SIGUSR1);
                while (!heard) usleep(1000);
                if (round) write(ends[1], "x", 1);
                sem_wait(&there); heard = 0; say("sent", sent);
                say("sent", pthread_kill(thread, SIGUSR1)); sigpending(&set); say("not here", sigismember(&set, SIGUSR1));
                sem_post(&go); sem_wait(&there);
                signal(SIGUSR1, SIG_IGN);
                say("ignored", pthread_kill(thread, SIGUSR1)); say("none", pthread_kill(thread, 0));
                sem_post(&go); pthread_join(thread, 0);
            }
            return 0;
        }"#;
    assert_same(source, "ignored: 0 0\nnone: 0 0\n");
}

#[test]
fn timers_tell_what_is_left_of_them() {
    let source = r#"
        int main() {
            struct itimerval time = {{3, 5}, {100, 0}}, before = {{9, 9}, {9, 9}}, none = {{0}}, wrong = {{0, 0}, {0, 1000000}};
            say("none", alarm(50)); say("soon", alarm(60));
            say("set", setitimer(ITIMER_REAL, &time, &before));
            say("before", before.it_value.tv_sec == 59 && before.it_interval.tv_sec == 0);
            say("told", getitimer(ITIMER_REAL, &before));
            say("repeats", before.it_interval.tv_sec * 10 + before.it_interval.tv_usec);
            say("left", before.it_value.tv_sec);
            say("wrong", setitimer(ITIMER_REAL, &wrong, 0));
            wrong.it_value.tv_usec = 0; wrong.it_interval.tv_sec = -1;
            say("wrong", setitimer(ITIMER_REAL, &wrong, 0));
            say("nowhere", setitimer(ITIMER_REAL, (void *)8, 0));
            say("still", alarm(0));
            say("none", alarm(0));
            time.it_value.tv_sec = 0;
            say("never", setitimer(ITIMER_REAL, &time, 0));
            say("none", getitimer(ITIMER_REAL, &before));
            say("none", before.it_value.tv_sec + before.it_value.tv_usec);
            say("all of them", alarm(-1)); say("were left", alarm(0) > 100000000);
            say("cleared", setitimer(ITIMER_PROF, &none, &before));
            say("no such", setitimer(7, &none, 0)); say("no such", getitimer(7, &none));
            return 0;
        }"#;
    assert_same(source, "no such: -1 22\n");
}

#[test]
fn without_a_handler_an_alarm_ends_the_program() {
    let source = r#"
        int main() { alarm_in(20, 0); for (;;) if (0) pause(); }"#;
    assert_eq!(in_a_machine(source).map(|(pause, _)| pause), Some(Pause::Killed(14, None)));
    let source = r#"
        int main() { alarm_in(20, 0); for (;;) pause(); }"#;
    assert_eq!(in_a_machine(source).map(|(pause, _)| pause), Some(Pause::Killed(14, None)));
}

/// On the host this one may get nowhere.
#[test]
fn a_program_gets_on_with_its_work_however_often_it_is_alarmed() {
    let source = r#"
        int main() {
            struct itimerval often = {{0, 1}, {0, 1}};
            hear(SIGALRM, 0); setitimer(ITIMER_REAL, &often, 0);
            for (volatile long at = 0; at < 20000000; at++);
            return heard > 2 ? 7 : 1;
        }"#;
    let Some((pause, _)) = in_a_machine(source) else { return };
    assert_eq!(pause, Pause::Exited(7));
}

#[test]
fn a_stop_ends_a_program_that_alarms_itself_without_end() {
    let Some(host) = kvm() else { return };
    for (wish, does) in [("handler", "sleep(1)"), ("SIG_IGN", "pause()"), ("SIG_IGN", "sleep(1)")] {
        let source = r#"
            int main() {
                struct itimerval all = {{0, 1}, {0, 1}};
                signal(SIGALRM, WISH); setitimer(ITIMER_REAL, &all, 0);
                for (;;) DOES;
            }"#;
        let mut process = start(&host, &source.replace("WISH", wish).replace("DOES", does));
        let stopper = process.stopper();
        let stops = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            stopper.stop();
        });
        assert_eq!(process.run().unwrap(), Pause::Stopped, "{wish} {does}");
        stops.join().unwrap();
    }
}

#[test]
fn clones_have_no_alarm_and_a_reset_takes_one_away() {
    let Some(host) = kvm() else { return };
    let source = r#"
        int main() {
            char byte; struct itimerval time = {{1, 0}, {1000, 0}}, left;
            setitimer(ITIMER_REAL, &time, 0);
            while (read(3, &byte, 1) == 1) {
                getitimer(ITIMER_REAL, &left);
                dprintf(3, "%ld %ld\n", left.it_value.tv_sec + left.it_value.tv_usec, left.it_interval.tv_sec);
                setitimer(ITIMER_REAL, &time, 0);
            }
            return 0;
        }"#;
    let mut process = start(&host, source);
    assert_eq!(process.run().unwrap(), Pause::Idle);
    let template = Template::seal(process).unwrap();
    let scanner = Scanner::open().unwrap();
    let mut clone = template.spawn(&host).unwrap();
    for _ in 0..3 {
        clone.feed(b"x");
        assert_eq!(clone.run().unwrap(), Pause::Idle);
        assert_eq!(clone.take_said(), b"0 0\n");
        let differs = template.differences(&mut clone, &scanner).unwrap();
        assert!(differs.iter().any(|it| it.starts_with("alarm")), "{differs:?}");
        clone = template.reset(clone, &scanner).unwrap().0;
        assert_eq!(template.differences(&mut clone, &scanner).unwrap(), Vec::<String>::new());
    }
}

fn start(host: &microvm::machine::Hypervisor, source: &str) -> Process {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(&format!("{HEAD}{source}"), &["-static", "-pthread"]);
    std::fs::write(directory.path().join("program"), program).unwrap();
    let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
    let options = Options { program: vec!["/program".into()], channel: true, ..Options::default() };
    Process::start(host, tree.scratch("/tmp").build(1 << 20, 64), &options).unwrap()
}

fn in_a_machine(source: &str) -> Option<(Pause, Process)> {
    let host = kvm()?;
    let mut process = start(&host, source);
    Some((process.run().unwrap(), process))
}
