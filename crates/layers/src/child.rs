//! Running a program to its end, or until its caller stops waiting.
//!
//! ```text
//!   spawn, in a process group of its own ─► both outputs read until they end ─► reaped
//!      │                                         │ too long, or given up: the group is killed, then reaped
//!      └ its starter is killed: the kernel kills it
//! ```

use std::io;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{ScopedJoinHandle, sleep};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

use crate::patience::Over;

/// Between two looks whether anybody still waits.
const LOOK: Duration = Duration::from_millis(50);

/// Why a program has no exit status.
#[derive(Debug, Error)]
pub enum Unfinished {
    /// It could not be started, or not be waited for.
    #[error("cannot start {program}")]
    Start {
        /// As it was named in the command.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// It was killed: an index that it asks answers too slowly, or not at all.
    #[error(
        "the index did not answer within {} s: try again, ask another index, or raise the setting `index_timeout`",
        limit.as_secs()
    )]
    TooLong {
        /// The time that all questions to indexes may take together.
        limit: Duration,
    },
    /// It was killed: the client that wanted its result has gone, or the worker stops.
    #[error("the installer was ended: nobody waits for it any more")]
    GivenUp,
    /// It was killed: it took more than its limits.
    #[error("the installer was ended: it took more than it may")]
    Excessive,
}

impl Unfinished {
    fn start(command: &Command) -> impl FnOnce(io::Error) -> Self {
        let program = command.get_program().to_string_lossy().into_owned();
        |source| Self::Start { program, source }
    }
}

impl From<Over> for Unfinished {
    fn from(over: Over) -> Self {
        match over {
            Over::TooLong(limit) => Self::TooLong { limit },
            Over::GivenUp => Self::GivenUp,
            Over::Excessive => Self::Excessive,
        }
    }
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

    fn wait(&mut self, over: impl Fn() -> Option<Over>) -> io::Result<Result<ExitStatus, Over>> {
        loop {
            match (self.0.try_wait()?, over()) {
                (Some(status), _) => return Ok(Ok(status)),
                (None, Some(over)) => return Ok(Err(over)),
                // It has closed its outputs: this is its end.
                (None, None) => sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// Runs a program in a process group of its own and returns its exit status with what `stdout` and
/// `stderr` made of its two outputs. Each of the two runs in a thread and must read its pipe to the
/// end. `over` is asked many times a second; as soon as it gives a reason, the whole group is
/// killed. The program also ends with the thread that called.
///
/// # Errors
/// When the program cannot be started, and with the reason that `over` gave.
pub fn run<O: Default + Send, E: Default + Send>(
    command: &mut Command,
    over: impl Fn() -> Option<Over>,
    stdout: impl FnOnce(ChildStdout) -> O + Send,
    stderr: impl FnOnce(ChildStderr) -> E + Send,
) -> Result<(ExitStatus, O, E), Unfinished> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::process::bind_to_starter(command);
    let mut running = Running(command.spawn().map_err(Unfinished::start(command))?);
    let pipes = (running.0.stdout.take(), running.0.stderr.take());
    std::thread::scope(|scope| {
        // Both at once: a program that fills one pipe would wait for ever while only the other is
        // read.
        let (reading, read) = channel();
        let output = pipes.0.map(|pipe| scope.spawn(reader(pipe, stdout, reading.clone())));
        let words = pipes.1.map(|pipe| scope.spawn(reader(pipe, stderr, reading)));
        let ended = loop {
            match (read.recv_timeout(LOOK), over()) {
                (Err(RecvTimeoutError::Disconnected), _) => break running.wait(over),
                (_, Some(over)) => break Ok(Err(over)),
                _ => {}
            }
        };
        // Before the readers are waited for: they wait for it.
        drop(running);
        let (output, words) = (joined(output), joined(words));
        let status = ended.map_err(Unfinished::start(command))??;
        Ok((status, output, words))
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
            // The process that takes in the second one may not have reaped it yet.
            let lives = || {
                let status = std::fs::read_to_string(format!("/proc/{number}/status"));
                status.is_ok_and(|status| !status.contains("State:\tZ"))
            };
            // Only the first one was waited for: the other was killed with it, and ends beside
            // this.
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
        assert!(matches!(ended, Err(Unfinished::GivenUp)), "{ended:?}");
        assert_gone(&directory);
        let (mut command, _directory) = family("sleep 1000; true");
        let limit = Duration::from_millis(60);
        let patience = Patience::of(limit, || false);
        let ended = run(&mut command, || patience.over(), text, text);
        assert!(
            matches!(ended, Err(Unfinished::TooLong { limit: by }) if by == limit),
            "{ended:?}"
        );
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let (mut command, directory) = family("touch there; exec sleep 1000");
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
