//! What is broken, where, and when: a deck of faults, shuffled by the seed.
//!
//! Each light fault costs a sandbox or some time; each heavy one ends the worker. A fault strikes at a fault point,
//! where it holds a call for as long as it takes, or anywhere.

use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;

use crate::client::Load;
use crate::exchange::{Asked, Request};
use crate::hold::{Held, POINTS};
use crate::life::{End, Life};
use crate::victim::{self, Kind, Victim};

/// Light faults between two heavy ones.
const BETWEEN: usize = 16;

/// One stopped zygote in so many is stopped for so long: longer than anybody waits for its fork.
const STALLS: u8 = 12;
const STALL_MS: u64 = 12_000;

/// Calls that come at once.
const BURST: usize = 40;

/// More calls than are ever under way.
const MOST_CALLS: usize = 2 * BURST;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Light {
    /// Only held up.
    Delay,
    KillZygote,
    KillInstance,
    KillMonitor,
    KillProxy,
    StopZygote,
    StopInstance,
    StopMonitor,
    StopWarden,
    StopWorker,
    HangUp,
    Burst,
}

impl Light {
    const ALL: [Self; 12] = [
        Self::Delay,
        Self::KillZygote,
        Self::KillInstance,
        Self::KillMonitor,
        Self::KillProxy,
        Self::StopZygote,
        Self::StopInstance,
        Self::StopMonitor,
        Self::StopWarden,
        Self::StopWorker,
        Self::HangUp,
        Self::Burst,
    ];
}

type Place = Option<&'static str>;

/// The faults to come.
#[derive(Debug)]
pub(crate) struct Trouble {
    rng: Rng,
    light: Vec<(Place, Light)>,
    heavy: Vec<(Place, End)>,
    dealt: usize,
}

fn shuffled<T: Copy>(all: &[T], rng: &mut Rng) -> Vec<(Place, T)> {
    let places: Vec<Place> = POINTS.iter().copied().map(Some).chain([None; 4]).collect();
    let mut deck: Vec<_> =
        places.iter().flat_map(|place| all.iter().map(|one| (*place, *one))).collect();
    rng.shuffle(&mut deck);
    deck
}

impl Trouble {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, light: Vec::new(), heavy: Vec::new(), dealt: 0 }
    }

    /// One fault, and a breath before it. `heavy`: the worker may be ended.
    pub(crate) fn strike(&mut self, life: &mut Life, load: &Load, heavy: bool) {
        sleep(Duration::from_millis(self.rng.u64(20..600)));
        self.dealt += 1;
        if heavy && self.dealt.is_multiple_of(BETWEEN) {
            if self.heavy.is_empty() {
                self.heavy = shuffled(&End::ALL, &mut self.rng);
            }
            let (place, end) = self.heavy.pop().expect("it was just filled");
            let held = place.and_then(|point| life.holds().hold(point));
            let _breaking = load.history.breaking(format_args!("{end:?} {}", at(place, &held)));
            life.replace(end, held, load, &mut self.rng);
        } else {
            if self.light.is_empty() {
                self.light = shuffled(&Light::ALL, &mut self.rng);
            }
            let (place, light) = self.light.pop().expect("it was just filled");
            let asked = (light == Light::HangUp).then(|| self.ask(life, load));
            let held = place.and_then(|point| life.holds().hold(point));
            let _breaking = load.history.breaking(format_args!("{light:?} {}", at(place, &held)));
            self.light(light, held, life, load);
            drop(asked);
        }
    }

    fn light(&mut self, light: Light, held: Option<Held>, life: &Life, load: &Load) {
        let site = life.worker().site();
        let rng = &mut self.rng;
        let zygote = |rng: &mut Rng| victim::choose(site, Kind::Zygote, |many| rng.usize(0..many));
        let instance =
            |rng: &mut Rng| victim::choose(site, Kind::Instance, |many| rng.usize(0..many));
        let monitor =
            |rng: &mut Rng| victim::choose(site, Kind::Monitor, |many| rng.usize(0..many));
        match light {
            Light::Delay => sleep(Duration::from_millis(rng.u64(10..300))),
            Light::KillZygote => kill(zygote(rng), || ()),
            Light::KillInstance => kill(instance(rng), || load.kills.add(1)),
            // With it go all calls in its machines.
            Light::KillMonitor => kill(monitor(rng), || load.machine_kills.add(MOST_CALLS)),
            // With it go all connections, and instances that have a network.
            Light::KillProxy => kill(victim::proxy(site), || load.proxy_kills.add(MOST_CALLS)),
            Light::StopZygote => {
                let stalled = rng.u8(0..STALLS) == 0;
                stop(zygote(rng), if stalled { STALL_MS } else { rng.u64(10..1500) });
            }
            Light::StopInstance => stop(instance(rng), rng.u64(10..600)),
            Light::StopMonitor => stop(monitor(rng), rng.u64(10..1500)),
            Light::StopWarden => stop(Some(Victim::of(life.worker().warden())), rng.u64(10..400)),
            Light::StopWorker => stop(Some(Victim::of(life.worker().pid())), rng.u64(10..400)),
            // What was asked hangs up when this fault is over.
            Light::HangUp => {}
            Light::Burst => return burst(rng, held, life, load),
        }
        drop(held);
    }

    /// A call that will be hung up on, while it may be held.
    fn ask(&mut self, life: &Life, load: &Load) -> Option<Asked> {
        let function = load.choose(&mut self.rng);
        let event = function.event(load.next_call(), &mut self.rng);
        life.epoch().way(self.rng.bool()).ask(&Request::call(function.name, &event)).ok()
    }
}

fn kill(victim: Option<Victim>, before: impl FnOnce()) {
    if let Some(victim) = victim {
        before();
        victim.signal(Signal::KILL);
    }
}

fn stop(victim: Option<Victim>, milliseconds: u64) {
    if let Some(victim) = victim {
        victim.signal(Signal::STOP);
        sleep(Duration::from_millis(milliseconds));
        victim.signal(Signal::CONT);
    }
}

/// Many calls at once, more than the caches hold.
fn burst(rng: &mut Rng, held: Option<Held>, life: &Life, load: &Load) {
    std::thread::scope(|scope| {
        for _ in 0..BURST {
            let (function, mut own, unix) = (load.choose(rng), rng.fork(), rng.bool());
            scope.spawn(move || load.call(function, life.epoch(), unix, &mut own));
        }
        // They may wait for the place of whom it holds.
        drop(held);
    });
}

fn at(place: Place, held: &Option<Held>) -> String {
    match (place, held) {
        (None, _) => "at any time".to_owned(),
        (Some(point), Some(_)) => format!("at {point}"),
        (Some(point), None) => format!("at any time: nobody came to {point}"),
    }
}
