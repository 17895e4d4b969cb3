//! Starting, stopping and who may do what, on fake sandboxes.

mod world;

use std::time::{Duration, Instant};

use hyper::{Method, header};
use sandbox::fake::FakeProvider;
use world::World;

#[tokio::test]
async fn deployed_functions_are_there_after_a_restart() {
    let world = World::new().await;
    let version = world.deploy("f", "module = echo").await.json()["version"].clone();
    let world = World::on(world.stop().await, |_| {}).await;
    assert_eq!(world.get("/v1/functions/f").await.json()["version"], version);
    assert_eq!(world.run("f", "1").await.text(), "1");
    world.stop().await;
}

#[tokio::test]
async fn stopping_waits_for_running_calls_and_leaves_nothing() {
    let world = World::new().await;
    world.deploy("f", "module = sleep:500").await;
    let client = world.tcp.clone();
    let call = tokio::spawn(async move {
        let response = client.send(Method::POST, "/run/f", &[], "{}".into()).await.unwrap();
        response.status().as_u16()
    });
    while world.provider.census().instances == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let provider = world.provider.clone();
    let state = world.stop().await;
    assert_eq!(call.await.unwrap(), 200);
    assert_eq!((provider.census().instances, provider.census().zygotes), (0, 0));
    let left: Vec<_> = std::fs::read_dir(state.path().join("run")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn stopping_never_waits_longer_than_it_was_told() {
    let world =
        World::with(|config| config.drain = function::quantity::Span(Duration::from_millis(200)))
            .await;
    world.deploy("f", "module = sleep:60000\ntimeout = 60000").await;
    let client = world.tcp.clone();
    let call = tokio::spawn(async move {
        client.send(Method::POST, "/run/f", &[], "{}".into()).await.map(|r| r.status())
    });
    while world.provider.census().instances == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let began = Instant::now();
    world.stop().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(call.await);
}

#[tokio::test]
async fn only_the_unix_socket_may_stop_the_worker() {
    let world = World::new().await;
    assert_eq!(world::exchange(&world.tcp, Method::POST, "/v1/stop", "").await.status, 404);
    let stopped = world.unix.send(Method::POST, "/v1/stop", &[], "".into()).await.unwrap();
    assert_eq!(stopped.status(), 202);
    world.stop().await;
}

#[tokio::test]
async fn web_pages_of_other_sites_are_kept_out_of_tcp() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    for (name, value) in [(header::ORIGIN, "https://evil.example"), (header::HOST, "evil.example")]
    {
        let refused = world.send(Method::POST, "/run/f", &[(name, value)], "{}").await;
        assert_eq!((refused.status.as_u16(), refused.error().as_str()), (403, "foreign-origin"));
    }
    assert_eq!(world.provider.census().forked_instances, 0);
    world.stop().await;
}

#[tokio::test]
async fn a_second_worker_and_a_busy_port_are_told_apart() {
    let world = World::new().await;
    let second = world::bind(world::config(world.state.path()), FakeProvider::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        second.contains("wool down") && second.contains(&std::process::id().to_string()),
        "{second}"
    );
    let other = tempfile::tempdir().unwrap();
    let mut config = world::config(other.path());
    config.listen = world.url.strip_prefix("http://").unwrap().parse().unwrap();
    let busy = world::bind(config, FakeProvider::default()).await.unwrap_err().to_string();
    assert!(busy.contains("already listens") && busy.contains("--listen"), "{busy}");
    world.stop().await;
}

#[tokio::test]
async fn a_start_without_the_database_of_functions_removes_nothing_of_theirs() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    let state = world.stop().await;
    let at = |name: &str| state.path().join(name);
    let start = async || world::bind(world::config(state.path()), FakeProvider::default()).await;
    std::fs::create_dir_all(at("logs/f")).unwrap();
    let theirs = [at("bundles/0.tar"), at("handlers/0.json"), at("logs/f/current.log")];
    theirs.iter().for_each(|file| std::fs::write(file, "theirs").unwrap());
    let database = at("functions.sqlite");
    std::fs::rename(&database, at("kept")).unwrap();
    for empty in [false, true] {
        if empty {
            std::fs::write(&database, "").unwrap();
        }
        let refused = start().await.unwrap_err().to_string();
        for told in ["functions.sqlite is gone or empty", "bundles", "handlers", "logs", "backup"] {
            assert!(refused.contains(told), "{refused}");
        }
        assert!(theirs.iter().all(|file| file.exists()), "empty: {empty}");
    }
    std::fs::rename(at("kept"), &database).unwrap();
    let world = World::on(state, |_| {}).await;
    assert_eq!(world.run("f", "1").await.text(), "1");
    // Given up on purpose.
    let state = world.stop().await;
    let at = |name: &str| state.path().join(name);
    std::fs::remove_file(at("functions.sqlite")).unwrap();
    for name in ["bundles", "handlers", "logs"] {
        drop(std::fs::remove_dir_all(at(name)));
    }
    World::on(state, |_| {}).await.stop().await;
}

#[tokio::test]
async fn a_start_without_the_database_of_tokens_lets_nobody_in() {
    let world = World::new().await;
    let token = serde_json::json!({ "name": "admin", "scopes": ["admin"] });
    world.token(token).await;
    let state = world.stop().await;
    let at = |name: &str| state.path().join(name);
    let start = async || world::bind(world::config(state.path()), FakeProvider::default()).await;
    let database = at("access.sqlite");
    std::fs::rename(&database, at("kept")).unwrap();
    let refused = start().await.unwrap_err().to_string();
    assert!(refused.contains("access.sqlite is gone"), "{refused}");
    assert!(refused.contains("wool token create"), "{refused}");
    assert!(!database.exists());
    std::fs::rename(at("kept"), &database).unwrap();
    // The record and the secrets may be given up without a word of the operator's.
    for name in ["audit.sqlite", "secrets.sqlite"] {
        std::fs::remove_file(at(name)).unwrap();
    }
    let world = World::on(state, |_| {}).await;
    let called = world::exchange(&world.tcp, Method::POST, "/run/f", "{}").await;
    assert_eq!(called.status, 401);
    let state = world.stop().await;
    // A key that the worker made anew would open nothing.
    std::fs::remove_file(state.path().join("secret.key")).unwrap();
    let start = world::bind(world::config(state.path()), FakeProvider::default()).await;
    let refused = start.unwrap_err().to_string();
    assert!(refused.contains("secret.key is gone"), "{refused}");
    assert!(!state.path().join("secret.key").exists());
}

#[tokio::test]
async fn the_worker_describes_itself() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    world.run("f", "{}").await;
    assert_eq!(world.get("/healthz").await.text(), "ok\n");
    let status = world.get("/v1/status").await.json();
    assert_eq!(
        (&status["url"], &status["functions"]),
        (&serde_json::json!(world.url), &serde_json::json!(1))
    );
    assert!(status["engine"]["zygotes"].is_array(), "{status}");
    let metrics = world.get("/metrics").await.text();
    for series in [
        "lambswool_stage_seconds_bucket{stage=\"resolve\"",
        "lambswool_stage_seconds_bucket{stage=\"call\"",
        "lambswool_calls_total",
        "lambswool_cache_total",
        "lambswool_sandboxes",
        "lambswool_memory_bytes",
    ] {
        assert!(metrics.contains(series), "{series} is missing in\n{metrics}");
    }
    let described = world.get("/openapi.json").await.json();
    for path in [
        "/v1/functions",
        "/v1/functions/{name}",
        "/v1/functions/{name}/logs",
        "/run/{name}",
        "/healthz",
        "/metrics",
        "/v1/status",
        "/v1/stop",
    ] {
        assert!(described["paths"][path].is_object(), "{path}");
    }
    let lost = world.get("/v2").await;
    assert_eq!((lost.status.as_u16(), lost.error().as_str()), (404, "unknown-path"));
    assert_eq!(world.send(Method::PATCH, "/v1/functions", &[], "").await.error(), "wrong-method");
    world.stop().await;
}
