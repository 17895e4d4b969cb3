//! Who is let in, at the command line: tokens, and TLS beyond this machine.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use e2e::{Said, Site, can_run, json};

const ECHO: &str = "def handler(event, context):\n    return event\n";

#[test]
fn a_token_that_was_made_before_the_worker_is_asked_for_by_it() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let file = site.own().join("ci.token");
    let path = file.to_str().unwrap();
    drop(site.wool(&["token", "create", "ci", "--scope", "invoke,read", "-o", path]).ok());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let words = site.wool(&["token", "create", "x", "--scope", "read", "-o", path]).failed(1);
    assert!(words.contains("ci.token"), "{words}");
    let worker = site.up();
    let site = worker.site();
    let source = site.own().join("f.py");
    fs::write(&source, ECHO).unwrap();
    // Through the socket: whoever started the worker needs no token.
    drop(site.wool(&["deploy", source.to_str().unwrap()]).ok());
    let refused = worker.run("f", &json!(1)).expect(401);
    assert!(refused.error().contains("WOOL_TOKEN"), "{}", refused.error());
    let words = site.wool(&["--url", worker.url(), "invoke", "f", "1"]).failed(1);
    assert!(words.contains("--token-file"), "{words}");
    let with_file = ["--url", worker.url(), "--token-file", path, "invoke", "f", "[7]"];
    assert_eq!(site.wool(&with_file).json()[0], 7);
    let token = fs::read_to_string(&file).unwrap();
    let as_ci = |arguments: &[&str]| {
        let mut command = site.command();
        command.env("WOOL_TOKEN", token.trim()).args(["--url", worker.url()]).args(arguments);
        Said::from(command.output().unwrap())
    };
    assert_eq!(as_ci(&["invoke", "f", "[8]"]).json()[0], 8);
    let words = as_ci(&["deploy", source.to_str().unwrap()]).failed(1);
    assert!(words.contains("scope deploy"), "{words}");
    let listed = site.wool(&["token", "ls"]).ok();
    assert!(listed.contains("ci") && listed.contains("invoke,read"), "{listed}");
    assert!(!listed.contains(token.trim()));
    drop(site.wool(&["token", "rm", "ci"]).ok());
    let words = as_ci(&["invoke", "f", "1"]).failed(1);
    assert!(words.contains("no token of this worker"), "{words}");
    let actions = site.wool(&["audit", "--json"]).json();
    let told: Vec<_> = (0..4).map(|at| actions[at]["action"].as_str().unwrap_or("-")).collect();
    assert_eq!(told, ["create token", "deploy", "deploy", "remove token"], "{actions}");
    assert_eq!(
        (&actions[0]["remote"], &actions[0]["who"]),
        (&json!("command line"), &json!({"uid": 0}))
    );
    assert_eq!(
        (&actions[2]["result"], &actions[2]["who"]),
        (&json!("wrong-scope"), &json!({"token": "ci"}))
    );
}

#[test]
fn a_command_by_url_without_a_token_calls_and_says_how_to_do_the_rest() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let site = worker.site();
    let source = site.own().join("f.py");
    fs::write(&source, ECHO).unwrap();
    let source = source.to_str().unwrap();
    drop(site.wool(&["deploy", source]).ok());
    let by_url = |arguments: &[&str]| {
        let mut command = site.command();
        Said::from(command.args(["--url", worker.url()]).args(arguments).output().unwrap())
    };
    assert_eq!(by_url(&["invoke", "f", "[7]"]).json()[0], 7);
    for (arguments, scope) in [
        (&["deploy", source][..], "deploy"),
        (&["run", source], "read"),
        (&["rm", "f"], "deploy"),
        (&["ls"], "read"),
        (&["logs", "f"], "read"),
        (&["token", "ls"], "admin"),
        (&["audit"], "admin"),
    ] {
        let words = by_url(arguments).failed(1);
        let create = format!("wool token create NAME --scope {scope}");
        assert!(words.contains(&create), "{arguments:?}: {words}");
        assert!(words.contains("without --url"), "{arguments:?}: {words}");
    }
    assert!(site.wool(&["ls"]).ok().contains("f "), "it is still there");
}

#[test]
fn beyond_this_machine_only_tls_and_tokens_are_served() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    // A free port, so that the worker can be told which one.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("0.0.0.0:{port}");
    let words = site.wool(&["up", "--listen", &listen]).failed(1);
    assert!(words.contains("wool tls self-signed"), "{words}");
    let dir = site.own().join("tls");
    let dir = dir.to_str().unwrap();
    drop(site.wool(&["tls", "self-signed", "localhost", "127.0.0.1", "--dir", dir]).ok());
    let (certificate, key) = (format!("{dir}/cert.pem"), format!("{dir}/key.pem"));
    let worker = site.up_with(&[
        ("WOOL_TLS_CERTIFICATE", &certificate),
        ("WOOL_TLS_KEY", &key),
        ("WOOL_LISTEN", &listen),
    ]);
    assert_eq!(worker.url(), format!("https://{listen}"));
    let site = worker.site();
    let url = format!("https://localhost:{port}");
    // Also before there is a token.
    let call = ["--url", &url, "--ca", &certificate, "invoke", "f", "1"];
    let words = site.wool(&call).failed(1);
    assert!(words.contains("wool token create NAME --scope invoke"), "{words}");
    let token = site.wool(&["token", "create", "all", "--scope", "admin"]).ok();
    let ask = |ca: &[&str]| {
        let mut command = site.command();
        command
            .env("WOOL_TOKEN", token.trim())
            .args(["--url", &url])
            .args(ca)
            .args(["ls", "--json"]);
        Said::from(command.output().unwrap())
    };
    assert_eq!(ask(&["--ca", &certificate]).json(), json!([]));
    let words = ask(&[]).failed(1);
    assert!(words.contains("--ca"), "{words}");
    let curl = |url: &str, more: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "20", url]).args(more);
        Said::from(curl.output().unwrap())
    };
    // Whatever a name is called by which the worker is reached: there is no web page to be kept out, but a token to ask for.
    let path = format!("{url}/v1/functions");
    let with = ["--cacert", &certificate, "-H", "Host: wool.example"];
    assert!(curl(&path, &with).stdout.contains("unauthorized"));
    let plain = curl(&format!("http://localhost:{port}/healthz"), &[]);
    assert!(plain.code != 0 && plain.stdout.is_empty(), "{plain:?}");
    // Another certificate, without a new start.
    drop(site.wool(&["tls", "self-signed", "127.0.0.1", "--dir", dir, "--force"]).ok());
    let hup = rustix::process::Signal::HUP;
    let pid = rustix::process::Pid::from_raw(i32::try_from(worker.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, hup).unwrap();
    let health = format!("https://127.0.0.1:{port}/healthz");
    e2e::eventually("the new certificate is shown", || {
        curl(&health, &["--cacert", &certificate]).stdout == "ok\n"
    });
}

#[test]
fn a_secret_is_in_the_handlers_environment_and_in_no_file() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let site = worker.site();
    let source = site.own().join("f.py");
    let text = "import os\nAT_LOAD = os.environ['KEY']\ndef handler(event, context):\n    return [AT_LOAD, os.environ['KEY']]\n";
    fs::write(&source, text).unwrap();
    // A real one is not in the shell's history: it comes from stdin, and its last line's end does not count.
    let value = "correct-horse-battery-staple";
    let line = format!("{value}\n");
    drop(site.wool_reading(&["secret", "set", "f", "KEY"], line.as_bytes()).ok());
    drop(site.wool(&["deploy", source.to_str().unwrap()]).ok());
    assert_eq!(worker.run("f", &json!(1)).expect(200).json(), json!([value, value]));
    assert!(site.wool(&["secret", "ls", "f"]).ok().contains("KEY"));
    let told = site.wool(&["audit"]).ok();
    assert!(told.contains("set secret") && told.contains("deploy") && !told.contains(value));
    let grep =
        Command::new("grep").args(["-rlaF", "--", value]).arg(site.state()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&grep.stdout), "", "files that hold it");
    drop(site.wool(&["secret", "set", "f", "KEY", "another"]).ok());
    assert_eq!(worker.run("f", &json!(1)).expect(200).json(), json!(["another", "another"]));
    drop(site.wool(&["secret", "rm", "f", "KEY"]).ok());
    let failed = worker.run("f", &json!(1)).expect(502);
    assert!(failed.error().contains("KeyError"), "{}", failed.error());
    let limits = fs::read_to_string(format!("/proc/{}/limits", worker.pid())).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(cores.split_whitespace().nth(4), Some("0"), "{cores}");
}
