//! Calling functions: what goes in, what comes out, what is told about the way there.

use e2e::{Site, Value, Worker, can_run, json};

const WHO: &str = r#"
import os
HERE = os.urandom(8).hex()
def handler(event, context):
    return HERE
"#;

#[test]
fn the_second_call_of_a_function_resumes_the_instance_of_the_first() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let first = worker.try_out("who", WHO).expect(200);
    let second = worker.run("who", &json!({})).expect(200);
    // Deploying prepares the zygote: the first call finds it.
    assert_eq!(
        (first.header("lambswool-start"), second.header("lambswool-start")),
        ("fork", "resume")
    );
    assert_eq!(first.json(), second.json());
    assert_eq!(
        stages(first.header("server-timing")),
        ["resolve", "admit", "import_cache", "fork", "load", "call"]
    );
    assert_eq!(
        stages(second.header("server-timing")),
        ["resolve", "admit", "handler_cache", "call"]
    );
    assert_ne!(first.header("lambswool-invocation"), second.header("lambswool-invocation"));
    assert_eq!(first.header("lambswool-invocation").len(), 36);
    assert_eq!(worker.status()["engine"]["instances"]["idle"], 1);
    metrics_tell_stages_and_sandboxes(&worker);
    // What every test asserts to be gone in the end is there now.
    assert!(!worker.site().sandboxed().is_empty() && !worker.site().cgroups().is_empty());
    assert!(worker.site().processes().len() > worker.site().sandboxed().len());
}

#[test]
fn without_zygotes_and_without_a_handler_cache_every_call_starts_cold() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_ZYGOTES", "none"), ("WOOL_HANDLER_CACHE", "false")]);
    let first = worker.try_out("who", WHO).expect(200);
    let second = worker.run("who", &json!({})).expect(200);
    assert_eq!(
        (first.header("lambswool-start"), second.header("lambswool-start")),
        ("cold", "cold")
    );
    assert_ne!(first.json(), second.json());
    worker.assert_well();
}

#[test]
fn a_function_sees_what_lambda_would_show_it() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    the_environment_is_the_functions_own(&worker);
    bytes_pass_through_where_asked_for(&worker);
    every_kind_of_json_comes_back_as_it_went(&worker);
    worker.assert_well();
}

#[test]
fn the_context_has_lambdas_fields() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let source = r#"
# /// script
# dependencies = []
# [tool.lambswool]
# memory = "200MB"
# timeout = 9
# ///
def handler(event, context):
    return {
        "name": context.function_name,
        "version": context.function_version,
        "memory": context.memory_limit_in_mb,
        "request": context.aws_request_id,
        "group": context.log_group_name,
        "stream": context.log_stream_name,
        "arn": context.invoked_function_arn,
        "left": context.get_remaining_time_in_millis(),
        "identity": context.identity is not None,
        "client": context.client_context,
    }
"#;
    let reply = worker.try_out("context", source).expect(200);
    let (seen, current) = (reply.json(), worker.get("/v1/functions/context").json());
    assert_eq!(seen["name"], "context");
    assert_eq!(seen["version"], current["version"]);
    assert_eq!(seen["memory"].to_string().trim_matches('"'), "200");
    assert_eq!(seen["request"], reply.header("lambswool-invocation"));
    assert!((1..=9000).contains(&seen["left"].as_u64().unwrap()), "{seen}");
    for key in ["group", "arn"] {
        assert!(seen[key].as_str().unwrap().contains("context"), "{key}: {seen}");
    }
    worker.assert_well();
}

fn the_environment_is_the_functions_own(worker: &Worker) {
    let source = r#"
# /// script
# [tool.lambswool]
# environment = { GREETING = "hej", COUNT = 3 }
# ///
import os
def handler(event, context):
    return dict(os.environ)
"#;
    let seen = worker.try_out("environment", source).expect(200).json();
    assert_eq!((&seen["GREETING"], &seen["COUNT"]), (&json!("hej"), &json!("3")));
    assert_eq!((&seen["LAMBDA_TASK_ROOT"], &seen["HOME"]), (&json!("/var/task"), &json!("/tmp")));
    // Nothing of the worker's, which has all of these.
    for name in ["WOOL_STATE", "XDG_CONFIG_HOME", "CARGO_MANIFEST_DIR", "USER", "SUDO_USER"] {
        assert_eq!(seen[name], Value::Null, "{name}");
    }
}

#[test]
fn both_conventions_are_called() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("open", "def f(event):\n    return event['a'] + 1\n").expect(201));
    assert_eq!(worker.run("open", &json!({"a": 41})).expect(200).json(), 42);
    drop(
        worker
            .deploy("aws", "def lambda_handler(event, context):\n    return event['a'] + 2\n")
            .expect(201),
    );
    assert_eq!(worker.run("aws", &json!({"a": 41})).expect(200).json(), 43);
    // A call without a body is a call with {}.
    drop(worker.deploy("same", "def handler(event, context):\n    return event\n").expect(201));
    assert_eq!(worker.post("/run/same", "application/json", b"").expect(200).json(), json!({}));
    worker.assert_well();
}

#[test]
fn an_async_handler_is_awaited() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let source = r#"
import asyncio
async def handler(event, context):
    parts = await asyncio.gather(*(part(n) for n in range(3)))
    return sum(parts)
async def part(n):
    await asyncio.sleep(0.01)
    return n
"#;
    assert_eq!(worker.try_out("async", source).expect(200).json(), 3);
    assert_eq!(worker.run("async", &json!({})).expect(200).json(), 3);
    worker.assert_well();
}

fn bytes_pass_through_where_asked_for(worker: &Worker) {
    let source = r#"
# /// script
# [tool.lambswool]
# binary = true
# ///
def handler(event, context):
    return bytes(reversed(event)), context.content_type + "+reversed"
"#;
    drop(worker.deploy("bytes", source).expect(201));
    let sent: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let reply = worker.post("/run/bytes", "image/x-test", &sent).expect(200);
    assert_eq!(reply.header("content-type"), "image/x-test+reversed");
    assert!(reply.body.iter().eq(sent.iter().rev()), "{} bytes", reply.body.len());
}

fn every_kind_of_json_comes_back_as_it_went(worker: &Worker) {
    drop(worker.deploy("same", "def handler(event, context):\n    return event\n").expect(201));
    let long = "wool ".repeat(200_000);
    for event in [
        json!(null),
        json!(-1.5),
        json!("ü\u{1f411}\u{0}\n"),
        json!([[], {}, [1, [2, [3]]]]),
        json!({"text": long}),
    ] {
        let reply = worker.run("same", &event).expect(200);
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.json(), event);
    }
}

fn metrics_tell_stages_and_sandboxes(worker: &Worker) {
    let reply = worker.get("/metrics").expect(200);
    let text = reply.text();
    for sample in [
        "lambswool_stage_seconds_count{stage=\"fork\"} 1",
        "lambswool_stage_seconds_count{stage=\"call\"} 2",
        "lambswool_sandboxes{kind=\"instance\",state=\"idle\"} 1",
        "lambswool_memory_bytes{kind=\"zygote\"}",
    ] {
        assert!(text.contains(sample), "no {sample} in\n{text}");
    }
}

fn stages(header: &str) -> Vec<&str> {
    header.split(", ").map(|stage| stage.split(';').next().unwrap()).collect()
}
