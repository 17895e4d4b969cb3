//! The host's KVM, and whoever stops a guest that runs for too long.

use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use microvm::machine::Hypervisor;
use microvm::machine::Stopper;

/// The host's KVM. Where there is none the target has nothing to do: that is printed once, and is a failure where
/// `LAMBSWOOL_REQUIRE` names `kvm`.
pub(crate) fn kvm() -> Option<&'static Hypervisor> {
    static KVM: OnceLock<Option<Hypervisor>> = OnceLock::new();
    let open = || match Hypervisor::open() {
        Ok(host) => Some(host),
        Err(error) => {
            skips::skip("kvm", &error.to_string());
            None
        }
    };
    KVM.get_or_init(open).as_ref()
}

/// Stops a guest when its time is over, unless it is dropped before that.
pub(crate) struct Watch {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn over(stopper: Stopper, patience: Duration) -> Self {
        let (done, is_done) = channel::<()>();
        let thread = std::thread::spawn(move || {
            if is_done.recv_timeout(patience) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                stopper.stop();
            }
        });
        Self { done: Some(done), thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.done.take());
        // It may not stop the next guest.
        self.thread.take().map(JoinHandle::join);
    }
}
