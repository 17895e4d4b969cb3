//! An instance that was sent its handler's code, and the conversation with it.
//!
//! ```text
//!   open ─► load ─► call ─► rest ─► pause ─► wake ─► call ─► …
//!     └──────┴───────┴── dropped: destroyed
//! ```
//!
//! Only a call that ended well leaves its instance in use. Every other way out of a call, a dropped
//! future included, drops the instance and so destroys the sandbox. A parked instance therefore
//! never has anything in flight.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sandbox::wire::{Load, LogStream, Reply, Request};
use sandbox::{Death, Instance, ProviderError};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::call::{Call, CallError, Outcome, STREAM_BYTES};
use crate::config::EngineConfig;
use crate::conversation::{Conversation, ConversationError, unexpected};
use crate::lambda;
use crate::pages::Pages;
use crate::relay::Relay;
use crate::secrets::SecretEnvironment;

/// Longest wait for a dead sandbox's cause of death: the warden may be busy on a machine under
/// load.
const AUTOPSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for the last output of an instance that is destroyed: its caller waits as well.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Most modules that a handler may say it imported, and the longest name among them. Large package
/// sets load some five thousand.
const MAX_MODULES: usize = 20_000;
const MAX_MODULE_BYTES: usize = 255;

/// Of the processes and threads that a handler may have, one pool of threads gets the fourth part
/// at most.
const POOL_PART: u32 = 4;

/// An instance and its channel.
#[derive(Debug)]
pub(crate) struct LoadedInstance {
    talk: Box<Conversation>,
    pausable: Arc<PausableSandbox>,
    /// What it said that it imported, since that was asked last; none: it did not say.
    seen: Option<Vec<String>>,
    /// Those of the zygote that it was forked from: it keeps them from being freed.
    pub(crate) pages: Option<Arc<Pages>>,
    /// Milliseconds that making it took: what it saves whenever it is called instead.
    pub(crate) made_in_ms: f64,
}

/// The sandbox of an instance; the task that pauses it holds on to it, too.
#[derive(Debug)]
pub(crate) struct PausableSandbox {
    sandbox: Box<dyn Instance>,
    limit_bytes: u64,
    run_state: Mutex<RunState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunState {
    /// A call is using it.
    Busy,
    /// Idle and running, to be paused.
    Idle,
    /// Idle and paused.
    Paused,
}

impl LoadedInstance {
    /// Takes the channel of a new instance and sends it its code's name. `observe`: it is to say
    /// what it imports; `pages`: those of the zygote that it was forked from.
    pub(crate) fn open(
        mut sandbox: Box<dyn Instance>,
        call: &Call,
        secrets: SecretEnvironment,
        observe: bool,
        pages: Option<Arc<Pages>>,
        config: &EngineConfig,
    ) -> io::Result<Self> {
        let mut load = load(call, observe, config.pool_threads);
        for (name, mut value) in secrets {
            // Moved, not copied.
            load.environment.insert(name, std::mem::take(&mut *value));
        }
        let mut load = Request::Load(load);
        let (channel, output) = (sandbox.connect()?, sandbox.output());
        let talk = Conversation::open(channel, output, config.reply_bytes, &load);
        if let Request::Load(load) = &mut load {
            load.environment.values_mut().for_each(zeroize::Zeroize::zeroize);
        }
        let talk = Box::new(talk?);
        let pausable = Arc::new(PausableSandbox {
            sandbox,
            limit_bytes: call.handler.limits.charged_bytes(),
            run_state: Mutex::new(RunState::Busy),
        });
        Ok(Self { talk, pausable, seen: None, pages, made_in_ms: 0.0 })
    }

    /// What it said that it imported from its packages, since that was asked last.
    pub(crate) fn seen(&mut self) -> Option<Vec<String>> {
        self.seen.take()
    }

    /// Waits until the code is imported. The milliseconds that it says this took.
    pub(crate) async fn load(
        &mut self,
        relay: &mut Relay,
        deadline: Instant,
        limit: Duration,
    ) -> Result<f64, CallError> {
        let loaded = self.loaded(relay, deadline, limit).await;
        self.hear_out(loaded.as_ref().err(), relay, "").await;
        loaded
    }

    async fn loaded(
        &mut self,
        relay: &mut Relay,
        deadline: Instant,
        limit: Duration,
    ) -> Result<f64, CallError> {
        loop {
            match self.hear(relay, "", deadline, limit).await? {
                (Reply::Ready { .. }, _) => {}
                (Reply::Loaded { milliseconds }, _) => return Ok(milliseconds),
                (Reply::Failed { id, failure }, _) if id.is_empty() => {
                    return Err(CallError::NotLoaded(failure));
                }
                (other, _) => return Err(self.explain(unexpected(&other)).await),
            }
        }
    }

    /// Calls the handler and waits for its answer.
    pub(crate) async fn call(
        &mut self,
        call: &Call,
        relay: &mut Relay,
        deadline: Instant,
    ) -> Result<Outcome, CallError> {
        let answered = self.answered(call, relay, deadline).await;
        self.hear_out(answered.as_ref().err(), relay, call.id.as_str()).await;
        answered
    }

    async fn answered(
        &mut self,
        call: &Call,
        relay: &mut Relay,
        deadline: Instant,
    ) -> Result<Outcome, CallError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let invoke = Request::Invoke {
            id: call.id.to_string(),
            remaining_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            content_type: call.content_type.clone(),
            lambda: call.lambda.clone().filter(|_| call.handler.lambda.is_some()),
        };
        if let Err(broken) = self.talk.send(&invoke, &call.body) {
            return Err(self.explain(broken).await);
        }
        let limit = call.handler.timeout;
        let mut parts = call.parts.as_ref().map(|sink| Parts { sink, taken: 0 });
        loop {
            let (reply, body) = self.hear(relay, call.id.as_str(), deadline, limit).await?;
            if let (Reply::Part { id }, Some(parts)) = (&reply, &mut parts)
                && id == call.id.as_str()
            {
                let taken = timeout_at(deadline, parts.take(body)).await;
                taken.map_err(|_| CallError::TimedOut { limit })??;
                continue;
            }
            return match reply {
                Reply::Done { id, content_type } if id == call.id.as_str() => {
                    Ok(Outcome { body: Bytes::from(body), content_type })
                }
                Reply::Failed { id, failure } if id == call.id.as_str() => {
                    Err(CallError::Raised(failure))
                }
                other => Err(self.explain(unexpected(&other)).await),
            };
        }
    }

    /// What it says next, its imports aside.
    async fn hear(
        &mut self,
        relay: &mut Relay,
        during: &str,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(Reply, Vec<u8>), CallError> {
        loop {
            // `timeout_at` asks the channel first: who has always said something more is never
            // waited for.
            if Instant::now() >= deadline {
                return Err(CallError::TimedOut { limit });
            }
            match timeout_at(deadline, self.talk.reply(relay, during)).await {
                Ok(Ok((Reply::Imports {}, names))) => self.seen = Some(modules(&names)),
                Ok(Ok(heard)) => return Ok(heard),
                Ok(Err(broken)) => return Err(self.explain(broken).await),
                Err(_) => return Err(CallError::TimedOut { limit }),
            }
        }
    }

    /// Passes on what its guest can tell no more, when it is given up for this error.
    async fn hear_out(&mut self, error: Option<&CallError>, relay: &mut Relay, during: &str) {
        let is_given_up = error.is_some_and(|error| {
            use CallError::{BadAnswer, Died, TimedOut, TooLong};
            matches!(error, TimedOut { .. } | Died(_) | BadAnswer(_) | TooLong { .. })
        });
        if !is_given_up {
            return;
        }
        self.talk.hear_out(relay, during);
        let untold = self.pausable.sandbox.untold();
        if let Ok(Ok(said)) = tokio::time::timeout(LAST_OUTPUT_TIMEOUT, untold).await {
            relay.pass(during.to_owned(), LogStream::Stderr, said, 0);
        }
    }

    async fn explain(&self, broken: ConversationError) -> CallError {
        match broken {
            ConversationError::Protocol(what) => CallError::BadAnswer(what),
            ConversationError::TooLong { length, limit } => CallError::TooLong { length, limit },
            ConversationError::Closed => {
                match tokio::time::timeout(AUTOPSY_TIMEOUT, self.pausable.sandbox.autopsy()).await {
                    Ok(Ok(death)) => CallError::Died(death),
                    // All sandboxes end with the warden: it was not the handler's doing.
                    Ok(Err(ProviderError::WardenGone)) => CallError::Lost,
                    Ok(Err(_)) | Err(_) => CallError::Died(Death::Unknown),
                }
            }
        }
    }

    /// Bytes that it costs; its limit where the host cannot tell.
    pub(crate) fn weigh(&self) -> u64 {
        self.pausable.weigh()
    }

    /// From now on it may be paused.
    pub(crate) fn rest(&self) -> Arc<PausableSandbox> {
        self.pausable.set(RunState::Idle);
        Arc::clone(&self.pausable)
    }

    /// Takes it for a call again, running. False: it is of no use, drop it.
    pub(crate) fn wake(&self) -> bool {
        let mut run_state = self.pausable.run_state.lock().unwrap_or_else(PoisonError::into_inner);
        if *run_state == RunState::Paused && self.pausable.sandbox.resume().is_err() {
            return false;
        }
        *run_state = RunState::Busy;
        // Asked before anything is sent to it, so that a call is never lost in a dead instance's
        // channel.
        self.pausable.sandbox.alive()
    }
}

/// The parts of an answer that go out as they come.
#[derive(Debug)]
struct Parts<'a> {
    sink: &'a mpsc::Sender<Bytes>,
    taken: usize,
}

impl Parts<'_> {
    /// Passes a part on, waiting until there is room for it.
    async fn take(&mut self, part: Vec<u8>) -> Result<(), CallError> {
        self.taken = self.taken.saturating_add(part.len());
        if self.taken > STREAM_BYTES {
            return Err(CallError::TooLong { length: self.taken, limit: STREAM_BYTES });
        }
        // Who waited for it may be gone: then the call ends soon.
        drop(self.sink.send(Bytes::from(part)).await);
        Ok(())
    }
}

impl PausableSandbox {
    /// Pauses it, unless a call took it meanwhile: then false.
    ///
    /// Under the lock: a call that takes it at this moment must find it either paused or not, never
    /// half-way.
    pub(crate) fn pause(&self) -> io::Result<bool> {
        let mut run_state = self.run_state.lock().unwrap_or_else(PoisonError::into_inner);
        if *run_state == RunState::Idle {
            self.sandbox.pause()?;
            *run_state = RunState::Paused;
        }
        Ok(*run_state == RunState::Paused)
    }

    /// Bytes that it costs; its limit where the host cannot tell.
    pub(crate) fn weigh(&self) -> u64 {
        self.sandbox.memory().unwrap_or(self.limit_bytes)
    }

    fn set(&self, to: RunState) {
        *self.run_state.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

/// The names that a guest says, one a line; what no module can be called is left out, and so is
/// what is beyond bounds.
fn modules(names: &[u8]) -> Vec<String> {
    let names = names.split(|byte| *byte == b'\n').filter_map(|name| str::from_utf8(name).ok());
    let plausible = |name: &&str| !name.is_empty() && name.len() <= MAX_MODULE_BYTES;
    names.filter(plausible).take(MAX_MODULES).map(str::to_owned).collect()
}

fn load(call: &Call, observe: bool, threads: u32) -> Load {
    let handler = &*call.handler;
    Load {
        module: handler.module.clone(),
        function: handler.function.clone(),
        convention: handler.convention,
        name: handler.name.clone(),
        version: match handler.lambda {
            Some(_) => lambda::version(call).to_owned(),
            None => handler.id.to_string(),
        },
        memory_mb: handler.limits.memory_bytes >> 20,
        environment: handler.environment.clone(),
        binary: handler.binary,
        // As many as leave room for the handler's own among its processes.
        threads: threads.min(handler.limits.pids / POOL_PART).max(1),
        observe,
        entries: handler.entries.clone(),
        lambda: handler.lambda.clone(),
    }
}
