//! The time, as a guest tells it by itself.

mod machine;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::vfs::TreeBuilder;
use rustix::time::{ClockId, clock_gettime};

/// For each letter that it reads: looks at its clocks a thousand times, and answers with the last
/// moments of two of them.
const PROGRAM: &str = r#"
    #include <stdint.h>
    #include <sys/time.h>
    #include <time.h>
    #include <unistd.h>
    static int64_t nanoseconds(clockid_t clock) {
        struct timespec now;
        if (clock_gettime(clock, &now)) _exit(90);
        return now.tv_sec * 1000000000 + now.tv_nsec;
    }
    int main() {
        char letter;
        while (read(3, &letter, 1) == 1) {
            int64_t moments[2] = {0, 0};
            for (int round = 0; round < 1000; round++) {
                int64_t now = nanoseconds(CLOCK_MONOTONIC);
                if (now < moments[0]) _exit(91);
                moments[0] = now;
                moments[1] = nanoseconds(CLOCK_REALTIME);
                struct timeval day;
                gettimeofday(&day, 0);
                int64_t apart = day.tv_sec * 1000000000 + day.tv_usec * 1000 - moments[1];
                if (apart < -1000000 || apart > 1000000000) _exit(92);
                time_t seconds = time(0);
                if (seconds < moments[1] / 1000000000 || seconds > moments[1] / 1000000000 + 1) _exit(93);
            }
            write(3, moments, sizeof moments);
        }
        return 0;
    }
"#;

/// For each letter that it reads: answers with what it has used of the processor, before and after
/// it used a fifth of a second of it, if that is what the letter asks for.
const USER: &str = r#"
    #include <stdint.h>
    #include <time.h>
    #include <unistd.h>
    static int64_t used() {
        struct timespec now;
        if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now)) _exit(90);
        return now.tv_sec * 1000000000 + now.tv_nsec;
    }
    int main() {
        char letter;
        while (read(3, &letter, 1) == 1) {
            int64_t now = used();
            while (letter == 's' && used() - now < 200000000) {}
            int64_t told[2] = {now, used()};
            write(3, told, sizeof told);
        }
        return 0;
    }
"#;

/// What it had used when it was asked, and when it answered, in nanoseconds.
fn used(process: &mut Process, letter: u8) -> [i64; 2] {
    process.feed(&[letter]);
    assert_eq!(process.run().unwrap(), Pause::Idle);
    let said = process.take_said();
    [0, 8].map(|at| i64::from_le_bytes(said[at..at + 8].try_into().unwrap()))
}

fn idle(host: &Hypervisor, source: &str) -> Process {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("program"), compile(source, &["-static"])).unwrap();
    let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
    let options = Options { program: vec!["/program".into()], channel: true, ..Options::default() };
    let tree = tree.scratch("/tmp").build(1 << 20, 64);
    let mut process = Process::start(host, tree, &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Idle);
    process
}

fn nanoseconds(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The guest's moments, which lie between two of the host's.
fn ask(process: &mut Process) -> i64 {
    // The counter and the host's clocks are read one after the other.
    const APART: i64 = 1_000_000;
    let clocks = [ClockId::Monotonic, ClockId::Realtime];
    let before = clocks.map(nanoseconds);
    process.feed(b"?");
    assert_eq!(process.run().unwrap(), Pause::Idle);
    let said = process.take_said();
    let after = clocks.map(nanoseconds);
    let moment = |at: usize| i64::from_le_bytes(said[at * 8..at * 8 + 8].try_into().unwrap());
    for at in 0..2 {
        let (moment, between) = (moment(at), before[at] - APART..after[at] + APART);
        assert!(between.contains(&moment), "{moment} is not in {between:?}");
    }
    moment(0)
}

#[test]
fn a_guest_tells_the_time_without_leaving_its_machine() {
    let Some(host) = kvm() else { return };
    let mut process = idle(&host, PROGRAM);
    let (before, _) = process.counts();
    ask(&mut process);
    let calls = process.counts().0 - before;
    match host.ticks() {
        Ok(_) => assert!(calls < 100, "{calls} calls for four thousand looks at a clock"),
        Err(reason) => {
            skips::skip("guest_clock", &reason.to_string());
            assert!(calls > 4000, "{calls} calls: it asks the monitor");
        }
    }
}

#[test]
fn the_clock_goes_on_in_clones_and_after_resets() {
    let Some(host) = kvm() else { return };
    let mut origin = idle(&host, PROGRAM);
    let mut last = ask(&mut origin);
    let template = Template::seal(origin).unwrap();
    let scanner = Scanner::open().unwrap();
    for _ in 0..3 {
        let mut process = template.spawn(&host).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let now = ask(&mut process);
            assert!(now > last, "{now} after {last}");
            last = now;
            process = template.reset(process, &scanner).unwrap().0;
            assert_eq!(template.differences(&mut process, &scanner).unwrap(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_guests_clock_runs_as_fast_as_the_hosts() {
    let Some(host) = kvm() else { return };
    // Spins by its own clock, for longer than a page is good, and compares it with the monitor's:
    // however often something comes in between, once nothing does.
    let source = r#"
        #define _GNU_SOURCE
        #include <stdint.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        static int64_t own(void) {
            struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now);
            return now.tv_sec * 1000000000 + now.tv_nsec;
        }
        static int64_t asked(void) {
            struct timespec now; syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
            return now.tv_sec * 1000000000 + now.tv_nsec;
        }
        int main() {
            char byte; read(3, &byte, 1);
            int64_t least = INT64_MAX;
            for (int round = 0; round < 20; round++) {
                int64_t until = own() + 15000000;
                while (own() < until) {}
                int64_t mine = own(), other = asked() - mine;
                if (other < -100000) return 1;
                if (other < least) least = other;
            }
            return least < 1000000 ? 0 : 2;
        }"#;
    let mut process = idle(&host, source);
    process.hang_up();
    assert_eq!(process.run().unwrap(), Pause::Exited(0));
}

#[test]
fn a_guests_mapping_over_its_clock_stays() {
    let Some(host) = kvm() else { return };
    let source = r#"
        #include <string.h>
        #include <sys/auxv.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        int main() {
            char *page = (char *)getauxval(AT_SYSINFO_EHDR) - 4096, byte;
            if (munmap(page, 4096)) return 1;
            struct timespec nap = {0, 30000000};
            syscall(SYS_nanosleep, &nap, 0);
            /* A new mapping of unmapped memory reads as zero. */
            char *own = mmap(page, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            for (int at = 0; at < 4096; at++) if (own[at]) return 2;
            memset(own, 7, 4096);
            syscall(SYS_nanosleep, &nap, 0);
            for (int at = 0; at < 4096; at++) if (own[at] != 7) return 3;
            read(3, &byte, 1);
            return 4;
        }"#;
    let mut process = idle(&host, source);
    process.hang_up();
    assert_eq!(process.run().unwrap(), Pause::Exited(4));
}

#[test]
fn a_guest_is_told_its_own_processor_time_and_not_its_siblings() {
    let Some(host) = kvm() else { return };
    let template = Template::seal(idle(&host, USER)).unwrap();
    let mut quiet = template.spawn(&host).unwrap();
    let before = used(&mut quiet, b'q')[1];
    let spun = std::thread::scope(|scope| {
        let spin = || {
            let [begin, end] = used(&mut template.spawn(&host).unwrap(), b's');
            end - begin
        };
        scope.spawn(spin).join().unwrap()
    });
    let more = used(&mut quiet, b'q')[1] - before;
    assert!(more < spun / 2, "{more} ns, while another one used {spun}");
}

#[test]
fn what_times_and_getrusage_tell_is_the_processors_and_the_hosts_time() {
    let Some(host) = kvm() else { return };
    let source = r#"
        #include <errno.h>
        #include <stdint.h>
        #include <sys/resource.h>
        #include <sys/sysinfo.h>
        #include <sys/times.h>
        #include <time.h>
        #include <unistd.h>
        static int64_t used(int who) {
            struct rusage it;
            if (getrusage(who, &it)) _exit(90);
            return it.ru_utime.tv_sec * 100 + it.ru_utime.tv_usec / 10000 + it.ru_stime.tv_sec * 100 + it.ru_stime.tv_usec / 10000;
        }
        int main() {
            char letter;
            while (read(3, &letter, 1) == 1) {
                struct timespec nap = {0, 300000000}, now;
                clock_t begin = clock();
                while (clock() - begin < 100000) {}
                nanosleep(&nap, 0);
                struct tms it; struct sysinfo up;
                int64_t passed = times(&it);
                sysinfo(&up);
                clock_gettime(CLOCK_BOOTTIME, &now);
                int64_t apart = now.tv_sec * 100 + now.tv_nsec / 10000000 - passed;
                int64_t of_it = used(RUSAGE_SELF) - it.tms_utime - it.tms_stime;
                if (it.tms_cutime || it.tms_cstime || used(RUSAGE_CHILDREN)) _exit(91);
                if (getrusage(7, &(struct rusage){0}) != -1 || errno != EINVAL) _exit(92);
                if (now.tv_sec - up.uptime > 1) _exit(93);
                int64_t told[] = {passed, apart, it.tms_utime + it.tms_stime, of_it};
                write(3, told, sizeof told);
            }
            return 0;
        }
    "#;
    let template = Template::seal(idle(&host, source)).unwrap();
    let scanner = Scanner::open().unwrap();
    let mut process = template.spawn(&host).unwrap();
    let mut last = 0;
    for _ in 0..2 {
        process.feed(b"?");
        assert_eq!(process.run().unwrap(), Pause::Idle);
        let said = process.take_said();
        let told = |at: usize| i64::from_le_bytes(said[at * 8..at * 8 + 8].try_into().unwrap());
        assert!(told(0) >= last + 30, "{} hundredths after {last}", told(0));
        assert!((0..10).contains(&told(1)), "{} hundredths behind the host's clock", told(1));
        assert!((9..30).contains(&told(2)), "{} hundredths of processor time", told(2));
        assert!((0..3).contains(&told(3)), "{} hundredths apart", told(3));
        last = told(0);
        process = template.reset(process, &scanner).unwrap().0;
    }
}

#[test]
fn a_reset_takes_away_what_calls_have_used_of_the_processor() {
    const SPUN: i64 = 200_000_000;
    let Some(host) = kvm() else { return };
    let mut origin = idle(&host, USER);
    let before = used(&mut origin, b's')[1];
    assert!(before >= SPUN, "{before}");
    let template = Template::seal(origin).unwrap();
    let scanner = Scanner::open().unwrap();
    let mut process = template.spawn(&host).unwrap();
    for _ in 0..3 {
        // On a thread that has used nothing yet, and on this one, which has used all of it.
        let run = |process: &mut Process| [used(process, b's')[0], used(process, b'q')[1]];
        let [begin, end] =
            std::thread::scope(|scope| scope.spawn(|| run(&mut process)).join().unwrap());
        assert!((before..before + SPUN).contains(&begin), "{begin} after {before}");
        assert!(end >= begin + SPUN, "{end} after {begin}");
        let later = used(&mut process, b'q')[0];
        assert!((end..end + SPUN).contains(&later), "{later} after {end}");
        process = template.reset(process, &scanner).unwrap().0;
        let [begin, _] = used(&mut process, b'q');
        assert!((before..before + SPUN).contains(&begin), "{begin} after a reset to {before}");
        process = template.reset(process, &scanner).unwrap().0;
    }
}
