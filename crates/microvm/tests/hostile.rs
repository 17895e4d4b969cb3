//! A guest that tries to break the monitor: calls with arguments that no program would make.
//! Whatever becomes of the guest, the monitor answers, and the next guest finds everything as it
//! should be.

mod machine;

use std::time::Duration;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process};
use microvm::vfs::TreeBuilder;

/// Random calls: numbers of all kinds, arguments that lie on edges. The seed is the argument.
const PROGRAM: &str = r##"
    #define _GNU_SOURCE
    #include <signal.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <sys/socket.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static unsigned long state;
    static unsigned long next(void) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return state; }
    static char area[3 * 65536] __attribute__((aligned(4096)));
    static const unsigned long edges[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 4095, 4096, 4097, 65536, 0x1ff000, 0x200000, 0x4000000,
        0x30000000, 0x7ffff000, 0x7fffffff, 0x80000000, 0x80001000, 0xdffff000, 0xe0000000, 0xe0a00000, 0xffffffff,
        0x7fffffffffff, 0x800000000000, 0x7fffffffffffffff, 0x8000000000000000, 0xfffffffffffff000, -1ul, -2ul, -22ul, -100ul,
        0xffffff9c, 0x100000000, 0xffffffff00000003};
    static unsigned long argument(void) {
        switch (next() % 5) {
        case 0: return (unsigned long)area + next() % sizeof area;
        case 1: return ((unsigned long)area + next() % sizeof area) & ~4095ul;
        case 2: return next() % 64;
        case 3: return edges[next() % (sizeof edges / sizeof *edges)] + (next() % 8 == 0 ? next() % 3 - 1 : 0);
        default: return next() >> next() % 64;
        }
    }
    /* Those that end or stop it are left out, most of the time. */
    static int ends(unsigned long number) {
        return number == SYS_exit || number == SYS_exit_group || number == SYS_rt_sigreturn || number == SYS_kill
            || number == SYS_tkill || number == SYS_tgkill || number == SYS_nanosleep || number == SYS_clock_nanosleep
            || number == SYS_poll || number == SYS_select || number == SYS_pselect6 || number == SYS_pause
            || number == SYS_read || number == SYS_arch_prctl;
    }
    int main(int count, char **arguments) {
        state = strtoul(arguments[1], 0, 10) * 0x9e3779b97f4a7c15ul + 1;
        signal(SIGPIPE, SIG_IGN);
        const char *paths[] = {"/tmp/a", "/tmp/../tmp/b", "/program", "/dev/zero", "/tmp", "..", "/tmp/a/b"};
        for (int at = 0; at < 40; at++) {
            char *to = area + next() % (sizeof area - 64);
            const char *from = paths[next() % 7];
            while ((*to++ = *from++)) {}
        }
        int pair[2];
        for (int at = 0; at < 8; at++) socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
        for (int at = 0; at < 20000; at++) {
            unsigned long number = next() % 4 ? next() % 340 : next() % 32;
            if (ends(number) && next() % 2000) continue;
            /* Its own code and stack stay mapped, mostly: the machine has both below this, wherever it has its stack. */
            unsigned long first = argument();
            int maps = number == SYS_munmap || number == SYS_mprotect || number == SYS_mremap || number == SYS_madvise
                || number == SYS_mmap;
            if (maps && next() % 5000)
                first = number == SYS_mmap && next() % 2 ? 0 : 0x60000000 + next() % 4096 * 4096 + (next() % 16 == 0);
            syscall(number, first, argument(), argument(), argument(), argument(), argument());
        }
        return 3;
    }
"##;

#[test]
fn no_system_call_breaks_the_monitor() {
    let Some(host) = kvm() else { return };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("program"), compile(PROGRAM, &["-static"])).unwrap();
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    let mut endings = Vec::new();
    for seed in 1..=seeds {
        let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
        let program = vec!["/program".into(), seed.to_string()];
        let options = Options { program, channel: seed % 2 == 0, ..Options::default() };
        let tree = tree.scratch("/tmp").build(1 << 20, 64);
        let mut process = Process::start(&host, tree, &options).unwrap();
        let stopper = process.stopper();
        let (finished, waits) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            if waits.recv_timeout(Duration::from_secs(20)).is_err() {
                stopper.stop();
            }
        });
        let pause = process.run().unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        finished.send(()).ok();
        watch.join().unwrap();
        endings.push((pause, process.counts().0));
    }
    let calls: u64 = endings.iter().map(|(_, calls)| calls).sum();
    assert!(calls > 1000 * seeds, "most guests ended at once: {endings:?}");
    assert!(endings.iter().any(|(pause, _)| *pause == Pause::Exited(3)), "{endings:?}");
}

#[test]
fn a_call_from_before_the_first_address_is_answered_and_not_patched() {
    let Some(host) = kvm() else { return };
    let directory = tempfile::tempdir().unwrap();
    // The last page that can be mapped is code: with numbers that wrap around it would hold every
    // address behind it, too.
    let program = r#"
        #include <sys/mman.h>
        int main(void) {
            const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
            if (mmap((void *)0x7ffff000, 4096, PROT_READ | PROT_EXEC, flags, -1, 0) == MAP_FAILED) return 1;
            /* To ring 0's stub, as the processor would, saying that the call came from address 0. */
            __asm__ volatile("mov $0xffffffff80003800, %rdx\n mov $39, %eax\n xor %ecx, %ecx\n jmp *%rdx");
            return 2;
        }"#;
    std::fs::write(directory.path().join("program"), compile(program, &["-static"])).unwrap();
    let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
    let options = Options { program: vec!["/program".into()], ..Options::default() };
    let mut process = Process::start(&host, tree.build(1 << 20, 64), &options).unwrap();
    // It returns to where it claims to have come from: there is nothing.
    let Pause::Killed(11, Some(fault)) = process.run().unwrap() else { panic!("it went on") };
    assert_eq!((fault.vector, fault.rip), (14, 0));
}
