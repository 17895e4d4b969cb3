//! Calls over HTTP, on fake sandboxes.

mod world;

use std::time::{Duration, Instant};

use hyper::{Method, header};
use world::World;

#[tokio::test]
async fn every_reply_says_its_stages_its_start_and_its_invocation() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    let first = world.run("f", "{\"a\": 1}").await;
    assert_eq!((first.status.as_u16(), first.text().as_str()), (200, "{\"a\": 1}"));
    assert_eq!(first.header("content-type"), "application/json");
    assert_eq!(first.header("lambswool-start"), "fork");
    assert_eq!(first.header("lambswool-invocation").len(), 36);
    let second = world.run("f", "{}").await;
    assert_eq!(second.header("lambswool-start"), "resume");
    assert_ne!(first.header("lambswool-invocation"), second.header("lambswool-invocation"));
    for stage in ["resolve;dur=", "fork;dur=", "load;dur=", "call;dur="] {
        assert!(first.header("server-timing").contains(stage), "{}", first.header("server-timing"));
    }
    assert!(!second.header("server-timing").contains("fork"), "{}", second.header("server-timing"));
    world.stop().await;
}

#[tokio::test]
async fn invalid_json_is_refused_before_any_sandbox_is_made() {
    let world = World::with(|config| config.zygotes = Some(engine::ZygotePolicy::None)).await;
    world.deploy("f", "module = echo").await;
    for body in ["{", "{'a': 1}", "a=1", "NaN"] {
        let refused = world.run("f", body).await;
        assert_eq!(
            (refused.status.as_u16(), refused.error().as_str()),
            (400, "bad-json"),
            "{body}"
        );
    }
    assert_eq!(world.provider.census().created_instances, 0);
    assert_eq!(world.run("f", "").await.status, 200, "no event at all is allowed");
    world.stop().await;
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_and_the_next_call_works() {
    let world = World::with(|config| config.run_body = function::quantity::Bytes(1 << 20)).await;
    world.deploy("f", "module = echo\nbinary = true").await;
    let large = world.send(Method::POST, "/run/f", &[], vec![7; 40 << 20]).await;
    assert_eq!((large.status.as_u16(), large.error().as_str()), (413, "body-too-large"));
    let fits = world.send(Method::POST, "/run/f", &[], vec![7; 1 << 20]).await;
    assert_eq!((fits.status.as_u16(), fits.body.len()), (200, 1 << 20));
    world.stop().await;
}

#[tokio::test]
async fn a_binary_function_gets_bytes_and_their_content_type() {
    let world = World::new().await;
    world.deploy("f", "module = echo\nbinary = true").await;
    let image = [(header::CONTENT_TYPE, "image/png")];
    let reply = world.send(Method::POST, "/run/f", &image, vec![0xff, 0, 0x80]).await;
    assert_eq!(
        (reply.header("content-type"), &reply.body[..]),
        ("image/png", &[0xff, 0, 0x80][..])
    );
    world.stop().await;
}

#[tokio::test]
async fn what_goes_wrong_in_a_function_has_its_own_status() {
    let world = World::new().await;
    let cases = [
        ("raise", 502),
        ("unloadable", 502),
        ("exit:3", 502),
        ("oom", 502),
        ("garbage", 502),
        ("sleep:5000", 504),
    ];
    for (number, (module, status)) in cases.into_iter().enumerate() {
        let name = format!("f{number}");
        world.deploy(&name, &format!("module = {module}\ntimeout = 100")).await;
        let reply = world.run(&name, "{}").await;
        assert_eq!(reply.status.as_u16(), status, "{module}: {}", reply.text());
        assert!(!reply.json()["error"]["message"].as_str().unwrap().is_empty());
        assert!(
            !reply.header("server-timing").is_empty()
                && !reply.header("lambswool-start").is_empty()
        );
    }
    assert_eq!(world.run("f0", "{}").await.status, 502, "and it goes on serving");
    world.stop().await;
}

#[tokio::test]
async fn how_a_call_failed_is_in_the_log_under_its_invocation() {
    let world = World::new().await;
    world.deploy("f", "module = raise").await;
    world.deploy("late", "module = sleep:60000\ntimeout = 100").await;
    let logged = async |name: &str| {
        let reply = world.run(name, "{}").await;
        let id = reply.header("lambswool-invocation").to_owned();
        let path = format!("/v1/functions/{name}/logs?invocation={id}");
        world.get(&path).await.text()
    };
    let raised = logged("f").await;
    assert!(raised.contains(" worker [ERROR] ValueError"), "{raised}");
    let late = logged("late").await;
    assert!(late.contains(" worker [ERROR] no answer within 0.1 s: "), "{late}");
    assert_eq!(late.lines().count(), 1, "{late}");
    world.stop().await;
}

#[tokio::test]
async fn too_many_calls_are_told_when_to_come_back() {
    let world = World::with(|config| config.queue = 0).await;
    world.deploy("f", "module = sleep:400\nconcurrency = 1").await;
    let (one, other) = tokio::join!(world.run("f", "{}"), world.run("f", "{}"));
    let refused = if one.status == 200 { &other } else { &one };
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (429, "busy"));
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_call() {
    let world = World::new().await;
    world.deploy("f", "module = sleep:60000\ntimeout = 60000").await;
    let call = world.tcp.send(Method::POST, "/run/f", &[], "{}".into());
    let cut = tokio::time::timeout(Duration::from_millis(200), call).await;
    assert!(cut.is_err(), "the call was to be cut short");
    let began = Instant::now();
    while world.provider.census().instances > 0 {
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", world.provider.census());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn unknown_functions_leave_no_trace() {
    let world = World::new().await;
    let before = world.get("/metrics").await.body.len();
    for n in 0..300 {
        let reply = world.run(&format!("unknown-{n}"), "{}").await;
        assert_eq!((reply.status.as_u16(), reply.error().as_str()), (404, "unknown-function"));
    }
    let after = world.get("/metrics").await;
    assert!(!after.text().contains("unknown-"));
    assert!(after.body.len() <= before + 500, "{before} → {}", after.body.len());
    assert_eq!(std::fs::read_dir(world.state.path().join("logs")).unwrap().count(), 0);
    world.stop().await;
}
