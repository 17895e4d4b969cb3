//! Mutants of a reset, and that they are noticed: what the other tests of resets compare is enough
//! to see each step that a reset needs.

#![cfg(debug_assertions)]

mod machine;

use std::os::unix::fs::FileExt as _;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::memory::layout::PAGE;
use microvm::mutant::{Mutant, with};
use microvm::vfs::TreeBuilder;

/// Each letter changes something that one mutant leaves as it is; `w` writes where that is not
/// allowed.
const PROGRAM: &str = r##"
    #include <immintrin.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    static char *pages, *readable;
    static char serve(char letter) {
        switch (letter) {
        case 'v': _mm_setcsr(0x9fc0); __asm__ volatile("pcmpeqb %%xmm5, %%xmm5" ::: "xmm5"); return 1;
        case 'd': for (int page = 0; page < 64; page += 2) pages[page << 12] = 's'; return 1;
        case 'p': mprotect(readable, 4096, PROT_READ | PROT_WRITE); *readable = 9; return 1;
        case 'w': *(volatile char *)readable = 8; return 1;
        }
        return 2;
    }
    int main() {
        pages = mmap(0, 64 << 12, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(pages, 5, 64 << 12);
        readable = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *readable = 1;
        mprotect(readable, 4096, PROT_READ);
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
    _directory: tempfile::TempDir,
}

impl World {
    /// None, said aloud, where there is no KVM or the kernel does not tell which pages are a
    /// clone's own.
    fn new() -> Option<Self> {
        let host = kvm()?;
        if Scanner::open().unwrap().private(0..PAGE).is_err() {
            skips::skip("pagemap_scan", "PAGEMAP_SCAN: Linux 6.7");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("program"), compile(PROGRAM, &["-static"])).unwrap();
        let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
        let program = vec!["/program".into()];
        let options = Options { program, channel: true, ..Options::default() };
        let mut process = Process::start(&host, tree.build(0, 0), &options).unwrap();
        assert_eq!(process.run().unwrap(), Pause::Idle);
        let template = Template::seal(process).unwrap();
        Some(Self { host, template, _directory: directory })
    }

    /// A clone that has done this.
    fn changed(&self, letter: char) -> Process {
        let mut process = self.template.spawn(&self.host).unwrap();
        assert_eq!(ask(&mut process, letter), Pause::Idle);
        process
    }

    /// Resets with a scanner of so much room, and with a step left out. Whether the comparison
    /// notices.
    fn is_noticed(&self, process: Process, room: usize, mutant: Option<Mutant>) -> bool {
        let scanner = Scanner::open().unwrap().with_room(room);
        let reset = || self.template.reset(process, &scanner).unwrap().0;
        let mut process = match mutant {
            Some(mutant) => with(mutant, reset),
            None => reset(),
        };
        let scanner = Scanner::open().unwrap();
        !self.template.differences(&mut process, &scanner).unwrap().is_empty()
    }
}

fn ask(process: &mut Process, letter: char) -> Pause {
    process.feed(&[u8::try_from(letter).unwrap()]);
    let pause = process.run().unwrap();
    if pause == Pause::Idle {
        assert_eq!(process.take_said(), [1]);
    }
    pause
}

/// Enough for all that a clone of this program changes.
const ROOM: usize = 4096;

#[test]
fn vectors_that_are_not_put_back_are_noticed() {
    let Some(world) = World::new() else { return };
    assert!(!world.is_noticed(world.changed('v'), ROOM, None));
    assert!(world.is_noticed(world.changed('v'), ROOM, Some(Mutant::NoXsave)));
}

#[test]
fn a_walk_that_is_not_continued_is_noticed() {
    let Some(world) = World::new() else { return };
    assert!(!world.is_noticed(world.changed('d'), 8, None));
    assert!(world.is_noticed(world.changed('d'), 8, Some(Mutant::WalkEndIgnored)));
}

#[test]
fn pages_in_swap_that_are_left_out_are_noticed() {
    let Some(world) = World::new() else { return };
    for (mutant, expected) in [(None, false), (Some(Mutant::OnlyInMemory), true)] {
        let process = world.changed('d');
        if !swap_out(&process) {
            skips::skip("swap", "swap space that pages go to when asked");
            return;
        }
        assert_eq!(world.is_noticed(process, ROOM, mutant), expected, "{mutant:?}");
    }
}

/// Has the kernel put a process's pages into swap; whether any went there.
fn swap_out(process: &Process) -> bool {
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    let arena = process.space().arena();
    let mut swapped = 0;
    for (range, _) in process.space().regions().iter() {
        let (start, length) = (arena.address() + range.start, range.end - range.start);
        let length = usize::try_from(length).unwrap();
        // SAFETY: the range is the arena's, and what it holds stays what it is.
        unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_PAGEOUT) };
        for page in start / PAGE..(start + length as u64) / PAGE {
            let mut entry = [0; 8];
            pagemap.read_exact_at(&mut entry, page * 8).unwrap();
            // proc_pid_pagemap(5): bit 62, the page is in swap.
            swapped += u64::from_le_bytes(entry) >> 62 & 1;
        }
    }
    swapped > 0
}

#[test]
fn rights_that_are_not_flushed_are_noticed() {
    let Some(world) = World::new() else { return };
    let scanner = Scanner::open().unwrap();
    // With a new right, and having used it.
    let process = world.changed('p');
    let mut process = world.template.reset(process, &scanner).unwrap().0;
    assert!(matches!(ask(&mut process, 'w'), Pause::Killed(libc::SIGSEGV, _)));
    let process = world.changed('p');
    let reset = || world.template.reset(process, &scanner).unwrap().0;
    let mut process = with(Mutant::NoFlush, reset);
    match ask(&mut process, 'w') {
        Pause::Idle => {}
        Pause::Killed(libc::SIGSEGV, _) => {
            skips::skip("stale_rights", "a KVM that keeps using rights which were taken away");
        }
        other => panic!("{other:?}"),
    }
}
