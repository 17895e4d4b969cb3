//! A client: it calls, deploys, removes and hangs up, one thing at a time, as its seed says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::epoch::{Epoch, Gate};
use crate::exchange::Request;
use crate::function::{Function, SECRET};
use crate::history::History;
use crate::own::OwnFunctions;
use crate::starts::Starts;
use crate::verdict::{Kills, Verdict, disconnected, judge, settle, unanswered};

/// What all clients share.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) functions: Vec<&'static Function>,
    pub(crate) gate: Gate,
    pub(crate) history: History,
    pub(crate) kills: Kills,
    /// Likewise of machines: apart, since they go many at a time.
    pub(crate) machine_kills: Kills,
    /// Likewise of connections, which go with the proxy.
    pub(crate) proxy_kills: Kills,
    pub(crate) starts: Starts,
    pub(crate) own: OwnFunctions,
    /// Calls begun; also their names.
    pub(crate) calls: AtomicU64,
    revision: AtomicU64,
}

impl Load {
    pub(crate) fn new(functions: Vec<&'static Function>) -> Self {
        Self {
            functions,
            gate: Gate::default(),
            history: History::new(),
            kills: Kills::default(),
            machine_kills: Kills::default(),
            proxy_kills: Kills::default(),
            starts: Starts::default(),
            own: OwnFunctions::default(),
            calls: AtomicU64::new(0),
            revision: AtomicU64::new(1),
        }
    }

    /// Gives a function its secret, which stays its own through all of its versions.
    pub(crate) fn tell_secret(&self, function: &Function, epoch: &Epoch) {
        let begun = Instant::now();
        let (key, value) = SECRET;
        let heard = epoch.way(true).exchange(&Request::secret(function.name, key, value));
        let verdict = settle(&heard, &[204], epoch);
        self.history.called("(secret)", 0, begun, &verdict, "");
    }

    /// Runs until the gate ends.
    pub(crate) fn client(&self, number: u32, mut rng: Rng) {
        while let Some(visit) = self.gate.enter() {
            match rng.u32(0..100) {
                0..3 => self.redeploy(&visit.epoch, &mut rng),
                3..9 => self.own.step(self, &visit.epoch, number, &mut rng),
                _ => {
                    let function = self.choose(&mut rng);
                    let unix = rng.bool();
                    let hang_up = (rng.u32(0..25) == 0).then(|| rng.u64(0..40));
                    match hang_up {
                        Some(after) => self.hang_up(function, &visit.epoch, unix, after, &mut rng),
                        None => self.call(function, &visit.epoch, unix, &mut rng),
                    }
                }
            }
        }
    }

    pub(crate) fn choose(&self, rng: &mut Rng) -> &'static Function {
        let mut at = rng.u32(0..self.functions.iter().map(|function| function.weight).sum());
        for function in &self.functions {
            if at < function.weight {
                return function;
            }
            at -= function.weight;
        }
        self.functions[0]
    }

    pub(crate) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls a function and judges its answer.
    pub(crate) fn call(
        &self,
        function: &'static Function,
        epoch: &Epoch,
        unix: bool,
        rng: &mut Rng,
    ) {
        let call = self.next_call();
        let event = function.event(call, rng);
        let begun = Instant::now();
        let heard = epoch.way(unix).exchange(&Request::call(function.name, &event));
        let expected = function.expected(call, &event);
        let kills = if function.is_machine() { &self.machine_kills } else { &self.kills };
        let mut verdict = judge(&expected, &heard, epoch, kills);
        if function.is_connected() && disconnected(&verdict, &heard) && self.proxy_kills.spend() {
            verdict = Verdict::Killed;
        }
        let timing = heard.map_or(String::new(), |answer| answer.timing);
        self.history.called(function.name, call, begun, &verdict, &timing);
        // What is to run out of time may do so before it has begun.
        if matches!(verdict, Verdict::Right) && !expected.is_late() {
            self.starts.answered(call, epoch.number, function.name);
        }
    }

    fn hang_up(
        &self,
        function: &'static Function,
        epoch: &Epoch,
        unix: bool,
        after_ms: u64,
        rng: &mut Rng,
    ) {
        let call = self.next_call();
        let event = function.event(call, rng);
        let begun = Instant::now();
        let asked = epoch.way(unix).ask(&Request::call(function.name, &event));
        let verdict = match asked {
            Ok(asked) => {
                std::thread::sleep(Duration::from_millis(after_ms));
                drop(asked);
                Verdict::HungUp
            }
            Err(why) => unanswered(why, epoch),
        };
        self.history.called(function.name, call, begun, &verdict, "");
    }

    /// Another version of a function, while others call the one of before.
    fn redeploy(&self, epoch: &Epoch, rng: &mut Rng) {
        let function = self.functions[rng.usize(0..self.functions.len())];
        self.deploy(function, epoch);
    }

    pub(crate) fn deploy(&self, function: &Function, epoch: &Epoch) {
        let revision = self.revision.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let request = Request::deploy(function.name, &function.source(revision));
        let heard = epoch.way(true).exchange(&request);
        let verdict = settle(&heard, &[200, 201], epoch);
        self.history.called("(deploy)", revision, begun, &verdict, "");
    }
}
