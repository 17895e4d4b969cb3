//! Published versions, aliases, canaries and the way back, through the command line and the HTTP API.

use std::fs;

use e2e::{Site, Value, Worker, can_run, json};

/// A function that answers with one word.
fn says(word: &str) -> String {
    format!("def handler(event, context):\n    return {word:?}\n")
}

fn deploy(worker: &Worker, word: &str) -> String {
    let deployed = worker.deploy("f", &says(word)).expect(201);
    deployed.json()["version"].as_str().unwrap().to_owned()
}

fn publish(worker: &Worker) -> Value {
    let published = worker.post("/v1/functions/f/versions", "application/json", b"").expect(201);
    published.json()["number"].take()
}

fn alias(worker: &Worker, alias: &str, body: &Value) -> e2e::Reply {
    let (path, body) = (format!("/v1/functions/f/aliases/{alias}"), body.to_string());
    worker.put(&path, "application/json", body.as_bytes())
}

/// Fails unless the reply is an error of this type.
fn refused(reply: &e2e::Reply, kind: &str) {
    let error = reply.error();
    assert!(error.starts_with(&format!("{kind}: ")), "{error}");
}

/// What a version of the function says, and the number that the reply names.
fn call(worker: &Worker, qualifier: &str) -> (Value, String) {
    let reply = worker.run(&format!("f?qualifier={qualifier}"), &json!({})).expect(200);
    (reply.json(), reply.header("lambswool-version").to_owned())
}

#[test]
fn a_published_version_is_called_by_number_and_alias_and_survives_a_restart() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    deploy(&worker, "one");
    assert_eq!(publish(&worker), 1);
    assert_eq!(publish(&worker), 1, "nothing has changed");
    deploy(&worker, "two");
    assert_eq!(publish(&worker), 2);
    deploy(&worker, "three");
    drop(alias(&worker, "live", &json!({"number": 1})).expect(200));
    let check = |worker: &Worker| {
        assert_eq!(worker.run("f", &json!({})).expect(200).json(), "three");
        assert_eq!(call(worker, "1"), (json!("one"), "1".to_owned()));
        assert_eq!(call(worker, "2"), (json!("two"), "2".to_owned()));
        assert_eq!(call(worker, "live"), (json!("one"), "1".to_owned()));
        assert_eq!(call(worker, "$LATEST").0, "three");
    };
    check(&worker);
    // Pruning and a lost layer touch no version that can be called.
    drop(worker.post("/v1/packages/prune", "application/json", b"").expect(200));
    check(&worker);
    let site = worker.stop();
    fs::remove_dir_all(site.state().join("layers/code")).unwrap();
    fs::remove_dir_all(site.state().join("handlers")).unwrap();
    let worker = site.up();
    check(&worker);
    drop(alias(&worker, "live", &json!({"number": 2})).expect(200));
    assert_eq!(call(&worker, "live").0, "two");
    worker.assert_well();
}

#[test]
fn a_canary_gets_its_share_of_an_aliass_calls() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    for word in ["one", "two"] {
        deploy(&worker, word);
        publish(&worker);
    }
    let canary = |share: f64| json!({"number": 1, "canary": {"number": 2, "share": share}});
    drop(alias(&worker, "live", &canary(0.5)).expect(200));
    let twos = (0..200).filter(|_| call(&worker, "live").0 == "two").count();
    // Outside of this once in 10^11 runs: the binomial distribution.
    assert!((52..=148).contains(&twos), "{twos} of 200");
    drop(alias(&worker, "live", &canary(1.0)).expect(200));
    assert!((0..20).all(|_| call(&worker, "live").0 == "two"));
    for share in [0.0, -1.0, 1.5] {
        refused(&alias(&worker, "live", &canary(share)).expect(400), "bad-version");
    }
    worker.assert_well();
}

#[test]
fn a_version_goes_when_no_alias_points_to_it_and_its_number_never_comes_back() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    deploy(&worker, "one");
    publish(&worker);
    drop(alias(&worker, "live", &json!({"number": 1})).expect(200));
    refused(&worker.delete("/v1/functions/f/versions/1").expect(409), "conflict");
    drop(worker.delete("/v1/functions/f/aliases/live").expect(204));
    drop(worker.delete("/v1/functions/f/versions/1").expect(204));
    let gone = |qualifier: &str| {
        let reply = worker.run(&format!("f?qualifier={qualifier}"), &json!({})).expect(404);
        refused(&reply, "unknown-version");
    };
    gone("1");
    gone("live");
    drop(worker.delete("/v1/functions/f/versions/1").expect(404));
    drop(worker.delete("/v1/functions/f/aliases/live").expect(404));
    assert_eq!(publish(&worker), 2);
    drop(worker.delete("/v1/functions/f").expect(204));
    deploy(&worker, "one");
    gone("2");
    assert_eq!(publish(&worker), 3);
    worker.assert_well();
}

#[test]
fn a_function_goes_back_to_an_earlier_version() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let ids: Vec<String> = ["one", "two", "three"].map(|word| deploy(&worker, word)).into();
    let now = || worker.run("f", &json!({})).expect(200).json();
    let back =
        |body: &str| worker.post("/v1/functions/f/rollback", "application/json", body.as_bytes());
    // The code of earlier versions goes, and is made again from their records.
    drop(worker.post("/v1/packages/prune", "application/json", b"").expect(200));
    assert_eq!(back("").expect(200).json()["version"], *ids[1]);
    assert_eq!(now(), "two");
    drop(back("{}").expect(200));
    assert_eq!(now(), "one");
    refused(&back("").expect(404), "unknown-version");
    drop(back(&json!({"version": ids[2][..8]}).to_string()).expect(200));
    assert_eq!(now(), "three");
    for (bad, status) in [
        ("{\"version\": \"zz\"}", 404),
        ("{\"version\": \"\"}", 404),
        ("{\"version\": 3}", 400),
        ("{\"verison\": \"1\"}", 400),
        ("[", 400),
    ] {
        drop(back(bad).expect(status));
    }
    assert_eq!(now(), "three");
    let actions = worker.site().wool(&["audit"]).ok();
    let rolled = |action: &&str| action.contains("  roll back  ") && action.ends_with("  ok");
    assert_eq!(actions.lines().filter(rolled).count(), 3, "{actions}");
    worker.assert_well();
}

#[test]
fn what_names_no_version_is_refused_with_what_would() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    deploy(&worker, "one");
    publish(&worker);
    for (query, status, error) in [
        ("qualifier=7", 404, "unknown-version"),
        ("qualifier=live", 404, "unknown-version"),
        ("qualifier=", 400, "bad-version"),
        ("qualifier=0", 400, "bad-version"),
        ("qualifier=a%20b", 400, "bad-version"),
        ("qualifier=99999999999", 400, "bad-version"),
        ("version=1", 400, "bad-query"),
    ] {
        refused(&worker.run(&format!("f?{query}"), &json!({})).expect(status), error);
    }
    for (name, body, status) in [
        ("live", json!({"number": 9}), 404),
        ("live", json!({"number": 0}), 404),
        ("live", json!({"number": -1}), 400),
        ("live", json!({}), 400),
        ("7", json!({"number": 1}), 400),
        ("a%20b", json!({"number": 1}), 400),
        ("live", json!({"number": 1, "canary": {"number": 1, "share": 0.5}}), 400),
        ("live", json!({"number": 1, "description": "x".repeat(257)}), 400),
    ] {
        drop(alias(&worker, name, &body).expect(status));
    }
    let missing =
        |path: &str, body: &str| worker.post(path, "application/json", body.as_bytes()).expect(404);
    drop(missing("/v1/functions/none/versions", ""));
    drop(missing("/v1/functions/none/rollback", ""));
    let shown = worker.get("/v1/functions/f").expect(200).json();
    assert_eq!(
        (shown["aliases"].clone(), shown["published"][0]["number"].clone()),
        (json!([]), json!(1))
    );
    worker.assert_well();
}

#[test]
fn the_command_line_publishes_points_and_rolls_back() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let wool = |arguments: &[&str]| worker.site().wool(arguments);
    deploy(&worker, "one");
    assert_eq!(wool(&["publish", "f", "--description", "for May"]).ok().trim(), "1");
    deploy(&worker, "two");
    drop(wool(&["publish", "f"]).ok());
    drop(wool(&["alias", "set", "f", "live", "1", "--canary", "2=0.25"]).ok());
    let table = wool(&["versions", "f"]).ok();
    let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert_eq!(rows[1][2..], ["2", "$LATEST,", "live", "(25%)"], "{table}");
    assert_eq!(rows[2][2..], ["1", "live", "for", "May"], "{table}");
    assert_eq!(wool(&["invoke", "f:1"]).ok().trim(), "\"one\"");
    drop(wool(&["rollback", "f"]).ok());
    assert_eq!(wool(&["invoke", "f"]).ok().trim(), "\"one\"");
    let refused = wool(&["unpublish", "f", "2"]).failed(1);
    assert!(refused.contains("the alias live of f points to version 2"), "{refused}");
    drop(wool(&["alias", "rm", "f", "live"]).ok());
    assert_eq!(wool(&["unpublish", "f", "1", "2"]).ok(), "1\n2\n");
    let refused = wool(&["invoke", "f:live"]).failed(1);
    assert!(refused.contains("f has no version or alias live: see `wool versions f`"), "{refused}");
    worker.assert_well();
}
