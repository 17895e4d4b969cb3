//! Functions that cannot run as they are: the error is the author's to read.

use e2e::{Reply, Site, can_run, json};

#[test]
fn what_can_be_seen_without_running_it_is_refused_at_the_deploy() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    for (source, words) in [
        ("def other(event): pass\n", "no handler in f.py: looked for handler"),
        ("", "no handler"),
        ("def handler(event, context):\n    return (1\n", "f.py:2:"),
        ("def handler(): pass\n", "f.py:1: handler takes"),
        ("# /// script\n# dependencies = [\n# ///\ndef handler(e, c): pass\n", "f.py"),
        (
            "# /// script\n# [tool.lambswool]\n# memroy = 1\n# ///\ndef handler(e, c): pass\n",
            "did you mean \"memory\"",
        ),
        (
            "# /// script\n# [tool.lambswool]\n# network = \"host\"\n# ///\ndef handler(e, c): pass\n",
            "network",
        ),
        ("# /// script\n# requires-python = \">=4\"\n# ///\ndef handler(e, c): pass\n", "4"),
    ] {
        let reply = worker.deploy("f", source);
        assert!((400..=503).contains(&reply.status), "{source}: {}", reply.text());
        assert!(reply.error().contains(words), "{source}: {}", reply.error());
        drop(worker.get("/v1/functions/f").expect(404));
    }
    let never = "# /// script\n# requires-python = \"<3.11\"\n# ///\ndef handler(e, c): pass\n";
    assert!(worker.deploy("f", never).expect(422).error().contains("no Python can be <3.11"));
    // A parser takes 3.5 GB for it.
    let many = worker.deploy("f", &"x\n".repeat(2 << 20)).expect(422);
    assert!(many.error().contains("f.py takes more than 1024 MiB"), "{}", many.error());
    worker.assert_well();
}

#[test]
fn an_exception_comes_back_with_the_users_own_lines() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let source = "class Odd(Exception): pass\ndef inner():\n    raise Odd('on purpose')\ndef handler(event, context):\n    inner()\n";
    let reply = worker.try_out("raises", source);
    let traceback = failed(&reply, "raises.Odd", "on purpose");
    assert!(
        traceback.contains("line 5, in handler") && traceback.contains("line 3, in inner"),
        "{traceback}"
    );
    assert!(!traceback.contains("lambswool_guest"), "{traceback}");
    // An exception is an answer: the instance goes on.
    assert_eq!(worker.run("raises", &json!({})).expect(502).header("lambswool-start"), "resume");

    for (name, source, kind, message) in [
        (
            "import-error",
            "import nowhere_to_be_found\ndef handler(e, c): pass\n",
            "ModuleNotFoundError",
            "nowhere_to_be_found",
        ),
        (
            "load-error",
            "raise ValueError('while loading')\ndef handler(e, c): pass\n",
            "ValueError",
            "while loading",
        ),
        ("exits", "import sys\ndef handler(e, c):\n    sys.exit(3)\n", "SystemExit", "sys.exit(3)"),
        (
            "exits-loading",
            "import sys\nsys.exit('no')\ndef handler(e, c): pass\n",
            "SystemExit",
            "no",
        ),
        (
            "recursion",
            "def handler(e, c):\n    return handler(e, c)\n",
            "RecursionError",
            "maximum recursion depth",
        ),
        ("no-function", "handler = 7\n", "Runtime.HandlerNotFound", "is no function but int"),
        (
            "no-json",
            "def handler(e, c):\n    return object()\n",
            "Runtime.MarshalError",
            "JSON serializable",
        ),
        ("no-memory", "def handler(e, c):\n    bytearray(1 << 62)\n", "MemoryError", ""),
        (
            "read-only",
            "def handler(e, c):\n    return open('/var/task/x', 'w')\n",
            "OSError",
            "Read-only file system",
        ),
    ] {
        failed(&worker.try_out(name, source), kind, message);
        // What did not load is not loaded for good: the next call says the same.
        failed(&worker.run(name, &json!({})), kind, message);
    }
    worker.assert_well();
}

#[test]
fn a_traceback_that_is_too_long_is_cut_and_one_that_breaks_python_is_survived() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let long = "def handler(e, c):\n    raise ValueError('x' * (10 << 20))\n";
    let reply = worker.try_out("long", long);
    failed(&reply, "ValueError", "xxxx");
    assert!(reply.body.len() < 256 << 10, "{} bytes", reply.body.len());
    let nasty = "class Nasty(BaseException):\n    def __str__(self):\n        raise self\n    __repr__ = __str__\ndef handler(e, c):\n    raise Nasty\n";
    failed(&worker.try_out("nasty", nasty), "Nasty", "");
    worker.assert_well();
}

fn failed(reply: &Reply, kind: &str, message: &str) -> String {
    assert_eq!(reply.status, 502, "{kind}: {}", reply.text());
    let error = reply.error();
    assert!(error.contains(kind) && error.contains(message), "{kind}, {message}: {error}");
    let lines = reply.json()["error"]["traceback"].as_array().cloned().unwrap_or_default();
    lines.iter().map(|line| line.as_str().unwrap().to_owned() + "\n").collect()
}
