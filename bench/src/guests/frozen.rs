//! Guests that are started anew, cloned from a frozen one, or reset.

use std::cell::RefCell;

use anyhow::{Context as _, Result, ensure};
use microvm::linux::{Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::MemoryKind;
use microvm::memory::Scanner;

use super::{Answered, Program, ask};
use crate::load::{Pending, Shot, Target};

/// Where a guest is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// Loaded, before its first instruction.
    Loaded,
    /// Where it waits for the time of this number, from 1 on.
    Waiting(usize),
    /// Where it waits to be asked again, having answered once.
    Rehearsed,
}

/// A frozen guest.
pub(crate) struct Frozen {
    host: Hypervisor,
    template: Template,
    scanner: Scanner,
    /// Bytes until a clone answers.
    bytes: usize,
}

impl Frozen {
    /// Prepares one.
    pub(crate) fn make(program: &Program, point: Point) -> Result<Box<Self>> {
        let host = Hypervisor::open()?;
        let mut process = program.start(&host, MemoryKind::File)?;
        let bytes = match point {
            Point::Loaded => program.waits,
            Point::Waiting(number) => {
                process.feed(&vec![b'?'; number - 1]);
                ensure!(process.run()? == Pause::Idle, "the guest does not wait");
                program.waits + 1 - number
            }
            Point::Rehearsed => {
                ask(&mut process, program.waits)?;
                1
            }
        };
        let template = Template::seal(process)?;
        let scanner = Scanner::open().context("open the pagemap")?;
        Ok(Box::new(Self { host, template, scanner, bytes }))
    }

    /// Gives further clones at once what the first one touches until it has answered.
    pub(crate) fn learned(self: Box<Self>) -> Result<Box<Self>> {
        let mut first = self.spawn()?;
        first.watch()?;
        self.ask(&mut first)?;
        self.template.learn(&first, &self.scanner).context("learn from a clone")?;
        Ok(self)
    }

    /// A clone that has answered, to be kept.
    pub(crate) fn clone_that_answered(&self) -> Result<Process> {
        let mut clone = self.spawn()?;
        self.ask(&mut clone)?;
        Ok(clone)
    }

    fn spawn(&self) -> Result<Process> {
        self.template.spawn(&self.host).context("clone a guest")
    }

    fn ask(&self, process: &mut Process) -> Result<Answered> {
        ask(process, self.bytes)
    }
}

/// How a guest comes to its answer.
pub(crate) enum Way {
    /// A clone for each call.
    Clone(Box<Frozen>),
    /// One clone, put back after each call.
    Reset(Box<Frozen>, RefCell<Option<Box<Process>>>),
    /// From nothing, prepared anew; has answered so many times before.
    Start(Box<Hypervisor>, Program, usize),
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
        let answered = match &self.way {
            Way::Clone(frozen) => frozen.ask(&mut frozen.spawn()?)?,
            Way::Reset(frozen, kept) => {
                let mut process = match kept.take().map(|kept| *kept) {
                    Some(process) => process,
                    None => frozen.spawn()?,
                };
                let answered = frozen.ask(&mut process)?;
                let reset = frozen.template.reset(process, &frozen.scanner)?;
                kept.replace(Some(Box::new(reset.0)));
                answered
            }
            Way::Start(host, program, before) => {
                let mut process = program.start(host, MemoryKind::File)?;
                let mut answered = ask(&mut process, program.waits)?;
                for _ in 0..*before {
                    answered = ask(&mut process, 1)?;
                }
                answered
            }
        };
        // The machine of a clone or of a start is gone by now: that is in the total.
        Ok(Shot { own: answered.own, ..Shot::plain(answered.at) })
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
