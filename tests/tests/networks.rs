//! Functions that may reach something: who allows it, and what they then reach.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use e2e::{Site, Value, Worker, can_run, json};

/// A function that talks to whatever its event names.
fn function(settings: &str) -> String {
    let header: String = settings.lines().map(|line| format!("# {line}\n")).collect();
    format!(
        r#"# /// script
# [tool.lambswool]
{header}# ///
import errno, socket

def handler(event, context):
    try:
        with socket.create_connection(("127.0.0.1", event), 30) as end:
            end.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return end.recv(64).decode()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
"#
    )
}

fn egress(ports: &[u16]) -> String {
    let list: Vec<String> = ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    function(&format!("network = \"egress\"\negress = [{}]", list.join(", ")))
}

/// A service of the host that greets whoever connects.
fn greeting() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut caller in listener.incoming().flatten() {
            let _ = caller.read(&mut [0; 64]);
            let _ = caller.write_all(b"hello");
        }
    });
    port
}

fn call(worker: &Worker, name: &str, port: u16) -> Value {
    worker.run(name, &json!(port)).expect(200).json()
}

/// What a deploy is refused with.
fn refused(worker: &Worker, name: &str, source: &str) -> String {
    let reply = worker.deploy(name, source).expect(422).json();
    reply["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_function_reaches_what_it_lists_where_the_operator_allows_both() {
    if !can_run() {
        return;
    }
    let (port, other) = (greeting(), greeting());
    let allowed = [("WOOL_EGRESS", "fetch-*"), ("WOOL_EGRESS_ALLOW", "127.0.0.1")];
    let worker = Site::new().up_with(&allowed);
    // Its own API is on the list, and the operator allows the address.
    let api: u16 = worker.url().rsplit(':').next().unwrap().parse().unwrap();
    drop(worker.deploy("fetch-it", &egress(&[port, api])).expect(201));
    // The second is the first's instance, which was paused between.
    for _ in 0..2 {
        assert_eq!(call(&worker, "fetch-it", port), "hello");
        assert_eq!(call(&worker, "fetch-it", other), "ECONNREFUSED");
        assert_eq!(call(&worker, "fetch-it", api), "ECONNRESET");
    }
    // One without a network, of the same code, beside it.
    drop(worker.deploy("quiet", &function("network = \"none\"")).expect(201));
    assert!(["EACCES", "ENETUNREACH"].map(Value::from).contains(&call(&worker, "quiet", port)));
    let message = refused(&worker, "get-it", &egress(&[port]));
    assert!(message.contains("\"get-it\"") && message.contains("`egress`"), "{message}");
    let host = function("network = \"host\"");
    let message = refused(&worker, "fetch-host", &host);
    assert!(message.contains("`host_network`"), "{message}");
    let private = egress(&[port]).replace("127.0.0.1:", "10.0.0.1:");
    let message = refused(&worker, "fetch-private", &private);
    assert!(message.contains("is private") && message.contains("egress_allow"), "{message}");
    let metadata = egress(&[80]).replace("127.0.0.1:", "169.254.169.254:");
    let message = refused(&worker, "fetch-metadata", &metadata);
    assert!(message.contains("metadata") && message.contains("no function"), "{message}");
    worker.assert_well();
}

#[test]
fn what_wool_run_makes_reaches_what_the_operator_allows_to_all_of_it() {
    if !can_run() {
        return;
    }
    let port = greeting();
    let allowed = [("WOOL_EGRESS", "run-*"), ("WOOL_EGRESS_ALLOW", "127.0.0.1")];
    let worker = Site::new().up_with(&allowed);
    let file = worker.site().own().join("fetch.py");
    let run = |worker: &Worker, edit: &str| {
        std::fs::write(&file, egress(&[port]) + edit).unwrap();
        worker.site().wool(&["run", file.to_str().unwrap(), &port.to_string()])
    };
    for edit in ["", "# another function\n"] {
        assert_eq!(run(&worker, edit).json(), "hello");
    }
    let worker = worker.stop().up();
    let refused = run(&worker, "").failed(1);
    // What would be another name after the next edit is nothing to list.
    assert!(refused.contains("\"run-*\"") && !refused.contains("run-0"), "{refused}");
    assert!(refused.contains("`egress`"), "{refused}");
    worker.assert_well();
}

#[test]
fn without_zygotes_a_function_reaches_the_same() {
    if !can_run() {
        return;
    }
    let (port, other) = (greeting(), greeting());
    let worker = Site::new().up_with(&[
        ("WOOL_ZYGOTES", "none"),
        ("WOOL_EGRESS", "*"),
        ("WOOL_EGRESS_ALLOW", "127.0.0.1"),
    ]);
    drop(worker.deploy("fetch", &egress(&[port])).expect(201));
    assert_eq!(call(&worker, "fetch", port), "hello");
    assert_eq!(call(&worker, "fetch", other), "ECONNREFUSED");
    worker.assert_well();
}

#[test]
fn the_hosts_network_is_for_functions_that_the_operator_names_and_for_as_long_as_he_does() {
    if !can_run() {
        return;
    }
    let port = greeting();
    let worker = Site::new().up_with(&[("WOOL_HOST_NETWORK", "probe")]);
    let host = function("network = \"host\"");
    drop(worker.deploy("probe", &host).expect(201));
    assert_eq!(call(&worker, "probe", port), "hello");
    let message = refused(&worker, "other", &host);
    assert!(message.contains("\"other\"") && message.contains("`host_network`"), "{message}");
    let worker = worker.stop().up();
    let reply = worker.run("probe", &json!(port)).expect(403).json();
    assert_eq!(reply["error"]["type"], "network");
    drop(worker.delete("/v1/functions/probe").expect(204));
}

#[test]
fn a_micro_vm_with_a_network_is_refused() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_EGRESS", "*"), ("WOOL_HOST_NETWORK", "*")]);
    for network in ["network = \"host\"", "network = \"egress\"\negress = [\"example.com:443\"]"] {
        let source = function(&format!("isolation = \"microvm\"\n{network}"));
        let message = refused(&worker, "machine", &source);
        assert!(message.contains("a micro-VM has no network"), "{message}");
    }
}
