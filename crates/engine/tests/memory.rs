//! The one memory budget: idle instances and zygotes under it together, under pressure, and with age.

mod world;

use std::sync::Arc;
use std::time::Duration;

use engine::{EngineConfig, Handler, Pressure, Start, ZygotePolicy};
use sandbox::fake::{FakeSettings, Operation, Recorded};
use world::{World, eventually, handler, packaged};

const MIB: u64 = 1 << 20;

const SHORT: Pressure = Pressure { stalled: Some(0.5), available: 0.01 };
const CALM: Pressure = Pressure { stalled: Some(0.0), available: 0.5 };

/// Zygotes weigh 8 MiB each and instances 4 MiB; importing any of `names` takes 20 ms.
fn world(config: EngineConfig, names: &[&str]) -> World {
    let settings = FakeSettings { instance_bytes: Some(4 * MIB), ..FakeSettings::default() };
    let world = World::with(config, settings);
    let cost = Recorded { milliseconds: 20.0, ..Recorded::default() };
    let costs = names.iter().map(|name| ((*name).to_owned(), cost.clone()));
    world.provider.record(costs.collect());
    world
}

fn of_its_own(name: &str, module: &str) -> Arc<Handler> {
    Arc::new(packaged(name, module, name, &[name]))
}

/// Until everything that is idle is paused and weighed and what is too much is gone.
async fn settled(world: &World, budget: u64) {
    eventually("all is weighed and fits", || {
        let status = world.engine.status();
        let zygotes: u64 = status.zygotes.iter().map(|zygote| zygote.memory_bytes).sum();
        let sum = zygotes + status.instances.idle_bytes + status.memory.left_bytes;
        let weighed = status.instances.idle_bytes == 4 * MIB * status.instances.idle as u64;
        weighed && status.memory.used_bytes == sum && sum <= budget
    })
    .await;
}

#[tokio::test]
async fn idle_instances_and_zygotes_are_within_one_budget_whatever_is_called() {
    let budget = 50 * MIB;
    for zygotes in [ZygotePolicy::Utility, ZygotePolicy::Paper, ZygotePolicy::None] {
        let config = EngineConfig { memory_bytes: budget, zygotes, ..EngineConfig::default() };
        let names: Vec<String> = (0..7).map(|n| format!("p{n}")).collect();
        let world = world(config, &names.iter().map(|name| &**name).collect::<Vec<_>>());
        let (mut most_idle, mut most_zygotes) = (0, 0);
        for round in 0..14 {
            let handler = of_its_own(&format!("p{}", round % 7), "echo");
            if zygotes != ZygotePolicy::None {
                world.engine.prepare(&handler).await;
            }
            world.call(&handler).await.result.unwrap();
            settled(&world, budget).await;
            let status = world.engine.status();
            most_idle = most_idle.max(status.instances.idle);
            most_zygotes = most_zygotes.max(status.zygotes.len());
        }
        assert!(most_idle >= 3, "{zygotes:?} kept {most_idle} instances at most");
        assert!(most_zygotes >= 3 || zygotes == ZygotePolicy::None, "{zygotes:?}: {most_zygotes}");
    }
}

#[tokio::test]
async fn an_instance_that_is_called_again_and_again_outlives_all_that_come_once() {
    let config = EngineConfig { memory_bytes: 40 * MIB, ..EngineConfig::default() };
    let world = world(config, &["often"]);
    let often = of_its_own("often", "echo");
    world.engine.prepare(&often).await;
    for _ in 0..50 {
        world.call(&often).await.result.unwrap();
    }
    for n in 0..20 {
        world.call(&of_its_own(&format!("once{n}"), "echo")).await.result.unwrap();
        settled(&world, 40 * MIB).await;
    }
    assert_eq!(world.call(&often).await.start, Some(Start::Resume));
}

#[tokio::test]
async fn what_a_dead_zygote_left_with_its_instances_counts_until_they_are_gone() {
    let world = world(EngineConfig::default(), &["one"]);
    let one = of_its_own("one", "echo");
    world.engine.prepare(&one).await;
    world.call(&one).await.result.unwrap();
    settled(&world, u64::MAX).await;
    assert_eq!(world.engine.status().memory.left_bytes, 0);
    world.provider.kill_zygotes();
    eventually("it is found dead", || world.engine.status().memory.left_bytes == 16 * MIB).await;
    world.engine.forget(&one.id).await;
    eventually("nothing is left", || world.engine.status().memory.left_bytes == 0).await;
}

#[tokio::test]
async fn a_zygotes_pages_that_an_instance_holds_are_given_back_by_giving_up_that_instance() {
    // The two zygotes and the instance fit; what the dead zygotes leave with the instance does not fit beside a new root.
    let config = EngineConfig { memory_bytes: 24 * MIB, ..EngineConfig::default() };
    let world = world(config, &["one"]);
    let one = of_its_own("one", "echo");
    world.engine.prepare(&one).await;
    world.call(&one).await.result.unwrap();
    settled(&world, 24 * MIB).await;
    assert_eq!(world.engine.status().instances.idle, 1);
    world.provider.kill_zygotes();
    world.call(&Arc::new(handler("other", "echo"))).await.result.unwrap();
    settled(&world, 24 * MIB).await;
    eventually("nothing is left", || world.engine.status().memory.left_bytes == 0).await;
}

#[tokio::test]
async fn what_is_busy_is_never_given_up_and_without_room_only_the_root_stays() {
    let config = EngineConfig { memory_bytes: 1, ..EngineConfig::default() };
    let world = world(config, &["slow"]);
    let slow = of_its_own("slow", "sleep:300");
    let calls: Vec<_> = (0..3).map(|_| world.spawn(&slow)).collect();
    eventually("they are busy", || world.engine.status().instances.busy == 3).await;
    for _ in 0..5 {
        world.engine.note_pressure(SHORT);
    }
    for call in calls {
        call.await.unwrap().result.unwrap();
    }
    world
        .until("only the root is left", |census| (census.instances, census.zygotes) == (0, 1))
        .await;
}

#[tokio::test]
async fn under_pressure_idle_memory_goes_at_once_and_calls_are_served_on() {
    let budget = 100 * MIB;
    let world = world(EngineConfig { memory_bytes: budget, ..EngineConfig::default() }, &[]);
    for n in 0..10 {
        world.call(&Arc::new(handler(&format!("h{n}"), "echo"))).await.result.unwrap();
    }
    settled(&world, budget).await;
    assert_eq!(world.engine.status().memory.used_bytes, 48 * MIB);
    world.engine.note_pressure(CALM);
    assert_eq!(world.engine.status().memory.allowed_bytes, budget);
    world.engine.note_pressure(SHORT);
    assert_eq!(world.engine.status().memory.allowed_bytes, 36 * MIB);
    settled(&world, 36 * MIB).await;
    for _ in 0..20 {
        world.engine.note_pressure(SHORT);
        settled(&world, world.engine.status().memory.allowed_bytes.max(8 * MIB)).await;
    }
    world.until("the root is left", |census| (census.instances, census.zygotes) == (0, 1)).await;
    assert!(world.call(&Arc::new(handler("h0", "echo"))).await.result.is_ok());
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.engine.note_pressure(CALM);
    let status = world.engine.status().memory;
    assert!(status.allowed_bytes > 0 && status.allowed_bytes < budget, "slowly: {status:?}");
}

#[tokio::test]
async fn zygotes_that_nothing_is_made_from_are_given_back_with_age_and_made_again_when_needed() {
    let config = EngineConfig {
        zygote_idle: Duration::from_millis(200),
        handler_cache: false,
        idle: Duration::from_millis(40),
        ..EngineConfig::default()
    };
    let world = world(config, &["one"]);
    let one = of_its_own("one", "uses:one");
    world.engine.prepare(&one).await;
    assert_eq!(world.census().zygotes, 2);
    for _ in 0..6 {
        world.call(&one).await.result.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(world.census().zygotes, 2, "it is used now and then");
    }
    world.until("only the root is left", |census| census.zygotes == 1).await;
    let made = world.provider.begun(Operation::Derive);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(world.provider.begun(Operation::Derive), made, "no call asks for it");
    for _ in 0..2 {
        world.call(&one).await.result.unwrap();
    }
    world.until("it is there again", |census| census.zygotes == 2).await;
}

#[tokio::test]
async fn zygotes_leave_half_of_all_sandboxes_to_instances() {
    for zygotes in [ZygotePolicy::Utility, ZygotePolicy::Paper, ZygotePolicy::PerLock] {
        let config =
            EngineConfig { zygotes, sandboxes: 30, zygote_sandboxes: 7, ..EngineConfig::default() };
        let names: Vec<String> = (0..9).map(|n| format!("p{n}")).collect();
        let world = world(config, &names.iter().map(|name| &**name).collect::<Vec<_>>());
        for name in &names {
            let handler = of_its_own(name, "echo");
            world.engine.prepare(&handler).await;
            world.call(&handler).await.result.unwrap();
        }
        eventually("no more zygotes than may be", || {
            let status = world.engine.status();
            status.zygotes.len() <= 2 && status.instances.most >= 15
        })
        .await;
    }
}
