//! The end of an engine: by itself, by being stopped, by being dropped.

mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{CallError, EngineConfig, Handler};
use sandbox::fake::FakeSettings;
use world::{World, eventually, handler, packaged};

#[tokio::test]
async fn stop_lets_running_calls_finish_and_refuses_new_ones() {
    let world = World::new(EngineConfig::default());
    let slow = Arc::new(handler("h", "sleep:200"));
    world.call(&Arc::new(handler("idle", "echo"))).await.result.unwrap();
    let running = world.spawn(&slow);
    eventually("it runs", || world.engine.status().instances.busy == 1).await;
    let engine = Arc::clone(&world.engine);
    let stopping = tokio::spawn(async move { engine.stop(Duration::from_secs(20)).await });
    eventually("it stops", || world.engine.status().stopping).await;
    assert!(matches!(world.call(&slow).await.result, Err(CallError::Stopping)));
    assert!(running.await.unwrap().result.is_ok());
    stopping.await.unwrap();
    let census = world.census();
    assert_eq!((census.instances, census.zygotes), (0, 0));
}

#[tokio::test]
async fn stop_ends_what_takes_longer_than_its_patience() {
    let world = World::new(EngineConfig::default());
    let slow = Arc::new(Handler { concurrency: 1, ..handler("h", "sleep:20000") });
    let (running, waiting) = (world.spawn(&slow), world.spawn(&slow));
    eventually("one runs, one waits", || world.engine.status().waiting == 1).await;
    let begun = Instant::now();
    world.engine.stop(Duration::from_millis(50)).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    for call in [running, waiting] {
        assert!(matches!(call.await.unwrap().result, Err(CallError::Stopping)));
    }
    let (census, status) = (world.census(), world.engine.status());
    assert_eq!((census.instances, census.zygotes, status.handlers, status.waiting), (0, 0, 0, 0));
}

#[tokio::test]
async fn stop_does_not_wait_for_zygotes_in_the_making() {
    let settings = FakeSettings { derive: Duration::from_secs(20), ..FakeSettings::default() };
    let world = World::with(EngineConfig::default(), settings);
    world.call(&Arc::new(packaged("h", "echo", "numpy", &["numpy"]))).await.result.unwrap();
    let begun = Instant::now();
    world.engine.stop(Duration::from_secs(20)).await;
    assert!(begun.elapsed() < Duration::from_millis(900));
    let census = world.census();
    assert_eq!((census.instances, census.zygotes), (0, 0));
}

#[tokio::test]
async fn stop_returns_though_a_caller_holds_a_call_that_it_never_looks_at() {
    let world = World::new(EngineConfig::default());
    let slow = Arc::new(handler("h", "sleep:20000"));
    let mut held = Box::pin(world.engine.serve(world::call(&slow, b"")));
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut held).await.is_err());
    let begun = Instant::now();
    world.engine.stop(Duration::ZERO).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(held);
    assert_eq!(world.census().instances, 0);
}

#[tokio::test]
async fn an_engine_that_is_dropped_takes_everything_with_it() {
    let world = World::new(EngineConfig::default());
    world.engine.prepare(&packaged("h", "echo", "numpy", &["numpy"])).await;
    world.call(&Arc::new(handler("h", "echo"))).await.result.unwrap();
    let World { provider, engine, .. } = world;
    drop(engine);
    eventually("nothing is left", || {
        let census = provider.census();
        (census.instances, census.zygotes) == (0, 0)
    })
    .await;
}
