//! What machines leave behind in the monitor: nothing. Alone in its program, because it counts what
//! the process has.

mod machine;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process, Template};
use microvm::memory::Scanner;
use microvm::vfs::TreeBuilder;

/// Descriptors and mappings of machines: those of files, of KVM's own and of a guest's size.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours =
        maps.lines().filter(|line| line.contains("memfd:arena") || line.contains("kvm-vcpu"));
    (descriptors, ours.count())
}

#[test]
fn machines_templates_and_clones_leave_nothing_behind() {
    let Some(host) = kvm() else { return };
    let source = r#"
        #include <fcntl.h>
        #include <unistd.h>
        int main() {
            char byte;
            open("/program", O_RDONLY);
            while (read(3, &byte, 1) == 1) { sbrk(1 << 20); open("/program", O_RDONLY); write(3, &byte, 1); }
            return 0;
        }"#;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("program"), compile(source, &["-static"])).unwrap();
    let scanner = Scanner::open().unwrap();
    let round = || {
        let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices();
        let program = vec!["/program".into()];
        let options = Options { program, channel: true, ..Options::default() };
        let tree = tree.scratch("/tmp").build(1 << 20, 64);
        let mut process = Process::start(&host, tree, &options).unwrap();
        assert_eq!(process.run().unwrap(), Pause::Idle);
        let template = Template::seal(process).unwrap();
        let mut clones: Vec<_> = (0..4).map(|_| template.spawn(&host).unwrap()).collect();
        for clone in &mut clones {
            clone.feed(b"ab");
            assert_eq!(clone.run().unwrap(), Pause::Idle);
        }
        let (mut again, _) = template.reset(clones.pop().unwrap(), &scanner).unwrap();
        again.feed(b"c");
        assert_eq!(again.run().unwrap(), Pause::Idle);
        held()
    };
    let during = round();
    let before = held();
    assert!(during.0 > before.0 && during.1 > before.1, "the count sees machines: {during:?}");
    for _ in 0..5 {
        round();
    }
    assert_eq!(held(), before);
}
