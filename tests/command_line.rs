//! The `wool` command: help, JSON for scripts, exit statuses, cleaning up.

use std::fs;
use std::path::Path;

use e2e::{Site, can_run, json};

const COMMANDS: [&str; 29] = [
    "up",
    "down",
    "clean",
    "run",
    "deploy",
    "invoke",
    "ls",
    "rm",
    "logs",
    "packages",
    "packages prune",
    "packages verify",
    "zygotes",
    "token",
    "token create",
    "token ls",
    "token rm",
    "secret",
    "secret set",
    "secret ls",
    "secret rm",
    "audit",
    "tls",
    "tls self-signed",
    "base",
    "base build",
    "doctor",
    "completions",
    "openapi",
];

#[test]
fn every_command_has_help() {
    let site = Site::new();
    let all = site.wool(&["--help"]).ok();
    assert!(all.contains("Exit status:") && all.contains("Examples:"), "{all}");
    for command in COMMANDS {
        let mut words: Vec<&str> = command.split(' ').collect();
        assert!(all.contains(&format!("\n  {} ", words[0])), "{command} in {all}");
        words.push("--help");
        let help = site.wool(&words).ok();
        assert!(help.contains("Usage: wool") && help.contains("--state"), "{help}");
    }
    assert!(site.wool(&["--version"]).ok().starts_with("wool "));
    for wrong in [&["nonsense"][..], &["invoke"], &["up", "--nonsense"]] {
        assert!(site.wool(wrong).failed(2).contains("Usage:"), "{wrong:?}");
    }
}

#[test]
fn completions_are_written_for_every_shell() {
    let site = Site::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = site.wool(&["completions", shell]).ok();
        assert!(script.contains("wool") && script.contains("deploy"), "{shell}");
    }
}

#[test]
fn the_description_of_the_api_has_every_route_and_equals_the_served_one() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let written = worker.site().wool(&["openapi"]).json();
    assert_eq!(worker.get("/openapi.json").expect(200).json(), written);
    assert!(written["openapi"].as_str().unwrap().starts_with("3."));
    let paths = written["paths"].as_object().unwrap();
    for (path, methods) in [
        ("/v1/functions", &["get"][..]),
        ("/v1/functions/{name}", &["get", "put", "delete"]),
        ("/v1/functions/{name}/logs", &["get"]),
        ("/run/{name}", &["post"]),
        ("/healthz", &["get"]),
        ("/metrics", &["get"]),
        ("/v1/status", &["get"]),
        ("/v1/packages", &["get"]),
        ("/v1/packages/verify", &["post"]),
        ("/v1/packages/prune", &["post"]),
        ("/v1/functions/{name}/secrets", &["get"]),
        ("/v1/functions/{name}/secrets/{key}", &["put", "delete"]),
        ("/v1/audit", &["get"]),
        ("/v1/tokens", &["get", "post"]),
        ("/v1/tokens/{token}", &["delete"]),
        ("/v1/stop", &["post"]),
    ] {
        for method in methods {
            assert!(paths[path][method]["responses"].is_object(), "{method} {path}");
        }
    }
    references_lead_somewhere(&written, &written);
}

fn references_lead_somewhere(all: &e2e::Value, part: &e2e::Value) {
    if let Some(reference) = part["$ref"].as_str() {
        assert!(all.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    let children: Vec<&e2e::Value> = match part {
        e2e::Value::Array(items) => items.iter().collect(),
        e2e::Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    };
    children.into_iter().for_each(|child| references_lead_somewhere(all, child));
}

#[test]
fn a_script_gets_json_and_an_exit_status_from_every_command() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let site = worker.site();
    let file = write(
        site.own(),
        "greet.py",
        "def handler(event, context):\n    print('seen')\n    return {'got': event}\n",
    );
    let deployed = site.wool(&["deploy", &file, "--json"]).json();
    assert_eq!(deployed["name"], "greet");
    assert_eq!(site.wool(&["ls", "--json"]).json()[0]["version"], deployed["version"]);
    assert_eq!(site.wool(&["invoke", "greet", r#"{"a": 1}"#]).json(), json!({"got": {"a": 1}}));
    assert_eq!(site.wool_reading(&["invoke", "greet", "-"], b"[2]").json(), json!({"got": [2]}));
    let event = write(site.own(), "event.json", "3");
    let timed = site.wool(&["invoke", "greet", &format!("@{event}"), "--timings"]);
    assert!(
        timed.stderr.contains("start: resume") && timed.stderr.contains("handler_cache"),
        "{timed:?}"
    );
    assert_eq!(timed.json(), json!({"got": 3}));
    let logs = site.wool(&["logs", "greet", "--json"]).ok();
    for line in logs.lines() {
        assert_eq!(serde_json::from_str::<e2e::Value>(line).unwrap()["text"], "seen");
    }
    assert_eq!(logs.lines().count(), 3);
    assert_eq!(site.wool(&["base", "ls", "--json"]).json().as_array().unwrap().len(), 1);
    let findings = site.wool(&["doctor", "--json"]).json();
    assert!(
        findings.as_array().unwrap().iter().any(|finding| finding["what"] == "cgroups"),
        "{findings}"
    );

    let raises = write(
        site.own(),
        "raises.py",
        "def handler(event, context):\n    raise ValueError('no')\n",
    );
    let slow = write(
        site.own(),
        "slow.py",
        "# /// script\n# [tool.lambswool]\n# timeout = 0.2\n# ///\nimport time\ndef handler(e, c):\n    time.sleep(9)\n",
    );
    let words = site.wool(&["run", &raises]).failed(4);
    assert!(words.contains("ValueError: no") && words.contains("raises.py\", line 2"), "{words}");
    assert!(site.wool(&["run", &slow]).failed(5).contains("timeout"));
    assert!(site.wool(&["invoke", "nobody"]).failed(1).contains("wool deploy"));
    assert!(site.wool(&["invoke", "greet", "{"]).failed(1).contains("JSON"));
    assert!(site.wool(&["deploy", "/nonexistent.py"]).failed(1).contains("/nonexistent.py"));
    drop(site.wool(&["rm", "greet"]).ok());
    assert_eq!(site.wool(&["ls", "--json"]).json(), json!([]));
    assert!(site.wool(&["rm", "greet"]).failed(1).contains("greet"));
    // What `run` made is hidden from lists.
    let hidden = site.wool(&["ls", "--all", "--json"]).json();
    assert_eq!(hidden.as_array().unwrap().len(), 2, "{hidden}");
    worker.assert_well();
}

#[test]
fn without_a_worker_a_command_says_how_to_start_one() {
    let site = Site::new();
    for command in [&["ls"][..], &["invoke", "f"], &["logs", "f"], &["rm", "f"]] {
        assert!(site.wool(command).failed(3).contains("wool up"), "{command:?}");
    }
    let elsewhere = site.wool(&["ls", "--url", "http://127.0.0.1:9"]);
    assert!(elsewhere.failed(3).contains("127.0.0.1:9"));
}

#[test]
fn run_starts_a_worker_and_clean_removes_everything() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let file = write(site.own(), "one.py", "def handler(event, context):\n    return 1\n");
    let said = site.wool(&["run", &file]);
    assert!(said.stderr.contains("wool down"), "{said:?}");
    assert_eq!(said.json(), 1);
    assert_eq!(site.wool(&["run", &file, "--timings"]).json(), 1);
    // Not without asking: nobody is there to answer.
    assert!(site.wool(&["clean"]).failed(1).contains("--yes"));
    assert!(site.state().join("registry.sqlite").exists());
    drop(site.wool(&["clean", "--yes"]).ok());
    assert!(!site.state().exists());
    site.wait_until_quiet();
    drop(site.wool(&["clean", "--yes"]).ok());
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
