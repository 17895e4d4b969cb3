//! The `wool` command: help, JSON for scripts, exit statuses, cleaning up.

use std::fs;
use std::path::Path;

use e2e::{Site, can_run, json};

const COMMANDS: [&str; 32] = [
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
    "base ls",
    "unikernel",
    "unikernel run",
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
    assert!(site.wool(&["help", "deploy"]).ok().contains("Usage: wool deploy"));
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
    let dropped = site.wool_reading(&["invoke", "greet"], b"[2]");
    assert!(dropped.stderr.contains("stdin was not read"), "{}", dropped.stderr);
    assert_eq!(dropped.json(), json!({"got": {}}));
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
    drop(site.wool(&["deploy", &file, "--name", "second"]).ok());
    // One that is not there does not keep the others.
    let removed = site.wool(&["rm", "nobody", "greet", "noone", "second", "--json"]);
    assert!(removed.stderr.contains("nobody") && removed.stderr.contains("noone"), "{removed:?}");
    assert_eq!(removed.code, 1, "{removed:?}");
    let told: e2e::Value = serde_json::from_str(&removed.stdout).unwrap();
    assert_eq!(told, json!({"removed": ["greet", "second"]}));
    assert_eq!(site.wool(&["ls", "--json"]).json(), json!([]));
    assert!(site.wool(&["rm", "greet"]).failed(1).contains("greet"));
    // What `run` made is hidden from lists.
    let hidden = site.wool(&["ls", "--all", "--json"]).json();
    assert_eq!(hidden.as_array().unwrap().len(), 2, "{hidden}");
    worker.assert_well();
}

#[test]
fn a_fresh_run_finds_nothing_of_the_run_before() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let site = worker.site();
    let source =
        "calls = []\ndef handler(event, context):\n    calls.append(1)\n    return len(calls)\n";
    let file = write(site.own(), "counts.py", source);
    let run = |more: &[&str]| site.wool(&[&["run", &file], more].concat()).json();
    assert_eq!(run(&[]), 1);
    assert_eq!(run(&[]), 2, "it goes on in the instance of the first");
    assert_eq!(run(&["--fresh"]), 1);
    assert_eq!(run(&[]), 2);
    // One whose own function was forgotten between is none the wiser.
    let hidden = site.wool(&["ls", "--all", "--json"]).json();
    drop(worker.delete(&format!("/v1/functions/{}", hidden[0]["name"].as_str().unwrap())));
    assert_eq!(run(&[]), 1);
    worker.assert_well();
}

#[test]
fn what_stands_in_a_table_that_is_nearly_ours_is_warned_of() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let site = worker.site();
    let source = |table: &str| {
        format!(
            "# /// script\n# {table}\n# isolation = \"microvm\"\n# ///\ndef handler(event, context):\n    return 1\n"
        )
    };
    for table in ["[tool.lambswol]", "[lambswool]"] {
        let file = write(site.own(), "misspelt.py", &source(table));
        // Of two runs the second finds what the first has deployed.
        for command in ["deploy", "run", "run"] {
            let said = site.wool(&[command, &file]);
            assert_eq!(said.code, 0, "{said:?}");
            assert!(said.stderr.contains("warning: misspelt.py"), "{command}: {said:?}");
            assert!(said.stderr.contains("[tool.lambswool]"), "{command}: {said:?}");
        }
    }
    let listed = site.wool(&["ls"]).ok();
    assert!(listed.contains("ISOLATION") && listed.contains(" container "), "{listed}");
    worker.assert_well();
}

#[test]
fn without_a_worker_a_command_says_how_to_start_one() {
    let site = Site::new();
    for command in [&["ls"][..], &["invoke", "f"], &["logs", "f"], &["rm", "f"]] {
        let words = site.wool(command).failed(3);
        // Its own, and none that listens where workers do by default.
        assert!(words.contains("wool up") && words.contains("wool.sock"), "{command:?}: {words}");
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
    assert!(site.state().join("functions.sqlite").exists());
    drop(site.wool(&["clean", "--yes"]).ok());
    assert!(!site.state().exists());
    site.wait_until_quiet();
    assert_eq!(site.wool(&["clean", "--yes", "--json"]).json(), json!({"removed": false}));
}

#[test]
fn a_state_directory_that_a_link_leads_to_is_removed_with_the_link() {
    let site = Site::new();
    drop(site.wool(&["base", "ls"]).ok());
    let link = site.own().join("link");
    std::os::unix::fs::symlink(site.state(), &link).unwrap();
    let clean = ["clean", "--yes", "--json", "--state", link.to_str().unwrap()];
    assert_eq!(site.wool(&clean).json(), json!({"removed": true}));
    assert!(!site.state().exists() && link.symlink_metadata().is_err());
    assert_eq!(site.wool(&clean).json(), json!({"removed": false}));
}

#[test]
fn a_secret_of_which_nothing_was_piped_in_is_refused() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    for piped in [&b""[..], b"\n"] {
        let said = worker.site().wool_reading(&["secret", "set", "f", "KEY"], piped);
        assert!(said.failed(1).contains("stdin gave no value"));
    }
    let list = || worker.site().wool(&["secret", "ls", "f", "--json"]).json();
    assert_eq!(list(), json!([]));
    drop(worker.site().wool(&["secret", "set", "f", "KEY", ""]).ok());
    assert_eq!(list().as_array().unwrap().len(), 1, "on purpose");
}

#[test]
fn the_doctor_reads_the_file_that_a_variable_names() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let file = site.own().join("config.toml");
    let said = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut doctor = site.command();
        e2e::Said::from(doctor.arg("doctor").env("WOOL_CONFIG", &file).output().unwrap())
    };
    assert!(said("egress = [\"acme/*\"]\n").stdout.contains("functions acme/*"));
    let unknown = said("egres = []\n");
    assert!(unknown.stdout.contains("egres"), "{unknown:?}");
    assert_eq!(unknown.code, 1);
    let many = said("sandboxes = 10000000\n");
    assert!(many.stdout.contains("10000000 are set, and "), "{many:?}");
}

#[test]
fn a_secret_without_a_name_is_told_as_one() {
    let site = Site::new();
    for command in [&["secret", "set", "many", "", "x"][..], &["secret", "rm", "many", ""]] {
        let words = site.wool(command).failed(1);
        assert!(words.contains("name is empty"), "{words}");
    }
}

#[test]
fn a_clean_that_was_killed_is_finished_by_the_next() {
    let site = Site::new();
    // It lays out a whole state directory, without a worker.
    drop(site.wool(&["base", "ls"]).ok());
    for number in 0..2000 {
        write(&site.state().join("logs"), &number.to_string(), "");
    }
    let names = || fs::read_dir(site.state()).map_or(0, Iterator::count);
    write(&site.state(), "lock", "");
    let all = names();
    let mut clean = site.command();
    let mut clean = clean.args(["clean", "--yes"]).spawn().unwrap();
    // Without a pause in between: it is soon at its end.
    while names() >= all && clean.try_wait().unwrap().is_none() {}
    clean.kill().unwrap();
    clean.wait().unwrap();
    // Whatever it had come to, its very end included.
    drop(site.wool(&["clean", "--yes"]).ok());
    assert!(!site.state().exists());

    // What earlier releases left: others of our names, without the version.
    for name in ["run", "uv"] {
        fs::create_dir_all(site.state().join(name)).unwrap();
    }
    drop(site.wool(&["base", "ls"]).ok());
    fs::remove_file(site.state().join("version")).unwrap();
    assert_eq!(site.wool(&["clean", "--yes", "--json"]).json(), json!({"removed": true}));
    assert!(!site.state().exists());
}

#[test]
fn a_start_that_fails_names_the_setting_and_shows_nothing_of_earlier_starts() {
    let site = Site::new();
    let up = |name: &str, value: &str, arguments: &[&str]| {
        let mut wool = site.command();
        let said = e2e::Said::from(wool.env(name, value).args(arguments).output().unwrap());
        said.failed(1)
    };
    let said = up("WOOL_SLOTS", "-1", &["up"]);
    assert!(said.contains("WOOL_SLOTS does not fit") && !said.contains("WOOL_STATE"), "{said}");
    let said = up("WOOL_MEMROY", "1GiB", &["up", "--detach"]);
    assert!(said.contains("WOOL_MEMROY: no such setting"), "{said}");
    let said = up("WOOL_LOG", "info", &["up", "--listen", "foo"]);
    assert!(said.contains("--listen does not fit"), "{said}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    fs::create_dir_all(site.state().join("logs")).unwrap();
    write(&site.state().join("logs"), "worker.log", "an earlier start failed\n");
    let said = up("WOOL_LISTEN", "127.0.0.1:1", &["up", "--detach", "--listen", &taken]);
    assert!(said.contains(&taken) && !said.contains("an earlier start failed"), "{said}");
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
