//! Calls of functions that expect AWS's runtime: their log, and the end of it that a caller gets.

mod world;

use std::sync::Arc;
use std::time::Duration;

use engine::{Call, CallError, EngineConfig, Handler};
use function::Lambda;
use sandbox::fake::{Fault, Operation};
use sandbox::wire::{LambdaCall, LogStream};

use world::{World, call, handler};

fn aws(module: &str) -> Arc<Handler> {
    let (handler_text, runtime) = (format!("{module}.handler"), "python3.12".to_owned());
    let lambda = Lambda { handler: handler_text, runtime, json_level: None };
    let name = module.replace(':', "-");
    Arc::new(Handler { lambda: Some(Arc::new(lambda)), ..handler(&name, module) })
}

fn versioned(handler: &Arc<Handler>, version: &str) -> Call {
    let version = version.to_owned();
    let lambda = LambdaCall { version, ..LambdaCall::default() };
    Call { lambda: Some(Arc::new(lambda)), tail: true, ..call(handler, b"{}") }
}

/// All that was written, and by whom, with numbers of milliseconds and megabytes as `N`.
fn written(world: &World) -> String {
    let lines = std::mem::take(&mut *world.lines.0.lock().unwrap());
    lines.iter().map(|line| str::from_utf8(&line.text).unwrap()).collect()
}

/// A report without its numbers.
fn without_numbers(text: &str) -> String {
    let words = text.split_inclusive([' ', '\t']).map(|word| {
        let number = word.trim_end();
        let is_one = number.parse::<f64>().is_ok();
        if is_one { word.replace(number, "N") } else { word.to_owned() }
    });
    words.collect()
}

#[tokio::test]
async fn a_call_is_told_in_the_log_from_start_to_report() {
    let world = World::new(EngineConfig::default());
    let print = aws("print");
    let first = versioned(&print, "7");
    let id = first.id.clone();
    let served = world.engine.serve(first).await;
    let text = written(&world);
    let report = format!(
        "END RequestId: {id}\nREPORT RequestId: {id}\tDuration: N ms\tBilled Duration: N ms\tMemory Size: N MB\tMax Memory Used: N MB"
    );
    let expected = format!(
        "loading\nSTART RequestId: {id} Version: 7\ncalled\n{report}\tInit Duration: N ms\n"
    );
    assert_eq!(without_numbers(&text), expected);
    assert_eq!(String::from_utf8(served.tail).unwrap(), text);
    // An instance that was there is not made, and nothing is kept that was not asked for.
    let second = call(&print, b"{}");
    let report = report.replace(id.as_str(), second.id.as_str());
    let expected = format!("START RequestId: {} Version: $LATEST\ncalled\n{report}\n", second.id);
    let served = world.engine.serve(second).await;
    assert_eq!(without_numbers(&written(&world)), expected);
    assert!(served.tail.is_empty());
}

#[tokio::test]
async fn a_native_function_has_its_own_lines_alone() {
    let world = World::new(EngineConfig::default());
    let native = Arc::new(handler("h", "print"));
    let served = world.engine.serve(versioned(&native, "7")).await;
    assert_eq!(written(&world), "loading\ncalled\n");
    assert_eq!(served.tail, b"loading\ncalled\n");
}

#[tokio::test]
async fn the_end_of_a_long_log_is_what_a_caller_gets() {
    let world = World::new(EngineConfig::default());
    let served = world.engine.serve(versioned(&aws("flood:100000"), "1")).await;
    let tail = String::from_utf8(served.tail).unwrap();
    assert_eq!(tail.len(), 4096);
    assert!(tail.starts_with("....") && tail.contains(".\nEND RequestId: "), "{tail}");
    assert!(tail.lines().last().unwrap().starts_with("REPORT "), "{tail}");
}

#[tokio::test]
async fn a_failure_of_the_functions_is_told_and_one_of_the_workers_is_not() {
    let world = World::new(EngineConfig::default());
    let late = Handler { timeout: Duration::from_millis(50), ..(*aws("sleep:20000")).clone() };
    for (handler, what, status) in [
        (Arc::new(late), "Task timed out after 0.05 seconds\n\n", "Status: timeout"),
        (
            aws("exit:3"),
            "Runtime exited with error: exit status 3\nRuntime.ExitError\n",
            "Status: error\tError Type: Runtime.ExitError",
        ),
        // The guest has told of it.
        (aws("raise"), "", "Status: error\tError Type: ValueError"),
        (aws("unloadable"), "", "Status: error\tError Type: ImportError"),
    ] {
        let call = versioned(&handler, "1");
        let served = world.engine.serve(call.clone()).await;
        world.engine.log_failure(&call, served.result.as_ref().unwrap_err());
        let text = written(&world);
        let (start, rest) = text.split_once('\n').unwrap();
        assert_eq!(start, format!("START RequestId: {} Version: 1", call.id));
        let (told, report) = rest.split_once("END ").unwrap();
        assert!(told.ends_with(what) && told.is_empty() == what.is_empty(), "{text}");
        assert!(report.ends_with(&format!("\t{status}\n")), "{text}");
    }
    let world = World::new(EngineConfig::default());
    world.provider.fail(Operation::Fork, 1, Fault::Exhausted);
    let served = world.engine.serve(versioned(&aws("echo"), "1")).await;
    assert!(matches!(served.result, Err(CallError::NoSandbox(_))));
    assert_eq!(written(&world), "");
}

#[tokio::test]
async fn an_instance_whose_interpreter_would_have_ended_serves_no_other_call() {
    let world = World::new(EngineConfig::default());
    let exits = aws("exits");
    for _ in 0..2 {
        let served = world.engine.serve(call(&exits, b"{}")).await;
        assert!(matches!(served.result, Err(CallError::Raised(_))));
        assert_ne!(served.start, Some(engine::Start::Resume));
    }
    let lines = std::mem::take(&mut *world.lines.0.lock().unwrap());
    assert!(lines.len() == 2 && lines.iter().all(|line| line.stream == LogStream::Worker));
}
