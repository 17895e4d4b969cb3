//! A call's way through the engine: to an instance that has loaded its handler, and to its answer.
//!
//! ```text
//!   admit ─┬─ an idle instance ─► wake ────────────────────────────────┐
//!          └─ a seat and a permit ─► import cache ─► fork ─► load ─────┴─► call ─► kept, or destroyed
//! ```
//!
//! | what fails | then |
//! | --- | --- |
//! | an idle instance has died | the next one, or a new one, serves the call |
//! | the zygote | it is dropped, and the next best one tried; in the end, a fresh interpreter |
//! | an instance is killed while it is made | another is made; the zygote stays |
//! | the host is short of something | idle instances are evicted, and it is tried again, once |
//! | anything later | the call fails; its instance is destroyed |

use std::sync::Arc;

use sandbox::{Instance, InstanceSpec, ProviderError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};

use super::{Engine, RELEASE_DELAY};
use crate::call::{Call, CallError, Outcome, Stage, Start};
use crate::handler::Handler;
use crate::import_cache::{CachedZygote, ImportTime, Pick};
use crate::instance::LoadedInstance;
use crate::journey::{Journey, looked};
use crate::lambda::{self, EXIT_ERROR};
use crate::relay::Relay;
use crate::scheduler::{Grant, Lease, Seat};

/// Zygotes that a call may lose before it goes on from none.
const MAX_LOSSES: usize = 3;

impl Engine {
    /// Takes a call through its stages.
    pub(super) async fn run(
        &self,
        call: &Call,
        journey: &mut Journey,
    ) -> Result<Outcome, CallError> {
        let (logs, handler) = (Arc::clone(&self.logs), Arc::clone(&call.handler));
        let allowed = (self.config.log_bytes, self.config.messages);
        let mut relay = Relay::new(logs, handler, call.id.clone(), allowed).keeping_tail(call.tail);
        let leased = self.lease(call, &mut relay, journey).await;
        let is_told = lambda::begin(call, leased.as_ref().err(), &mut relay);
        let result = match leased {
            Ok(leased) => self.answer(call, leased, &mut relay, journey).await,
            Err(error) => Err(error),
        };
        if is_told {
            lambda::end(call, &result, journey, &mut relay);
        }
        journey.tail = relay.take_tail();
        result
    }

    /// Calls the instance, and keeps it or destroys it.
    async fn answer(
        &self,
        call: &Call,
        (mut lease, deadline, watched): (Lease, Instant, Option<Pick>),
        relay: &mut Relay,
        journey: &mut Journey,
    ) -> Result<Outcome, CallError> {
        let begun = Instant::now();
        let result = journey.stage(Stage::Call, lease.instance.call(call, relay, deadline)).await;
        let is_lambda = call.handler.lambda.is_some();
        if is_lambda {
            journey.memory = lease.instance.weigh();
        }
        if let (Some(pick), Some(modules)) = (watched, lease.instance.seen()) {
            let took = ImportTime::Call(begun.elapsed().as_secs_f64() * 1e3);
            self.imports.learn(&call.handler, &pick, modules, took);
        }
        let is_of_use = match &result {
            Ok(_) => true,
            // What filled its memory it may hold for good: the calls that follow would find none
            // either.
            Err(CallError::Raised(failure)) => {
                let ends = is_lambda && failure.error_type == EXIT_ERROR;
                !ends && !failure.is_of_memory()
            }
            Err(_) => false,
        };
        if is_of_use {
            self.scheduler.keep(lease);
        } else {
            self.scheduler.destroy(lease);
        }
        result
    }

    /// An instance that has loaded the handler, when its call must be done, and, for one that is to
    /// say what its first call imports, where it came from.
    async fn lease(
        &self,
        call: &Call,
        relay: &mut Relay,
        journey: &mut Journey,
    ) -> Result<(Lease, Instant, Option<Pick>), CallError> {
        let handler = &*call.handler;
        loop {
            let (seat, permit) =
                match journey.stage(Stage::Admit, self.scheduler.admit(handler)).await? {
                    Grant::Room(seat, permit) => (seat, permit),
                    Grant::Idle(lease) => {
                        if journey.stage(Stage::HandlerCache, async { lease.instance.wake() }).await
                        {
                            looked("handler", true);
                            journey.start = Some(Start::Resume);
                            return Ok((lease, Instant::now() + handler.timeout, None));
                        }
                        // It died while it was idle. Nothing was sent to it: another may serve the
                        // call.
                        tracing::debug!("an idle instance had died");
                        continue;
                    }
                };
            looked("handler", false);
            return self.make(call, seat, permit, relay, journey).await;
        }
    }

    /// Makes an instance and has it load the handler; as [`Engine::lease`] returns it.
    pub(super) async fn make(
        &self,
        call: &Call,
        seat: Seat,
        permit: OwnedSemaphorePermit,
        relay: &mut Relay,
        journey: &mut Journey,
    ) -> Result<(Lease, Instant, Option<Pick>), CallError> {
        let handler = &*call.handler;
        let (sandbox, pick) = self.create(handler, journey).await?;
        let deadline = Instant::now() + handler.timeout;
        // Not before it has its seat: see `SecretStore`.
        let secrets = self.secrets.read(handler).map_err(CallError::NoSecrets)?;
        let (observe, pages) = (pick.observe, pick.pages());
        let opened = LoadedInstance::open(sandbox, call, secrets, observe, pages, &self.config);
        let instance = opened.map_err(|error| {
            CallError::NoSandbox(ProviderError::step("open the channel")(error))
        })?;
        let mut lease = Lease { instance, seat };
        drop(permit);
        let begun = Instant::now();
        let said = journey
            .stage(Stage::Load, lease.instance.load(relay, deadline, handler.timeout))
            .await?;
        // Its own word does not count what this machine's load makes it wait, and is no more than
        // what it took.
        let milliseconds = said.min(begun.elapsed().as_secs_f64() * 1e3);
        lease.instance.made_in_ms = journey.made_in_ms().unwrap_or_default();
        if let Some(modules) = lease.instance.seen() {
            self.imports.learn(handler, &pick, modules, ImportTime::Load(milliseconds));
        }
        Ok((lease, deadline, Some(pick).filter(|pick| pick.observe)))
    }

    /// Makes an instance. A zygote that fails is given up, and the next best one tried; when
    /// several did, or the call has waited for as long as it may run, it goes on from a fresh
    /// interpreter.
    async fn create(
        &self,
        handler: &Handler,
        journey: &mut Journey,
    ) -> Result<(Box<dyn Instance>, Pick), CallError> {
        let begun = Instant::now();
        let (mut lost, mut shed) = (0, false);
        loop {
            let fresh = lost >= MAX_LOSSES || (lost > 0 && begun.elapsed() >= handler.timeout);
            let error = match self.attempt(handler, fresh, journey).await {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            match &error {
                ProviderError::ZygoteLost { .. }
                | ProviderError::Killed { .. }
                | ProviderError::Impostor { .. }
                    if !fresh =>
                {
                    lost += 1;
                }
                ProviderError::Exhausted { .. } if !shed && self.scheduler.shed() > 0 => {
                    shed = true;
                    sleep(RELEASE_DELAY).await;
                }
                _ => return Err(CallError::NoSandbox(error)),
            }
        }
    }

    async fn attempt(
        &self,
        handler: &Handler,
        fresh: bool,
        journey: &mut Journey,
    ) -> Result<(Box<dyn Instance>, Pick), ProviderError> {
        let pick = if fresh {
            Pick::fresh()
        } else {
            journey.stage(Stage::ImportCache, self.imports.pick(handler)).await?
        };
        looked("import", pick.exact);
        let start = if pick.cold { Start::Cold } else { Start::Fork };
        let made = journey.stage(Stage::Fork, self.fork(handler, pick.zygote.as_deref())).await;
        match (&made, &pick.zygote) {
            (Ok(_), zygote) => {
                journey.start = Some(start);
                zygote.iter().for_each(|cached| cached.forked());
            }
            (
                Err(error @ (ProviderError::ZygoteLost { .. } | ProviderError::Impostor { .. })),
                Some(cached),
            ) => {
                self.imports.lose(cached, &error.to_string());
            }
            _ => {}
        }
        Ok((made?, pick))
    }

    async fn fork(
        &self,
        handler: &Handler,
        from: Option<&CachedZygote>,
    ) -> Result<Box<dyn Instance>, ProviderError> {
        let spec = InstanceSpec {
            kind: handler.kind,
            reset: handler.reset,
            python: handler.python.clone(),
            // The directory of its layers has them, too.
            packages: handler.packages.clone().filter(|_| handler.opt.is_none()),
            code: handler.code.clone(),
            opt: handler.opt.clone(),
            network: handler.network,
            egress: Arc::clone(&handler.egress),
            owner: format!("{}/{}", handler.tenant, handler.name).into(),
            limits: handler.limits,
        };
        let limit = self.config.creation_timeout;
        match from {
            Some(cached) => timeout(limit, cached.zygote.fork(spec)).await.unwrap_or_else(|_| {
                let reason = format!("no answer within {} s", limit.as_secs_f64());
                Err(ProviderError::ZygoteLost { id: cached.zygote.id(), reason })
            }),
            None => {
                timeout(limit, self.provider.create_instance(spec)).await.unwrap_or_else(|_| {
                    let source = std::io::ErrorKind::TimedOut.into();
                    Err(ProviderError::Step { step: "start an interpreter", source })
                })
            }
        }
    }
}
