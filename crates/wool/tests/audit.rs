//! The audit log, on fake sandboxes.

mod world;

use std::time::Duration;

use hyper::{Method, header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use world::{World, exchange};

async fn actions(world: &World) -> Vec<Value> {
    let list = exchange(&world.unix, Method::GET, "/v1/audit", "").await.json();
    list["actions"].as_array().unwrap().clone()
}

/// `who action on result`, one a line.
fn told(actions: &[Value]) -> Vec<String> {
    let uid = rustix::process::geteuid().as_raw();
    let who = |action: &Value| match &action["who"] {
        Value::Object(who) if who.get("uid") == Some(&json!(uid)) => "us".to_owned(),
        Value::Object(who) => format!("token {}", who["token"].as_str().unwrap()),
        other => other.as_str().unwrap().to_owned(),
    };
    let text = |action: &Value, key: &str| action[key].as_str().unwrap_or("-").to_owned();
    let line = |action: &Value| {
        let keys = ["action", "function", "subject", "result"];
        format!("{}: {}", who(action), keys.map(|key| text(action, key)).join(" "))
    };
    actions.iter().map(line).collect()
}

#[tokio::test]
async fn every_control_action_leaves_a_line_that_says_who_what_and_how_it_ended() {
    let world = World::new().await;
    let python = [(header::CONTENT_TYPE, "text/x-python")];
    let version = world.deploy("f", "module = echo").await.json()["version"].clone();
    world.deploy("g", "refuse = no handler").await;
    let lines = [(header::CONTENT_TYPE, "text/x-python"), (header::ACCEPT, "application/x-ndjson")];
    world.send(Method::PUT, "/v1/functions/h", &lines, "module = echo").await;
    world.send(Method::PUT, "/v1/functions/i", &lines, "refuse = no handler").await;
    exchange(&world.unix, Method::PUT, "/v1/functions/f/secrets/KEY", "hunter2").await;
    let ci = world.token(json!({ "name": "ci", "scopes": ["deploy", "invoke"] })).await;
    let refused = world.tcp.send(Method::PUT, "/v1/functions/f", &python, "no token".into());
    assert_eq!(refused.await.unwrap().status(), 401, "which leaves no line");
    world.send_as(&ci, Method::POST, "/run/f", "{}").await;
    world.send_as(&ci, Method::POST, "/v1/packages/prune", "").await;
    world.send_as(&ci, Method::DELETE, "/v1/functions/f", "").await;
    exchange(&world.unix, Method::DELETE, "/v1/tokens/ci", "").await;
    let all = actions(&world).await;
    assert_eq!(
        told(&all),
        [
            "us: deploy f - ok",
            "us: deploy g - manifest",
            "us: deploy h - ok",
            "us: deploy i - manifest",
            "us: set secret f KEY ok",
            "us: create token - ci ok",
            "token ci: prune packages - - wrong-scope",
            "token ci: remove f - ok",
            "us: remove token - ci ok",
        ]
    );
    assert_eq!(all[0]["version"], version);
    assert!(all[6]["remote"].as_str().unwrap().starts_with("127.0.0.1:"), "{}", all[6]);
    assert!(all[4]["remote"].as_str().unwrap().contains("pid"), "{}", all[4]);
    assert!(all.windows(2).all(|two| two[0]["time"].as_str() <= two[1]["time"].as_str()));
    // A closed database has its log in its file.
    let state = world.stop().await;
    let bytes = std::fs::read(state.path().join("audit.sqlite")).unwrap();
    for secret in ["hunter2", ci.reveal()] {
        let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!found, "{secret} is in the audit log");
    }
}

#[tokio::test]
async fn whoever_reaches_for_another_tenants_functions_leaves_a_line() {
    let world = World::new().await;
    let all = ["deploy", "read", "invoke"];
    let token = world.token(json!({ "name": "a", "tenant": "acme", "scopes": all })).await;
    let client = world.tcp.clone().with_token(Some(token));
    let client = client.for_tenant(Some("emca".parse().unwrap()));
    for (method, path) in [
        (Method::GET, "/v1/functions/f"),
        (Method::POST, "/run/f"),
        (Method::DELETE, "/v1/functions/f"),
    ] {
        let refused = exchange(&client, method, path, "").await;
        assert_eq!((refused.status.as_u16(), refused.error().as_str()), (403, "wrong-tenant"));
    }
    let all = actions(&world).await;
    assert_eq!(
        told(&all[1..]),
        [
            "token a: GET /v1/functions/{name} f - wrong-tenant",
            "token a: POST /run/{name} f - wrong-tenant",
            "token a: remove f - wrong-tenant",
        ]
    );
    assert!(all[1..].iter().all(|action| action["tenant"] == "emca"));
    world.stop().await;
}

#[tokio::test]
async fn what_is_done_by_lambdas_api_is_written_down_as_what_it_is() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    let scopes = json!({ "name": "a", "tenant": "acme", "scopes": ["invoke"] });
    let token = world.token(scopes).await;
    let function = "/2015-03-31/functions/f";
    let ours = async |method: Method, path: &str, body: &str| {
        exchange(&world.unix, method, path, body.to_owned()).await.status.as_u16()
    };
    let versions = format!("{function}/versions");
    assert_eq!(ours(Method::POST, &versions, "{}").await, 201);
    let alias = json!({ "Name": "live", "FunctionVersion": "1" }).to_string();
    assert_eq!(ours(Method::POST, &format!("{function}/aliases"), &alias).await, 201);
    assert_eq!(ours(Method::DELETE, &format!("{function}?Qualifier=1"), "").await, 409);
    assert_eq!(ours(Method::DELETE, &format!("{function}/aliases/live"), "").await, 204);
    let tags = "/2017-03-31/tags/arn:aws:lambda:us-east-1:000000000000:function:f";
    assert_eq!(ours(Method::POST, tags, r#"{"Tags": {"a": "b"}}"#).await, 204);
    assert_eq!(ours(Method::POST, tags, r#"{"Tags": "#).await, 400);
    let stranger = world.tcp.clone().with_token(Some(token.clone()));
    let stranger = stranger.for_tenant(Some("emca".parse().unwrap()));
    for client in [&world.tcp.clone().with_token(Some(token)), &stranger] {
        let refused = exchange(client, Method::DELETE, function, "").await;
        assert_eq!(refused.status, 403);
    }
    let called = format!("{function}/invocations");
    assert_eq!(exchange(&stranger, Method::POST, &called, "").await.status, 403);
    let all = actions(&world).await;
    assert_eq!(
        told(&all[2..]),
        [
            "us: publish version f 1 ok",
            "us: set alias f live ok",
            "us: remove version f 1 ResourceConflictException",
            "us: remove alias f live ok",
            "us: configure f - ok",
            "us: configure - - SerializationException",
            "token a: remove f - AccessDeniedException",
            "token a: remove f - AccessDeniedException",
            "token a: Invoke f - AccessDeniedException",
        ]
    );
    assert_eq!(all[10]["tenant"], "emca");
    world.stop().await;
}

#[tokio::test]
async fn what_a_tenants_token_does_is_kept_apart_from_what_administrators_do() {
    let world = World::new().await;
    let ci = json!({ "name": "ci", "tenant": "acme", "scopes": ["deploy"] });
    let acme = world.token(ci).await;
    let admin = world.token(json!({ "name": "boss", "scopes": ["admin"] })).await;
    let python = [(header::CONTENT_TYPE, "text/x-python")];
    for token in [&acme, &admin] {
        let client = world.tcp.clone().with_token(Some(token.clone()));
        let source = "module = echo".into();
        let deployed = client.send(Method::PUT, "/v1/functions/f", &python, source).await.unwrap();
        assert!(deployed.status().is_success());
        // It may reach for another tenant's: that is among its own lines all the same.
        let client = client.for_tenant(Some("emca".parse().unwrap()));
        exchange(&client, Method::DELETE, "/v1/functions/f", "").await;
    }
    let disk = rusqlite::Connection::open(world.state.path().join("audit.sqlite")).unwrap();
    for (group, done, lines) in [
        ("tenant acme", true, vec!["deploy acme ok"]),
        ("tenant acme", false, vec!["remove emca wrong-tenant"]),
        (
            "administrators",
            true,
            vec!["create token default ok", "create token default ok", "deploy default ok"],
        ),
    ] {
        let sql = "SELECT line FROM actions WHERE \"group\" = ?1 AND done = ?2 ORDER BY number";
        let mut found = disk.prepare(sql).unwrap();
        let found = found.query_map(rusqlite::params![group, done], |row| {
            let line: Value = serde_json::from_str(&row.get::<_, String>(0)?).unwrap();
            let words =
                ["action", "tenant", "result"].map(|key| line[key].as_str().unwrap().to_owned());
            Ok(words.join(" "))
        });
        assert_eq!(found.unwrap().collect::<Result<Vec<_>, _>>().unwrap(), lines);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_deploy_whose_client_hung_up_is_told_with_its_end() {
    let world = World::new().await;
    let python = [(header::CONTENT_TYPE, "text/x-python")];
    let file = world.state.path().join("run/never.x");
    let source = format!("until = {}", file.display());
    let deploy = world.unix.send(Method::PUT, "/v1/functions/f", &python, source.into());
    let begun = async {
        while !file.with_extension("begun").exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        _ = deploy => panic!("it was to be cut short"),
        () = begun => {}
    }
    let told_now = async {
        loop {
            match told(&actions(&world).await) {
                none if none.is_empty() => tokio::time::sleep(Duration::from_millis(10)).await,
                some => return some,
            }
        }
    };
    let told_now = tokio::time::timeout(Duration::from_secs(60), told_now).await.unwrap();
    assert_eq!(told_now, ["us: deploy f - stopping"], "given up, and told");
    world.stop().await;
}

#[tokio::test]
async fn who_is_refused_and_leaves_before_it_is_told_so_is_among_the_refused() {
    let world = World::with(|config| config.internals.connections = Some(1)).await;
    let ci = world.token(json!({ "name": "ci", "scopes": ["read"] })).await;
    let head = "DELETE /v1/functions/f HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9";
    let half = format!("{head}\r\nauthorization: Bearer {}\r\n\r\n[", ci.reveal());
    let address = world.url.strip_prefix("http://").unwrap();
    let refused = async {
        loop {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(half.as_bytes()).await.unwrap();
            // Nothing shows that it has been read.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let _next = TcpStream::connect(address).await.unwrap();
            let mut answer = Vec::new();
            drop(client.read_to_end(&mut answer).await);
            assert_eq!(String::from_utf8_lossy(&answer), "", "it had to leave before it was told");
            let all = told(&actions(&world).await);
            if all.len() > 1 {
                return all;
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(60), refused).await.unwrap();
    assert!(
        refused[1..].iter().all(|line| line == "token ci: remove f - wrong-scope"),
        "{refused:?}"
    );
    world.stop().await;
}

#[tokio::test]
async fn who_leaves_while_nothing_is_done_for_it_pushes_out_nothing_that_was() {
    let world = World::new().await;
    let ci = world.token(json!({ "name": "ci", "scopes": ["deploy"] })).await;
    let address = world.url.strip_prefix("http://").unwrap();
    let head = "DELETE /v1/functions/f/secrets/KEY HTTP/1.1\r\nhost: localhost";
    let request = format!("{head}\r\nauthorization: Bearer {}\r\n\r\n", ci.reveal());
    for _ in 0..100 {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
        // Reset, and not only closed.
        client.set_zero_linger().unwrap();
        drop(client);
    }
    let told = async {
        loop {
            let all = told(&actions(&world).await);
            // One that was reset before it had been read leaves no line.
            if all.len() > 50 {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
    let missing = "token ci: remove secret f KEY unknown-secret";
    assert!(told[1..].iter().all(|line| line == missing), "{told:?}");
    world.stop().await;
}
