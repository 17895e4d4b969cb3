//! Deploys that take long, and who has to wait for them.

mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::{Method, header};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use world::World;

/// Long enough for whatever is bound to happen.
const PATIENCE: Duration = Duration::from_secs(60);

async fn appears(path: &Path) {
    let look = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("no {}", path.display()));
}

/// A deploy under way that ends with the file, over a connection of its own.
async fn begin(world: &World, name: &str, accept: &str) -> (UnixStream, PathBuf) {
    let file = world.state.path().join("run").join(name).with_extension("x");
    let source = format!("module = echo\nuntil = {}\n", file.display());
    let mut stream = UnixStream::connect(world.state.path().join("run/wool.sock")).await.unwrap();
    let head = format!(
        "PUT /v1/functions/{name} HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/x-python\r\naccept: {accept}\r\ncontent-length: {}\r\n\r\n",
        source.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(source.as_bytes()).await.unwrap();
    appears(&file.with_extension("begun")).await;
    (stream, file)
}

#[tokio::test]
async fn a_deploy_whose_client_goes_is_given_up_and_leaves_its_turn() {
    let world = World::new().await;
    for round in 0..3 {
        for accept in ["application/json", "application/x-ndjson"] {
            let name = format!("f{round}-{}", accept.len());
            let (client, file) = begin(&world, &name, accept).await;
            drop(client);
            appears(&file.with_extension("ended")).await;
            assert_eq!(world.get(&format!("/v1/functions/{name}")).await.status, 404);
        }
    }
    // There are not as many turns as that.
    assert_eq!(world.deploy("g", "module = echo").await.status, 201);
    world.stop().await;
}

#[tokio::test]
async fn a_stop_gives_up_the_deploys_that_are_under_way_and_those_that_wait() {
    let world = World::new().await;
    let (_first, first) = begin(&world, "first", "*/*").await;
    let (_second, second) = begin(&world, "second", "*/*").await;
    let client = world.unix.clone();
    let third = tokio::spawn(async move {
        let python = [(header::CONTENT_TYPE, "text/x-python")];
        let path = "/v1/functions/third";
        let reply = client.send(Method::PUT, path, &python, "module = echo".into()).await.unwrap();
        (reply.status(), client.body(reply).await.unwrap())
    });
    // There is no turn for it; the worker has it soon.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!third.is_finished());
    let state = world.stop().await;
    let (status, body) = third.await.unwrap();
    assert_eq!(status, 503, "{body:?}");
    drop((first, second, state));
}

#[tokio::test]
async fn a_prune_that_waits_for_a_deploy_holds_up_no_other() {
    let world = World::new().await;
    let (_client, file) = begin(&world, "slow", "*/*").await;
    let client = world.unix.clone();
    let prune = tokio::spawn(async move {
        client.send(Method::POST, "/v1/packages/prune", &[], "".into()).await.unwrap().status()
    });
    // Long after the prune has begun to wait.
    for number in 0..50 {
        let source = format!("module = echo\nversion = {number}");
        let deploy = world.deploy("quick", &source);
        let reply = tokio::time::timeout(PATIENCE, deploy).await.expect("it need not wait");
        assert_eq!(reply.status, 201);
    }
    assert!(!prune.is_finished(), "a deploy is under way");
    std::fs::write(&file, "").unwrap();
    assert_eq!(prune.await.unwrap(), 200);
    world.stop().await;
}
