//! Checks that a killed maker of user namespaces leaves no process behind. Runs without the test
//! harness, because it needs a process with one thread.

#![expect(clippy::print_stdout, reason = "a test without the harness says itself how it went")]

use std::time::{Duration, Instant};

use sys::namespace::{IdMap, Parent, user_namespace};
use sys::process::{exit_now, fork_single_threaded};

/// How many makers are killed, each at a moment at which about every second has a sleeper.
const MAKERS: u32 = 40;

fn main() {
    // `cargo test -- --list` expects this answer of the harness.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skips::skip("root", "only root makes user namespaces for others");
    }
    // SAFETY: a number. Orphaned sleepers become children of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }, 0);
    for maker in 0..MAKERS {
        let Some(pid) = fork_single_threaded().unwrap() else { make_for_ever() };
        std::thread::sleep(Duration::from_micros(u64::from(3000 + 37 * maker)));
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    everybody_is_gone();
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

fn make_for_ever() -> ! {
    let map = IdMap { inside: 0, outside: 1_900_000_000, count: 1 };
    loop {
        if user_namespace(Parent::Initial, 1_900_000_000, map).is_err() {
            exit_now(1);
        }
    }
}

/// Reaps makers and sleepers until there are none.
fn everybody_is_gone() {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut failed = 0;
    loop {
        let mut status = 0;
        // SAFETY: a status of our own.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) } {
            0 => {
                assert!(Instant::now() < deadline, "sleepers outlive their makers");
                std::thread::sleep(Duration::from_millis(20));
            }
            -1 => break,
            _ => failed += u32::from(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1),
        }
    }
    assert_eq!(failed, 0, "makers could make no namespaces");
}
