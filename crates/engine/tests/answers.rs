//! What a call's caller is told, for everything that a guest may do.

mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{CallError, EngineConfig, Handler, Stage, Start};
use sandbox::Death;
use sandbox::wire::LogStream;
use world::{World, call, eventually, handler};

/// Calls `module` once on a new engine.
async fn outcome(
    module: &str,
    config: EngineConfig,
) -> (World, Result<engine::Outcome, CallError>) {
    let world = World::new(config);
    let served = world.call(&Arc::new(handler("h", module))).await;
    (world, served.result)
}

#[tokio::test]
async fn a_body_comes_back_with_its_content_type_and_every_stage_is_told() {
    let world = World::new(EngineConfig::default());
    let echo = Arc::new(handler("h", "echo"));
    let mut first = call(&echo, b"some bytes");
    first.content_type = "image/png".to_owned();
    let served = world.engine.serve(first).await;
    let outcome = served.result.unwrap();
    assert_eq!(
        (&outcome.body[..], outcome.content_type.as_str()),
        (&b"some bytes"[..], "image/png")
    );
    assert_eq!(served.start, Some(Start::Cold));
    let stages: Vec<_> = served.stages.0.iter().map(|(stage, _)| *stage).collect();
    assert_eq!(stages, [Stage::Admit, Stage::ImportCache, Stage::Fork, Stage::Load, Stage::Call]);

    let again = world.call(&echo).await;
    assert_eq!(again.start, Some(Start::Resume));
    let stages: Vec<_> = again.stages.0.iter().map(|(stage, _)| *stage).collect();
    assert_eq!(stages, [Stage::Admit, Stage::HandlerCache, Stage::Call]);
}

#[tokio::test]
async fn an_exception_comes_back_whole_and_its_instance_serves_on() {
    let world = World::new(EngineConfig::default());
    let raise = Arc::new(handler("h", "raise"));
    let served = world.call(&raise).await;
    let Err(CallError::Raised(failure)) = served.result else { panic!("{:?}", served.result) };
    assert_eq!(failure.error_type, "ValueError");
    assert_eq!(failure.traceback.len(), 1);
    assert_eq!(world.call(&raise).await.start, Some(Start::Resume));
}

#[tokio::test]
async fn an_instance_that_has_no_memory_left_is_not_called_again() {
    let world = World::new(EngineConfig::default());
    let full = Arc::new(handler("h", "full"));
    for _ in 0..2 {
        let served = world.call(&full).await;
        assert!(matches!(served.result, Err(CallError::Raised(_))), "{:?}", served.result);
        assert_ne!(served.start, Some(Start::Resume));
    }
    world.until("none of them is kept", |census| census.instances == 0).await;
}

#[tokio::test]
async fn code_that_does_not_load_is_told_and_leaves_no_instance() {
    let (world, result) = outcome("unloadable", EngineConfig::default()).await;
    assert!(
        matches!(result, Err(CallError::NotLoaded(failure)) if failure.error_type == "ImportError")
    );
    assert_eq!(world.census().instances, 0);
}

#[tokio::test]
async fn a_death_is_told_with_its_cause_and_leaves_no_instance() {
    for (module, death) in [
        ("exit:3", Death::Exited(3)),
        ("oom", Death::OutOfMemory),
        ("dies-loading", Death::Signal(11)),
    ] {
        let (world, result) = outcome(module, EngineConfig::default()).await;
        assert!(
            matches!(&result, Err(CallError::Died(cause)) if *cause == death),
            "{module}: {result:?}"
        );
        world.until(module, |census| census.instances == 0).await;
    }
}

#[tokio::test]
async fn the_last_words_of_whoever_is_given_up_are_in_the_log_and_nobody_elses() {
    let (quickly, too_late) = (Duration::ZERO, Duration::from_secs(60));
    let mut cases = tokio::task::JoinSet::new();
    for (module, loads, given_up) in [
        ("exit:3", true, true),
        ("garbage", true, true),
        ("sleep:60000", true, true),
        ("dies-loading", false, true),
        ("never-loads", false, true),
        ("raise", true, false),
        ("unloadable", false, false),
        ("echo", true, false),
    ] {
        for takes in [quickly, too_late] {
            cases.spawn(async move {
                let world = World::new(EngineConfig::default());
                world.provider.set(|settings| settings.untold = ("last words", takes));
                let timeout = Duration::from_secs(2);
                let call = call(&Arc::new(Handler { timeout, ..handler("h", module) }), b"");
                let id = if loads { call.id.to_string() } else { String::new() };
                drop(world.engine.serve(call).await);
                let lines = world.lines.0.lock().unwrap();
                let found = lines.iter().find(|line| line.text == "last words");
                let found = found.map(|line| (line.stream, line.invocation.clone()));
                let told = (given_up && takes == quickly).then_some((LogStream::Stderr, id));
                assert_eq!(found, told, "{module}, {takes:?}");
            });
        }
    }
    cases.join_all().await;
}

#[tokio::test]
async fn a_call_whose_provider_ends_is_not_told_as_a_handler_that_died() {
    let world = World::new(EngineConfig::default());
    let running = world.spawn(&Arc::new(handler("h", "sleep:20000")));
    eventually("it runs", || world.engine.status().instances.busy == 1).await;
    world.provider.end();
    let result = running.await.unwrap().result;
    assert!(matches!(result, Err(CallError::Lost)), "{result:?}");
    let next = world.call(&Arc::new(handler("h", "echo"))).await.result;
    assert!(matches!(next, Err(CallError::NoSandbox(_))), "{next:?}");
}

#[tokio::test]
async fn an_answer_that_breaks_the_protocol_is_refused_and_leaves_no_instance() {
    for module in ["garbage", "nonsense", "another"] {
        let (world, result) = outcome(module, EngineConfig::default()).await;
        assert!(matches!(result, Err(CallError::BadAnswer(_))), "{module}: {result:?}");
        world.until(module, |census| census.instances == 0).await;
    }
}

#[tokio::test]
async fn an_answer_may_be_as_large_as_allowed_and_no_larger() {
    let config = EngineConfig { reply_bytes: 100_000, ..EngineConfig::default() };
    let (_, result) = outcome("large:100000", config.clone()).await;
    assert_eq!(result.unwrap().body.len(), 100_000);
    let (world, result) = outcome("large:100001", config).await;
    assert!(matches!(result, Err(CallError::TooLong { .. })));
    world.until("it is gone", |census| census.instances == 0).await;
    // Shorter than a frame of output may be, which the decoder therefore lets pass.
    let config = EngineConfig { reply_bytes: 10, ..EngineConfig::default() };
    assert!(matches!(
        outcome("large:11", config).await.1,
        Err(CallError::TooLong { limit: 10, .. })
    ));
}

#[tokio::test]
async fn a_call_or_a_load_that_takes_too_long_is_ended_and_its_sandbox_destroyed() {
    for module in ["sleep:20000", "never-loads"] {
        let world = World::new(EngineConfig::default());
        let limit = Duration::from_millis(60);
        let slow = Arc::new(Handler { timeout: limit, ..handler("h", module) });
        let begun = Instant::now();
        let served = world.call(&slow).await;
        assert!(
            matches!(served.result, Err(CallError::TimedOut { limit: told }) if told == limit),
            "{module}"
        );
        assert!(begun.elapsed() < Duration::from_secs(10), "{module}");
        world.until(module, |census| census.instances == 0).await;
    }
}

#[tokio::test]
async fn five_megabytes_go_in_and_out() {
    let world = World::new(EngineConfig::default());
    let echo = Arc::new(handler("h", "echo"));
    let body: Vec<u8> = (0..5u32 << 20).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let served = world.engine.serve(call(&echo, &body)).await;
    assert!(served.result.unwrap().body[..] == body[..]);
}

#[tokio::test]
async fn a_guest_that_writes_much_before_it_reads_a_large_call_does_not_block_it() {
    let world = World::new(EngineConfig::default());
    let chatter = Arc::new(handler("h", "chatter:8000000"));
    let body = vec![b'x'; 5 << 20];
    let served = world.engine.serve(call(&chatter, &body)).await;
    assert_eq!(served.result.unwrap().body.len(), body.len());
}

#[tokio::test]
async fn output_reaches_the_sink_with_its_invocation() {
    let world = World::new(EngineConfig::default());
    let print = Arc::new(handler("h", "print"));
    let printing = call(&print, b"");
    let id = printing.id.to_string();
    world.engine.serve(printing).await.result.unwrap();
    let lines = world.lines.0.lock().unwrap();
    let seen: Vec<_> =
        lines.iter().map(|line| (line.invocation.as_str(), &line.text[..])).collect();
    assert_eq!(seen, [("", &b"loading\n"[..]), (id.as_str(), &b"called\n"[..])]);
}

#[tokio::test]
async fn a_flood_of_output_is_cut_and_what_was_dropped_is_told_once() {
    let config = EngineConfig { log_bytes: 1_000_000, ..EngineConfig::default() };
    let (world, result) = outcome("flood:8000000", config).await;
    result.unwrap();
    let lines = world.lines.0.lock().unwrap();
    let (last, passed) = lines.split_last().unwrap();
    let bytes: usize = passed.iter().map(|line| line.text.len()).sum();
    assert!((990_000..=1_000_000).contains(&bytes), "{bytes}");
    assert!(
        passed.iter().all(|line| line.text.len() <= 64 << 10 && line.stream == LogStream::Stdout)
    );
    let words = format!("lambswool: {} more bytes of output were dropped\n", 8_000_000 - bytes);
    assert_eq!(str::from_utf8(&last.text), Ok(&words[..]));
}

#[tokio::test]
async fn what_was_dropped_is_told_even_when_the_call_times_out() {
    let world = World::new(EngineConfig { log_bytes: 100, ..EngineConfig::default() });
    let flood =
        Handler { timeout: Duration::from_millis(60), ..handler("h", "flood:100000000000") };
    let served = world.call(&Arc::new(flood)).await;
    assert!(matches!(served.result, Err(CallError::TimedOut { .. })), "{:?}", served.result);
    let lines = world.lines.0.lock().unwrap();
    assert!(lines.last().unwrap().text.starts_with(b"lambswool: "));
}

#[tokio::test]
async fn more_messages_than_are_read_for_one_call_end_it() {
    let config = EngineConfig { messages: 50, ..EngineConfig::default() };
    // One more is that it has loaded, one that it was ready, and one its answer.
    for module in ["drum:47", "repeat:47"] {
        outcome(module, config.clone()).await.1.unwrap();
    }
    for module in ["drum:48", "repeat:48"] {
        let (world, result) = outcome(module, config.clone()).await;
        assert!(matches!(result, Err(CallError::BadAnswer(_))), "{module}: {result:?}");
        world.until(module, |census| census.instances == 0).await;
    }
}

#[tokio::test]
async fn many_short_pieces_of_output_cost_what_says_whose_they_are() {
    let config = EngineConfig { log_bytes: 10_000, ..EngineConfig::default() };
    let (world, result) = outcome("drum:10000", config).await;
    result.unwrap();
    let lines = world.lines.0.lock().unwrap();
    let (last, passed) = lines.split_last().unwrap();
    assert!((10..400).contains(&passed.len()), "{}", passed.len());
    let dropped = 10_000 - passed.len();
    let words = format!("lambswool: {dropped} more bytes of output were dropped\n");
    assert_eq!(str::from_utf8(&last.text), Ok(&words[..]));
}

#[tokio::test]
async fn empty_lines_cost_what_stands_in_front_of_them_in_the_log() {
    let config = EngineConfig { log_bytes: 100_000, ..EngineConfig::default() };
    let (world, result) = outcome("newlines:1000000", config).await;
    result.unwrap();
    let lines = world.lines.0.lock().unwrap();
    let (last, passed) = lines.split_last().unwrap();
    let empty: usize = passed.iter().map(|line| line.text.len()).sum();
    // `2026-11-21T21:15:38.123Z call-7 stdout `, and the end of the line.
    let in_log = empty * (34 + passed[0].invocation.len());
    assert!((99_000..=100_000).contains(&in_log), "{in_log}");
    let words = format!("lambswool: {} more bytes of output were dropped\n", 1_000_000 - empty);
    assert_eq!(str::from_utf8(&last.text), Ok(&words[..]));
}

#[tokio::test]
async fn handlers_that_come_and_go_leave_nothing_behind() {
    let world = World::new(EngineConfig { handler_cache_bytes: 0, ..EngineConfig::default() });
    for number in 0..200 {
        let module = ["echo", "unloadable", "exit:1", "garbage"][number % 4];
        world.call(&Arc::new(handler(&format!("h{number}"), module))).await;
    }
    world.until("all are gone", |census| census.instances == 0).await;
    eventually("nothing is known of any", || {
        let status = world.engine.status();
        (status.handlers, status.instances.busy, status.instances.idle) == (0, 0, 0)
    })
    .await;
}

#[tokio::test]
async fn what_a_handler_yields_goes_out_as_it_comes() {
    let world = World::new(EngineConfig { reply_bytes: 64, ..EngineConfig::default() });
    let parts = Arc::new(handler("p", "parts:40"));
    let (sink, mut sent) = tokio::sync::mpsc::channel(1);
    let streamed = engine::Call { parts: Some(sink), ..call(&parts, b"part ") };
    let engine = Arc::clone(&world.engine);
    let served = tokio::spawn(async move { engine.serve(streamed).await.result });
    let mut count = 0;
    while let Some(part) = sent.recv().await {
        assert_eq!(&part[..], b"part ");
        count += 1;
    }
    assert_eq!((count, served.await.unwrap().unwrap().body.len()), (40, 0));
    // Nobody has asked for parts.
    let whole = world.engine.serve(call(&parts, b"part ")).await.result;
    assert!(matches!(whole, Err(CallError::BadAnswer(_))), "{whole:?}");
}

#[tokio::test]
async fn a_stream_that_nobody_reads_ends_with_its_deadline() {
    let world = World::new(EngineConfig::default());
    let timeout = Duration::from_millis(200);
    let parts = Arc::new(Handler { timeout, ..handler("p", "parts:9") });
    let (sink, sent) = tokio::sync::mpsc::channel(1);
    let streamed = engine::Call { parts: Some(sink), ..call(&parts, b"part") };
    let result = world.engine.serve(streamed).await.result;
    assert!(matches!(result, Err(CallError::TimedOut { .. })), "{result:?}");
    drop(sent);
    world.until("its instance is gone", |census| census.instances == 0).await;
}
