//! Everything at once, on several threads: whatever happens, the counts match in the end.

mod world;

use std::sync::Arc;
use std::time::Duration;

use engine::{CallError, EngineConfig, Handler};
use sandbox::fake::{FakeSettings, Fault, Operation};
use world::{World, eventually, handler, packaged};

/// A small generator of numbers, so that a failing seed can be run again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn handlers() -> Vec<Arc<Handler>> {
    let modules = [
        "echo",
        "sleep:3",
        "raise",
        "exit:1",
        "garbage",
        "unloadable",
        "print",
        "sleep:100",
        "exit-after:2",
    ];
    let mut all = Vec::new();
    for (number, module) in (0u32..).zip(modules) {
        let plain =
            Handler { concurrency: number % 3 + 1, ..handler(&format!("p{number}"), module) };
        let set = format!("set{}", number % 4);
        let import = if number % 4 == 3 { "threads" } else { "numpy" };
        let packed = packaged(&format!("k{number}"), module, &set, &[import]);
        all.push(Arc::new(Handler { timeout: Duration::from_millis(50), ..plain }));
        all.push(Arc::new(packed));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_cancellations_faults_and_deletions_leave_no_sandbox_seat_or_permit_behind() {
    for seed in 1..=3 {
        let mut dice = Dice(seed);
        let config = EngineConfig {
            handler_cache_bytes: 6 << 20,
            zygote_bytes: 24 << 20,
            creations: 3,
            queue: 40,
            queue_timeout: Duration::from_millis(200),
            creation_timeout: Duration::from_millis(100),
            idle: Duration::from_millis(100),
            zygote_retry: Duration::from_millis(20),
            ..EngineConfig::default()
        };
        let world = World::with(
            config,
            FakeSettings { fork: Duration::from_millis(1), ..FakeSettings::default() },
        );
        let faults = [Fault::Exhausted, Fault::Lost, Fault::Impostor, Fault::Step, Fault::Hang];
        for fault in faults {
            for operation in [Operation::Fork, Operation::Derive, Operation::CreateZygote] {
                world.provider.fail(operation, 1 + dice.roll(40), fault);
            }
        }
        let handlers = handlers();
        let mut calls = Vec::new();
        for _ in 0..600 {
            let at = usize::try_from(dice.roll(handlers.len() as u64)).unwrap();
            match dice.roll(40) {
                0 => world.engine.forget(&handlers[at].id).await,
                1 => world.provider.kill_instances(),
                2 => world.provider.kill_zygotes(),
                _ => {}
            }
            let call = world.spawn(&handlers[at]);
            if dice.roll(5) == 0 {
                let after = Duration::from_micros(dice.roll(8000));
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    call.abort();
                });
            } else {
                calls.push(call);
            }
            if dice.roll(3) == 0 {
                tokio::time::sleep(Duration::from_micros(dice.roll(1500))).await;
            }
        }
        let mut done = 0;
        for call in calls {
            match call.await.unwrap().result {
                Ok(_) => done += 1,
                Err(CallError::Stopping) => panic!("it is not being stopped"),
                Err(_) => {}
            }
        }
        assert!(done > 50, "only {done} calls were served");
        eventually("no call is busy or waits, and idle instances expire", || {
            let status = world.engine.status();
            let instances = status.instances;
            (status.calls, status.waiting, status.handlers) == (0, 0, 0)
                && (instances.busy, instances.idle, instances.idle_bytes, instances.creating)
                    == (0, 0, 0, 0)
                && world.census().instances == 0
        })
        .await;
        assert_eq!(world.census().misuses, 0);
        // Nothing is stuck: the same engine goes on.
        world.call(&Arc::new(handler("after", "echo"))).await.result.unwrap();
        world.engine.stop(Duration::from_secs(5)).await;
        let census = world.census();
        assert_eq!((census.instances, census.zygotes, census.paused), (0, 0, 0), "seed {seed}");
    }
}
