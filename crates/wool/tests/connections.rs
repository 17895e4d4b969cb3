//! Too many connections, too many bytes, and clients that do not say what they want.

mod world;

use std::time::Duration;

use bytes::Bytes;
use function::quantity::{Bytes as Size, Span};
use hyper::{Method, StatusCode, header};
use platform::access::Secret;
use sandbox::fake::FakeProvider;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::task::JoinSet;
use world::World;

/// Long enough for whatever is bound to happen.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(url: &str) -> TcpStream {
    let connecting = TcpStream::connect(url.strip_prefix("http://").unwrap());
    tokio::time::timeout(PATIENCE, connecting).await.expect("the kernel takes it in").unwrap()
}

/// A connection of which the kernel keeps little for a reader that does not come.
async fn narrow(world: &World) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.connect(world.url.strip_prefix("http://").unwrap().parse().unwrap()).await.unwrap()
}

/// Everything that comes until the other side closes.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut all = Vec::new();
    let read = stream.read_to_end(&mut all);
    // Cut off by a reset is closed, too.
    drop(tokio::time::timeout(PATIENCE, read).await.expect("the connection is closed"));
    String::from_utf8(all).unwrap()
}

async fn busy(world: &World, instances: usize) {
    while world.provider.census().instances < instances {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn connections_that_ask_nothing_make_room_for_who_asks() {
    let world = World::with(|config| config.internals.connections = Some(4)).await;
    let mut silent = Vec::new();
    for number in 0..40 {
        let mut stream = connect(&world.url).await;
        if number % 2 == 0 {
            stream.write_all(b"POST /run/f HTTP/1.1\r\nhost: loc").await.unwrap();
        }
        silent.push(stream);
    }
    assert_eq!(world.get("/healthz").await.status, 200);
    // The first to come was the first to go.
    assert_eq!(rest(&mut silent[0]).await, "");
    world.stop().await;
}

#[tokio::test]
async fn who_comes_while_every_connection_is_busy_is_told_to_come_back() {
    let world = World::with(|config| config.internals.connections = Some(2)).await;
    world.deploy("f", "module = sleep:60000\ntimeout = 60000").await;
    let mut calls = JoinSet::new();
    for _ in 0..2 {
        let client = world.tcp.clone();
        calls.spawn(async move {
            drop(client.send(Method::POST, "/run/f", &[], "{}".into()).await);
        });
    }
    busy(&world, 2).await;
    let refused = world.get("/healthz").await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (503, "too-many-connections"));
    assert_eq!(refused.header("retry-after"), "1");
    // Nobody can keep the owner out of the other door.
    assert!(world.unix.healthy().await);
    calls.abort_all();
    while calls.join_next().await.is_some() {}
    while world.get("/healthz").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.stop().await;
}

/// Half of a request with a body, which stays so.
async fn half(world: &World, head: &str) -> TcpStream {
    let mut stream = connect(&world.url).await;
    let request = format!(
        "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: LENGTH\r\n\r\n["
    );
    let length = if head.starts_with("PUT") { "100000" } else { "9" };
    stream.write_all(request.replace("LENGTH", length).as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn who_shows_no_token_keeps_nobody_who_has_one_out() {
    let world = World::with(|config| config.internals.connections = Some(2)).await;
    let token = world.token(json!({ "name": "ci", "scopes": ["read"] })).await;
    let wrong = format!("POST /run/f?{}", "x".repeat(100));
    let mut silent = Vec::new();
    for head in ["POST /run/f", "PUT /v1/functions/f", "POST /nowhere", "GET /healthz", &wrong] {
        for _ in 0..4 {
            silent.push(half(&world, head).await);
        }
        // Nothing shows that they have been read so far; whoever is let in is, before and after.
        for _ in 0..10 {
            let listed = world.send_as(&token, Method::GET, "/v1/functions", "").await;
            assert_eq!(listed.status, 200, "{head}: {}", listed.text());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn half_a_request_keeps_no_connection_where_calls_take_no_token_either() {
    let world = World::with(|config| config.internals.connections = Some(2)).await;
    world.deploy("f", "module = echo").await;
    let mut silent = Vec::new();
    for head in ["POST /run/f", "PUT /v1/functions/f"] {
        for _ in 0..4 {
            silent.push(half(&world, head).await);
        }
        for _ in 0..10 {
            let called = world.run("f", "1").await;
            assert_eq!(called.status, 200, "{head}: {}", called.text());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    world.stop().await;
}

/// Its client sees the refusal, though it is still sending its body then.
#[tokio::test]
async fn who_is_refused_is_told_so_when_its_body_comes_later() {
    let world = World::new().await;
    drop(world.token(json!({ "name": "ci", "scopes": ["read"] })).await);
    let mut late = connect(&world.url).await;
    let head = "POST /run/f HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 40000\r\n\r\n";
    late.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        late.write_all(&[b'1'; 10_000]).await.expect("nobody hangs up on it");
    }
    let answer = rest(&mut late).await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("unauthorized"), "{answer}");
    world.stop().await;
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up() {
    let world = World::with(|config| {
        config.internals.connections = Some(1);
        config.client_timeout = Span(Duration::from_millis(300));
        config.run_body = Size(64 << 20);
        config.reply_body = Size(64 << 20);
    })
    .await;
    world.deploy("echo", "module = echo").await;
    let (mut answer, mut request) = narrow(&world).await.into_split();
    let body = vec![b'1'; 32 << 20];
    let head = format!(
        "POST /run/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    request.write_all(head.as_bytes()).await.unwrap();
    request.write_all(&body).await.unwrap();
    answer.readable().await.unwrap();
    // Busy: it is being answered, and not with a refusal.
    let mut begun = [0; 15];
    assert_eq!(answer.peek(&mut begun).await.unwrap(), begun.len());
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    let given_up = async {
        while world.get("/healthz").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, given_up).await.expect("its connection is given up");
    drop((answer, request));
    world.stop().await;
}

#[tokio::test]
async fn a_request_that_does_not_come_whole_is_given_up() {
    let world =
        World::with(|config| config.client_timeout = Span(Duration::from_millis(300))).await;
    world.deploy("f", "module = echo").await;
    let mut header = connect(&world.url).await;
    header.write_all(b"GET /healthz HT").await.unwrap();
    assert_eq!(rest(&mut header).await, "");
    let mut body = connect(&world.url).await;
    body.write_all(b"POST /run/f HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n[1,")
        .await
        .unwrap();
    let answer = rest(&mut body).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("slow-body"), "{answer}");
    let token = world.token(json!({ "name": "ci", "scopes": ["deploy"] })).await;
    let mut upload = connect(&world.url).await;
    let head = format!(
        "PUT /v1/functions/g HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: text/x-python\r\ncontent-length: 100000\r\n\r\nx",
        token.reveal()
    );
    upload.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut upload).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("slow-body"), "{answer}");
    world.stop().await;
}

#[tokio::test]
async fn calls_whose_bodies_are_too_many_bytes_together_are_told_to_come_back() {
    let world = World::with(|config| {
        config.run_body = Size(1 << 20);
        config.reply_body = Size(1 << 20);
        config.internals.run_bodies = Some(Size(2 << 20));
    })
    .await;
    world.deploy("slow", "module = sleep:60000\ntimeout = 60000").await;
    world.deploy("echo", "module = echo").await;
    let large = Bytes::from(format!("\"{}\"", "x".repeat(700 << 10)));
    let (client, body) = (world.tcp.clone(), large.clone());
    let first =
        tokio::spawn(
            async move { client.send(Method::POST, "/run/slow", &[], body).await.is_ok() },
        );
    busy(&world, 1).await;
    let refused = world.send(Method::POST, "/run/echo", &[], large.clone()).await;
    assert_eq!((refused.status, refused.error().as_str()), (StatusCode::TOO_MANY_REQUESTS, "busy"));
    assert_eq!(refused.header("retry-after"), "1");
    // There is room for small ones, and for all at the other door.
    assert_eq!(world.run("echo", "1").await.text(), "1");
    let own = world::exchange(&world.unix, Method::POST, "/run/echo", large.clone()).await;
    assert_eq!(own.status, 200, "{}", own.text());
    first.abort();
    while world.send(Method::POST, "/run/echo", &[], large.clone()).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.stop().await;
}

/// A token of a tenant that has a function `f` now.
async fn tenant(world: &World, name: &str, behaviour: &str) -> Secret {
    let scopes = ["deploy", "invoke", "read"];
    let token = world.token(json!({ "name": name, "tenant": name, "scopes": scopes })).await;
    let python = [(header::CONTENT_TYPE, "text/x-python")];
    let client = world.tcp.clone().with_token(Some(token.clone()));
    let source = behaviour.to_owned().into();
    let deployed = client.send(Method::PUT, "/v1/functions/f", &python, source).await.unwrap();
    assert_eq!(deployed.status(), 201);
    token
}

#[tokio::test]
async fn a_tenant_whose_bodies_never_end_leaves_room_to_another() {
    let world = World::with(|config| {
        config.run_body = Size(1 << 20);
        config.reply_body = Size(1 << 20);
        config.internals.run_bodies = Some(Size(4 << 20));
        config.deploy_body = Size(1 << 20);
        config.internals.deploy_bodies = Some(Size(4 << 20));
    })
    .await;
    let (acme, zeta) = (
        tenant(&world, "acme", "module = echo").await,
        tenant(&world, "zeta", "module = echo").await,
    );
    let large = format!("\"{}\"", "x".repeat(700 << 10));
    for (method, path, done) in
        [(Method::POST, "/run/f", 200), (Method::PUT, "/v1/functions/f", 201)]
    {
        let mut unfinished = Vec::new();
        for _ in 0..8 {
            let mut stream = connect(&world.url).await;
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/x-python\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
                acme.reveal(),
                large.len() + 1
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(large.as_bytes()).await.unwrap();
            unfinished.push(stream);
        }
        let send = async |token: &Secret| {
            let python = [(header::CONTENT_TYPE, "text/x-python")];
            let client = world.tcp.clone().with_token(Some(token.clone()));
            client.send(method.clone(), path, &python, large.clone().into()).await.unwrap().status()
        };
        while send(&acme).await != 429 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(send(&zeta).await, done, "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn replies_that_a_tenant_does_not_read_are_bounded_and_leave_room_to_another() {
    // More than the kernel keeps of one reply.
    const REPLY: u64 = 16 << 20;
    let world = World::with(|config| {
        config.reply_body = Size(REPLY);
        config.internals.run_bodies = Some(Size(4 * REPLY + REPLY / 2));
    })
    .await;
    let large = format!("module = large:{REPLY}");
    let (acme, zeta) = (tenant(&world, "acme", &large).await, tenant(&world, "zeta", &large).await);
    let mut unread = Vec::new();
    for _ in 0..2 {
        let mut stream = narrow(&world).await;
        let head = format!(
            "POST /run/f HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-length: 2\r\n\r\n{{}}",
            acme.reveal(),
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut begun = [0; 15];
        stream.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200 OK");
        unread.push(stream);
    }
    let dropped = world.send_as(&acme, Method::POST, "/run/f", "{}").await;
    assert_eq!((dropped.status.as_u16(), dropped.error().as_str()), (503, "reply-dropped"));
    let headers = ["retry-after", "content-type"].map(|name| dropped.header(name));
    assert_eq!(headers, ["1", "application/json"]);
    assert!(!dropped.header("lambswool-invocation").is_empty());
    let read = world.send_as(&zeta, Method::POST, "/run/f", "{}").await;
    assert_eq!((read.status.as_u16(), read.body.len() as u64), (200, REPLY));
    drop(unread);
    while world.send_as(&acme, Method::POST, "/run/f", "{}").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn bundles_that_are_too_many_bytes_together_are_told_to_come_back() {
    let world = World::with(|config| {
        config.deploy_body = Size(1 << 20);
        config.internals.deploy_bodies = Some(Size(2 << 20));
    })
    .await;
    let large = "\n".repeat(700_000);
    let file = world.state.path().join("run/f.x");
    let (client, source) = (world.unix.clone(), format!("until = {}{large}", file.display()));
    let first = tokio::spawn(async move {
        let python = [(header::CONTENT_TYPE, "text/x-python")];
        client.send(Method::PUT, "/v1/functions/f", &python, source.into()).await.unwrap().status()
    });
    while !file.with_extension("begun").exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let refused = world.deploy("g", &large).await;
    assert_eq!((refused.status, refused.error().as_str()), (StatusCode::TOO_MANY_REQUESTS, "busy"));
    assert_eq!(world.deploy("small", "module = echo").await.status, 201);
    std::fs::write(&file, "").unwrap();
    assert_eq!(first.await.unwrap(), 201);
    assert_eq!(world.deploy("g", &large).await.status, 201);
    world.stop().await;
}

#[tokio::test]
async fn a_thousand_clients_at_once_are_all_answered() {
    let state = tempfile::tempdir().unwrap();
    let worker = world::bind(world::config(state.path()), FakeProvider::default()).await.unwrap();
    let (url, stop) = (worker.url().to_owned(), worker.stopper());
    let socket = state.path().join("run/wool.sock");
    let mut clients = JoinSet::new();
    // All of them before the worker takes in the first.
    for _ in 0..1000 {
        let stream = connect(&url).await;
        clients.spawn(ask(stream));
    }
    for _ in 0..200 {
        let stream = UnixStream::connect(&socket).await.unwrap();
        clients.spawn(ask(stream));
    }
    let serving = tokio::spawn(worker.serve());
    while let Some(answer) = clients.join_next().await {
        let answer = answer.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    rest(&mut stream).await
}

#[tokio::test]
async fn every_refusal_says_what_is_wrong_as_json() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    let python = [(header::CONTENT_TYPE, "text/x-python")];
    for (method, path, status, kind) in [
        (Method::GET, "/v1/functions?hidden=perhaps", 400, "bad-query"),
        (Method::GET, "/v1/functions/f/logs?lines=many", 400, "bad-query"),
        (Method::GET, "/v1/functions/f/logs?lines=-1", 400, "bad-query"),
        (Method::PUT, "/v1/functions/f?hidden=perhaps", 400, "bad-query"),
        (Method::GET, "/v1/functions/f%ff", 400, "bad-name"),
        (Method::POST, "/v1/functions/f", 405, "wrong-method"),
        (Method::GET, "/v1", 404, "unknown-path"),
    ] {
        let reply = world.send(method, path, &python, "").await;
        assert_eq!(reply.header("content-type"), "application/json", "{path}: {}", reply.text());
        assert_eq!((reply.status.as_u16(), reply.error().as_str()), (status, kind), "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn who_follows_many_logs_keeps_no_connection_from_others() {
    let world = World::with(|config| config.internals.connections = Some(40)).await;
    let (acme, zeta) = (
        tenant(&world, "acme", "module = echo").await,
        tenant(&world, "zeta", "module = echo").await,
    );
    let client = world.tcp.clone().with_token(Some(acme.clone()));
    let path = "/v1/functions/f/logs?follow=true";
    let follow = async || client.send(Method::GET, path, &[], Bytes::new()).await.unwrap();
    let mut followers = Vec::new();
    // More than there are connections.
    for _ in 0..50 {
        let reply = follow().await;
        match reply.status().as_u16() {
            200 => followers.push(reply),
            status => assert_eq!(status, 429),
        }
    }
    assert_eq!(followers.len(), 8, "sixteen may follow, and half of these is this tenant's");
    let refused = world.send_as(&acme, Method::GET, path, "").await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (429, "busy"));
    assert!(refused.text().contains("wool logs -f"), "{}", refused.text());
    // It may read on, and others may do all that they could.
    let once = world.send_as(&acme, Method::GET, "/v1/functions/f/logs", "").await;
    assert_eq!(once.status, 200);
    let other = world.tcp.clone().with_token(Some(zeta.clone()));
    assert_eq!(other.send(Method::GET, path, &[], Bytes::new()).await.unwrap().status(), 200);
    assert_eq!(world.send_as(&zeta, Method::POST, "/run/f", "1").await.text(), "1");
    // Whoever hangs up makes room.
    drop(followers.pop());
    while follow().await.status() != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn long_logs_that_a_tenant_does_not_read_are_few_and_leave_the_others_theirs() {
    let world = World::with(|config| {
        config.internals.connections = Some(40);
        config.log_rate = Size(1 << 30);
    })
    .await;
    let flood = "module = flood:1000000";
    let (acme, zeta) = (tenant(&world, "acme", flood).await, tenant(&world, "zeta", flood).await);
    // More than the kernel keeps of one reply.
    for token in [&acme, &zeta] {
        for _ in 0..16 {
            assert_eq!(world.send_as(token, Method::POST, "/run/f", "{}").await.status, 200);
        }
    }
    let all = "/v1/functions/f/logs?lines=100000";
    let read = async |token: &Secret| world.send_as(token, Method::GET, all, "").await;
    assert!(read(&acme).await.body.len() > 15_000_000);
    let mut unread = Vec::new();
    for _ in 0..8 {
        let mut stream = narrow(&world).await;
        let head = format!(
            "GET {all} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
            acme.reveal()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut begun = [0; 15];
        stream.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200 OK");
        unread.push(stream);
    }
    let refused = read(&acme).await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (429, "busy"));
    assert!(refused.text().contains("fewer lines"), "{}", refused.text());
    let none = "/v1/functions/f/logs?lines=0";
    assert_eq!(world.send_as(&acme, Method::GET, none, "").await.status, 200);
    assert!(read(&zeta).await.body.len() > 15_000_000);
    drop(unread);
    while read(&acme).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.stop().await;
}
