//! The machine itself, by programs that speak hypercalls only.

mod machine;

use std::time::{Duration, Instant};

use machine::{assembly, kvm, unikernel};
use microvm::memory::Scanner;
use microvm::unikernel::{Template, Unikernel, UnikernelExit};

/// Runs a program to its first end; returns that and its output.
fn run(file: &[u8], argument: &[u8]) -> Option<(UnikernelExit, String)> {
    let host = kvm()?;
    let mut guest = Unikernel::new(&host, file, argument).unwrap();
    let mut output = Vec::new();
    let ended = guest.run(&mut |bytes| output.extend_from_slice(bytes)).unwrap();
    Some((ended, String::from_utf8(output).unwrap()))
}

#[test]
fn the_example_answers_one_request_after_another() {
    let Some(host) = kvm() else { return };
    let source = std::fs::read_to_string(machine::repository().join("examples/unikernel/hello.c"));
    let source = source.unwrap().replace("../../guest/unikernel/", "");
    let mut guest = Unikernel::new(&host, &unikernel(&source), b"").unwrap();
    for name in ["Ada", "Grace", ""] {
        assert_eq!(guest.run(&mut |_| {}).unwrap(), UnikernelExit::Ready);
        guest.set_request(name.into());
        let expected = format!("hello, {name}").into_bytes();
        assert_eq!(guest.run(&mut |_| {}).unwrap(), UnikernelExit::Sent(expected));
    }
}

#[test]
fn every_hypercall_does_what_the_header_says() {
    let file = unikernel(
        r#"
        #include "wool.h"
        static int differ(const char *a, const char *b, int n) { while (n--) if (*a++ != *b++) return 1; return 0; }
        void _start(void) {
            char text[64];
            if (wool_argument(text, sizeof text) != 8 || differ(text, "argument", 8)) wool_exit(1);
            if (wool_argument(text, 3) != 8) wool_exit(2);
            wool_word before = wool_monotonic();
            if (wool_monotonic() < before) wool_exit(3);
            if (wool_realtime() < 1700000000000000000ul) wool_exit(4);
            char random[2][16] = {{0}};
            if (wool_random(random[0], 16) != 16 || wool_random(random[1], 16) != 16) wool_exit(5);
            if (!differ(random[0], random[1], 16)) wool_exit(6);
            char *more = wool_grow(3 << 20);
            for (int at = 0; at < 3 << 20; at += 4096) { if (more[at]) wool_exit(7); more[at] = 1; }
            if ((char *)wool_grow(1) != more + (3 << 20)) wool_exit(8);
            if (wool_log((char *)0x7fffffff, 10) != WOOL_REFUSED) wool_exit(9);
            if (wool_random((void *)_start, 8) != WOOL_REFUSED) wool_exit(10);
            if (wool_call(77, 0, 0) != WOOL_REFUSED) wool_exit(11);
            if (wool_grow(-1ul) != (void *)-1) wool_exit(12);
            wool_log("done\n", 5);
            wool_exit(42);
        }"#,
    );
    let Some(ended) = run(&file, b"argument") else { return };
    assert_eq!(ended, (UnikernelExit::Exited(42), "done\n".to_owned()));
}

/// What must fault, and with which exception.
const FAULTS: &[(&str, &str, &[u8])] = &[
    ("division by zero", "xor %ecx, %ecx\nxor %edx, %edx\ndiv %ecx", &[0]),
    ("an invalid instruction", "ud2", &[6]),
    ("a breakpoint", "int3", &[3]),
    // A hypervisor that emulates the instruction may say that it does not know it.
    ("an interrupt", "int $0x80", &[13, 6]),
    ("halting", "hlt", &[13]),
    ("a null pointer", "mov 16, %eax", &[14]),
    ("memory that is not mapped", "mov $0x40000000, %eax\nmov (%rax), %eax", &[14]),
    ("the monitor's pages, by physical address", "mov $0x80000000, %eax\nmov (%rax), %eax", &[14]),
    (
        "the monitor's pages, by ring 0's address",
        "mov $0xffffffff80000000, %rax\nmov (%rax), %eax",
        &[14],
    ),
    ("an address that is none", "mov $0x8000000000000000, %rax\nmov (%rax), %eax", &[13]),
    ("writing to its own code", "lea _start(%rip), %rax\nmovb $0, (%rax)", &[14]),
    ("executing its stack", "mov %rsp, %rax\nsub $64, %rax\njmp *%rax", &[14]),
    ("system registers", "mov %cr3, %rax", &[13]),
    ("model-specific registers", "mov $0xc0000080, %ecx\nrdmsr", &[13]),
    ("a table of descriptors", "lgdt (%rsp)", &[13]),
    ("invalidating a page", "invlpg (%rax)", &[13]),
    ("a port that is not open", "mov $0x3f8, %dx\nout %al, %dx", &[13]),
    ("a port that stands for an exception", "out %al, $14", &[13]),
    ("the port of the stub", "out %al, $0xf0", &[13]),
    ("reading an open port", "in $0xf2, %al", &[13]),
    ("swapgs", "swapgs", &[13]),
    (
        "returning to ring 0",
        "pushq $0x18\npushq %rsp\npushq $2\npushq $0x10\npushq $0\niretq",
        &[13],
    ),
    ("a system call: a unikernel has none", "syscall", &[6]),
];

#[test]
fn a_forbidden_access_faults_and_does_nothing_else() {
    let mut wrong = Vec::new();
    for (what, body, vectors) in FAULTS {
        let file = assembly(&format!("{body}\nmov $0, %eax\nmov $7, %edi\nout %al, $0xf2"));
        let Some((ended, _)) = run(&file, b"") else { return };
        match ended {
            UnikernelExit::Faulted(fault) if vectors.contains(&fault.vector) => {}
            other => wrong.push(format!("{what}: {other:x?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_page_fault_names_address_access_and_instruction() {
    let file = assembly("lea 1f(%rip), %rbx\nmov $0x40000123, %eax\n1: movb $1, (%rax)");
    let Some((ended, _)) = run(&file, b"") else { return };
    let UnikernelExit::Faulted(fault) = ended else { panic!("{ended:?}") };
    assert_eq!((fault.vector, fault.address), (14, 0x4000_0123));
    // Write, user, not present.
    assert_eq!(fault.code & 7, 6);
    assert_eq!(fault.rip & 0xfff, 0xc, "the store is 12 bytes behind the start: {fault:x?}");
}

#[test]
fn a_spinning_guest_is_stopped_from_outside_and_can_go_on() {
    let Some(host) = kvm() else { return };
    let file = assembly("1: incq counter(%rip)\njmp 1b\n.data\n.balign 4096\ncounter: .quad 0");
    let mut guest = Unikernel::new(&host, &file, b"").unwrap();
    for _ in 0..3 {
        let stopper = guest.stopper();
        let outside = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            stopper.stop();
        });
        let begin = Instant::now();
        assert_eq!(guest.run(&mut |_| {}).unwrap(), UnikernelExit::Stopped);
        assert!(begin.elapsed() < Duration::from_secs(2));
        outside.join().unwrap();
        guest.stopper().clear();
    }
}

#[test]
fn a_stop_that_comes_before_the_guest_runs_is_not_lost() {
    let Some(host) = kvm() else { return };
    let mut guest = Unikernel::new(&host, &assembly("1: jmp 1b"), b"").unwrap();
    guest.stopper().stop();
    assert_eq!(guest.run(&mut |_| {}).unwrap(), UnikernelExit::Stopped);
}

#[test]
fn a_program_that_wants_a_dynamic_linker_is_no_unikernel() {
    let Some(host) = kvm() else { return };
    let file = std::fs::read("/proc/self/exe").unwrap();
    let refused = Unikernel::new(&host, &file, b"").unwrap_err();
    assert!(refused.to_string().contains("statically"), "{refused}");
}

/// Counts its requests, in memory, in the heap and in a register; says the count when they agree.
const COUNTING: &str = r#"
    #include "wool.h"
    static char count;
    void _start(void) {
        char *heap = wool_grow(1 << 20), *last = heap;
        register double vector = 0;
        for (;;) {
            wool_ready();
            char text[8];
            if (wool_receive(text, sizeof text) != 3) wool_exit(1);
            count++; vector += 1; (*heap)++;
            char *more = wool_grow(1 << 20);
            if (more != last + (1 << 20) || *more) wool_exit(2);
            *more = 1; last = more;
            if (count != *heap || vector != count) wool_exit(3);
            wool_send(&count, 1);
        }
    }"#;

/// One request: its answer.
fn count(guest: &mut Unikernel) -> UnikernelExit {
    guest.set_request(b"one".to_vec());
    let ended = guest.run(&mut |_| {}).unwrap();
    if matches!(ended, UnikernelExit::Sent(_)) {
        assert_eq!(guest.run(&mut |_| {}).unwrap(), UnikernelExit::Ready);
    }
    ended
}

#[test]
fn a_unikernel_is_cloned_where_it_is_ready_and_reset_to_there() {
    let Some(host) = kvm() else { return };
    let scanner = Scanner::open().unwrap();
    let mut origin = Unikernel::new(&host, &unikernel(COUNTING), b"").unwrap();
    assert_eq!(origin.run(&mut |_| {}).unwrap(), UnikernelExit::Ready);
    assert_eq!(count(&mut origin), UnikernelExit::Sent(vec![1]));
    let template = Template::seal(origin).unwrap();
    let mut first = template.spawn(&host).unwrap();
    let mut second = template.spawn(&host).unwrap();
    for expected in 2..5 {
        assert_eq!(count(&mut first), UnikernelExit::Sent(vec![expected]));
    }
    assert_eq!(count(&mut second), UnikernelExit::Sent(vec![2]));
    for _ in 0..3 {
        first = template.reset(first, &scanner).unwrap();
        for expected in 2..4 {
            assert_eq!(count(&mut first), UnikernelExit::Sent(vec![expected]));
        }
    }
    let other = Template::seal(second).err().map(|error| error.to_string());
    assert_eq!(other.as_deref(), Some("take memory for the guest"), "a clone cannot be frozen");
}

#[test]
fn a_program_that_is_linked_to_its_addresses_loads_each_time_or_never() {
    let Some(host) = kvm() else { return };
    let source = |megabytes| {
        format!(
            r#"
            #include "wool.h"
            static char large[{megabytes}ul << 20];
            void _start(void) {{
                volatile char *all = large, local[2] = {{3}};
                all[0] = all[sizeof large - 1] = 1;
                char *more = wool_grow(2 << 20);
                if (more == (char *)-1) wool_exit(9);
                more[(2 << 20) - 1] = 1;
                wool_exit(all[0] + all[sizeof large - 1] + local[0] + local[1]);
            }}"#
        )
    };
    for (place, megabytes) in machine::FIXED {
        let file = machine::unikernel_with(&source(megabytes), &[place]);
        for round in 0..40 {
            let mut guest = Unikernel::new(&host, &file, b"")
                .unwrap_or_else(|error| panic!("{place} {megabytes} {round}: {error:?}"));
            assert_eq!(
                guest.run(&mut |_| {}).unwrap(),
                UnikernelExit::Exited(5),
                "{place} {megabytes}"
            );
        }
    }
    let file = machine::unikernel_with(&source(900), &["-Wl,-Ttext-segment=0x400000"]);
    for _ in 0..5 {
        let refused = Unikernel::new(&host, &file, b"").unwrap_err();
        assert!(refused.to_string().contains("leave no room for its stack"), "{refused}");
    }
}
