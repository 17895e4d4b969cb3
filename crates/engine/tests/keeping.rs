//! The handler cache: what is kept for the next call, for how long, and at what cost.

mod world;

use std::sync::Arc;
use std::time::Duration;

use engine::{CallError, EngineConfig, Handler, Kept, Promise, Start, VersionId};
use sandbox::Limits;
use sandbox::fake::{FakeSettings, Fault, Operation};
use world::{World, eventually, handler};

const MIB: u64 = 1 << 20;

async fn settled(world: &World) {
    eventually("all that is idle is paused and weighed", || {
        let status = world.engine.status();
        world.census().paused == status.instances.idle
            && (status.instances.idle == 0 || status.instances.idle_bytes > 0)
    })
    .await;
}

#[tokio::test]
async fn an_instance_is_paused_after_its_call_and_resumed_for_the_next() {
    let world = World::new(EngineConfig::default());
    let echo = Arc::new(handler("h", "echo"));
    for round in 0..5 {
        let served = world.call(&echo).await;
        assert!(served.result.is_ok());
        assert_eq!(served.start == Some(Start::Resume), round > 0);
        world.until("it is paused", |census| census.paused == 1).await;
    }
    let census = world.census();
    assert_eq!((census.forked_instances, census.misuses), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_calls_back_to_back_always_finds_the_same_instance() {
    let world = World::new(EngineConfig::default());
    let echo = Arc::new(handler("h", "echo"));
    for _ in 0..500 {
        assert!(world.call(&echo).await.result.is_ok());
    }
    let census = world.census();
    assert_eq!((census.forked_instances, census.misuses), (1, 0));
}

#[tokio::test]
async fn the_least_recently_used_instance_goes_when_the_measured_memory_exceeds_the_budget() {
    let world =
        World::new(EngineConfig { handler_cache_bytes: 3 * MIB, ..EngineConfig::default() });
    let handlers: Vec<_> = (0..4).map(|n| Arc::new(handler(&format!("h{n}"), "echo"))).collect();
    for at in [0, 1, 2, 0, 3] {
        world.call(&handlers[at]).await.result.unwrap();
        settled(&world).await;
    }
    let status = world.engine.status();
    assert_eq!((status.instances.idle, status.instances.idle_bytes), (3, 3 * MIB));
    assert_eq!(world.census().instances, 3);
    for (at, start) in
        [(0, Start::Resume), (2, Start::Resume), (3, Start::Resume), (1, Start::Fork)]
    {
        assert_eq!(world.call(&handlers[at]).await.start, Some(start), "h{at}");
        settled(&world).await;
    }
}

#[tokio::test]
async fn what_an_instance_weighs_is_asked_and_not_assumed() {
    let world =
        World::new(EngineConfig { handler_cache_bytes: 10 * MIB, ..EngineConfig::default() });
    for n in 0..3 {
        world.call(&Arc::new(handler(&format!("small{n}"), "echo"))).await.result.unwrap();
    }
    settled(&world).await;
    assert_eq!(world.engine.status().instances.idle, 3);
    world.provider.set(|settings| settings.instance_bytes = Some(8 * MIB));
    world.call(&Arc::new(handler("large", "echo"))).await.result.unwrap();
    world.until("one small one had to go", |census| census.instances == 3).await;
    assert_eq!(world.engine.status().instances.idle_bytes, 10 * MIB);
}

#[tokio::test]
async fn an_instance_that_cannot_be_measured_counts_as_its_limit() {
    let settings = FakeSettings { instance_bytes: None, ..FakeSettings::default() };
    let world = World::with(
        EngineConfig { handler_cache_bytes: 100 * MIB, ..EngineConfig::default() },
        settings,
    );
    for n in 0..5 {
        let limits = Limits { memory_bytes: 40 * MIB, ..Limits::default() };
        world
            .call(&Arc::new(Handler { limits, ..handler(&format!("h{n}"), "echo") }))
            .await
            .result
            .unwrap();
    }
    world.until("two fit", |census| census.instances == 2 && census.paused == 2).await;
    assert_eq!(world.engine.status().instances.idle_bytes, 80 * MIB);
}

#[tokio::test]
async fn no_more_instances_are_kept_than_allowed_however_light_they_are() {
    let settings = FakeSettings { instance_bytes: Some(0), ..FakeSettings::default() };
    let world =
        World::with(EngineConfig { idle_instances: 2, ..EngineConfig::default() }, settings);
    for n in 0..5 {
        world.call(&Arc::new(handler(&format!("h{n}"), "echo"))).await.result.unwrap();
    }
    world.until("two are kept", |census| census.instances == 2).await;
}

#[tokio::test]
async fn without_a_budget_or_without_the_cache_nothing_is_kept() {
    let no_budget = EngineConfig { handler_cache_bytes: 0, ..EngineConfig::default() };
    let no_cache = EngineConfig { handler_cache: false, ..EngineConfig::default() };
    for config in [no_budget, no_cache] {
        let world = World::new(config);
        let echo = Arc::new(handler("h", "echo"));
        for start in [Start::Cold, Start::Fork, Start::Fork] {
            let served = world.call(&echo).await;
            assert!(served.result.is_ok());
            assert_eq!(served.start, Some(start));
            world.until("it is not kept", |census| census.instances == 0).await;
        }
    }
}

#[tokio::test]
async fn without_the_cache_even_a_waiting_call_gets_an_instance_of_its_own() {
    let world = World::new(EngineConfig { handler_cache: false, ..EngineConfig::default() });
    let slow = Arc::new(Handler { concurrency: 1, ..handler("h", "sleep:10") });
    let calls: Vec<_> = (0..4).map(|_| world.spawn(&slow)).collect();
    for call in calls {
        let served = call.await.unwrap();
        assert!(served.result.is_ok() && served.start != Some(Start::Resume));
    }
    assert_eq!(world.census().forked_instances, 4);
}

#[tokio::test]
async fn an_idle_instance_that_died_is_replaced_without_the_caller_noticing() {
    let world = World::new(EngineConfig::default());
    let slow = Arc::new(handler("h", "sleep:30"));
    let calls: Vec<_> = (0..3).map(|_| world.spawn(&slow)).collect();
    for call in calls {
        call.await.unwrap().result.unwrap();
    }
    settled(&world).await;
    assert_eq!(world.engine.status().instances.idle, 3);
    world.provider.kill_instances();
    let served = world.call(&slow).await;
    assert!(served.result.is_ok());
    assert_eq!(served.start, Some(Start::Fork));
    settled(&world).await;
    assert_eq!(world.census().instances, 1);
}

#[tokio::test]
async fn an_instance_that_died_between_pause_and_resume_is_never_sent_a_call() {
    let world = World::new(EngineConfig::default());
    let dying = Arc::new(handler("h", "exit-after:20"));
    for _ in 0..3 {
        assert!(world.call(&dying).await.result.is_ok());
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

#[tokio::test]
async fn what_was_idle_for_too_long_is_destroyed() {
    let world =
        World::new(EngineConfig { idle: Duration::from_millis(80), ..EngineConfig::default() });
    world.call(&Arc::new(handler("h", "echo"))).await.result.unwrap();
    assert_eq!(world.census().instances, 1);
    world.until("it is gone", |census| census.instances == 0).await;
    assert_eq!(world.engine.status().handlers, 0);
}

#[tokio::test]
async fn a_deleted_version_loses_its_idle_instances_at_once_and_its_busy_ones_when_they_are_done() {
    let world = World::new(EngineConfig::default());
    let slow = Arc::new(handler("h", "sleep:150"));
    let other = Arc::new(handler("other", "echo"));
    world.call(&other).await.result.unwrap();
    world.call(&slow).await.result.unwrap();
    let (first, second) = (world.spawn(&slow), world.spawn(&slow));
    eventually("two are busy", || world.engine.status().instances.busy == 2).await;
    world.engine.forget(&VersionId(Arc::from("h"))).await;
    assert!(first.await.unwrap().result.is_ok() && second.await.unwrap().result.is_ok());
    assert_eq!(world.census().instances, 1);
    assert_eq!(world.call(&other).await.start, Some(Start::Resume));
    // Deployed again, the same version is kept again.
    world.call(&slow).await.result.unwrap();
    world.engine.forget(&VersionId(Arc::from("other"))).await;
    assert_eq!(world.call(&slow).await.start, Some(Start::Resume));
}

#[tokio::test]
async fn when_the_host_is_exhausted_idle_instances_make_room_and_the_call_is_served() {
    let world = World::new(EngineConfig::default());
    for n in 0..4 {
        world.call(&Arc::new(handler(&format!("h{n}"), "echo"))).await.result.unwrap();
    }
    settled(&world).await;
    world.provider.fail(Operation::Fork, 5, Fault::Exhausted);
    let served = world.call(&Arc::new(handler("new", "echo"))).await;
    assert!(served.result.is_ok());
    assert_eq!(world.census().instances, 3);
}

#[tokio::test]
async fn when_the_host_is_exhausted_and_nothing_can_make_room_the_call_is_told() {
    let world = World::new(EngineConfig::default());
    world.provider.fail(Operation::Fork, 1, Fault::Exhausted);
    let served = world.call(&Arc::new(handler("h", "echo"))).await;
    assert!(matches!(served.result, Err(CallError::NoSandbox(_))));
    assert_eq!(world.provider.begun(Operation::Fork), 1);
    assert_eq!(world.engine.status().handlers, 0);
}

fn promise(handler: &Arc<Handler>, instances: u32) -> Promise {
    Promise { handler: Arc::clone(handler), number: "1".to_owned(), instances }
}

/// Keeps promises as the worker does, only more often, until it is so.
async fn promised(world: &World, promises: &[Promise], what: &str, wish: impl Fn(&Kept) -> bool) {
    for _ in 0..1000 {
        world.engine.keep_promises(promises);
        if promises.iter().all(|one| wish(&world.engine.kept(&one.handler.id))) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("this did not come to be: {what}");
}

#[tokio::test]
async fn promised_instances_are_there_before_a_call_and_stay() {
    let idle = Duration::from_millis(50);
    let world = World::new(EngineConfig { idle, sandboxes: 5, ..EngineConfig::default() });
    let (echo, other) = (Arc::new(handler("h", "echo")), Arc::new(handler("o", "echo")));
    let promises = [promise(&echo, 3)];
    promised(&world, &promises, "all three are there", |kept| kept.instances == 3).await;
    settled(&world).await;
    // Others have what is left, and push out none of these, nor does age.
    for _ in 0..3 {
        world.call(&other).await.result.unwrap();
    }
    tokio::time::sleep(idle * 4).await;
    eventually("what was not promised is gone", || world.census().instances == 3).await;
    let busy: Vec<_> = (0..3).map(|_| world.spawn(&echo)).collect();
    for served in busy {
        assert_eq!(served.await.unwrap().start, Some(Start::Resume));
    }
    assert_eq!(world.engine.kept(&echo.id), Kept { instances: 3, failed: None });
    assert_eq!(world.census().misuses, 0);
    // One that is lost is made again; what is promised no more grows old.
    world.engine.renew(&echo.id);
    promised(&world, &promises, "all three are there again", |kept| kept.instances == 3).await;
    world.engine.keep_promises(&[]);
    eventually("none is kept any more", || world.census().instances == 0).await;
    assert_eq!(world.engine.kept(&echo.id), Kept::default());
}

#[tokio::test]
async fn a_promise_that_cannot_be_kept_says_why_and_is_not_tried_all_the_time() {
    let world = World::new(EngineConfig::default());
    let broken = Arc::new(handler("b", "unloadable"));
    let promises = [promise(&broken, 3)];
    let has_failed = |kept: &Kept| kept.failed.is_some();
    promised(&world, &promises, "it says why", has_failed).await;
    let made = world.census().forked_instances + world.census().created_instances;
    for _ in 0..50 {
        world.engine.keep_promises(&promises);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let since = world.census().forked_instances + world.census().created_instances - made;
    assert!(since <= 3, "tried {since} times within a tenth of a second");
    assert_eq!(world.engine.kept(&broken.id).instances, 0);
}

#[tokio::test]
async fn promises_take_no_room_that_there_is_not_and_leave_calls_theirs() {
    let world = World::new(EngineConfig { sandboxes: 3, creations: 1, ..EngineConfig::default() });
    let echo = Arc::new(handler("h", "echo"));
    // The only permit is for calls.
    world.engine.keep_promises(&[promise(&echo, 2)]);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.engine.kept(&echo.id).instances, 0);
    let world = World::new(EngineConfig { sandboxes: 3, ..EngineConfig::default() });
    let promises = [promise(&echo, 9)];
    promised(&world, &promises, "as many as there is room for", |kept| kept.instances == 3).await;
    // A call of another has nobody's place to take.
    let other = Arc::new(handler("o", "echo"));
    assert!(matches!(world.call(&other).await.result, Err(CallError::Busy { .. })));
}
