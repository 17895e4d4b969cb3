//! Tenants: what one has is not there for another.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use doors::TENANT;
use function::Label;
use hyper::{Method, header};
use platform::access::Secret;
use platform::limits::quotas::TenantLimits;
use serde_json::json;
use wool::client::Client;
use world::{Reply, World, exchange};

const ALL: [&str; 3] = ["deploy", "invoke", "read"];

/// A worker, and a token of each of two tenants.
async fn two() -> (World, Secret, Secret) {
    let world = World::new().await;
    let token = |name: &'static str| json!({ "name": name, "tenant": name, "scopes": ALL });
    let (acme, emca) = (world.token(token("acme")).await, world.token(token("emca")).await);
    (world, acme, emca)
}

async fn deploy(world: &World, token: &Secret, name: &str, words: &'static str) -> Reply {
    let client = world.tcp.clone().with_token(Some(token.clone()));
    let python = [(header::CONTENT_TYPE, "text/x-python")];
    let path = format!("/v1/functions/{name}");
    let response = client.send(Method::PUT, &path, &python, words.into()).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Reply { status, headers, body: client.body(response).await.unwrap() }
}

fn for_tenant(client: &Client, tenant: &str) -> Client {
    client.clone().for_tenant(Some(tenant.parse::<Label>().unwrap()))
}

#[tokio::test]
async fn another_tenants_function_is_not_there() {
    let (world, acme, emca) = two().await;
    assert_eq!(deploy(&world, &acme, "f", "module = print").await.status, 201);
    assert_eq!(world.send_as(&acme, Method::POST, "/run/f", "{}").await.status, 200);
    for (method, path) in [
        (Method::POST, "/run/f"),
        (Method::GET, "/v1/functions/f"),
        (Method::GET, "/v1/functions/f/logs"),
        (Method::DELETE, "/v1/functions/f"),
    ] {
        let reply = world.send_as(&emca, method, path, "{}").await;
        assert_eq!((reply.status.as_u16(), reply.error().as_str()), (404, "unknown-function"));
        assert!(!reply.text().contains("acme"), "{path}");
    }
    let list = async |token| world.send_as(token, Method::GET, "/v1/functions", "").await.json();
    assert_eq!(list(&emca).await["functions"], json!([]));
    assert_eq!(list(&acme).await["functions"][0]["tenant"], "acme");
    let count = world.send_as(&emca, Method::GET, "/v1/status", "").await.json();
    assert_eq!(count["functions"], 0);
    world.stop().await;
}

#[tokio::test]
async fn two_tenants_have_each_a_function_of_one_name_with_its_own_log_and_secrets() {
    let (world, acme, emca) = two().await;
    for token in [&acme, &emca] {
        assert_eq!(deploy(&world, token, "f", "module = environment").await.status, 201);
    }
    let secret = "/v1/functions/f/secrets/KEY";
    assert_eq!(world.send_as(&acme, Method::PUT, secret, "of acme").await.status, 204);
    let run = async |token| world.send_as(token, Method::POST, "/run/f", "{}").await.json();
    assert_eq!(run(&acme).await["KEY"], "of acme");
    assert_eq!(run(&emca).await, json!({}));
    assert_eq!(world.send_as(&emca, Method::DELETE, secret, "").await.status, 404);
    assert_eq!(deploy(&world, &emca, "f", "module = print").await.status, 201);
    assert_eq!(world.send_as(&emca, Method::POST, "/run/f", "{}").await.status, 200);
    let log =
        async |token| world.send_as(token, Method::GET, "/v1/functions/f/logs", "").await.text();
    assert!(log(&emca).await.contains("called"));
    assert_eq!(log(&acme).await, "");
    assert_eq!(world.send_as(&emca, Method::DELETE, "/v1/functions/f", "").await.status, 204);
    let state = world.stop().await;
    let world = World::on(state, |_| {}).await;
    let kept = world.send_as(&acme, Method::POST, "/run/f", "{}").await;
    assert_eq!(kept.json()["KEY"], "of acme", "it is still there, after a start, too");
    assert_eq!(world.send_as(&emca, Method::POST, "/run/f", "{}").await.status, 404);
    world.stop().await;
}

/// Not even the root, which has imported nothing: whatever has run for one tenant is nobody else's.
#[tokio::test]
async fn no_zygote_and_no_instance_serves_two_tenants() {
    let (world, acme, emca) = two().await;
    for token in [&acme, &emca] {
        deploy(&world, token, "f", "module = echo").await;
        let first = world.send_as(token, Method::POST, "/run/f", "{}").await;
        assert_eq!(first.header("lambswool-start"), "fork", "the same code, and no instance of it");
        let second = world.send_as(token, Method::POST, "/run/f", "{}").await;
        assert_eq!(second.header("lambswool-start"), "resume");
    }
    let zygotes = exchange(&world.unix, Method::GET, "/v1/zygotes", "").await.json();
    let zygotes = zygotes["zygotes"].as_array().unwrap();
    let whose: BTreeSet<&str> = zygotes.iter().map(|one| one["tenant"].as_str().unwrap()).collect();
    assert_eq!(whose, ["acme", "emca"].into());
    assert!(zygotes.iter().all(|one| one["forks"].as_u64() > Some(0)), "{zygotes:?}");
    world.stop().await;
}

#[tokio::test]
async fn an_administrator_says_whose_functions_are_meant_and_nobody_else_may() {
    let (world, acme, emca) = two().await;
    deploy(&world, &acme, "f", "module = echo").await;
    let get = async |client: &Client| exchange(client, Method::GET, "/v1/functions/f", "").await;
    assert_eq!(get(&for_tenant(&world.unix, "acme")).await.status, 200);
    assert_eq!(get(&world.unix).await.status, 404, "it is no function of the tenant default");
    let admin = world.token(json!({ "name": "admin", "scopes": ["admin"] })).await;
    let as_admin = world.tcp.clone().with_token(Some(admin));
    assert_eq!(get(&for_tenant(&as_admin, "acme")).await.status, 200);
    assert_eq!(get(&for_tenant(&as_admin, "emca")).await.status, 404);
    let as_emca = world.tcp.clone().with_token(Some(emca));
    let refused = get(&for_tenant(&as_emca, "acme")).await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (403, "wrong-tenant"));
    assert_eq!(get(&for_tenant(&as_emca, "emca")).await.status, 404);
    let strange = [(TENANT, "a/b")];
    let reply = world.unix.send(Method::GET, "/v1/functions", &strange, "".into()).await.unwrap();
    assert_eq!(reply.status(), 400);
    let actions = exchange(&world.unix, Method::GET, "/v1/audit", "").await.json();
    let deployed =
        actions["actions"].as_array().unwrap().iter().find(|one| one["action"] == "deploy");
    assert_eq!(deployed.unwrap()["tenant"], "acme");
    world.stop().await;
}

#[tokio::test]
async fn a_tenant_takes_no_more_than_the_operator_allows_and_nothing_from_another() {
    let limits = TenantLimits { functions: Some(2), concurrency: Some(1), ..Default::default() };
    let world = World::with(|config| config.tenants = [("acme".to_owned(), limits)].into()).await;
    let token = |name: &'static str| json!({ "name": name, "tenant": name, "scopes": ALL });
    let (acme, emca) = (world.token(token("acme")).await, world.token(token("emca")).await);
    for token in [&acme, &emca] {
        assert_eq!(deploy(&world, token, "waits", "module = sleep:600000").await.status, 201);
        assert_eq!(deploy(&world, token, "echo", "module = echo").await.status, 201);
    }
    let full = deploy(&world, &acme, "third", "module = echo").await;
    assert_eq!((full.status.as_u16(), full.error().as_str()), (403, "quota"));
    assert!(full.text().contains("[tenants.acme]"), "{}", full.text());
    // Another version of one that is there is none more, and another tenant has its own count.
    assert_eq!(deploy(&world, &acme, "echo", "module = echo\nversion = 2").await.status, 201);
    assert_eq!(deploy(&world, &emca, "third", "module = echo").await.status, 201);
    let client = world.tcp.clone().with_token(Some(acme.clone()));
    let waiting =
        tokio::spawn(async move { exchange(&client, Method::POST, "/run/waits", "{}").await });
    let run = async |token| world.send_as(token, Method::POST, "/run/echo", "{}").await;
    let status = async || exchange(&world.unix, Method::GET, "/v1/status", "").await.json();
    while status().await["engine"]["instances"]["busy"] != 1 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let refused = run(&acme).await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (429, "busy"));
    assert_eq!(refused.header("retry-after"), "1");
    assert!(refused.text().contains("raise `concurrency` in [tenants.acme]"), "{}", refused.text());
    assert_eq!(run(&emca).await.status, 200);
    // Who hangs up gives its place back.
    waiting.abort();
    while run(&acme).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn what_wool_run_made_takes_no_room_from_what_is_deployed() {
    let limits = TenantLimits { functions: Some(1), ..Default::default() };
    let world = World::with(|config| config.tenants = [("acme".to_owned(), limits)].into()).await;
    let token = |name: &'static str| json!({ "name": name, "tenant": name, "scopes": ALL });
    let acme = world.token(token("acme")).await;
    let put = async |name: &str| deploy(&world, &acme, name, "module = echo").await.status.as_u16();
    // Each edit of a file is another function.
    for name in ["one?hidden=true", "two?hidden=true", "deployed", "three?hidden=true"] {
        assert_eq!(put(name).await, 201, "{name}");
    }
    assert_eq!(put("another").await, 403);
    assert_eq!(put("two").await, 403, "it would be deployed for good");
    let all = world.send_as(&acme, Method::GET, "/v1/functions?hidden=true", "").await.json();
    assert_eq!(all["functions"].as_array().unwrap().len(), 4, "nothing was removed");
    world.stop().await;
}

#[tokio::test]
async fn secrets_of_functions_that_are_not_there_are_counted_like_functions() {
    let limits = TenantLimits { functions: Some(2), ..Default::default() };
    let world = World::with(|config| config.tenants = [("acme".to_owned(), limits)].into()).await;
    let token = |name: &'static str| json!({ "name": name, "tenant": name, "scopes": ALL });
    let (acme, emca) = (world.token(token("acme")).await, world.token(token("emca")).await);
    let secret = async |token, method, function: &str, key: &str| {
        let path = format!("/v1/functions/{function}/secrets/{key}");
        world.send_as(token, method, &path, "value").await
    };
    for function in ["one", "two"] {
        assert_eq!(secret(&acme, Method::PUT, function, "KEY").await.status, 204);
    }
    let full = secret(&acme, Method::PUT, "three", "KEY").await;
    assert_eq!((full.status.as_u16(), full.error().as_str()), (403, "quota"));
    assert!(full.text().contains("[tenants.acme]"), "{}", full.text());
    let listed = world.send_as(&acme, Method::GET, "/v1/functions/three/secrets", "").await;
    assert_eq!(listed.json()["secrets"], json!([]), "nothing of it is kept");
    // Another one of a function that has some is of no other function, and another tenant has its own count.
    assert_eq!(secret(&acme, Method::PUT, "two", "OTHER").await.status, 204);
    for function in ["one", "two", "three"] {
        assert_eq!(secret(&emca, Method::PUT, function, "KEY").await.status, 204);
    }
    assert_eq!(secret(&acme, Method::DELETE, "one", "KEY").await.status, 204);
    assert_eq!(secret(&acme, Method::PUT, "three", "KEY").await.status, 204);
    world.stop().await;
}
