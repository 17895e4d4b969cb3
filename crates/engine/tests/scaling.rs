//! Who gets an instance at once, who waits, who is sent away; and that cancelling leaves nothing behind.

mod world;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::{CallError, EngineConfig, Handler, Start, ZygotePolicy};
use sandbox::fake::FakeSettings;
use world::{World, call, eventually, handler};

fn limited(module: &str, concurrency: u32) -> Arc<Handler> {
    Arc::new(Handler { concurrency, ..handler("h", module) })
}

#[tokio::test]
async fn ten_calls_at_once_to_a_fresh_handler_take_the_time_of_one() {
    let world = World::new(EngineConfig::default());
    let slow = Arc::new(handler("h", "sleep:500"));
    let begun = Instant::now();
    let calls: Vec<_> = (0..10).map(|_| world.spawn(&slow)).collect();
    for call in calls {
        call.await.unwrap().result.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(2500), "{:?}", begun.elapsed());
    let census = world.census();
    assert_eq!((census.forked_instances, census.created_zygotes), (10, 1));
}

#[tokio::test]
async fn a_handler_never_has_more_instances_than_it_may() {
    let world = World::new(EngineConfig::default());
    let slow = limited("sleep:30", 2);
    let calls: Vec<_> = (0..8).map(|_| world.spawn(&slow)).collect();
    for call in calls {
        call.await.unwrap().result.unwrap();
    }
    assert_eq!(world.census().forked_instances, 2);
}

#[tokio::test]
async fn waiting_calls_are_served_in_the_order_in_which_they_came() {
    let world = World::new(EngineConfig::default());
    let slow = limited("sleep:100", 1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    for number in 0..6 {
        let (engine, served, call) =
            (Arc::clone(&world.engine), Arc::clone(&order), call(&slow, b""));
        calls.push(tokio::spawn(async move {
            engine.serve(call).await.result.unwrap();
            served.lock().unwrap().push(number);
        }));
        eventually("it has come", || {
            world.engine.status().waiting + order.lock().unwrap().len() + 1 > number
        })
        .await;
    }
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_call_that_finds_the_queue_full_is_told_when_to_come_back() {
    let retry_after = Duration::from_millis(1234);
    let world = World::new(EngineConfig { queue: 1, retry_after, ..EngineConfig::default() });
    let slow = limited("sleep:200", 1);
    let first = world.spawn(&slow);
    eventually("one is busy", || world.engine.status().instances.busy == 1).await;
    let second = world.spawn(&slow);
    eventually("one waits", || world.engine.status().waiting == 1).await;
    let third = world.call(&slow).await;
    assert!(
        matches!(third.result, Err(CallError::Busy { retry_after: told }) if told == retry_after)
    );
    assert_eq!(third.start, None);
    assert!(first.await.unwrap().result.is_ok() && second.await.unwrap().result.is_ok());
}

#[tokio::test]
async fn a_call_that_waited_long_enough_is_told_to_come_back() {
    let world = World::new(EngineConfig {
        queue_timeout: Duration::from_millis(30),
        ..EngineConfig::default()
    });
    let slow = limited("sleep:300", 1);
    let first = world.spawn(&slow);
    eventually("one is busy", || world.engine.status().instances.busy == 1).await;
    assert!(matches!(world.call(&slow).await.result, Err(CallError::Busy { .. })));
    assert_eq!(world.engine.status().waiting, 0);
    assert!(first.await.unwrap().result.is_ok());
}

#[tokio::test]
async fn the_place_of_an_instance_that_ends_goes_to_the_next_call() {
    let world = World::new(EngineConfig::default());
    let dying = limited("exit:1", 1);
    let calls: Vec<_> = (0..5).map(|_| world.spawn(&dying)).collect();
    for call in calls {
        assert!(matches!(call.await.unwrap().result, Err(CallError::Died(_))));
    }
    assert_eq!(world.census().forked_instances, 5);
    assert_eq!(world.engine.status().handlers, 0);
}

#[tokio::test]
async fn a_call_waiting_for_a_permit_takes_an_instance_that_comes_back_earlier() {
    let world = World::new(EngineConfig { creations: 1, ..EngineConfig::default() });
    let slow = Arc::new(handler("h", "sleep:150"));
    let first = world.spawn(&slow);
    eventually("the first is made", || {
        world.census().instances == 1 && world.engine.status().instances.creating == 0
    })
    .await;
    world.provider.set(|settings| settings.fork = Duration::from_secs(3));
    let hog = world.spawn(&Arc::new(handler("hog", "echo")));
    eventually("the permit is taken", || world.engine.status().instances.creating == 1).await;
    let begun = Instant::now();
    let second = world.call(&slow).await;
    assert_eq!(second.start, Some(Start::Resume));
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(first.await.unwrap().result.is_ok());
    hog.abort();
}

#[tokio::test]
async fn no_more_sandboxes_are_made_at_once_than_allowed() {
    let settings = FakeSettings { fork: Duration::from_millis(30), ..FakeSettings::default() };
    let world = World::with(EngineConfig { creations: 2, ..EngineConfig::default() }, settings);
    world.call(&Arc::new(handler("first", "echo"))).await.result.unwrap();
    let begun = Instant::now();
    let calls: Vec<_> = (0..8)
        .map(|number| world.spawn(&Arc::new(handler(&format!("h{number}"), "echo"))))
        .collect();
    for call in calls {
        call.await.unwrap().result.unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_millis(4 * 30), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_call_cancelled_while_it_runs_destroys_its_sandbox() {
    let world = World::new(EngineConfig::default());
    let slow = limited("sleep:20000", 1);
    let running = world.spawn(&slow);
    eventually("it runs", || world.census().instances == 1).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    running.abort();
    world.until("its sandbox is gone", |census| census.instances == 0).await;
    let status = world.engine.status();
    assert_eq!((status.handlers, status.calls), (0, 0));
}

#[tokio::test]
async fn a_call_cancelled_while_its_sandbox_is_made_leaves_nothing() {
    let settings = FakeSettings { fork: Duration::from_millis(200), ..FakeSettings::default() };
    let world = World::with(EngineConfig::default(), settings);
    let making = world.spawn(&limited("echo", 1));
    eventually("it is being made", || world.engine.status().instances.creating == 1).await;
    making.abort();
    eventually("its permit and place are back", || {
        let status = world.engine.status();
        (status.instances.creating, status.instances.busy, status.handlers) == (0, 0, 0)
    })
    .await;
    assert_eq!(world.census().instances, 0);
}

#[tokio::test]
async fn a_cancelled_waiter_is_passed_over() {
    let world = World::new(EngineConfig::default());
    let slow = limited("sleep:100", 1);
    let first = world.spawn(&slow);
    eventually("one is busy", || world.engine.status().instances.busy == 1).await;
    let second = world.spawn(&slow);
    eventually("one waits", || world.engine.status().waiting == 1).await;
    let third = world.spawn(&slow);
    eventually("two wait", || world.engine.status().waiting == 2).await;
    second.abort();
    assert!(first.await.unwrap().result.is_ok());
    assert!(third.await.unwrap().result.is_ok());
    assert_eq!((world.engine.status().waiting, world.census().forked_instances), (0, 1));
}

#[tokio::test]
async fn when_all_sandboxes_are_taken_the_longest_idle_one_of_any_handler_makes_room() {
    let world = World::new(EngineConfig {
        sandboxes: 3,
        zygotes: ZygotePolicy::None,
        ..EngineConfig::default()
    });
    for name in ["a", "b", "c"] {
        world.call(&Arc::new(handler(name, "echo"))).await.result.unwrap();
    }
    let status = world.engine.status().instances;
    assert_eq!((status.idle, status.most), (3, 3));
    assert!(world.call(&Arc::new(handler("d", "echo"))).await.result.is_ok());
    world.until("three are there", |census| census.instances == 3).await;
    // The oldest was given up, and no other.
    for (name, start) in [("b", Start::Resume), ("c", Start::Resume), ("a", Start::Cold)] {
        assert_eq!(world.call(&Arc::new(handler(name, "echo"))).await.start, Some(start), "{name}");
    }
}

#[tokio::test]
async fn when_all_sandboxes_are_busy_a_call_is_refused_at_once() {
    let world = World::new(EngineConfig {
        sandboxes: 2,
        zygotes: ZygotePolicy::None,
        ..EngineConfig::default()
    });
    let slow = Arc::new(handler("slow", "sleep:5000"));
    let calls = [world.spawn(&slow), world.spawn(&slow)];
    eventually("two are busy", || world.engine.status().instances.busy == 2).await;
    for name in ["slow", "other"] {
        let handler = Arc::new(handler(name, "sleep:5000"));
        let call = tokio::time::timeout(Duration::from_secs(3), world.call(&handler));
        let served = call.await.unwrap();
        assert!(matches!(served.result, Err(CallError::Busy { .. })), "{name}: {served:?}");
    }
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    eventually("both places are free", || world.engine.status().instances.busy == 0).await;
    assert!(world.call(&Arc::new(handler("other", "echo"))).await.result.is_ok());
}

#[tokio::test]
async fn zygotes_take_up_room_and_the_last_place_is_always_an_instances() {
    let world =
        World::new(EngineConfig { sandboxes: 10, zygote_sandboxes: 7, ..EngineConfig::default() });
    assert_eq!(world.engine.status().instances.most, 10);
    world.call(&Arc::new(handler("a", "echo"))).await.result.unwrap();
    assert_eq!(world.engine.status().instances.most, 3);
    let world =
        World::new(EngineConfig { sandboxes: 5, zygote_sandboxes: 7, ..EngineConfig::default() });
    for name in ["a", "b"] {
        world.call(&Arc::new(handler(name, "echo"))).await.result.unwrap();
    }
    assert_eq!(world.engine.status().instances.most, 1);
}
