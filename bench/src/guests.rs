//! Small programs in C: as processes of the host, as guests of micro-VMs, as unikernels.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use microvm::hypervisor::Hypervisor;
use microvm::linux::{Options, Pause, Process, Template};
use microvm::scan::Scanner;
use microvm::unikernel::{Ended, Unikernel};
use microvm::vfs::TreeBuilder;

use crate::load::{Pending, Shot, Target};

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

/// A guest that answers a byte with a byte, once it has prepared itself, frozen.
pub(crate) struct Frozen {
    host: Hypervisor,
    template: Template,
    scanner: RefCell<Scanner>,
}

/// Starts a guest from nothing and waits until it is prepared.
fn start(host: &Hypervisor, dir: &Path, arguments: &[String]) -> Result<Process> {
    let tree = TreeBuilder::default().layer("/", dir).context("read the program")?.devices();
    let program = std::iter::once("/program".to_owned()).chain(arguments.iter().cloned());
    let options = Options { program: program.collect(), channel: true, ..Options::default() };
    let mut process = Process::start(host, tree.build(0, 0), &options).context("start a guest")?;
    ensure!(process.run()? == Pause::Idle, "the guest does not wait");
    Ok(process)
}

/// One byte out, one byte in: when the answer was there.
fn ask(process: &mut Process) -> Result<Instant> {
    process.feed(b"?");
    let pause = process.run()?;
    ensure!(pause == Pause::Idle && process.take_said() == b"x", "the guest did not answer");
    Ok(Instant::now())
}

impl Frozen {
    /// Prepares one. What its first clone touches, further ones get at once.
    pub(crate) fn make(dir: &Path, arguments: &[String]) -> Result<Box<Self>> {
        let host = Hypervisor::open()?;
        let mut process = start(&host, dir, arguments)?;
        ask(&mut process)?;
        let mut template = Template::seal(process)?;
        let mut scanner = Scanner::open().context("open the pagemap")?;
        let mut first = template.spawn(&host)?;
        ask(&mut first)?;
        template.learn(&first, &mut scanner).context("learn from a clone")?;
        drop(first);
        Ok(Box::new(Self { host, template, scanner: RefCell::new(scanner) }))
    }
}

/// How a guest of a frozen one comes to its answer.
pub(crate) enum Way {
    /// A clone for each call.
    Clone(Box<Frozen>),
    /// One clone, put back after each call.
    Reset(Box<Frozen>, RefCell<Option<Box<Process>>>),
    /// From nothing, prepared anew.
    Start(Box<Hypervisor>, PathBuf, Vec<String>),
    /// A unikernel, from nothing.
    Unikernel(Box<Hypervisor>, Vec<u8>),
}

/// A way as an arm.
pub(crate) struct Guest {
    name: String,
    way: Way,
}

impl Guest {
    pub(crate) fn new(name: impl Into<String>, way: Way) -> Self {
        Self { name: name.into(), way }
    }

    fn call(&self) -> Result<Shot> {
        match &self.way {
            Way::Clone(frozen) => {
                let mut process = frozen.template.spawn(&frozen.host)?;
                let first = ask(&mut process)?;
                drop(process);
                Ok(Shot::plain(first))
            }
            Way::Reset(frozen, kept) => {
                let mut process = match kept.take().map(|kept| *kept) {
                    Some(process) => process,
                    None => frozen.template.spawn(&frozen.host)?,
                };
                let first = ask(&mut process)?;
                let reset = frozen.template.reset(process, &mut frozen.scanner.borrow_mut())?;
                kept.replace(Some(Box::new(reset.0)));
                Ok(Shot::plain(first))
            }
            Way::Start(host, dir, arguments) => {
                let mut process = start(host, dir, arguments)?;
                let first = ask(&mut process)?;
                drop(process);
                Ok(Shot::plain(first))
            }
            Way::Unikernel(host, file) => {
                let mut unikernel = Unikernel::new(host, file, b"")?;
                loop {
                    match unikernel.run(&mut |_| {})? {
                        Ended::Ready => unikernel.set_request(b"?".to_vec()),
                        Ended::Sent(_) => break,
                        ended => bail!("the unikernel did not answer: {ended:?}"),
                    }
                }
                let first = Instant::now();
                drop(unikernel);
                Ok(Shot::plain(first))
            }
        }
    }
}

impl Target for Guest {
    fn name(&self) -> &str {
        &self.name
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(async move { self.call() })
    }
}
