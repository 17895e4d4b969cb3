//! Clones and resets, by a program that changes whatever it can between two calls.

mod machine;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::vfs::TreeBuilder;

/// Prepares, then answers one letter after another with a number. Each letter changes something
/// else; `?` changes nothing and tells whether anything of what was prepared is different.
const PROGRAM: &str = r##"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <immintrin.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <string.h>
    #include <sys/file.h>
    #include <sys/mman.h>
    #include <sys/socket.h>
    #include <sys/stat.h>
    #include <unistd.h>
    static char data[1 << 20];
    static char *block, *pages, *guard, *shown;
    static void handler(int number) { _exit(90); }
    /* Some hosts let programs use protection keys that the guest does not have. */
    static int has_keys; static sigjmp_buf no_keys;
    static void illegal(int number) { siglongjmp(no_keys, 1); }
    static unsigned keys(void) { unsigned rights, high; __asm__ volatile("rdpkru" : "=a"(rights), "=d"(high) : "c"(0)); return rights; }
    static void look_for_keys(void) {
        signal(SIGILL, illegal);
        if (!sigsetjmp(no_keys, 1)) { keys(); has_keys = 1; }
        signal(SIGILL, SIG_DFL);
    }
    /* Which data segments are selected: DS, ES and GS. */
    static unsigned selected[3];
    static void look_at_segments(unsigned *into) { __asm__ volatile("mov %%ds, %0\nmov %%es, %1\nmov %%gs, %2" : "=r"(into[0]), "=r"(into[1]), "=r"(into[2])); }
    static void prepare(void) {
        look_for_keys();
        look_at_segments(selected);
        memset(data, 1, sizeof data);
        block = mmap(0, 8 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int at = 0; at < 8 << 20; at += 4096) block[at] = at >> 12;
        pages = mmap(0, 64 << 12, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(pages, 5, 64 << 12);
        guard = mmap(0, 16 << 12, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(pages, 4096, PROT_READ);
        int fd = open("/tmp/prepared", O_RDWR | O_CREAT, 0600);
        write(fd, "0123456789", 10);
        lseek(fd, 4, SEEK_SET);
        shown = mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 0);
    }
    static int readable(char *at) { return write(4, at, 1) == 1; }
    static int probe(void) {
        for (int at = 0; at < sizeof data; at++) if (data[at] != 1) return 10;
        for (int at = 0; at < 8 << 20; at += 4096) if (block[at] != (char)(at >> 12)) return 11;
        for (int at = 0; at < 64 << 12; at++) if (pages[at] != 5) return 12;
        char text[8];
        if (pread(4, text, 2, 4) != 2 || memcmp(text, "45", 2)) return 13;
        if (lseek(4, 0, SEEK_CUR) != 4) return 14;
        if (fcntl(5, F_GETFD) != -1 || fcntl(6, F_GETFD) != -1) return 15;
        if (access("/tmp/made", F_OK) == 0) return 16;
        if (getcwd(text, sizeof text) == 0 || strcmp(text, "/")) return 17;
        struct sigaction action;
        sigaction(SIGUSR1, 0, &action);
        if (action.sa_handler != SIG_DFL) return 18;
        sigset_t mask;
        sigprocmask(SIG_BLOCK, 0, &mask);
        if (sigismember(&mask, SIGUSR2)) return 19;
        if (umask(022) != 022) return 20;
        if (_mm_getcsr() != 0x1f80) return 21;
        if (has_keys && keys() != 0) return 22;
        if (memcmp(shown, "0123456789", 11) || shown[4096]) return 23;
        unsigned now[3];
        look_at_segments(now);
        if (memcmp(now, selected, sizeof now)) return 24;
        return 1;
    }
    static int serve(char letter) {
        switch (letter) {
        case '?': return probe();
        case 'd': memset(data, 9, sizeof data); return 1;
        case 'b': memset(block, 7, 8 << 20); return 1;
        case 'u': munmap(pages + 4096, 4096 * 20); munmap(block + (2 << 20), 3 << 20); return 1;
        case 'r': munmap(block, 8 << 20);
            char *again = mmap(block, 8 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            for (int at = 0; at < 8 << 20; at += 64) if (again[at]) return 30;
            memset(again, 3, 8 << 20);
            return 1;
        case 'p': mprotect(pages, 64 << 12, PROT_READ | PROT_WRITE | PROT_EXEC);
            memset(pages, 0xc3, 64 << 12); mprotect(guard, 16 << 12, 3); memset(guard, 8, 16 << 12);
            ((void (*)(void))pages)(); return 1;
        case 'n': mprotect(block, 8 << 20, PROT_NONE); return 1;
        case 'm': for (int count = 0; count < 12; count++) {
                char *more = mmap(0, (count + 1) * 70000, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                for (int at = 0; at < (count + 1) * 70000; at++) if (more[at]) return 31;
                memset(more, count, (count + 1) * 70000);
                if (count & 1) munmap(more, 100000);
            }
            return 1;
        case 'h': { char *large = mmap(0, 8 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int at = 0; at < 8 << 20; at++) if (large[at]) return 39;
            memset(large, 4, 8 << 20); return 1; }
        case 'k': { char *top = sbrk(5 << 20); if (top == (char *)-1) return 32;
            for (int at = 0; at < 5 << 20; at++) if (top[at]) return 33;
            memset(top, 6, 5 << 20); return 1; }
        case 'f': { write(4, "xxxx", 4); int fd = open("/tmp/made", O_RDWR | O_CREAT, 0600); write(fd, data, 1000);
            int ends[2]; pipe(ends); write(ends[1], "left", 4); flock(4, LOCK_EX);
            socketpair(AF_UNIX, SOCK_STREAM, 0, ends); write(ends[1], "left", 4); shutdown(ends[0], SHUT_WR); mkdir("/tmp/dir", 0700); chdir("/tmp/dir");
            ftruncate(4, 2); dup2(1, 40); return 1; }
        case 's': signal(SIGUSR1, handler); { sigset_t mask; sigemptyset(&mask); sigaddset(&mask, SIGUSR2);
            sigprocmask(SIG_BLOCK, &mask, 0); } umask(0); return 1;
        case 'v': _mm_setcsr(0x9fc0); __asm__ volatile("pcmpeqb %%xmm5, %%xmm5\nfld1\nfld1" ::: "xmm5");
            if (has_keys) __asm__ volatile("wrpkru" :: "a"(0x55555550), "c"(0), "d"(0));
            return 1;
        case 'g': /* guard pages fault still, and read-only pages are read-only */
            return readable(guard) ? 34 : (pread(4, pages, 1, 0) == -1 && errno == EFAULT ? 1 : 35);
        case 'w': *(volatile char *)pages = 1; return 36;
        case 'W': *(volatile char *)guard = 1; return 37;
        case 'x': ((void (*)(void))(pages + 8192))(); return 38;
        case 'y': pwrite(4, "yy", 2, 9); if (memcmp(shown, "012345678yy", 12)) return 40;
            unlink("/tmp/prepared"); close(4); if (shown[9] != 'y') return 41;
            munmap(shown, 4096); mmap(shown, 4096, PROT_READ, MAP_SHARED, open("/tmp/other", O_RDWR | O_CREAT, 0600), 0);
            write(4, "other", 5); return memcmp(shown, "other", 5) ? 42 : 1;
        case 'S': __asm__ volatile("mov %0, %%ds\nmov %0, %%es\nmov %0, %%gs" :: "r"(0x33)); return 1;
        case 'e': _exit(7);
        }
        return 99;
    }
    int main() {
        prepare();
        for (;;) {
            char letter, answer;
            if (read(3, &letter, 1) != 1) return 0;
            answer = serve(letter);
            write(3, &answer, 1);
        }
    }
"##;

struct World {
    host: Hypervisor,
    template: Template,
    scanner: Scanner,
    _directory: tempfile::TempDir,
}

impl World {
    fn new() -> Option<Self> {
        let host = kvm()?;
        let scanner = Scanner::open().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let program = compile(PROGRAM, &["-static"]);
        std::fs::write(directory.path().join("program"), program).unwrap();
        let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
        let options =
            Options { program: vec!["/program".into()], channel: true, ..Options::default() };
        let tree = tree.scratch("/tmp").build(1 << 20, 64);
        let mut process = Process::start(&host, tree, &options).unwrap();
        assert_eq!(process.run().unwrap(), Pause::Idle);
        // Once round, so that what every call does is patched.
        assert_eq!(ask(&mut process, '?'), Ok(1));
        let template = Template::seal(process).unwrap();
        Some(Self { host, template, scanner, _directory: directory })
    }

    fn spawn(&self) -> Process {
        self.template.spawn(&self.host).unwrap()
    }

    fn reset(&mut self, process: Process) -> Process {
        self.template.reset(process, &self.scanner).unwrap().0
    }

    fn differences(&mut self, process: &mut Process) -> Vec<String> {
        self.template.differences(process, &self.scanner).unwrap()
    }
}

/// One call: its answer, or why there is none.
fn ask(process: &mut Process, letter: char) -> Result<u8, Pause> {
    process.feed(&[u8::try_from(letter).unwrap()]);
    match process.run().unwrap() {
        Pause::Idle => Ok(process.take_said()[0]),
        other => Err(other),
    }
}

/// Everything that goes well on a clone that nothing was done to.
const CHANGES: &str = "dburpnmhkfsvyS";

#[test]
fn a_clone_goes_on_where_its_template_stands() {
    let Some(mut world) = World::new() else { return };
    let mut first = world.spawn();
    assert_eq!(world.differences(&mut first), Vec::<String>::new());
    let mut second = world.spawn();
    for clone in [&mut first, &mut second] {
        assert_eq!(ask(clone, '?'), Ok(1));
        assert_eq!(ask(clone, 'g'), Ok(1));
        assert_eq!(ask(clone, 'd'), Ok(1));
        assert_eq!(ask(clone, '?'), Ok(10));
    }
    assert_eq!(ask(&mut world.spawn(), '?'), Ok(1));
}

#[test]
fn every_change_of_a_call_is_seen_and_undone_by_a_reset() {
    let Some(mut world) = World::new() else { return };
    let mut process = world.spawn();
    for round in 0..2 {
        for letter in CHANGES.chars() {
            assert_eq!(ask(&mut process, letter), Ok(1), "{letter} in round {round}");
            assert_ne!(world.differences(&mut process), Vec::<String>::new(), "{letter}");
            process = world.reset(process);
            assert_eq!(world.differences(&mut process), Vec::<String>::new(), "{letter}");
            assert_eq!(ask(&mut process, '?'), Ok(1), "after {letter} in round {round}");
            assert_eq!(ask(&mut process, 'g'), Ok(1), "after {letter} in round {round}");
            process = world.reset(process);
        }
    }
}

#[test]
fn many_changes_in_one_call_are_undone_together() {
    let Some(mut world) = World::new() else { return };
    let mut process = world.spawn();
    for _ in 0..5 {
        for letter in "pdmkfsvbr".chars() {
            assert_eq!(ask(&mut process, letter), Ok(1), "{letter}");
        }
        process = world.reset(process);
        assert_eq!(world.differences(&mut process), Vec::<String>::new());
        assert_eq!(ask(&mut process, '?'), Ok(1));
    }
}

#[test]
fn rights_that_a_call_added_are_gone_after_a_reset() {
    let Some(mut world) = World::new() else { return };
    let mut process = world.spawn();
    for letter in "wWx".chars() {
        // Give and use every right, so that the processor has them at hand.
        assert_eq!(ask(&mut process, 'p'), Ok(1));
        process = world.reset(process);
        let died = ask(&mut process, letter).unwrap_err();
        assert!(
            matches!(died, Pause::Killed(11, Some(fault)) if fault.vector == 14),
            "{letter}: {died:?}"
        );
        process = world.reset(process);
    }
}

#[test]
fn a_stop_that_comes_before_a_reset_is_not_lost() {
    let Some(mut world) = World::new() else { return };
    let mut process = world.spawn();
    process.stopper().stop();
    process = world.reset(process);
    assert_eq!(ask(&mut process, '?'), Err(Pause::Stopped));
}

#[test]
fn a_clone_is_frozen_with_all_that_it_has_changed() {
    let Some(mut world) = World::new() else { return };
    let mut origin = world.spawn();
    // Pages of its template's, memory of its own in both zones, files.
    for letter in "dkmf".chars() {
        assert_eq!(ask(&mut origin, letter), Ok(1), "{letter}");
    }
    let mapped = origin.space().regions().iter().map(|(range, _)| range);
    let before: Vec<_> =
        mapped.map(|it| (it.clone(), origin.space().arena().bytes(it).to_vec())).collect();
    world.template = Template::seal_clone(origin, &world.scanner).unwrap();
    let mut process = world.spawn();
    assert_eq!(world.differences(&mut process), Vec::<String>::new());
    for (range, bytes) in before {
        let same = process.space().arena().bytes(range.clone()) == bytes;
        assert!(same, "{range:x?} is not what it was");
    }
    // What `d` has left is there, and is what a reset goes back to.
    assert_eq!(ask(&mut process, '?'), Ok(10));
    for letter in "bmkn".chars() {
        assert_eq!(ask(&mut process, letter), Ok(1), "{letter}");
        process = world.reset(process);
        assert_eq!(world.differences(&mut process), Vec::<String>::new(), "{letter}");
        assert_eq!(ask(&mut process, '?'), Ok(10), "after {letter}");
        process = world.reset(process);
    }
}

#[test]
fn what_a_rehearsal_alone_has_written_is_not_given_to_clones_for_good() {
    let Some(world) = World::new() else { return };
    let teach = |letter: char| {
        let mut clone = world.spawn();
        clone.watch().unwrap();
        assert_eq!(ask(&mut clone, letter), Ok(1));
        world.template.learn(&clone, &world.scanner).unwrap();
        world.spawn().weigh(&world.scanner).unwrap()
    };
    let ahead = ['d', '?', '?'].map(teach);
    assert!(ahead[0] > 1 << 20 && ahead[1] > 1 << 20 && ahead[2] < 256 << 10, "{ahead:?}");
    assert!(ahead[2] > 0 && !world.template.wants_to_learn());
}

#[test]
fn what_clones_get_at_once_is_what_they_would_find_one_by_one() {
    let Some(mut world) = World::new() else { return };
    let mut first = world.spawn();
    first.watch().unwrap();
    for letter in "dbmk".chars() {
        assert_eq!(ask(&mut first, letter), Ok(1), "{letter}");
    }
    world.template.learn(&first, &world.scanner).unwrap();
    let mut process = world.template.spawn_ahead(&world.host).unwrap();
    assert!(process.weigh(&world.scanner).unwrap() > 1 << 20, "it has learned something");
    assert_eq!(world.differences(&mut process), Vec::<String>::new());
    assert_eq!(ask(&mut process, '?'), Ok(1));
    process = world.reset(process);
    assert_eq!(world.differences(&mut process), Vec::<String>::new());
}

#[test]
fn only_memory_that_fills_a_block_is_on_huge_pages() {
    let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    let enabled = std::fs::read_to_string(enabled).unwrap_or_default();
    if !enabled.contains("[madvise]") && !enabled.contains("[always]") {
        skips::skip("huge_pages", "this host has no transparent huge pages");
        return;
    }
    let Some(world) = World::new() else { return };
    let mut process = world.spawn();
    let mapped = |process: &Process| process.space().regions().clone();
    let before = mapped(&process);
    // Among others one of 840 000 bytes; then eight megabytes instead of others.
    assert_eq!(ask(&mut process, 'm'), Ok(1));
    assert_eq!(ask(&mut process, 'h'), Ok(1));
    let base = process.space().arena().address();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let advised = |address: u64| {
        let mut inside = false;
        maps.lines().any(|line| {
            let ends = line.split(' ').next().and_then(|range| range.split_once('-'));
            if let Some((Ok(start), Ok(end))) = ends
                .map(|(start, end)| (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)))
            {
                inside = (start..end).contains(&(base + address));
            }
            inside && line.starts_with("VmFlags:") && line.split(' ').any(|flag| flag == "hg")
        })
    };
    let after = mapped(&process);
    let new = after.iter().filter(|(range, _)| !before.touch(range.clone()));
    let (large, small): (Vec<_>, Vec<_>) =
        new.map(|(range, _)| range).partition(|range| range.end - range.start >= 8 << 20);
    assert!(!large.is_empty() && !small.is_empty(), "{after:x?}");
    assert!(large.iter().all(|range| advised(range.start)), "{large:x?}");
    assert!(!small.iter().any(|range| advised(range.start)), "{small:x?}");
}

#[test]
fn a_process_that_ended_can_be_reset() {
    let Some(mut world) = World::new() else { return };
    let mut process = world.spawn();
    assert_eq!(ask(&mut process, 'e'), Err(Pause::Exited(7)));
    process = world.reset(process);
    assert_eq!(world.differences(&mut process), Vec::<String>::new());
    assert_eq!(ask(&mut process, '?'), Ok(1));
}

#[test]
fn a_walk_that_stops_early_is_continued() {
    let Some(mut world) = World::new() else { return };
    world.scanner = Scanner::open().unwrap().with_room(2);
    let mut process = world.spawn();
    assert_eq!(ask(&mut process, 'm'), Ok(1));
    assert_eq!(ask(&mut process, 'f'), Ok(1));
    process = world.reset(process);
    world.scanner = Scanner::open().unwrap();
    assert_eq!(world.differences(&mut process), Vec::<String>::new());
}

#[test]
fn a_process_is_reset_to_its_own_template_only() {
    let (Some(first), Some(second)) = (World::new(), World::new()) else { return };
    let stranger = first.spawn();
    let refused = second.template.reset(stranger, &second.scanner).unwrap_err();
    assert!(std::error::Error::source(&refused).unwrap().to_string().contains("another template"));
}
