//! Running a program to its end, or to that of somebody's patience.
//!
//! ```text
//!   spawn, in a process group of its own ─► both outputs read until they end ─► reaped
//!      │                                         │ too long, or given up: the group is killed, and then reaped
//!      └ its starter is killed: the kernel kills it
//! ```

use std::io;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{ScopedJoinHandle, sleep};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::patience::Over;

/// Between two looks whether anybody still waits.
const LOOK: Duration = Duration::from_millis(50);

/// Why a program did not come to its end.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// It could not be started, or waited for.
    Start(io::Error),
    /// It was killed.
    Over(Over),
}

/// Killed with all that it started, unless it has ended.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.kill();
            let _ = self.0.wait();
        }
    }
}

impl Running {
    /// It has not been reaped: its number is still its own, and its group's.
    fn kill(&self) {
        let number = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let _ = number.map(|number| kill_process_group(number, Signal::KILL));
    }

    fn wait(&mut self, over: impl Fn() -> Option<Over>) -> Result<ExitStatus, Unfinished> {
        loop {
            match (self.0.try_wait().map_err(Unfinished::Start)?, over()) {
                (Some(status), _) => return Ok(status),
                (None, Some(over)) => return Err(Unfinished::Over(over)),
                // It has closed its outputs: this is its end.
                (None, None) => sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// Runs it until `over`, which is asked many times a second; its outputs are read by `stdout` and `stderr`, each in a thread,
/// to their ends.
pub(crate) fn run<O: Default + Send, E: Default + Send>(
    command: &mut Command,
    over: impl Fn() -> Option<Over>,
    stdout: impl FnOnce(ChildStdout) -> O + Send,
    stderr: impl FnOnce(ChildStderr) -> E + Send,
) -> Result<(ExitStatus, O, E), Unfinished> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::process::bind_to_starter(command);
    let mut running = Running(command.spawn().map_err(Unfinished::Start)?);
    let pipes = (running.0.stdout.take(), running.0.stderr.take());
    std::thread::scope(|scope| {
        // Both at once: who fills one pipe would wait for ever for who reads the other.
        let (reading, read) = channel();
        let output = pipes.0.map(|pipe| scope.spawn(reader(pipe, stdout, reading.clone())));
        let words = pipes.1.map(|pipe| scope.spawn(reader(pipe, stderr, reading)));
        let ended = loop {
            match (read.recv_timeout(LOOK), over()) {
                (Err(RecvTimeoutError::Disconnected), _) => break running.wait(over),
                (_, Some(over)) => break Err(Unfinished::Over(over)),
                _ => {}
            }
        };
        // Before the readers are waited for: they wait for it.
        drop(running);
        let (output, words) = (joined(output), joined(words));
        Ok((ended?, output, words))
    })
}

/// `reading` is dropped when the pipe has ended: nothing is sent.
fn reader<P, T>(pipe: P, read: impl FnOnce(P) -> T, reading: Sender<()>) -> impl FnOnce() -> T {
    move || {
        let _reading = reading;
        read(pipe)
    }
}

fn joined<T: Default>(thread: Option<ScopedJoinHandle<'_, T>>) -> T {
    thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::patience::Patience;

    fn text(mut pipe: impl Read) -> String {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    }

    /// A shell that starts another one, and a file that both of these write their numbers to.
    fn family(script: &str) -> (Command, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).current_dir(directory.path());
        (shell, directory)
    }

    fn assert_gone(directory: &tempfile::TempDir) {
        let numbers = std::fs::read_to_string(directory.path().join("numbers")).unwrap();
        assert_eq!(numbers.lines().count(), 2, "{numbers:?}");
        for number in numbers.lines() {
            // Whoever takes in the second one may not have reaped it yet.
            let lives = || {
                let status = std::fs::read_to_string(format!("/proc/{number}/status"));
                status.is_ok_and(|status| !status.contains("State:\tZ"))
            };
            // Only the first one was waited for: the other was killed with it, and ends beside this.
            let began = std::time::Instant::now();
            while lives() {
                assert!(began.elapsed() < Duration::from_secs(60), "{number} lives");
                sleep(Duration::from_millis(1));
            }
        }
    }

    const FAMILY: &str =
        "echo $$ >numbers; sh -c 'echo $$ >>numbers; touch there; sleep 1000; true' & wait; true";

    #[test]
    fn a_program_is_ended_with_all_that_it_started_when_it_takes_too_long() {
        let (mut command, directory) = family(FAMILY);
        let there = directory.path().join("there");
        // Not before there is something to end.
        let waits = {
            let there = there.clone();
            move || there.exists()
        };
        let patience = Patience::of(Duration::MAX, waits);
        let ended = run(&mut command, || patience.over(), text, text);
        assert!(matches!(ended, Err(Unfinished::Over(Over::GivenUp))), "{ended:?}");
        assert_gone(&directory);
        let (mut command, _directory) = family("sleep 1000; true");
        let limit = Duration::from_millis(60);
        let patience = Patience::of(limit, || false);
        let ended = run(&mut command, || patience.over(), text, text);
        assert!(
            matches!(ended, Err(Unfinished::Over(Over::TooLong(by))) if by == limit),
            "{ended:?}"
        );
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let (mut command, directory) = family("echo $$ >number; touch there; sleep 1000; true");
        let there = directory.path().join("there");
        let number = std::thread::spawn(move || {
            sys::process::bind_to_starter(&mut command);
            let child = command.spawn().unwrap();
            while !there.exists() {
                sleep(Duration::from_millis(1));
            }
            child
        });
        let mut child = number.join().unwrap();
        // Without it, it would sleep on.
        let began = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() {
            if began.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("it has outlived its starter");
            }
            sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_program_that_ends_in_time_is_heard_out() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let patience = Patience::of(Duration::from_secs(60), || false);
        let (status, output, words) = run(&mut command, || patience.over(), text, text).unwrap();
        assert_eq!((status.code(), output.as_str(), words.as_str()), (Some(3), "out\n", "err\n"));
    }
}
