//! Handlers that take what they can get: memory, disk, processes, descriptors, the reply.

use e2e::{Reply, Site, Worker, can_run, json};

#[test]
fn memory_ends_at_the_limit_and_the_caller_is_told_so() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    for (name, body) in [
        ("at-once", "return len(b'x' * (1 << 30))"),
        ("bit-by-bit", "kept = []\n    while True:\n        kept.append(b'x' * (1 << 20))"),
        // Scratch is memory, too.
        (
            "in-scratch",
            "open('/dev/shm/a', 'wb').write(b'x' * (60 << 20)); open('/tmp/a', 'wb').write(b'x' * (60 << 20))",
        ),
        (
            "in-a-child",
            "import subprocess; return subprocess.run([sys.executable, '-I', '-S', '-c', 'len(b\"x\" * (1 << 30))']).returncode",
        ),
    ] {
        let reply = try_body(&worker, name, "# memory = \"64MB\"", body);
        if name == "in-a-child" && reply.status == 200 {
            assert_eq!(reply.json(), -9);
        } else {
            let error = reply.expect(502).error();
            assert_eq!(
                error,
                "died: the handler died: it reached its memory limit: the setting `memory` in [tool.lambswool] allows more",
                "{name}"
            );
        }
    }
    // Below it, all is well.
    let reply = try_body(&worker, "modest", "# memory = \"64MB\"", "return len(b'x' * (20 << 20))");
    assert_eq!(reply.expect(200).json(), 20 << 20);
    worker.assert_well();
}

#[test]
fn a_full_scratch_is_the_handlers_own_error_to_see() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let body = r#"
    full = {}
    for place in ("/tmp", "/dev/shm"):
        try:
            with open(place + "/file", "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * (1 << 20))
        except OSError as error:
            full[place] = [error.errno, os.path.getsize(place + "/file")]
        os.unlink(place + "/file")
    try:
        for number in range(100_000):
            os.close(os.open(f"/tmp/{number}", os.O_CREAT))
    except OSError as error:
        full["files"] = error.errno
    try:
        open("/file", "w")
    except OSError as error:
        full["root"] = error.errno
    return full"#;
    let seen = try_body(&worker, "fills", "# scratch = \"8MB\"", body).expect(200).json();
    let (enospc, erofs) = (28, 30);
    for place in ["/tmp", "/dev/shm"] {
        assert_eq!(seen[place][0], enospc, "{seen}");
        assert!(seen[place][1].as_u64().unwrap() <= 8 << 20, "{seen}");
    }
    assert_eq!((&seen["files"], &seen["root"]), (&json!(enospc), &json!(erofs)));
    // What the first call left in its scratch is there for the second of the same instance, and for nobody else.
    let other = try_body(&worker, "other", "# timeout = 5", "return os.listdir('/tmp')");
    assert_eq!(other.expect(200).json(), json!([]));
    worker.assert_well();
}

#[test]
fn processes_end_at_the_limit_and_with_their_instance() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let bomb = r#"
    import time
    children = 0
    try:
        while children < 1000:
            if os.fork() == 0:
                time.sleep(1000)
            children += 1
    except BlockingIOError:
        return children
    return -1"#;
    let children =
        try_body(&worker, "bomb", "# pids = 12", bomb).expect(200).json().as_u64().unwrap();
    assert!((1..12).contains(&children), "{children}");
    // Children that outlive the call, and daemons that nobody waits for.
    let daemon = r#"
    import time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    os.wait()
    return 'left'"#;
    assert_eq!(try_body(&worker, "daemon", "# pids = 12", daemon).expect(200).json(), "left");
    assert!(
        worker.site().sandboxed().len() as u64 > children,
        "the children live as long as their instance"
    );
    // One that never stops forking.
    let forks = "while True:\n        try:\n            os.fork()\n        except OSError: pass";
    drop(try_body(&worker, "forks", "# pids = 12\n# timeout = 1", forks).expect(504));
    let threads = r#"
    import threading, time
    count = 0
    try:
        while count < 1000:
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
            count += 1
    except RuntimeError:
        return count
    return -1"#;
    let count =
        try_body(&worker, "threads", "# pids = 12", threads).expect(200).json().as_u64().unwrap();
    assert!((1..12).contains(&count), "{count}");
    worker.assert_well();
}

#[test]
fn a_child_of_the_handler_cannot_answer_for_it() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let body = "return 'parent' if os.fork() else 'child'";
    for _ in 0..3 {
        assert_eq!(try_body(&worker, "forks", "# timeout = 5", body).expect(200).json(), "parent");
    }
    worker.assert_well();
}

#[test]
fn a_reply_is_refused_beyond_its_limit_and_passes_below() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let reply = try_body(&worker, "large", "# timeout = 20", "return 'x' * (100 << 20)");
    let error = reply.expect(502).error();
    assert!(error.starts_with("bad-answer: "), "{error}");
    let reply = try_body(&worker, "fits", "# timeout = 20", "return 'x' * (5 << 20)");
    assert_eq!(reply.expect(200).body.len(), (5 << 20) + 2);
    let peak = e2e::traces::peak_memory(worker.pid());
    assert!(peak < 250 << 10, "the worker took {peak} KiB for an answer that it refused");
    worker.assert_well();
}

#[test]
fn messages_without_end_end_at_the_deadline_and_keep_no_thread_of_the_worker() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let body = r#"
    import json, struct
    header = json.dumps(event).encode()
    message = struct.pack("<II", len(header), 0) + header
    # As much as the kernel takes in one piece, so that each message stays whole.
    piece, channel = message * (4096 // len(message)), os.dup(3)
    for _ in range(3):
        if os.fork() == 0:
            break
    while True:
        os.write(channel, piece)"#;
    drop(worker.deploy("floods", &source("# timeout = 3", body)).expect(201));
    let events = [json!({"kind": "log", "id": "", "stream": "stdout"}), json!({"kind": "imports"})];
    let threads = std::thread::available_parallelism().unwrap().get();
    for event in events {
        std::thread::scope(|scope| {
            let flood = || scope.spawn(|| worker.run("floods", &event));
            let floods: Vec<_> = (0..threads).map(|_| flood()).collect();
            let well = worker.try_out("other", "def handler(event, context):\n    return 'well'\n");
            assert_eq!(well.expect(200).json(), "well");
            for flood in floods {
                let error = flood.join().unwrap().expect(504).error();
                assert!(error.starts_with("timed-out: "), "{event}: {error}");
            }
        });
    }
    worker.assert_well();
}

#[test]
fn descriptors_are_the_sandboxs_own() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let body = r#"
    kept = []
    try:
        while len(kept) < 1_000_000:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        for fd in kept:
            os.close(fd)
        return [error.errno, sorted(int(fd) for fd in os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []]
    return None"#;
    let seen = try_body(&worker, "opens", "# timeout = 20", body).expect(200).json();
    assert_eq!(seen[0], 24, "EMFILE: {seen}");
    worker.assert_well();
}

fn try_body(worker: &Worker, name: &str, setting: &str, body: &str) -> Reply {
    worker.try_out(name, &source(setting, body))
}

fn source(setting: &str, body: &str) -> String {
    format!(
        "# /// script\n# [tool.lambswool]\n{setting}\n# ///\nimport os, sys\ndef handler(event, context):\n    {body}\n"
    )
}
