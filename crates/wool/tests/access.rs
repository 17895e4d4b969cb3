//! Who is let in: tokens and their scopes on TCP, credentials on the Unix socket.

mod world;

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use hyper::Method;
use platform::access::{Demand, Scope, Secret};
use serde_json::json;
use world::{World, exchange};

/// Every operation of the description, its path filled in.
fn operations() -> Vec<(Method, String, String)> {
    let described = serde_json::to_value(doors::native::openapi()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let filled = path.replace("{name}", "f").replace("{", "").replace("}", "");
            let method = method.to_uppercase().parse().unwrap();
            all.push((method, path.clone(), filled));
        }
    }
    // It ends the worker.
    all.sort_by_key(|(_, path, _)| path == "/v1/stop");
    all
}

#[tokio::test]
async fn a_token_without_its_scheme_is_not_told_as_mistyped() {
    let world = World::new().await;
    let token = world.token(json!({ "name": "caller", "scopes": ["invoke"] })).await;
    let told = async |value: &str| {
        let headers = [(hyper::header::AUTHORIZATION, value)];
        let reply = world.send(Method::POST, "/run/f", &headers, "").await;
        assert_eq!((reply.status.as_u16(), reply.error().as_str()), (401, "unauthorized"));
        reply.text()
    };
    assert!(told(token.reveal()).await.contains("write `Bearer` and a blank before it"));
    assert!(told(&format!("Basic {}", token.reveal())).await.contains("write `Bearer`"));
    assert!(told("Bearer wool_x").await.contains("mistyped"));
    world.stop().await;
}

#[tokio::test]
async fn a_method_that_a_path_does_not_take_is_told_with_those_that_it_takes() {
    let world = World::new().await;
    let caller = world.token(json!({ "name": "caller", "scopes": ["invoke"] })).await;
    let all = operations();
    let mut asked = 0;
    for (_, route, path) in all.iter().filter(|(_, path, _)| path != "/v1/stop") {
        let takes = |method: &Method| all.iter().any(|(m, r, _)| r == route && m == method);
        let others = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH];
        for other in others.into_iter().filter(|other| !takes(other)) {
            asked += 1;
            let told = world.send_as(&caller, other.clone(), path, "").await;
            assert_eq!((told.status.as_u16(), told.error().as_str()), (405, "wrong-method"));
            let text = told.text();
            let (_, named) = text.split_once("call it with ").unwrap();
            let (named, _) = named.split_once('"').unwrap();
            let mut named = named.split(" or ").map(|method| method.parse().unwrap());
            assert!(named.all(|method| takes(&method)), "{other} {route}: {text}");
        }
    }
    assert!(asked > 50, "{asked}");
    let got = world.send_as(&caller, Method::GET, "/run/f", "").await;
    assert_eq!(got.header("allow"), "POST");
    assert!(got.text().contains("call it with POST"), "{}", got.text());
    world.stop().await;
}

/// The table is walked by what the API says of itself: a new route cannot be forgotten here.
#[tokio::test]
async fn every_route_refuses_without_a_token_and_with_the_wrong_scope() {
    let world = World::new().await;
    let mut tokens = Vec::new();
    for scope in Scope::ALL {
        let request = json!({ "name": scope.as_str(), "scopes": [scope.as_str()] });
        tokens.push((scope, world.token(request).await));
    }
    let (mut open, mut needs) = (Vec::new(), Vec::new());
    for (method, route, path) in operations() {
        let client = if route == "/v1/stop" { &world.unix } else { &world.tcp };
        let ask = async |token: Option<&Secret>| {
            let client = client.clone().with_token(token.cloned());
            exchange(&client, method.clone(), &path, "").await
        };
        let wrong = Secret::draw().unwrap();
        let refused = ask(Some(&wrong)).await;
        if refused.status == 200 {
            open.push(route);
            continue;
        }
        assert_eq!((refused.status.as_u16(), refused.error().as_str()), (401, "unauthorized"));
        assert_eq!(refused.header("www-authenticate"), "Bearer", "{method} {route}");
        if route != "/v1/stop" {
            assert_eq!(ask(None).await.status, 401, "{method} {route} without a token");
        }
        let mut takes = Vec::new();
        for (scope, token) in &tokens {
            let reply = ask(Some(token)).await;
            match reply.status.as_u16() {
                401 => panic!("{method} {route} does not know {scope}: {}", reply.text()),
                403 => {
                    assert_eq!(reply.error(), "wrong-scope", "{method} {route}");
                    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
                    assert!(message.contains("--scope"), "{message}");
                }
                _ => takes.push(*scope),
            }
        }
        needs.push((method.to_string(), route, takes));
    }
    assert_eq!(open, ["/healthz"], "what asks for nothing");
    for (method, route, takes) in &needs {
        assert!(takes.contains(&Scope::Admin), "{method} {route}");
        assert!(takes.len() <= 2, "{method} {route} takes {takes:?}");
    }
    let need = |method: &str, route: &str| {
        let found = needs.iter().find(|(m, r, _)| m == method && r == route);
        found.map(|(_, _, takes)| takes.as_slice())
    };
    let (deploy, invoke, read) = (Scope::Deploy, Scope::Invoke, Scope::Read);
    assert_eq!(need("POST", "/run/{name}"), Some(&[invoke, Scope::Admin][..]));
    assert_eq!(need("PUT", "/v1/functions/{name}"), Some(&[deploy, Scope::Admin][..]));
    assert_eq!(need("DELETE", "/v1/functions/{name}"), Some(&[deploy, Scope::Admin][..]));
    assert_eq!(need("GET", "/v1/functions/{name}/logs"), Some(&[read, Scope::Admin][..]));
    assert_eq!(need("POST", "/v1/tokens"), Some(&[Scope::Admin][..]));
    assert_eq!(need("POST", "/v1/stop"), Some(&[Scope::Admin][..]));
}

#[tokio::test]
async fn from_the_first_token_on_calls_take_one_though_it_is_removed() {
    let world = World::new().await;
    assert_eq!(world.deploy("f", "module = echo").await.status, 201);
    let token = world.token(json!({ "name": "ci", "scopes": ["invoke"] })).await;
    let refused = world.run("f", "{}").await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (401, "unauthorized"));
    assert_eq!(world.send_as(&token, Method::POST, "/run/f", "{}").await.status, 200);
    let removed = exchange(&world.unix, Method::DELETE, "/v1/tokens/ci", "").await;
    assert_eq!(removed.status, 204);
    assert_eq!(world.send_as(&token, Method::POST, "/run/f", "{}").await.status, 401);
    let state = world.stop().await;
    let world = World::on(state, |_| {}).await;
    assert_eq!(world.run("f", "{}").await.status, 401);
    let again = exchange(&world.unix, Method::DELETE, "/v1/tokens/ci", "").await;
    assert_eq!((again.status.as_u16(), again.error().as_str()), (404, "unknown-token"));
    let state = world.stop().await;
    let world = World::on(state, |config| config.tokens = Demand::Off).await;
    assert_eq!(world.run("f", "{}").await.status, 200, "unless the operator says so");
    world.stop().await;
}

/// What each route takes, and that it does not come to a route's turn, is walked by the API's own description.
#[tokio::test]
async fn without_a_token_tcp_answers_calls_and_says_how_to_do_everything_else() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    let described = serde_json::to_value(doors::native::openapi()).unwrap();
    let walk = async |world: &World| {
        let mut answered = Vec::new();
        for (method, route, path) in operations() {
            let reply = exchange(&world.tcp, method.clone(), &path, "").await;
            let security = &described["paths"][&route][method.as_str().to_lowercase()]["security"];
            match (reply.status.as_u16(), security[0]["token"][0].as_str()) {
                (401, Some(scope)) => {
                    assert_eq!(reply.error(), "unauthorized", "{method} {route}");
                    assert_eq!(reply.header("www-authenticate"), "Bearer", "{method} {route}");
                    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
                    let create = format!("wool token create NAME --scope {scope}`");
                    assert!(message.contains(&create), "{method} {route}: {message}");
                    assert!(message.contains("curl --unix-socket"), "{message}");
                }
                (status, _) => answered.push((route, status)),
            }
        }
        answered
    };
    let answered = |route: &str, status: u16| (route.to_owned(), status);
    // A stop is for the socket alone.
    let open = [answered("/healthz", 200), answered("/run/{name}", 200), answered("/v1/stop", 404)];
    assert_eq!(walk(&world).await, open);
    let list = exchange(&world.unix, Method::GET, "/v1/functions", "").await.json();
    assert_eq!(list["functions"].as_array().unwrap().len(), 1, "nothing was removed");
    assert_eq!(exchange(&world.tcp, Method::GET, "/run/f", "").await.status, 405);
    // Where the operator wants it so, tokens change nothing of that.
    drop(world.token(json!({ "name": "ci", "scopes": ["admin"] })).await);
    let world = World::on(world.stop().await, |config| config.tokens = Demand::Off).await;
    assert_eq!(walk(&world).await, open);
    world.stop().await;
}

#[tokio::test]
async fn where_tokens_are_required_calls_take_one_from_the_start() {
    let world = World::with(|config| config.tokens = Demand::Required).await;
    assert_eq!(world.run("f", "{}").await.status, 401);
    assert_eq!(world.get("/healthz").await.status, 200);
    assert_eq!(exchange(&world.unix, Method::GET, "/v1/functions", "").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_token_for_some_functions_neither_reaches_nor_sees_the_others() {
    let world = World::new().await;
    for name in ["order-new", "order-old", "salary"] {
        assert_eq!(world.deploy(name, "module = echo").await.status, 201);
    }
    let scopes = ["deploy", "invoke", "read"];
    let token =
        world.token(json!({ "name": "shop", "scopes": scopes, "functions": ["order-*"] })).await;
    assert_eq!(world.send_as(&token, Method::POST, "/run/order-new", "{}").await.status, 200);
    for (method, path) in [
        (Method::POST, "/run/salary"),
        (Method::POST, "/run/sal%61ry"),
        (Method::GET, "/v1/functions/salary"),
        (Method::GET, "/v1/functions/salary/logs"),
        (Method::DELETE, "/v1/functions/salary"),
        (Method::PUT, "/v1/functions/other"),
    ] {
        let refused = world.send_as(&token, method, path, "").await;
        assert_eq!((refused.status.as_u16(), refused.error().as_str()), (403, "wrong-function"));
    }
    let list = world.send_as(&token, Method::GET, "/v1/functions", "").await.json();
    let names: Vec<&str> = list["functions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|function| function["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["order-new", "order-old"]);
    world.stop().await;
}

#[tokio::test]
async fn a_token_is_shown_once_and_lists_say_only_what_it_is_good_for() {
    let world = World::new().await;
    let token =
        world.token(json!({ "name": "ci", "scopes": ["deploy", "read"], "lifetime": 3600 })).await;
    let list = exchange(&world.unix, Method::GET, "/v1/tokens", "").await;
    assert!(!list.text().contains(token.reveal()) && !list.text().contains(&token.reveal()[18..]));
    let shown = &list.json()["tokens"][0];
    assert_eq!((&shown["name"], &shown["id"]), (&json!("ci"), &json!(token.id())));
    assert_eq!(shown["scopes"], json!(["deploy", "read"]));
    assert!(shown["expires"].as_str().unwrap() > shown["created"].as_str().unwrap());
    for (request, status) in [
        (json!({ "name": "ci", "scopes": ["read"] }), 409),
        (json!({ "name": "a/b", "scopes": ["read"] }), 400),
        (json!({ "name": "b", "scopes": [] }), 400),
        (json!({ "name": "b", "scopes": ["root"] }), 400),
        (json!({ "name": "b", "scopes": ["admin"], "functions": ["a"] }), 400),
        (json!({ "name": "b", "scopes": ["read"], "functions": ["["] }), 400),
        (json!({ "name": "b", "scopes": ["read"], "lifetime": -1.0 }), 400),
        (json!({ "name": "b", "scopes": ["read"], "colour": "red" }), 400),
    ] {
        let reply = exchange(&world.unix, Method::POST, "/v1/tokens", request.to_string()).await;
        assert_eq!((reply.status.as_u16(), reply.error().as_str()), (status, "bad-token"));
    }
    world.stop().await;
}

/// Follows a function's log until the worker ends that.
async fn follow(client: &wool::client::Client) -> tokio::task::JoinHandle<()> {
    let path = "/v1/functions/f/logs?follow=true";
    let reply = client.ask(Method::GET, path, &[], "".into()).await.unwrap();
    let client = client.clone();
    tokio::spawn(async move {
        let lines = client.lines(reply, |_| ());
        let end = tokio::time::timeout(Duration::from_secs(60), lines).await.expect("it ends");
        assert!(end.is_err(), "no proper end: more would come");
    })
}

#[tokio::test]
async fn who_is_let_in_no_more_hears_no_more() {
    let world = World::new().await;
    world.deploy("f", "module = print").await;
    let read = |name| json!({ "name": name, "scopes": ["read"] });
    let token = world.token(read("a")).await;
    let removed = follow(&world.tcp.clone().with_token(Some(token))).await;
    let brief = json!({ "name": "b", "scopes": ["read"], "lifetime": 2.0 });
    let expiring = follow(&world.tcp.clone().with_token(Some(world.token(brief).await))).await;
    let staying = follow(&world.tcp.clone().with_token(Some(world.token(read("c")).await))).await;
    let owner = follow(&world.unix).await;
    assert_eq!(exchange(&world.unix, Method::DELETE, "/v1/tokens/a", "").await.status, 204);
    removed.await.unwrap();
    expiring.await.unwrap();
    assert!(!staying.is_finished() && !owner.is_finished());
    world.stop().await;
    owner.await.unwrap();
}

#[tokio::test]
async fn only_administrators_see_what_is_of_all_tenants_in_the_status() {
    let world = World::new().await;
    world.deploy("f", "module = echo").await;
    world.run("f", "{}").await;
    let zygotes = async |name: &str| {
        let token = world.token(json!({ "name": name, "scopes": [name] })).await;
        let status = world.send_as(&token, Method::GET, "/v1/status", "").await.json();
        // Of the host, for its operator.
        for key in ["pid", "state"] {
            assert_eq!(status.get(key).is_some(), name == "admin", "{key}");
        }
        status["engine"]["zygotes"].as_array().unwrap().len()
    };
    assert_eq!(zygotes("read").await, 0);
    assert!(zygotes("admin").await > 0);
    world.stop().await;
}

/// The file's mode lets the stranger connect: it is the kernel's word about who connects that counts.
#[tokio::test]
async fn a_stranger_on_the_socket_is_refused_whatever_the_files_mode_is() {
    if !rustix::process::geteuid().is_root() {
        return skips::skip("root", "only root can become somebody else");
    }
    let world = World::new().await;
    let run = world.state.path().join("run");
    let socket = run.join("wool.sock");
    for (path, mode) in [(world.state.path(), 0o755), (&run, 0o755), (&socket, 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let ask = |uid: u32| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "http://localhost/v1/functions", "--unix-socket"]);
        curl.arg(&socket).current_dir("/").uid(uid).gid(uid);
        tokio::task::spawn_blocking(move || {
            String::from_utf8(curl.output().unwrap().stdout).unwrap()
        })
    };
    let stranger = ask(54_321).await.unwrap();
    assert!(stranger.contains("\"stranger\"") && stranger.contains("uid 54321"), "{stranger}");
    assert!(ask(0).await.unwrap().contains("\"functions\""));
    world.stop().await;
}

/// By a supplementary group: the socket's own mode lets such a user connect, and nobody else.
#[tokio::test]
async fn a_member_of_the_administrators_group_is_let_in_and_nobody_beside() {
    if !rustix::process::geteuid().is_root() {
        return skips::skip("root", "only root can become somebody else");
    }
    let world = World::with(|config| config.admin_group = Some("daemon".to_owned())).await;
    let socket = world.state.path().join("run/wool.sock");
    let ask = |groups: &'static [&'static str]| {
        let mut curl = Command::new("setpriv");
        curl.args(["--reuid", "54321", "--regid", "54321"]).args(groups).current_dir("/");
        curl.args(["curl", "-sS", "--max-time", "20", "http://localhost/v1/functions"]);
        curl.arg("--unix-socket").arg(&socket);
        tokio::task::spawn_blocking(move || {
            String::from_utf8(curl.output().unwrap().stdout).unwrap()
        })
    };
    assert!(ask(&["--groups", "daemon"]).await.unwrap().contains("\"functions\""));
    assert_eq!(ask(&["--clear-groups"]).await.unwrap(), "", "it cannot even connect");
    let refused = world::bind(
        wool::config::Config {
            admin_group: Some("no-such-group".to_owned()),
            ..world::config(tempfile::tempdir().unwrap().path())
        },
        Default::default(),
    );
    let refused = format!("{:#}", refused.await.unwrap_err());
    assert!(refused.contains("groupadd no-such-group"), "{refused}");
    world.stop().await;
}
