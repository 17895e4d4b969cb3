//! `getrandom`, and the bytes of random devices.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom as random};

use crate::linux::abi::registers::Answer;
use crate::linux::state::process::Process;
use crate::machine::Stopper;

pub(crate) fn getrandom(process: &mut Process, target: u64, length: u64, flags: u64) -> Answer {
    const KNOWN: u64 = 7;
    const MAX_BYTES: u64 = 32 << 20;
    if flags & !KNOWN != 0 {
        return Err(Errno::INVAL);
    }
    let stopper = process.stopper();
    fill_random(process.space.write(target, length.min(MAX_BYTES))?, &stopper)
}

/// Fills the target with the host's random bytes until it is full or a stop is wanted; returns how
/// many. The host makes some hundred megabytes a second.
pub(crate) fn fill_random(target: &mut [u8], stopper: &Stopper) -> Answer {
    const PIECE: usize = 1 << 20;
    let mut done = 0;
    while done < target.len() && !(done > 0 && stopper.wanted()) {
        let end = target.len().min(done + PIECE);
        match random(&mut target[done..end], GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn randomness_is_not_made_to_the_end_for_a_guest_that_is_to_stop() {
        let (stopper, mut target) = (Stopper::default(), vec![0; 3 << 20]);
        assert_eq!(fill_random(&mut target, &stopper).unwrap(), 3 << 20);
        stopper.stop();
        assert_eq!(fill_random(&mut target, &stopper).unwrap(), 1 << 20);
    }
}
