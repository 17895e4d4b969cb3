//! Where a guest finds its things: elsewhere in each machine that is started, in the same places in
//! its clones.

mod machine;

use std::collections::BTreeSet;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::vfs::TreeBuilder;

/// For each byte that it reads, says the addresses of its code, its stack, its break, a mapping and
/// the kernel's shared object. Before the first it maps and uses something that must lie low, then
/// two gigabytes, which may leave no more room there.
const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <stdint.h>
    #include <sys/auxv.h>
    #include <sys/mman.h>
    #include <unistd.h>
    static char *map(size_t bytes, int flags) {
        char *all = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
        if (all == MAP_FAILED) _exit(90);
        return all;
    }
    int main() {
        size_t large = 2ul << 30;
        char letter, *low = map(1 << 20, MAP_32BIT), *all = map(large, 0);
        all[0] = all[large - 1] = 1;
        if ((uintptr_t)low + (1 << 20) > large) _exit(91);
        low[0] = 1;
        munmap(all, large);
        while (read(3, &letter, 1) == 1) {
            char *page = map(4096, 0);
            void *things[5] = {main, &letter, sbrk(0), page, (void *)getauxval(AT_SYSINFO_EHDR)};
            munmap(page, 4096);
            write(3, things, sizeof things);
        }
        return 0;
    }
"#;

fn addresses(process: &mut Process) -> Vec<u64> {
    process.feed(b"?");
    assert_eq!(process.run().unwrap(), Pause::Idle);
    let said = process.take_said();
    said.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn each_started_machine_has_its_own_addresses_and_clones_share_them() {
    let Some(host) = kvm() else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = compile(PROGRAM, &["-static-pie", "-fPIE"]);
    std::fs::write(directory.path().join("program"), program).unwrap();
    let start = |host: &Hypervisor| {
        let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
        let program = vec!["/program".into()];
        let options = Options { program, channel: true, ..Options::default() };
        let mut process = Process::start(host, tree.build(0, 0), &options).unwrap();
        assert_eq!(process.run().unwrap(), Pause::Idle);
        process
    };
    // Of the fewest places, those of mappings, there are 128.
    let mut seen = vec![BTreeSet::new(); 5];
    let mut last = None;
    for _ in 0..8 {
        let mut process = start(&host);
        let here = addresses(&mut process);
        assert_eq!(here.len(), seen.len());
        for (seen, address) in seen.iter_mut().zip(&here) {
            seen.insert(*address);
        }
        last = Some(process);
    }
    for (what, seen) in ["code", "stack", "break", "mapping", "vdso"].iter().zip(&seen) {
        assert!(seen.len() > 1, "the {what} is at {seen:x?} in each");
    }
    let template = Template::seal(last.unwrap()).unwrap();
    let one = addresses(&mut template.spawn(&host).unwrap());
    let other = addresses(&mut template.spawn(&host).unwrap());
    assert_eq!(one, other);
}

#[test]
fn a_linux_program_that_is_linked_to_its_addresses_starts_each_time() {
    let Some(host) = kvm() else { return };
    for (place, megabytes) in machine::FIXED {
        let directory = tempfile::tempdir().unwrap();
        let source = format!(
            "static char large[{megabytes}ul << 20];
             int main() {{ large[0] = large[sizeof large - 1] = 2; return large[0] + large[sizeof large - 1]; }}"
        );
        let program = compile(&source, &["-static", "-no-pie", "-fno-pie", place]);
        std::fs::write(directory.path().join("program"), program).unwrap();
        let options = Options { program: vec!["/program".into()], ..Options::default() };
        for round in 0..30 {
            let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
            let mut process = Process::start(&host, tree.build(0, 0), &options)
                .unwrap_or_else(|error| panic!("{place} {megabytes} {round}: {error:?}"));
            assert_eq!(process.run().unwrap(), Pause::Exited(4), "{place} {megabytes}");
        }
    }
}
