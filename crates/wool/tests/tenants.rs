//! Tenants: what one has is not there for another.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use doors::native::TENANT;
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
async fn a_token_for_some_functions_makes_no_others_give_way() {
    let limits = TenantLimits { functions: Some(2), ..Default::default() };
    let world = World::with(|config| config.tenants = [("emca".to_owned(), limits)].into()).await;
    let all = |name: &str, tenant| json!({ "name": name, "tenant": tenant, "scopes": ALL });
    let some = |name: &str, tenant| json!({ "name": name, "tenant": tenant, "scopes": ALL, "functions": ["report-*"] });
    let (dev, shop) =
        (world.token(all("dev", "acme")).await, world.token(some("shop", "acme")).await);
    let put = async |token, name: &str| {
        let put = deploy(&world, token, &format!("{name}?hidden=true"), "module = echo").await;
        // Which was the first is told by the millisecond.
        tokio::time::sleep(Duration::from_millis(2)).await;
        put.status.as_u16()
    };
    let names = async |token| {
        let all = world.send_as(token, Method::GET, "/v1/functions?hidden=true", "").await.json();
        let all = all["functions"].as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for name in ["run-1", "run-2"] {
        assert_eq!(put(&dev, name).await, 201);
    }
    for number in 0..33 {
        assert_eq!(put(&shop, &format!("report-{number:02}")).await, 201);
    }
    let there = names(&dev).await;
    assert_eq!((there.len(), there[0].as_str()), (32, "report-03"));
    assert_eq!(there[30..], ["run-1", "run-2"]);
    // Who may touch them all takes the first, whoever deployed it.
    assert_eq!(put(&dev, "run-3").await, 201);
    assert_eq!(names(&dev).await[30..], ["run-2", "run-3"]);

    // Nor for want of room, hidden or not.
    let (dev, shop) =
        (world.token(all("dev2", "emca")).await, world.token(some("shop2", "emca")).await);
    for name in ["run-1", "run-2"] {
        assert_eq!(put(&dev, name).await, 201);
    }
    assert_eq!(put(&shop, "report").await, 403, "not for the token");
    assert_eq!(put(&shop, "report-1").await, 403);
    assert_eq!(deploy(&world, &shop, "report-1", "module = echo").await.status, 403);
    assert_eq!(names(&dev).await, ["run-1", "run-2"]);
    assert_eq!(put(&dev, "report-1").await, 201);
    assert_eq!(put(&shop, "report-2").await, 201);
    assert_eq!(names(&dev).await, ["report-2", "run-2"]);

    let actions = exchange(&world.unix, Method::GET, "/v1/audit", "").await.json();
    let went: Vec<_> = actions["actions"].as_array().unwrap().iter().collect();
    let went = went.into_iter().filter(|action| action["action"] == "give way").map(|action| {
        assert!(action["result"] == "ok" && action["version"].is_string(), "{action}");
        let of = |key: &str| action[key].as_str().unwrap();
        let who = action["who"]["token"].as_str().unwrap();
        format!("{who} {}: {} for {}", of("tenant"), of("function"), of("subject"))
    });
    assert_eq!(
        went.collect::<Vec<_>>(),
        [
            "shop acme: report-00 for report-30",
            "shop acme: report-01 for report-31",
            "shop acme: report-02 for report-32",
            "dev acme: run-1 for run-3",
            "dev2 emca: run-1 for report-1",
            "shop2 emca: report-1 for report-2",
        ]
    );
    world.stop().await;
}

#[tokio::test]
async fn what_wool_run_made_takes_no_room_from_what_is_deployed() {
    let limits = TenantLimits { functions: Some(2), ..Default::default() };
    let world = World::with(|config| config.tenants = [("acme".to_owned(), limits)].into()).await;
    let token = |name: &'static str| json!({ "name": name, "tenant": name, "scopes": ALL });
    let acme = world.token(token("acme")).await;
    let put = async |name: &str, words: &'static str| {
        deploy(&world, &acme, name, words).await.status.as_u16()
    };
    let names = async || {
        let all = world.send_as(&acme, Method::GET, "/v1/functions?hidden=true", "").await.json();
        let all = all["functions"].as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Each edit of a file is another function.
    for name in ["one", "two", "three"] {
        assert_eq!(put(&format!("{name}?hidden=true"), "module = echo").await, 201);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(names().await, ["three", "two"]);
    // One that is being called stays, though it is the first.
    assert_eq!(put("two?hidden=true", "module = sleep:600000").await, 201);
    assert_eq!(put("three?hidden=true", "module = echo\nversion = 2").await, 201);
    let client = world.tcp.clone().with_token(Some(acme.clone()));
    let waiting =
        tokio::spawn(async move { exchange(&client, Method::POST, "/run/two", "{}").await });
    let busy = async || {
        let status = exchange(&world.unix, Method::GET, "/v1/status", "").await.json();
        status["engine"]["instances"]["busy"].as_u64().unwrap()
    };
    while busy().await != 1 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(put("deployed", "module = echo").await, 201);
    assert_eq!(names().await, ["deployed", "two"]);
    assert_eq!(put("another", "module = echo").await, 403, "nothing may go");
    waiting.abort();
    while put("another", "module = echo").await != 201 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(names().await, ["another", "deployed"]);
    assert_eq!(put("third", "module = echo").await, 403);
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
