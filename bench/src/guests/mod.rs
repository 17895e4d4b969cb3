//! Programs in C and Python: as processes of the host, as guests of micro-VMs, as unikernels.
//!
//! They run in the load generator's own process, without jail, HTTP or worker; only guests that are cloned by fork have a
//! monitor of their own, since a fork copies the whole of it.

mod forking;
mod frozen;
mod python;
mod unikernels;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use microvm::linux::{Options, Pause, Process};
use microvm::machine::Hypervisor;
use microvm::memory::MemoryKind;
use microvm::vfs::TreeBuilder;

pub(crate) use forking::{Forking, ROLE, monitor};
pub(crate) use frozen::{Frozen, Guest, Point, Way};
pub(crate) use python::{on_the_host, python};
pub(crate) use unikernels::Unikernels;

/// A directory with one static program in it, `/program`.
pub(crate) fn build(dir: &Path, source: &str, flags: &[&str]) -> Result<PathBuf> {
    fs::create_dir_all(dir).context("make a directory for a program")?;
    let (code, program) = (dir.join("program.c"), dir.join("program"));
    fs::write(&code, source).context("write a program")?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-static"]).args(flags).arg("-o").arg(&program).arg(&code);
    ensure!(cc.status().context("start cc")?.success(), "{} does not compile", code.display());
    Ok(program)
}

/// What a guest runs. It waits for a byte on its channel, some times while it prepares itself, and then again and again:
/// each of those it answers with `x`, and perhaps the milliseconds that it worked.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Directories of the host's, and where they are in the guest.
    layers: Vec<(&'static str, PathBuf)>,
    words: Vec<String>,
    environment: Vec<String>,
    /// How often it waits before it answers for the first time; once at least.
    waits: usize,
}

impl Program {
    /// `/program` of a directory, which waits only to be asked.
    pub(crate) fn built(dir: &Path, arguments: &[String]) -> Self {
        let program = std::iter::once("/program".to_owned()).chain(arguments.iter().cloned());
        let layers = vec![("/", dir.to_owned())];
        Self { layers, words: program.collect(), environment: Vec::new(), waits: 1 }
    }

    /// Loads it; it has not run yet.
    fn start(&self, host: &Hypervisor, memory: MemoryKind) -> Result<Process> {
        let mut tree = TreeBuilder::default();
        for (at, dir) in &self.layers {
            tree = tree.layer(at, dir).context("read the program")?;
        }
        let tree = tree.devices().scratch("/tmp").build(16 << 20, 256);
        let (program, environment) = (self.words.clone(), self.environment.clone());
        let options = Options { program, environment, channel: true };
        Process::start_in(memory, host, tree, &options).context("start a guest")
    }
}

/// When a guest had answered, and how long it says that it worked.
#[derive(Clone, Copy, Debug)]
struct Answered {
    at: Instant,
    own: Duration,
}

/// So many bytes out, one answer in.
fn ask(process: &mut Process, bytes: usize) -> Result<Answered> {
    process.feed(&vec![b'?'; bytes]);
    let pause = process.run()?;
    let (at, said) = (Instant::now(), process.take_said());
    let own = said.strip_prefix(b"x").filter(|_| pause == Pause::Idle);
    let own = own.with_context(|| format!("the guest did not answer: {pause:?}, {said:?}"))?;
    let own = if own.is_empty() { 0.0 } else { std::str::from_utf8(own)?.parse::<f64>()? };
    Ok(Answered { at, own: Duration::from_secs_f64(own / 1e3) })
}
