//! The import cache: which zygote a call is forked from, and what happens when one fails.

mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{CallError, EngineConfig, Handler, Start, ZygotePolicy};
use sandbox::ProviderError;
use sandbox::fake::{FakeSettings, Fault, Operation};
use world::{World, eventually, handler, packaged};

fn numpy(name: &str) -> Arc<Handler> {
    Arc::new(packaged(name, "echo", "numpy", &["numpy"]))
}

fn per_lock() -> EngineConfig {
    EngineConfig { zygotes: ZygotePolicy::PerLock, ..EngineConfig::default() }
}

fn no_cache() -> EngineConfig {
    EngineConfig { handler_cache: false, ..per_lock() }
}

fn last_fork(world: &World) -> Vec<String> {
    world.provider.forked_from().last().cloned().unwrap()
}

#[tokio::test]
async fn the_first_call_goes_on_from_the_root_and_later_ones_from_their_own_sets_zygote() {
    let world = World::new(per_lock());
    let first = world.call(&numpy("a")).await;
    assert_eq!(first.start, Some(Start::Cold));
    assert_eq!(last_fork(&world), [""; 0]);
    world.until("its zygote is there", |census| census.derived_zygotes == 1).await;
    let second = world.call(&numpy("b")).await;
    assert_eq!(second.start, Some(Start::Fork));
    assert_eq!(last_fork(&world), ["numpy"]);
}

#[tokio::test]
async fn a_zygote_serves_only_handlers_of_its_very_package_set() {
    let world = World::new(no_cache());
    world.engine.prepare(&numpy("a")).await;
    world.call(&Arc::new(packaged("b", "echo", "other", &[]))).await.result.unwrap();
    assert_eq!(last_fork(&world), [""; 0]);
    world.call(&Arc::new(handler("c", "echo"))).await.result.unwrap();
    assert_eq!(last_fork(&world), [""; 0]);
    world
        .call(&Arc::new(packaged("d", "echo", "pandas", &["numpy", "pandas"])))
        .await
        .result
        .unwrap();
    assert_eq!(last_fork(&world), [""; 0]);
}

#[tokio::test]
async fn no_call_waits_for_the_imports_of_its_zygote() {
    let world = World::new(no_cache());
    let slow = Arc::new(packaged("h", "echo", "slow", &["slow:3000"]));
    let begun = Instant::now();
    for _ in 0..3 {
        world.call(&slow).await.result.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(1500));
    assert_eq!(world.census().derived_zygotes, 0);
    assert_eq!(world.provider.begun(Operation::Derive), 1);
}

#[tokio::test]
async fn however_many_ask_each_zygote_is_made_once() {
    let settings = FakeSettings {
        create: Duration::from_millis(50),
        derive: Duration::from_millis(50),
        ..FakeSettings::default()
    };
    let world = World::with(no_cache(), settings);
    let calls: Vec<_> = (0..10).map(|n| world.spawn(&numpy(&format!("h{n}")))).collect();
    let prepared = (0..10).map(|_| {
        let engine = Arc::clone(&world.engine);
        tokio::spawn(async move { engine.prepare(&numpy("p")).await })
    });
    for prepared in prepared.collect::<Vec<_>>() {
        prepared.await.unwrap();
    }
    for call in calls {
        call.await.unwrap().result.unwrap();
    }
    let census = world.census();
    assert_eq!((census.created_zygotes, census.derived_zygotes, census.zygotes), (1, 1, 2));
}

#[tokio::test]
async fn after_prepare_the_first_call_finds_its_zygote() {
    let world = World::new(per_lock());
    world.engine.prepare(&numpy("a")).await;
    assert_eq!(world.call(&numpy("a")).await.start, Some(Start::Fork));
    assert_eq!(last_fork(&world), ["numpy"]);
    let status = world.engine.status();
    assert_eq!(status.zygotes.iter().map(|zygote| zygote.forks).collect::<Vec<_>>(), [0, 1]);
    assert!(status.zygotes.iter().all(|zygote| zygote.memory_bytes == 8 << 20));
}

#[tokio::test]
async fn a_zygote_is_made_even_when_the_call_that_wanted_it_has_left() {
    let settings = FakeSettings { create: Duration::from_millis(100), ..FakeSettings::default() };
    let world = World::with(per_lock(), settings);
    let call = world.spawn(&numpy("a"));
    eventually("the root is being made", || world.provider.begun(Operation::CreateZygote) == 1)
        .await;
    call.abort();
    world.until("both are there", |census| census.zygotes == 2).await;
    assert_eq!(world.provider.begun(Operation::CreateZygote), 1);
}

#[tokio::test]
async fn a_call_whose_zygote_is_lost_goes_on_from_the_root_and_succeeds() {
    for fault in [Fault::Lost, Fault::Impostor] {
        let world = World::new(no_cache());
        world.engine.prepare(&numpy("a")).await;
        world.provider.fail(Operation::Fork, 1, fault);
        let served = world.call(&numpy("a")).await;
        assert!(served.result.is_ok());
        assert_eq!(served.start, Some(Start::Fork));
        assert_eq!(last_fork(&world), [""; 0]);
        assert_eq!(world.census().zygotes, 1, "the failed zygote is gone");
        // And not made anew for the next call at once: it might fail again and again.
        world.call(&numpy("a")).await.result.unwrap();
        assert_eq!(last_fork(&world), [""; 0]);
        assert_eq!(world.engine.status().refused.len(), 1);
    }
}

#[tokio::test]
async fn a_call_whose_root_is_lost_gets_a_new_root_and_succeeds() {
    for fault in [Fault::Lost, Fault::Impostor] {
        let world = World::new(no_cache());
        let plain = Arc::new(handler("h", "echo"));
        world.call(&plain).await.result.unwrap();
        world.provider.fail(Operation::Fork, 2, fault);
        let served = world.call(&plain).await;
        assert!(served.result.is_ok());
        assert_eq!(served.start, Some(Start::Cold));
        let census = world.census();
        assert_eq!((census.created_zygotes, census.zygotes, census.forked_instances), (2, 1, 2));
    }
}

#[tokio::test]
async fn many_calls_that_lose_the_same_root_get_one_new_root() {
    let world = World::new(no_cache());
    let plain = Arc::new(handler("h", "echo"));
    world.call(&plain).await.result.unwrap();
    world.provider.set(|settings| {
        settings.fork = Duration::from_millis(20);
        settings.create = Duration::from_millis(50);
    });
    world.provider.kill_zygotes();
    let calls: Vec<_> = (0..10).map(|_| world.spawn(&plain)).collect();
    for call in calls {
        call.await.unwrap().result.unwrap();
    }
    assert_eq!(world.census().created_zygotes, 2);
}

#[tokio::test]
async fn a_call_that_loses_every_zygote_goes_on_from_a_fresh_interpreter() {
    let world = World::new(no_cache());
    let faults = [Fault::Lost, Fault::Impostor, Fault::Lost, Fault::Lost];
    for (nth, fault) in (1..).zip(faults) {
        world.provider.fail(Operation::Fork, nth, fault);
    }
    let plain = Arc::new(handler("h", "echo"));
    let served = world.call(&plain).await;
    assert!(served.result.is_ok());
    assert_eq!((served.start, world.provider.begun(Operation::Fork)), (Some(Start::Cold), 3));
    assert_eq!(world.census().created_instances, 1);
    assert!(world.call(&plain).await.result.is_ok());
}

#[tokio::test]
async fn a_call_that_was_kept_waiting_by_a_lost_zygote_for_as_long_as_it_may_run_tries_no_other() {
    let world =
        World::new(EngineConfig { creation_timeout: Duration::from_millis(50), ..no_cache() });
    world.provider.fail(Operation::Fork, 1, Fault::Hang);
    let short = Handler { timeout: Duration::from_millis(20), ..handler("h", "echo") };
    world.call(&Arc::new(short)).await;
    assert_eq!(world.provider.begun(Operation::Fork), 1);
    assert_eq!(world.provider.begun(Operation::CreateInstance), 1);
}

#[tokio::test]
async fn a_fresh_interpreter_that_cannot_be_had_either_is_told() {
    let world = World::new(no_cache());
    (1..=3).for_each(|nth| world.provider.fail(Operation::Fork, nth, Fault::Lost));
    world.provider.fail(Operation::CreateInstance, 1, Fault::Step);
    let plain = Arc::new(handler("h", "echo"));
    let served = world.call(&plain).await;
    assert!(matches!(served.result, Err(CallError::NoSandbox(ProviderError::Step { .. }))));
    assert!(world.call(&plain).await.result.is_ok());
}

#[tokio::test]
async fn a_fork_that_never_ends_counts_as_a_lost_zygote() {
    let world =
        World::new(EngineConfig { creation_timeout: Duration::from_millis(50), ..no_cache() });
    world.provider.fail(Operation::Fork, 1, Fault::Hang);
    assert!(world.call(&Arc::new(handler("h", "echo"))).await.result.is_ok());
    assert_eq!(world.census().created_zygotes, 2);
}

#[tokio::test]
async fn calls_whose_root_is_killed_while_it_starts_get_a_new_root_and_succeed() {
    let settings = FakeSettings { create: Duration::from_millis(30), ..FakeSettings::default() };
    let world = World::with(no_cache(), settings);
    world.provider.fail(Operation::CreateZygote, 1, Fault::Lost);
    let plain = Arc::new(handler("h", "echo"));
    let (one, two) = (world.spawn(&plain), world.spawn(&plain));
    for call in [one, two] {
        assert!(call.await.unwrap().result.is_ok());
    }
    assert_eq!(world.provider.begun(Operation::CreateZygote), 2);
}

#[tokio::test]
async fn a_call_whose_instance_is_killed_before_it_is_called_gets_another_of_the_same_zygote() {
    let world = World::new(no_cache());
    let plain = Arc::new(handler("h", "echo"));
    world.call(&plain).await.result.unwrap();
    world.provider.fail(Operation::Fork, 2, Fault::Killed);
    world.call(&plain).await.result.unwrap();
    assert_eq!(world.provider.begun(Operation::Fork), 3);
    assert_eq!(world.census().created_zygotes, 1);
    // Those who are killed each time are in the end told of.
    (4..40).for_each(|nth| world.provider.fail(Operation::Fork, nth, Fault::Killed));
    world.provider.fail(Operation::CreateInstance, 1, Fault::Killed);
    let error = world.call(&plain).await.result.unwrap_err();
    assert!(matches!(error, CallError::NoSandbox(ProviderError::Killed { .. })), "{error}");
    assert_eq!(world.provider.begun(Operation::Fork), 6);
}

#[tokio::test]
async fn a_root_that_cannot_be_made_is_told_to_all_who_wait_and_tried_again() {
    let settings = FakeSettings { create: Duration::from_millis(30), ..FakeSettings::default() };
    let world = World::with(no_cache(), settings);
    world.provider.fail(Operation::CreateZygote, 1, Fault::Interpreter);
    let plain = Arc::new(handler("h", "echo"));
    let (one, two) = (world.spawn(&plain), world.spawn(&plain));
    for call in [one, two] {
        let served = call.await.unwrap();
        assert!(matches!(served.result, Err(CallError::NoSandbox(ProviderError::Interpreter(_)))));
    }
    assert_eq!(world.provider.begun(Operation::CreateZygote), 1);
    assert!(world.call(&plain).await.result.is_ok());
}

#[tokio::test]
async fn a_zygote_whose_imports_left_threads_or_strayed_is_never_forked_from() {
    for module in ["threads", "stray"] {
        let world = World::new(EngineConfig { zygote_retry: Duration::ZERO, ..no_cache() });
        let unfit = Arc::new(packaged("h", "echo", "unfit", &["numpy", module]));
        for _ in 0..3 {
            world.engine.prepare(&unfit).await;
            assert_eq!(world.call(&unfit).await.start, Some(Start::Fork));
            assert_eq!(last_fork(&world), [""; 0]);
        }
        let census = world.census();
        assert_eq!((census.derived_zygotes, census.zygotes), (1, 1), "{module}");
        let status = world.engine.status();
        assert!(
            status.refused[0].for_good && status.refused[0].distributions == ["packages/unfit"]
        );
    }
}

#[tokio::test]
async fn a_zygote_that_could_not_import_everything_is_used_all_the_same() {
    let world = World::new(no_cache());
    let partly = Arc::new(packaged("h", "echo", "partly", &["numpy", "missing"]));
    world.engine.prepare(&partly).await;
    world.call(&partly).await.result.unwrap();
    assert_eq!(last_fork(&world), ["numpy", "missing"]);
    assert_eq!(world.engine.status().zygotes[1].failed_imports[0].0, "missing");
}

#[tokio::test]
async fn a_zygote_that_could_not_be_made_is_tried_again_only_after_a_while() {
    let retry = Duration::from_millis(300);
    let world = World::new(EngineConfig { zygote_retry: retry, ..no_cache() });
    world.provider.fail(Operation::Derive, 1, Fault::Step);
    world.engine.prepare(&numpy("a")).await;
    world.engine.prepare(&numpy("a")).await;
    assert_eq!(world.provider.begun(Operation::Derive), 1);
    tokio::time::sleep(retry).await;
    world.engine.prepare(&numpy("a")).await;
    world.call(&numpy("a")).await.result.unwrap();
    assert_eq!(last_fork(&world), ["numpy"]);
}

#[tokio::test]
async fn a_zygote_that_died_unnoticed_is_given_up_before_a_call_meets_it() {
    let world = World::new(EngineConfig { idle: Duration::from_millis(40), ..per_lock() });
    world.engine.prepare(&numpy("a")).await;
    world.provider.kill_zygotes();
    world.until("both are given up", |census| census.zygotes == 0).await;
    assert!(world.call(&numpy("a")).await.result.is_ok());
}

#[tokio::test]
async fn zygotes_stay_within_their_budget_and_the_root_outlives_them() {
    let world = World::new(EngineConfig { zygote_bytes: 20 << 20, ..no_cache() });
    for set in ["one", "two", "three"] {
        let handler = packaged(set, "echo", set, &[set]);
        world.engine.prepare(&handler).await;
        world.call(&Arc::new(handler)).await.result.unwrap();
        assert_eq!(last_fork(&world), [set]);
    }
    let status = world.engine.status();
    let left: Vec<_> = status.zygotes.iter().map(|zygote| zygote.imports.concat()).collect();
    assert_eq!(left, ["", "three"]);
    assert_eq!(world.census().zygotes, 2);
}

#[tokio::test]
async fn each_policy_has_just_its_zygotes() {
    let expected = [
        (ZygotePolicy::None, (0, 0, 2, 0), Start::Cold),
        (ZygotePolicy::Root, (1, 0, 0, 2), Start::Fork),
        (ZygotePolicy::PerLock, (1, 1, 0, 2), Start::Fork),
    ];
    for (zygotes, counts, start) in expected {
        let world = World::new(EngineConfig { zygotes, ..no_cache() });
        world.engine.prepare(&numpy("a")).await;
        for _ in 0..2 {
            assert_eq!(world.call(&numpy("a")).await.start, Some(start));
        }
        let census = world.census();
        let seen = (
            census.created_zygotes,
            census.derived_zygotes,
            census.created_instances,
            census.forked_instances,
        );
        assert_eq!(seen, counts, "{zygotes:?}");
    }
}

#[tokio::test]
async fn a_package_that_ends_its_zygote_does_not_end_the_one_that_it_came_from() {
    let world = World::new(no_cache());
    world.engine.prepare(&numpy("a")).await;
    let zygotes = world.census().zygotes;
    world.engine.prepare(&packaged("b", "echo", "deadly", &["dies"])).await;
    assert_eq!((world.census().zygotes, world.census().created_zygotes), (zygotes, 1));
    let refused = &world.engine.status().refused;
    assert!(refused[0].why.contains("while importing"), "{refused:?}");
}
