//! Clones that answer every call from the same state: `reset = "always"`.
//!
//! ```text
//!   reference ─ clone ─► load ─ settle ─ freeze ─► Function ─ clone ─► wake ─► call ─► answer ┐
//!                                                                        ▲                    │ after the
//!                                                                        └────── reset ◄──────┘ reply
//! ```
//!
//! The code is loaded once for all clones of a function; each clone repeats what was sent
//! meanwhile. A machine that cannot be reset is dropped, and cloned anew.

use std::ops::ControlFlow;
use std::sync::Arc;

use microvm::linux::{Pause, Process, Template};
use sandbox::wire::{Decoder, Reply};

use super::conversation::{Answer, Boundary};
use super::function::{Function, LoadKey};
use super::reference::{GuestOrder, MonitorError};
use super::running::{End, RunningClone, WeightReporter, wake};
use crate::message::Event;

/// Bytes read at a time.
const READ: usize = 16 << 10;
/// Bytes of a reply to `load` that is examined.
const REPLY_BYTES: usize = 64 << 20;

/// The outcome of loading.
enum LoadOutcome {
    /// The code is loaded, and can be called.
    Loaded(Arc<Function>),
    /// It is not; the guest sent these bytes.
    Failed(Vec<u8>),
    /// The guest ended, or the clone's channel closed.
    Over(End),
}

/// Runs on the clone's own thread, to its end.
pub(super) fn live(clone: &RunningClone) -> Result<End, MonitorError> {
    clone.family.tell(&Event::Cloned { number: clone.number });
    let mut input = Input { boundary: Boundary::default(), ahead: Vec::new() };
    let mut message = Vec::new();
    while message.is_empty() || !input.boundary.is_between() {
        match input.read(clone) {
            Some(bytes) => message.extend(bytes),
            None => return Ok(None),
        }
    }
    let layers = clone.layers.iter().map(|(place, _)| place.clone()).collect();
    let loading = LoadKey::new(layers, &message, clone.limits);
    let mut scale = WeightReporter::default();
    let function = match clone.family.loaded(&loading) {
        Some(function) => function,
        None => match load(clone, &message)? {
            LoadOutcome::Loaded(function) => {
                clone.family.share(loading, &function);
                function
            }
            LoadOutcome::Failed(said) => {
                clone.channel.write(&said);
                clone.channel.outlast();
                return Ok(None);
            }
            LoadOutcome::Over(end) => return Ok(end),
        },
    };
    drop(message);
    if !clone.channel.write(&function.said) {
        return Ok(None);
    }
    let mut process = clone.spawn(&function.template)?;
    loop {
        if let ControlFlow::Break(end) = call(clone, &mut input, &mut process)? {
            return Ok(end);
        }
        scale.note(clone, &process);
        scale.weigh(clone, &process);
        process = match function.template.reset(process, &clone.family.scanner) {
            Ok((mut process, _)) => {
                wake(&mut process);
                process
            }
            // Before Linux 6.7 machines cannot be reset.
            Err(_) => clone.spawn(&function.template)?,
        };
    }
}

/// Loads the code into a clone of the reference machine and freezes that.
fn load(clone: &RunningClone, message: &[u8]) -> Result<LoadOutcome, MonitorError> {
    let mut process = clone.spawn(&clone.family.template)?;
    for (place, branch) in &clone.layers {
        process.attach(&place.at, Arc::clone(branch)).map_err(MonitorError::Attach)?;
    }
    process.feed(message);
    let heard = hear(clone, &mut process);
    clone.family.note_missing_calls(&process);
    let mut said = match heard? {
        GuestOutput::Said(said) => said,
        GuestOutput::Over(end) => return Ok(LoadOutcome::Over(end)),
    };
    if said.len() > REPLY_BYTES {
        return Ok(LoadOutcome::Failed(said));
    }
    if !is_loaded(&said) {
        return Ok(LoadOutcome::Failed(said));
    }
    process.feed(&GuestOrder::Settle {}.encoded()?);
    match hear(clone, &mut process)? {
        // Threads of the guest may have sent something; settling has no answer.
        GuestOutput::Said(more) => said.extend(more),
        GuestOutput::Over(end) => return Ok(LoadOutcome::Over(end)),
    }
    let template = Template::seal_clone(process, &clone.family.scanner)?;
    Ok(LoadOutcome::Loaded(Arc::new(Function { template, said })))
}

/// The guest's output before it waits for its channel.
enum GuestOutput {
    /// All of it, or more than is examined.
    Said(Vec<u8>),
    /// The guest ended, or the clone's channel closed.
    Over(End),
}

fn hear(clone: &RunningClone, process: &mut Process) -> Result<GuestOutput, MonitorError> {
    let mut said = Vec::new();
    loop {
        let pause = process.run()?;
        said.extend(process.take_said());
        drop(process.take_output());
        if said.len() > REPLY_BYTES {
            return Ok(GuestOutput::Said(said));
        }
        let end = match pause {
            Pause::Spoke => continue,
            Pause::Idle => return Ok(GuestOutput::Said(said)),
            Pause::Stopped if clone.hold.outlast() => continue,
            Pause::Stopped => None,
            Pause::Stuck => {
                clone.channel.outlast();
                None
            }
            Pause::Exited(status) => Some(sandbox::Death::Exited(status)),
            Pause::Killed(signal, _) => Some(sandbox::Death::Signal(signal)),
            Pause::OutOfMemory => Some(sandbox::Death::OutOfMemory),
        };
        if end.is_some() {
            clone.note_last_words(process);
        }
        return Ok(GuestOutput::Over(end));
    }
}

/// Whether the guest said that the code is loaded.
fn is_loaded(said: &[u8]) -> bool {
    let mut decoder = Decoder::new(REPLY_BYTES);
    decoder.push(said);
    while let Ok(Some(frame)) = decoder.next_frame() {
        if let Ok((Reply::Loaded { .. }, _)) = Reply::decode(frame) {
            return true;
        }
    }
    false
}

/// One call, from its first byte to its answer. What the guest would do after that is lost: it is
/// no part of the next call, and does not end the machine.
fn call(
    clone: &RunningClone,
    input: &mut Input,
    process: &mut Process,
) -> Result<ControlFlow<End>, MonitorError> {
    // The work of waking is done before a call comes.
    if let ControlFlow::Break(end) = clone.run(process)? {
        return Ok(ControlFlow::Break(end));
    }
    let mut answer = Answer::default();
    loop {
        let Some(bytes) = input.read(clone) else { return Ok(ControlFlow::Break(None)) };
        // The rest of a call that was answered before it was read is dropped.
        if !answer.is_whole() {
            process.feed(&bytes);
            if let ControlFlow::Break(end) = clone.run_until(process, Some(&mut answer))? {
                return Ok(ControlFlow::Break(end));
            }
        }
        if input.boundary.is_between() {
            return Ok(ControlFlow::Continue(()));
        }
    }
}

/// Bytes of the worker's, cut at the ends of frames.
#[derive(Debug)]
struct Input {
    boundary: Boundary,
    /// Bytes that were read already, of the next frame.
    ahead: Vec<u8>,
}

impl Input {
    /// The next bytes, up to the end of a frame at most. None: the other end is closed.
    fn read(&mut self, clone: &RunningClone) -> Option<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.ahead);
        if bytes.is_empty() {
            bytes.resize(READ, 0);
            let count = clone.hold.read(&clone.channel, &mut bytes);
            bytes.truncate(count);
        }
        if bytes.is_empty() {
            return None;
        }
        let taken = self.boundary.take(&bytes);
        self.ahead = bytes.split_off(taken);
        Some(bytes)
    }
}
