//! HyperFork to the letter: a monitor of its own for one guest, which forks itself for each clone.
//!
//! ```text
//!   load generator                    monitor                            clone, a process of its own
//!           ◄───── PREPARED ───────── its guest has answered
//!   a byte ─────────────────────────► prepare, fork ───────────────────► adopt, ask the guest
//!           ◄───────────────────────────────────────────── Cloned ────── ends
//!           ◄───── Returned ───────── waits for its end
//! ```
//! The monitor is this very program in another role, started before anything makes a second thread. All times count from
//! when the monitor has read the byte, by its clock: the pipe is no part of them.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use microvm::linux::{ForkSide, Process};
use microvm::machine::Hypervisor;
use microvm::memory::MemoryKind;
use rustix::process::{WaitOptions, waitpid};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::{Program, ask};
use crate::load::{Pending, Shot, Target};

/// The first argument of this program in that role; the others are the kind of pages, the directory with `/program`, and
/// the program's arguments.
pub(crate) const ROLE: &str = "forking-monitor";

const HUGE: &str = "huge";
const SMALL: &str = "small";

/// What the monitor says first, once its guest has answered.
const PREPARED: &str = "prepared";

/// What a clone says.
#[derive(Debug, Serialize, Deserialize)]
struct Cloned {
    /// Until it had a machine of its own.
    adopted: Duration,
    /// Until its guest had answered.
    answered: Duration,
    /// Of this, what the guest says that it worked.
    own: Duration,
}

/// What the original says, once the clone has ended.
#[derive(Debug, Serialize, Deserialize)]
struct Returned {
    /// Until it could go on itself.
    after: Duration,
}

/// The monitor's side: forks for each byte of standard input, until that ends.
pub(crate) fn monitor(mut words: impl Iterator<Item = String>) -> Result<()> {
    let memory = match words.next().as_deref() {
        Some(HUGE) => MemoryKind::AnonymousHuge,
        Some(SMALL) => MemoryKind::Anonymous,
        other => bail!("pages are {HUGE} or {SMALL}, not {other:?}"),
    };
    let dir = PathBuf::from(words.next().context("no directory")?);
    let program = Program::built(&dir, &words.collect::<Vec<_>>());
    let host = Hypervisor::open()?;
    let mut process = program.start(&host, memory)?;
    ask(&mut process, program.waits)?;
    say(&PREPARED)?;
    let mut byte = [0];
    while std::io::stdin().read(&mut byte).context("read what to do")? == 1 {
        process = clone(process, &host)?;
    }
    Ok(())
}

fn clone(process: Process, host: &Hypervisor) -> Result<Process> {
    let began = Instant::now();
    match process.fork(host).context("clone by fork")? {
        ForkSide::Clone(mut clone) => {
            let adopted = began.elapsed();
            let answer = ask(&mut clone, 1)?;
            say(&Cloned { adopted, answered: answer.at - began, own: answer.own })?;
            drop(clone);
            std::process::exit(0);
        }
        ForkSide::Original(process, clone) => {
            let after = began.elapsed();
            let ended = waitpid(Some(clone), WaitOptions::empty()).context("wait for a clone")?;
            ensure!(ended.is_some_and(|(_, status)| status.exit_status() == Some(0)), "{ended:?}");
            say(&Returned { after })?;
            Ok(process)
        }
    }
}

fn say(told: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(told)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line).context("say what happened")
}

/// The load generator's side, an arm.
#[derive(Debug)]
pub(crate) struct Forking {
    name: String,
    // Taken in turn: it forks once at a time.
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
    _monitor: Child,
}

impl Forking {
    /// Starts a monitor and waits until its guest has answered once.
    pub(crate) async fn start(
        name: impl Into<String>,
        dir: &Path,
        arguments: &[String],
        huge: bool,
    ) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.arg(ROLE).arg(if huge { HUGE } else { SMALL }).arg(dir).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut monitor = command.spawn().context("start a monitor that forks")?;
        let stdin = monitor.stdin.take().context("it has no input")?;
        let stdout = monitor.stdout.take().context("it has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let said = lines.next_line().await?.context("the monitor that forks ended at once")?;
        ensure!(said == format!("\"{PREPARED}\""), "the monitor that forks said {said}");
        let pipes = Mutex::new((stdin, lines));
        Ok(Self { name: name.into(), pipes, _monitor: monitor })
    }

    async fn call(&self) -> Result<Shot> {
        let (stdin, lines) = &mut *self.pipes.lock().await;
        let due = Instant::now();
        stdin.write_all(b"f").await.context("ask for a fork")?;
        let mut line = async || lines.next_line().await?.context("the monitor that forks is gone");
        let cloned: Cloned = serde_json::from_str(&line().await?)?;
        let returned: Returned = serde_json::from_str(&line().await?)?;
        let ms = |took: Duration| took.as_secs_f64() * 1e3;
        let stages = [
            ("fork-returns", returned.after),
            ("clone-adopted", cloned.adopted),
            ("clone-answered", cloned.answered),
        ];
        let stages = stages.map(|(stage, took)| format!("{stage};dur={:.3}", ms(took)));
        let shot = Shot::plain(due + cloned.answered);
        Ok(Shot { own: cloned.own, stages: stages.join(", "), ..shot })
    }
}

impl Target for Forking {
    fn name(&self) -> &str {
        &self.name
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(self.call())
    }
}
