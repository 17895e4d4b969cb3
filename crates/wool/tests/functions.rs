//! Deploying, listing, removing and logs over HTTP, on fake sandboxes.

mod world;

use std::time::Duration;

use hyper::{Method, header};
use store::Functions as _;
use store_sqlite::SqliteFunctions;
use world::World;

const NDJSON: (header::HeaderName, &str) = (header::ACCEPT, "application/x-ndjson");
const PYTHON: (header::HeaderName, &str) = (header::CONTENT_TYPE, "text/x-python");

#[tokio::test]
async fn a_function_is_deployed_listed_shown_and_removed() {
    let world = World::new().await;
    let deployed = world.deploy("f", "module = echo").await;
    assert_eq!(deployed.status, 201);
    let version = deployed.json()["version"].clone();
    assert_eq!(world.get("/v1/functions").await.json()["functions"][0]["name"], "f");
    let shown = world.get("/v1/functions/f").await.json();
    assert_eq!(
        (&shown["version"], &shown["handler"]),
        (&version, &serde_json::json!("echo.handler"))
    );
    let removed = world.send(Method::DELETE, "/v1/functions/f", &[], "").await;
    assert_eq!(removed.status, 204);
    for (method, path) in [
        (Method::GET, "/v1/functions/f"),
        (Method::DELETE, "/v1/functions/f"),
        (Method::POST, "/run/f"),
    ] {
        assert_eq!(world.send(method, path, &[], "").await.status, 404, "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn versions_are_named_by_what_they_are_made_of() {
    let world = World::new().await;
    let version = async |words: &str| {
        world.deploy("f", words).await.json()["version"].as_str().unwrap().to_owned()
    };
    let one = version("version = 1").await;
    let two = version("version = 2").await;
    assert_ne!(one, two);
    assert_eq!(version("version = 1").await, one);
    let shown = world.get("/v1/functions/f").await.json();
    assert_eq!(shown["version"], one.as_str());
    assert_eq!(shown["versions"].as_array().unwrap().len(), 2);
    world.stop().await;
}

#[tokio::test]
async fn idle_instances_of_a_replaced_version_are_destroyed() {
    let world = World::new().await;
    world.deploy("f", "version = 1").await;
    world.run("f", "{}").await;
    tokio::time::timeout(Duration::from_secs(5), async {
        while world.provider.census().paused == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the instance is kept");
    world.deploy("f", "version = 2").await;
    tokio::time::timeout(Duration::from_secs(5), async {
        while world.provider.census().instances > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the instance is gone");
    assert_eq!(world.run("f", "{}").await.header("lambswool-start"), "fork");
    world.stop().await;
}

#[tokio::test]
async fn a_streamed_deploy_tells_its_steps_and_then_its_end() {
    let world = World::new().await;
    let put = async |words: &'static str| {
        world.send(Method::PUT, "/v1/functions/f", &[PYTHON, NDJSON], words).await
    };
    let good = put("module = echo").await;
    let lines: Vec<serde_json::Value> =
        good.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["progress"], "reading words");
    assert_eq!(lines.last().unwrap()["deployed"]["name"], "f");
    let bad = put("refuse = no handler in f.py").await;
    let last: serde_json::Value = serde_json::from_str(bad.text().lines().last().unwrap()).unwrap();
    assert_eq!(last["error"]["message"], "no handler in f.py");
    assert_eq!(world.run("f", "{}").await.status, 200, "the version before is still current");
    world.stop().await;
}

#[tokio::test]
async fn what_cannot_be_deployed_is_refused_with_a_reason() {
    let world = World::with(|config| config.deploy_body = function::quantity::Bytes(1 << 10)).await;
    let put = async |path: &str, kind: &'static str, body: Vec<u8>| {
        let reply = world.send(Method::PUT, path, &[(header::CONTENT_TYPE, kind)], body).await;
        (reply.status.as_u16(), reply.error())
    };
    let refused = |status: u16, kind: &str| (status, kind.to_owned());
    assert_eq!(
        put("/v1/functions/f", "text/plain", vec![1]).await,
        refused(415, "unsupported-type")
    );
    assert_eq!(
        put("/v1/functions/f", "text/x-python", vec![1; 4096]).await,
        refused(413, "body-too-large")
    );
    assert_eq!(
        put("/v1/functions/f", "text/x-python", b"refuse = x".to_vec()).await,
        refused(422, "manifest")
    );
    for name in ["-f", "a.b", "a%2Fb", "%FF", "%2e%2e"] {
        assert_eq!(
            put(&format!("/v1/functions/{name}"), "text/x-python", vec![1]).await,
            refused(400, "bad-name")
        );
    }
    assert_eq!(world.get("/v1/functions").await.json()["functions"], serde_json::json!([]));
    world.stop().await;
}

#[tokio::test]
async fn what_wool_run_made_is_not_listed_and_not_stored() {
    let world = World::new().await;
    world.send(Method::PUT, "/v1/functions/h?hidden=true", &[PYTHON], "module = echo").await;
    world.deploy("f", "module = echo").await;
    let names = |reply: world::Reply| reply.json()["functions"].as_array().unwrap().len();
    assert_eq!(names(world.get("/v1/functions").await), 1);
    assert_eq!(names(world.get("/v1/functions?hidden=true").await), 2);
    assert_eq!(world.run("h", "{}").await.status, 200);
    let shown = world.get("/v1/functions/h").await.json();
    assert_eq!(shown["versions"][0]["version"], shown["version"]);
    let stored = SqliteFunctions::open(&world.state.path().join("functions.sqlite")).unwrap();
    assert_eq!(stored.list().unwrap().len(), 1);
    drop(stored);
    let state = world.stop().await;
    let world = World::on(state, |_| {}).await;
    assert_eq!(names(world.get("/v1/functions?hidden=true").await), 1);
    world.stop().await;
}

#[tokio::test]
async fn what_a_function_really_runs_in_is_listed_and_what_it_warns_of_is_told() {
    let world = World::new().await;
    let put = async |name: &str, query: &str| {
        let path = format!("/v1/functions/{name}?{query}");
        world.send(Method::PUT, &path, &[PYTHON], "warn = f.py: [lambswol] is not read").await
    };
    let deployed = put("a", "").await.json();
    assert_eq!(deployed["warnings"], serde_json::json!(["f.py: [lambswol] is not read"]));
    put("b", "isolation=microvm&reset=always").await;
    put("c", "isolation=container&reset=never").await;
    let listed = world.get("/v1/functions").await.json();
    let shown: Vec<_> = listed["functions"].as_array().unwrap().iter().map(what).collect();
    let (container, machine) = (("container", "never"), ("microvm", "always"));
    assert_eq!(shown, [container, machine, container]);
    let detail = world.get("/v1/functions/b").await.json();
    assert_eq!(what(&detail), machine);
    assert!(detail["warnings"][0].as_str().unwrap().contains("[lambswol]"), "it is still there");
    world.stop().await;
}

fn what(function: &serde_json::Value) -> (&str, &str) {
    (function["isolation"].as_str().unwrap(), function["reset"].as_str().unwrap())
}

#[tokio::test]
async fn a_query_that_is_not_known_is_refused_with_those_that_are() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    for (method, path, known) in [
        (Method::PUT, "/v1/functions/f?isolaton=microvm", "isolation"),
        (Method::PUT, "/v1/functions/f?reset=sometimes", "always"),
        (Method::GET, "/v1/functions?hiden=true", "hidden"),
        (Method::GET, "/v1/functions/f/logs?folow=true", "follow"),
        (Method::GET, "/v1/audit?line=1", "lines"),
    ] {
        let reply = world::exchange(&world.unix, method, path, "").await;
        assert_eq!((reply.status.as_u16(), reply.error().as_str()), (400, "bad-query"), "{path}");
        assert!(reply.text().contains(known), "{}", reply.text());
    }
    world.stop().await;
}

#[tokio::test]
async fn a_query_is_refused_where_none_is_taken_and_nothing_is_done() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    // Every route of the description; those that take something are given something else.
    let api = world.get("/openapi.json").await.json();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let asked = path.replace("{name}", "f").replace("{key}", "K").replace("{token}", "t");
            let asked = format!("{asked}?dry_run=true");
            let method: Method = method.to_uppercase().parse().unwrap();
            let reply = world::exchange(&world.unix, method.clone(), &asked, "").await;
            let said = (reply.status.as_u16(), reply.error());
            assert_eq!(said, (400, "bad-query".to_owned()), "{method} {asked}");
            assert!(reply.text().contains("dry_run"), "{method} {asked}: {}", reply.text());
        }
    }
    assert_eq!(world.get("/v1/functions/f").await.status, 200, "it is still there");
    // An empty one says nothing.
    assert_eq!(world.get("/healthz?").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_fresh_deploy_of_the_same_leaves_no_instance_to_the_next_call() {
    let world = World::new().await;
    let put = async |query: &str| {
        let path = format!("/v1/functions/f?{query}");
        assert_eq!(world.send(Method::PUT, &path, &[PYTHON], "module = echo").await.status, 201);
        world.run("f", "{}").await.header("lambswool-start").to_owned()
    };
    assert_eq!(put("").await, "fork");
    assert_eq!(put("").await, "resume");
    assert_eq!(put("fresh=true").await, "fork");
    assert_eq!(put("fresh=false").await, "resume");
    world.stop().await;
}

#[tokio::test]
async fn of_many_that_wool_run_made_the_one_unused_longest_goes_with_its_log() {
    let world = World::new().await;
    world.deploy("deployed", "module = print").await;
    let put = async |name: &str| {
        let path = format!("/v1/functions/{name}?hidden=true");
        let put = world.send(Method::PUT, &path, &[PYTHON], "module = print").await;
        assert_eq!(put.status, 201, "{}", put.text());
    };
    put("first").await;
    put("second").await;
    for name in ["second", "first"] {
        assert_eq!(world.run(name, "{}").await.status, 200);
    }
    for n in 0..31 {
        put(&format!("other-{n}")).await;
    }
    let all = world.get("/v1/functions?hidden=true").await.json();
    assert_eq!(all["functions"].as_array().unwrap().len(), 33, "32 of them, and the one deployed");
    assert_eq!(world.get("/v1/functions/second/logs").await.status, 404);
    assert!(!world.state.path().join("logs/second").exists());
    for name in ["first", "deployed"] {
        assert_eq!(world.run(name, "{}").await.status, 200, "{name}");
    }
    world.stop().await;
}

#[tokio::test]
async fn what_a_call_printed_can_be_read_as_soon_as_it_returned() {
    let world = World::new().await;
    world.deploy("f", "module = print").await;
    for _ in 0..20 {
        let called = world.run("f", "{}").await;
        let id = called.header("lambswool-invocation");
        let log = world.get(&format!("/v1/functions/f/logs?invocation={id}")).await.text();
        let own: Vec<&str> = log.lines().filter(|line| line.contains(id)).collect();
        assert_eq!(own.len(), 1, "{log}");
        assert!(own[0].ends_with(" stdout called"), "{log}");
        assert!(log.lines().any(|line| line.ends_with(" - stdout loading")), "{log}");
    }
    let entries =
        world.send(Method::GET, "/v1/functions/f/logs?lines=3", &[NDJSON], "").await.text();
    assert_eq!(entries.lines().count(), 3);
    assert!(
        entries.lines().all(
            |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"] == "called"
        )
    );
    assert_eq!(world.get("/v1/functions/g/logs").await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn a_name_that_wool_run_makes_is_given_to_nothing_but_what_it_is_the_hash_of() {
    let world = World::new().await;
    let name = format!("run-{}", "0".repeat(48));
    let refused = world.deploy(&name, "module = echo").await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (400, "bad-name"));
    assert!(refused.text().contains("choose another name"), "{}", refused.text());
    let secret = format!("/v1/functions/{name}/secrets/KEY");
    let refused = world::exchange(&world.unix, Method::PUT, &secret, "value").await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (400, "bad-secret"));
    // Other names are anybody's.
    for name in ["run-1", "run", &name[..40]] {
        assert_eq!(world.deploy(name, "module = echo").await.status, 201, "{name}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_follower_sees_what_comes_and_is_cut_off_with_the_worker() {
    let world = World::new().await;
    world.deploy("f", "module = print").await;
    let response = world
        .unix
        .send(Method::GET, "/v1/functions/f/logs?follow=true", &[], "".into())
        .await
        .unwrap();
    let client = world.unix.clone();
    let follower = tokio::spawn(async move {
        let mut lines = Vec::new();
        let end = client
            .lines(response, |line| lines.push(String::from_utf8(line.to_vec()).unwrap()))
            .await;
        (lines, end)
    });
    for _ in 0..3 {
        world.run("f", "{}").await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    world.stop().await;
    let (lines, end) = follower.await.unwrap();
    assert_eq!(lines.iter().filter(|line| line.ends_with("called")).count(), 3, "{lines:?}");
    assert!(
        matches!(end, Err(wool::client::ClientError::Broken { .. })),
        "it has no proper end: {end:?}"
    );
}

#[tokio::test]
async fn a_follower_ends_when_its_function_is_removed_and_with_no_other() {
    let world = World::new().await;
    world.deploy("f", "module = print").await;
    let path = "/v1/functions/f/logs?follow=true";
    let response = world.unix.ask(Method::GET, path, &[], "".into()).await.unwrap();
    let client = world.unix.clone();
    let mut follower = tokio::spawn(async move { client.lines(response, |_| ()).await });
    // More than a follower may be behind.
    for n in 0..80 {
        let name = format!("other-{n}");
        world.deploy(&name, "module = print").await;
        let path = format!("/v1/functions/{name}");
        assert_eq!(world::exchange(&world.unix, Method::DELETE, &path, "").await.status, 204);
    }
    world.run("f", "{}").await;
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut follower).await.is_err());
    assert_eq!(
        world::exchange(&world.unix, Method::DELETE, "/v1/functions/f", "").await.status,
        204
    );
    let end = tokio::time::timeout(Duration::from_secs(60), follower).await.expect("it ends");
    end.unwrap().unwrap();
    world.stop().await;
}
