//! Secrets over HTTP, on fake sandboxes.

mod world;

use hyper::Method;
use serde_json::json;
use world::{World, exchange};

const VALUE: &str = "hunter2-and-something-longer";

#[tokio::test]
async fn a_secret_reaches_the_function_and_nothing_else_ever_shows_it() {
    let world = World::new().await;
    let set = exchange(&world.unix, Method::PUT, "/v1/functions/f/secrets/DB_URL", VALUE).await;
    assert_eq!(set.status, 204, "before the function is there");
    let python = [(hyper::header::CONTENT_TYPE, "text/x-python")];
    let source = "module = environment".into();
    let path = "/v1/functions/f";
    drop(world.unix.ask(Method::PUT, path, &python, source).await.unwrap());
    assert_eq!(world.run("f", "{}").await.json()["DB_URL"], VALUE);
    let admin = world.token(json!({ "name": "admin", "scopes": ["admin"] })).await;
    for path in [
        "/v1/functions",
        "/v1/functions/f",
        "/v1/functions/f/logs",
        "/v1/functions/f/secrets",
        "/v1/status",
        "/v1/zygotes",
        "/v1/audit",
        "/metrics",
    ] {
        let shown = world.send_as(&admin, Method::GET, path, "").await;
        assert_eq!(shown.status, 200, "{path}");
        assert!(!shown.text().contains(VALUE), "{path}");
    }
    let listed = world.send_as(&admin, Method::GET, "/v1/functions/f/secrets", "").await.json();
    assert_eq!(listed["secrets"][0]["key"], "DB_URL");
    let mut pending = vec![world.state.path().to_owned()];
    while let Some(place) = pending.pop() {
        if place.is_dir() {
            pending.extend(std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()));
        } else if place.is_file() {
            let bytes = std::fs::read(&place).unwrap();
            let found = bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes());
            assert!(!found, "{}", place.display());
        }
    }
    let state = world.stop().await;
    let world = World::on(state, |_| {}).await;
    let again = world.send_as(&admin, Method::POST, "/run/f", "{}").await;
    assert_eq!(again.json()["DB_URL"], VALUE, "after a start, too");
    world.stop().await;
}

#[tokio::test]
async fn a_changed_secret_ends_the_instances_that_have_the_old_one() {
    let world = World::new().await;
    world.deploy("f", "module = environment").await;
    let secret = "/v1/functions/f/secrets/KEY";
    for value in ["one", "two", "three"] {
        assert_eq!(exchange(&world.unix, Method::PUT, secret, value).await.status, 204);
        let called = world.run("f", "{}").await;
        assert_eq!(called.json()["KEY"], value);
        assert_eq!(called.header("lambswool-start"), "fork");
        assert_eq!(world.run("f", "{}").await.header("lambswool-start"), "resume");
    }
    assert_eq!(exchange(&world.unix, Method::DELETE, secret, "").await.status, 204);
    assert_eq!(world.run("f", "{}").await.json(), json!({}));
    let gone = exchange(&world.unix, Method::DELETE, secret, "").await;
    assert_eq!((gone.status.as_u16(), gone.error().as_str()), (404, "unknown-secret"));
    world.stop().await;
}

#[tokio::test]
async fn secrets_go_with_their_function() {
    let world = World::new().await;
    world.deploy("f", "module = environment").await;
    let secret = "/v1/functions/f/secrets/KEY";
    assert_eq!(exchange(&world.unix, Method::PUT, secret, "one").await.status, 204);
    let removed = exchange(&world.unix, Method::DELETE, "/v1/functions/f", "").await;
    assert_eq!(removed.status, 204);
    world.deploy("f", "module = environment").await;
    assert_eq!(world.run("f", "{}").await.json(), json!({}));
    world.stop().await;
}

#[tokio::test]
async fn what_cannot_be_a_secret_is_refused_without_being_repeated() {
    let world = World::new().await;
    let put = async |key: &str, value: Vec<u8>| {
        let path = format!("/v1/functions/f/secrets/{key}");
        let reply = exchange(&world.unix, Method::PUT, &path, value).await;
        assert!(!reply.text().contains("hunter2"));
        reply.status.as_u16()
    };
    let hunter = || b"hunter2".to_vec();
    for bad in ["A-B", "1A", "A%20B", "%FF", "A=B", &"A".repeat(129)] {
        assert_eq!(put(bad, hunter()).await, 400, "{bad}");
    }
    assert_eq!(put("A", b"hunter2\0".to_vec()).await, 400);
    assert_eq!(put("A", b"hunter2\xff".to_vec()).await, 400);
    assert_eq!(put("A", [hunter(), vec![b'x'; 40 << 10]].concat()).await, 413);
    assert_eq!(put("A", vec![b'x'; 20 << 10]).await, 204);
    assert_eq!(put("B", vec![b'x'; 20 << 10]).await, 413, "together they are too large");
    assert_eq!(put("A", vec![1; 31 << 10]).await, 204, "what JSON escapes to six times as much");
    world.deploy("g", "module = echo").await;
    world.stop().await;
}

#[tokio::test]
async fn another_key_or_another_functions_row_opens_nothing() {
    let world = World::new().await;
    for name in ["f", "g"] {
        world.deploy(name, "module = environment").await;
        let secret = format!("/v1/functions/{name}/secrets/KEY");
        let set = exchange(&world.unix, Method::PUT, &secret, format!("of-{name}")).await;
        assert_eq!(set.status, 204);
    }
    let state = world.stop().await;
    let path = state.path().join("secrets.sqlite");
    let disk = rusqlite::Connection::open(&path).unwrap();
    // Whoever writes to the database gives one function's secret to another.
    let swap = "UPDATE secrets SET (nonce, sealed) =
                (SELECT nonce, sealed FROM secrets WHERE function = 'g') WHERE function = 'f'";
    assert_eq!(disk.execute(swap, []).unwrap(), 1);
    drop(disk);
    let world = World::on(state, |_| {}).await;
    let refused = world.run("f", "{}").await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (503, "no-secrets"));
    assert!(!refused.text().contains("of-g"));
    assert_eq!(world.run("g", "{}").await.json()["KEY"], "of-g");
    let state = world.stop().await;
    std::fs::write(state.path().join("secret.key"), "07".repeat(32)).unwrap();
    let refused = world::bind(world::config(state.path()), Default::default()).await.unwrap_err();
    assert!(format!("{refused:#}").contains("another key"), "{refused:#}");
}
