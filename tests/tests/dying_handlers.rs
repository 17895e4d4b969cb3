//! Handlers that end themselves, break the protocol or never answer: each call gets its error, nothing else suffers.

use std::time::Duration;

use e2e::{Reply, Site, Worker, can_run, json};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_handler_that_ends_itself_is_told_as_died_and_how() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    for (name, body, words) in [
        ("aborted", "os.abort()", "called abort()"),
        (
            "segfault",
            "import ctypes; ctypes.string_at(0)",
            "died: the handler died: killed by SIGSEGV (11): native code touched memory",
        ),
        ("exited", "os._exit(3)", "died: the handler died: it exited with status 3"),
        ("exited-well", "os._exit(0)", "died: the handler died: it exited with status 0"),
        ("replaced", "os.execv('/usr/bin/python3', ['python3', '-c', 'pass'])", "died: "),
        (
            "no-stack",
            "sys.setrecursionlimit(10**9); deep = lambda: deep(); eval('('*50 + '1' + ')'*50); f()",
            "died: ",
        ),
    ] {
        let reply = try_body(&worker, name, body);
        assert!(reply.header("lambswool-invocation").len() == 36);
        died(&reply, words);
        // Its sandbox is gone: the next call starts from the zygote, and ends the same way.
        let again = worker.run(name, &json!({}));
        assert_eq!(again.header("lambswool-start"), "fork");
        died(&again, words);
    }
    // One that dies while its code is imported.
    died(
        &worker.try_out("dies-loading", "import os\nos._exit(7)\ndef handler(e, c): pass\n"),
        "status 7",
    );
    worker.assert_well();
}

#[test]
fn a_busy_warden_does_not_hide_how_a_handler_died() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let exits = "print('began', flush=True); import time; time.sleep(0.5); os._exit(3)";
    drop(worker.deploy("exits", &source("# timeout = 20", exits)).expect(201));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| worker.run("exits", &json!({})));
        e2e::eventually("it has begun", || !worker.logs("exits").is_empty());
        signal(worker.warden(), Signal::STOP);
        std::thread::sleep(Duration::from_secs(3));
        signal(worker.warden(), Signal::CONT);
        died(&call.join().unwrap(), "it exited with status 3");
    });
    worker.assert_well();
}

#[test]
fn a_handlers_signals_reach_its_own_processes_only() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    // It is pid 1 of a namespace of its own, which ignores what comes from inside (pid_namespaces(7)).
    let itself = "os.kill(os.getpid(), 9); os.kill(os.getpid(), 15); return os.getpid()";
    assert_eq!(try_body(&worker, "itself", itself).expect(200).json(), 1);
    let everybody = r#"import time
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    os.kill(-1, 9)
    return os.waitpid(child, 0)[1]"#;
    assert_eq!(try_body(&worker, "everybody", everybody).expect(200).json(), 9);
    let others = r#"
    missing = []
    for pid in range(2, 40_000):
        try:
            os.kill(pid, 9)
            missing.append(pid)
        except ProcessLookupError:
            pass
    return missing"#;
    assert_eq!(try_body(&worker, "others", others).expect(200).json(), json!([]));
    worker.assert_well();
}

#[test]
fn whoever_breaks_the_channel_harms_only_their_own_call() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    for (name, body) in [
        ("closes", "os.close(3)"),
        ("shuts", "import socket; socket.socket(fileno=3).shutdown(socket.SHUT_RDWR)"),
        ("garbage", "os.write(3, b'\\xff' * 4096)"),
        ("huge-frame", "os.write(3, b'\\x10\\x00\\x00\\x00\\xff\\xff\\xff\\xff' + b'{}' * 8)"),
        ("unbidden", "send({'kind': 'loaded', 'milliseconds': 1})"),
        ("unknown-kind", "send({'kind': 'nonsense'})"),
        (
            "other-invocation",
            "send({'kind': 'done', 'id': 'x', 'content_type': 'application/json'}, b'1')",
        ),
        ("zeros", "os.write(3, bytes(65536))"),
    ] {
        let reply = try_body(&worker, name, body);
        let error = reply.expect(502).error();
        assert!(
            error.starts_with("bad-answer: ") || error.starts_with("died: "),
            "{name}: {error}"
        );
    }
    worker.assert_well();
}

#[test]
fn an_answer_forged_for_the_own_call_is_only_the_handlers_own_answer() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let forge = "send({'kind': 'done', 'id': context.aws_request_id, 'content_type': 'application/json'}, b'\"forged\"')";
    let reply = try_body(&worker, "forges", forge);
    assert_eq!(reply.expect(200).json(), "forged");
    // The true answer arrives when nobody asked: that instance answers nothing more, and never a second call.
    let reply = try_body(&worker, "forges", &forge.replace("forged", "again"));
    assert!(reply.status == 502 || reply.json() == "again", "{}", reply.text());
    worker.assert_well();
}

#[test]
fn a_handler_that_does_not_answer_in_time_is_ended() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    for (name, body) in [
        ("sleeps", "import time; time.sleep(1000)"),
        // Inside one bytecode instruction: no signal handler of Python's would ever run.
        ("spins", "sum(range(10**15))"),
        ("counts", "(3 ** (10 ** 9)) % 7"),
        (
            "ignores",
            "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(1000)",
        ),
        ("stops", "os.kill(os.getpid(), 19); import time; time.sleep(1000)"),
        ("hides", "os.fork() and os._exit(0) if False else None; import time; time.sleep(1000)"),
    ] {
        drop(worker.deploy(name, &source("# timeout = 0.5", body)).expect(201));
        let error = worker.run(name, &json!({})).expect(504).error();
        assert!(error.starts_with("timed-out: no answer within 0.5 s"), "{name}: {error}");
    }
    // One that hangs while its code is imported.
    let hangs = "# /// script\n# [tool.lambswool]\n# timeout = 0.5\n# ///\nimport time\ntime.sleep(1000)\ndef handler(e, c): pass\n";
    drop(worker.deploy("hangs", hangs).expect(201));
    drop(worker.run("hangs", &json!({})).expect(504));
    worker.assert_well();
}

#[test]
fn a_client_that_hangs_up_takes_its_sandbox_along() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(
        worker
            .deploy(
                "slow",
                &source(
                    "# timeout = 60",
                    "print('began', flush=True); import time; time.sleep(60)",
                ),
            )
            .expect(201),
    );
    let mut invoke = worker.site().command();
    let mut invoke = invoke.args(["invoke", "slow"]).spawn().unwrap();
    e2e::eventually("the call has begun", || !worker.logs("slow").is_empty());
    invoke.kill().unwrap();
    invoke.wait().unwrap();
    e2e::eventually("its call has ended", || worker.status()["engine"]["calls"] == 0);
    worker.assert_well();
}

fn try_body(worker: &Worker, name: &str, body: &str) -> Reply {
    worker.try_out(name, &source("# timeout = 20", body))
}

fn source(setting: &str, body: &str) -> String {
    format!(
        r#"
# /// script
# [tool.lambswool]
{setting}
# ///
import json, os, struct, sys

def send(header, body=b""):
    header = json.dumps(header).encode()
    os.write(3, struct.pack("<II", len(header), len(body)) + header + body)

def f():
    import ctypes
    ctypes.string_at(0)

def handler(event, context):
    {body}
"#
    )
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

fn died(reply: &Reply, words: &str) {
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(reply.error().contains(words), "{words}: {}", reply.error());
}
