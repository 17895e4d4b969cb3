//! A program of any ELF, run as `wool unikernel run` would: it is refused, or ends, or is stopped, and the machine is the
//! monitor's own all along. As a Linux program, too, which may name an interpreter: itself.

use std::fs;
use std::time::Duration;

use microvm::linux::{Options, Pause, Process};
use microvm::machine::Hypervisor;
use microvm::unikernel::{Unikernel, UnikernelExit};
use microvm::vfs::TreeBuilder;

use crate::kvm::{Watch, kvm};
use crate::scratch::scratch;

const PATIENCE: Duration = Duration::from_millis(50);
/// Turns that a program gets: each answers a request.
const TURNS: usize = 4;

pub(crate) fn fuzz(bytes: &[u8]) {
    let Some(host) = kvm() else { return };
    as_unikernel(host, bytes);
    as_linux(host, bytes);
}

fn as_unikernel(host: &Hypervisor, bytes: &[u8]) {
    let Ok(mut guest) = Unikernel::new(host, bytes, b"argument") else { return };
    let _watch = Watch::over(guest.stopper(), PATIENCE);
    for _ in 0..TURNS {
        match guest.run(&mut |_| {}).expect("no program loses its machine") {
            UnikernelExit::Ready => guest.set_request(b"request".to_vec()),
            UnikernelExit::Sent(_) => {}
            UnikernelExit::Exited(_) | UnikernelExit::Faulted(_) | UnikernelExit::Stopped => return,
        }
    }
}

fn as_linux(host: &Hypervisor, bytes: &[u8]) {
    let directory = scratch();
    fs::write(directory.path().join("program"), bytes).expect("there is room for a file");
    let tree = TreeBuilder::default().layer("/", directory.path()).expect("it can be listed");
    let tree = tree.symlink("/lib64/ld-linux-x86-64.so.2", "/program").devices();
    let program = vec!["/program".to_owned(), "argument".to_owned()];
    let options = Options { program, channel: true, ..Options::default() };
    let tree = tree.scratch("/tmp").build(1 << 20, 64);
    let Ok(mut guest) = Process::start(host, tree, &options) else { return };
    guest.limit(64 << 20, 1 << 20, 64);
    let _watch = Watch::over(guest.stopper(), PATIENCE);
    let pause = guest.run().expect("no program loses its machine");
    assert_ne!(pause, Pause::Spoke, "nobody asked it to be prompt");
}
