//! How a monitor tells that an order failed.

use std::error::Error;
use std::io;

use sandbox::chain;

use crate::message::Event;

impl Event {
    /// The event for a failed order: the error with all its causes, and whether it may pass.
    pub(crate) fn failed(number: Option<u64>, error: &(dyn Error + 'static)) -> Self {
        Self::Failed { number, reason: chain(error), exhausted: is_exhausted(error) }
    }
}

/// Whether the host lacks something that may be there again later.
fn is_exhausted(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let number = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        if matches!(number, Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EAGAIN)) {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use microvm::machine::VcpuError;

    use super::*;

    #[test]
    fn what_kvm_refuses_for_want_of_something_is_wanted_only_for_now() {
        let of = |number| {
            let source = io::Error::from_raw_os_error(number);
            is_exhausted(&VcpuError::Kvm { step: "create a virtual machine", source })
        };
        assert!([libc::ENOMEM, libc::EMFILE, libc::ENFILE].into_iter().all(of));
        assert!(!of(libc::EINVAL));
    }
}
