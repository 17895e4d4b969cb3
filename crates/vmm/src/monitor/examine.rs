//! `wool-vmm examine`: properties of this machine's KVM, found out by tiny guests. For `wool doctor
//! --microvm`.

use std::time::Instant;

use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::unikernel::{Unikernel, UnikernelError, UnikernelExit};

use crate::Examination;

/// Calls from a guest that are timed.
const CALLS: u32 = 2000;

/// Examines KVM, already in jail: the guests are our own, but KVM is not trusted yet.
///
/// # Errors
/// When there can be no machine.
pub fn examine(host: &Hypervisor, scanner: &Scanner) -> Result<Examination, UnikernelError> {
    // mov ecx, CALLS; again: mov eax, 2 (MONOTONIC); out 0xf2, al; dec ecx; jnz again; exit(0)
    let [a, b, c, d] = CALLS.to_le_bytes();
    let calls = [0xb9, a, b, c, d, 0xb8, 2, 0, 0, 0, 0xe6, 0xf2, 0xff, 0xc9, 0x75, 0xf5];
    let begin = Instant::now();
    let idle = run(host, &[])?;
    let start = begin.elapsed();
    debug_assert_eq!(idle, UnikernelExit::Exited(0));
    let begin = Instant::now();
    run(host, &calls)?;
    let took = begin.elapsed().saturating_sub(start);
    // int 0x80
    let interrupt = match run(host, &[0xcd, 0x80])? {
        UnikernelExit::Faulted(fault) => Some(fault.vector),
        _ => None,
    };
    // xor ecx, ecx; rdpkru
    let keys = run(host, &[0x31, 0xc9, 0x0f, 0x01, 0xee])? == UnikernelExit::Exited(0);
    Ok(Examination {
        call_us: took.as_secs_f64() * 1e6 / f64::from(CALLS),
        tells_pages: scanner.private(0..4096).is_ok(),
        interrupt,
        keys,
        no_ticks: host.ticks().err().map(|reason| reason.to_string()),
    })
}

/// Runs instructions, and exits behind them.
fn run(host: &Hypervisor, code: &[u8]) -> Result<UnikernelExit, UnikernelError> {
    // xor eax, eax (EXIT); xor edi, edi; out 0xf2, al
    let exit = [0x31, 0xc0, 0x31, 0xff, 0xe6, 0xf2];
    let file = program(&[code, &exit].concat());
    Unikernel::new(host, &file, b"")?.run(&mut |_| {})
}

/// A static program of these instructions, in one segment with the headers.
fn program(code: &[u8]) -> Vec<u8> {
    const AT: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let half = |value: u16| value.to_le_bytes().to_vec();
    let word = |value: u32| value.to_le_bytes().to_vec();
    let long = |value: u64| value.to_le_bytes().to_vec();
    let length = HEADERS + code.len() as u64;
    [
        b"\x7fELF\x02\x01\x01".to_vec(),
        vec![0; 9],
        // An executable, for x86-64, version 1.
        [half(2), half(62), word(1)].concat(),
        // Its entry, program headers behind this one, no sections.
        [long(AT + HEADERS), long(64), long(0), word(0)].concat(),
        [half(64), half(56), half(1), half(0), half(0), half(0)].concat(),
        // To be loaded, read and executed, from the file's start.
        [word(1), word(5), long(0), long(AT), long(AT), long(length), long(length), long(4096)]
            .concat(),
        code.to_vec(),
    ]
    .concat()
}
