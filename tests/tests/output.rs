//! What functions print, and where it can be read.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use e2e::terminal::Terminal;
use e2e::traces::peak_memory;
use e2e::{Site, Value, Worker, can_run, can_run_machines, json};

const CHATTY: &str = r#"
import logging, os, subprocess, sys
print("while importing")
def handler(event, context):
    print("by print")
    print("by print, to stderr", file=sys.stderr)
    logging.getLogger("mine").warning("by logging")
    os.write(1, b"by os.write\n")
    subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", "print('by a subprocess')"], check=True)
    print("without a newline", end="")
"#;

#[test]
fn all_output_reaches_the_log_with_the_invocations_id() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let first =
        worker.try_out("chatty", CHATTY).expect(200).header("lambswool-invocation").to_owned();
    let second =
        worker.run("chatty", &json!({})).expect(200).header("lambswool-invocation").to_owned();
    let log = worker.logs("chatty");
    assert_eq!(of(&log, "-"), ["stdout while importing"], "{log:#?}");
    for invocation in [&first, &second] {
        let mut lines = of(&log, invocation);
        lines.sort_unstable();
        let warning = lines.iter().find(|line| line.contains("by logging")).unwrap();
        assert!(warning.starts_with("stderr "), "{warning}");
        for line in ["stdout by print", "stderr by print, to stderr", "stdout without a newline"] {
            assert!(lines.iter().any(|found| found == line), "{line}: {lines:#?}");
        }
        for words in ["by os.write", "by a subprocess"] {
            assert!(lines.iter().any(|found| found.ends_with(words)), "{words}: {lines:#?}");
        }
        assert_eq!(lines.len(), 6, "{lines:#?}");
    }
    the_command_shows_and_selects_the_same(&worker, &first, &second);
    drop(worker.delete("/v1/functions/chatty").expect(204));
    assert!(!worker.site().state().join("logs/chatty").exists(), "the log goes with its function");
    worker.assert_well();
}

#[test]
fn what_goes_around_python_outlives_a_handler_that_dies_or_is_ended() {
    if !can_run() {
        return;
    }
    for (zygotes, isolation) in
        [("utility", "lean"), ("none", "lean"), ("utility", "lean,root=staged")]
    {
        let settings = [("WOOL_ZYGOTES", zygotes), ("WOOL_CONTAINER_RECIPE", isolation)];
        let worker = Site::new().up_with(&settings);
        let write = "subprocess.run(['/usr/bin/python3', '-I', '-S', '-c', 'print(\"said\")'])";
        for (name, header, end, status) in [
            ("dies", "", "os._exit(3)", 502),
            ("aborts", "", "os.abort()", 502),
            ("is-ended", "# [tool.lambswool]\n# timeout = 2\n", "time.sleep(60)", 504),
        ] {
            let source = format!(
                "# /// script\n{header}# ///\nimport os, subprocess, time\n\
                 def handler(event, context):\n    {write}\n    os.write(1, b'and more')\n    {end}\n"
            );
            // The second goes on from a landing made ahead.
            drop(worker.deploy(name, &source).expect(201));
            for _ in 0..2 {
                let reply = worker.run(name, &json!({})).expect(status);
                let log = worker.logs(name);
                let said = of(&log, reply.header("lambswool-invocation"));
                let (last, said) = said.split_last().unwrap();
                assert!(last.starts_with("worker [ERROR] "), "{name}, {settings:?}: {log:#?}");
                assert_eq!(
                    said,
                    ["stderr said", "stderr and more"],
                    "{name}, {settings:?}: {log:#?}"
                );
            }
        }
        let loads =
            "import os\nos.write(2, b'while loading\\n')\nos._exit(7)\ndef handler(e, c): pass\n";
        drop(worker.try_out("dies-loading", loads).expect(502));
        assert_eq!(of(&worker.logs("dies-loading"), "-"), ["stderr while loading"]);
        worker.assert_well();
    }
}

#[test]
fn what_is_written_by_name_is_in_the_log_in_its_order() {
    if !can_run() {
        return;
    }
    let source = r#"
import logging, os, subprocess
def handler(event, context):
    os.write(1, b"by os.write\n")
    for name in ["/dev/stdout", "/dev/stderr", "/dev/fd/2", "/proc/self/fd/1"]:
        for mode in "wa":
            with open(name, mode) as stream:
                stream.write(f"by {name} {mode}\n")
    logger = logging.getLogger("mine")
    logger.propagate = False
    logger.handlers = [logging.FileHandler("/dev/stdout", mode="w")]
    logger.warning("by a handler")
    program = "open('/dev/stderr', 'w').write('by a child')"
    subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", program], check=True)
"#;
    let names = ["/dev/stdout", "/dev/stderr", "/dev/fd/2", "/proc/self/fd/1"];
    let by_name = names.map(|name| ["w", "a"].map(|mode| format!("stderr by {name} {mode}")));
    let mut all = vec!["stderr by os.write".to_owned()];
    all.extend(by_name.concat());
    all.extend(["stderr by a handler", "stderr by a child"].map(str::to_owned));
    for zygotes in ["utility", "none"] {
        let worker = Site::new().up_with(&[("WOOL_ZYGOTES", zygotes)]);
        drop(worker.deploy("by-name", source).expect(201));
        // Each call has its own, of a kept instance as of a new one.
        for _ in 0..3 {
            let reply = worker.run("by-name", &json!({})).expect(200);
            let log = worker.logs("by-name");
            let said = of(&log, reply.header("lambswool-invocation"));
            assert_eq!(said, all, "zygotes {zygotes}");
        }
        worker.assert_well();
    }
}

#[test]
fn what_is_written_around_python_is_in_the_log_while_the_call_runs() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let source = "import os, time\ndef handler(event, context):\n    os.write(1, b'it runs\\n')\n    time.sleep(event)\n";
    drop(worker.deploy("runs", source).expect(201));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| worker.run("runs", &json!(5 * e2e::slow())));
        e2e::eventually("the line is in the log", || {
            worker.logs("runs").iter().any(|line| line.to_string().contains("it runs"))
        });
        assert!(!call.is_finished(), "only when the call had ended");
        drop(call.join().unwrap().expect(200));
    });
}

#[test]
fn a_flood_around_python_waits_and_blocks_neither_the_worker_nor_another_call() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    // Without an end of a line, with many, and by a child that goes on when its call is over.
    let source = r#"
import os
def handler(event, context):
    piece = event["piece"].encode() * 65536
    if event["stays"] and os.fork() == 0:
        while True:
            os.write(1, piece)
    for _ in range(512):
        os.write(2, piece)
"#;
    drop(worker.deploy("flood", source).expect(201));
    for (piece, stays) in [("x", false), ("\n", false), ("x\n", true), ("x", true)] {
        let event = json!({"piece": piece, "stays": stays});
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| worker.run("flood", &event));
            let well = worker.try_out("other", "def handler(event, context):\n    return 'well'\n");
            assert_eq!(well.expect(200).json(), "well");
            let reply = flood.join().unwrap().expect(200);
            let log = worker.logs("flood");
            let said = of(&log, reply.header("lambswool-invocation"));
            assert!(said.last().unwrap().ends_with("more bytes of output were dropped"), "{event}");
        });
    }
    assert!(peak_memory(worker.pid()) < 300 << 10, "the worker keeps what is written");
    worker.assert_well();
}

fn the_command_shows_and_selects_the_same(worker: &Worker, first: &str, second: &str) {
    let all = worker.site().wool(&["logs", "chatty"]).ok();
    assert_eq!(all.lines().count(), 13, "{all}");
    let one = worker.site().wool(&["logs", "chatty", "--invocation", second]).ok();
    assert!(one.contains(second) && !one.contains(first), "{one}");
    let last = worker.site().wool(&["logs", "chatty", "-n", "2"]).ok();
    assert_eq!(last.lines().count(), 2, "{last}");
}

#[test]
fn logs_that_nobody_reads_take_no_memory() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_LOG_RATE", "1GiB")]);
    let loud = "def handler(event, context):\n    print(('x' * 79 + '\\n') * 6000)\n";
    for _ in 0..20 {
        drop(worker.try_out("loud", loud).expect(200));
    }
    let before = peak_memory(worker.pid());
    let socket = worker.site().state().join("run/wool.sock");
    let unread: Vec<UnixStream> = std::iter::repeat_with(|| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let request =
            "GET /v1/functions/loud/logs?lines=100000 HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut begun = [0; 15];
        stream.read_exact(&mut begun).unwrap();
        assert_eq!(&begun, b"HTTP/1.1 200 OK");
        stream
    })
    .take(12)
    .collect();
    let grown = peak_memory(worker.pid()).saturating_sub(before);
    // The log has 15 MiB.
    assert!(grown < 30 << 10, "the worker has grown by {grown} KiB");
    drop(unread);
    let all = worker.get("/v1/functions/loud/logs?lines=100000").expect(200);
    assert!(all.body.len() > 10 << 20, "{}", all.body.len());
    worker.assert_well();
}

/// What each function does, and what its log says of that.
const FAILING: [(&str, &str, &str); 4] = [
    (
        "raises",
        "def handler(event, context):\n    print('before')\n    raise ValueError('bad thing')\n",
        "ValueError: bad thing",
    ),
    (
        "misses",
        "print('stdout at import')\nimport nosuch\ndef handler(event, context):\n    pass\n",
        "the code does not load: ModuleNotFoundError: No module named 'nosuch'",
    ),
    (
        "sleeps",
        "import time\ndef handler(event, context):\n    print('begin')\n    time.sleep(60)\n",
        "no answer within 1 s",
    ),
    ("exits", "import os\ndef handler(event, context):\n    os._exit(3)\n", "the handler died: "),
];

fn a_failed_call_is_told_in_the_log(isolation: &str) {
    let worker = Site::new().up();
    let settings = format!(
        "# /// script\n# [tool.lambswool]\n# timeout = 1\n# isolation = \"{isolation}\"\n# ///\n"
    );
    for (name, source, said) in FAILING {
        let reply = worker.try_out(name, &format!("{settings}{source}"));
        assert!([502, 504].contains(&reply.status), "{name}: {reply:?}");
        let id = reply.header("lambswool-invocation").to_owned();
        let log = worker.logs(name);
        let told = of(&log, &id).into_iter().filter(|line| line.contains("[ERROR]"));
        let told: Vec<String> = told.collect();
        assert_eq!(told.len(), 1, "{name}: {log:#?}");
        assert!(told[0].starts_with(&format!("worker [ERROR] {said}")), "{name}: {told:?}");
        let last = log.last().unwrap();
        assert_eq!(last["stream"], "worker", "{name}: after what it printed: {log:#?}");
        let of_source = format!(", in {}", if name == "misses" { "<module>" } else { "handler" });
        let has_lines = log.iter().any(|line| line["text"].as_str().unwrap().contains(&of_source));
        assert_eq!(has_lines, ["raises", "misses"].contains(&name), "{name}: {log:#?}");
    }
    worker.assert_well();
}

#[test]
fn how_a_call_failed_is_in_the_log() {
    if can_run() {
        a_failed_call_is_told_in_the_log("container");
    }
}

#[test]
fn how_a_call_of_a_machine_failed_is_in_the_log() {
    if can_run_machines() {
        a_failed_call_is_told_in_the_log("microvm");
    }
}

#[test]
fn a_terminal_shows_control_characters_and_a_pipe_passes_them_on() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let source = "def handler(event, context):\n    print('\\x1b[2Kby print')\n    raise ValueError('\\x1b[2Kby error')\n";
    drop(worker.try_out("loud", source).expect(502));
    let raw = worker.site().wool(&["logs", "loud"]).ok();
    assert!(raw.contains("\u{1b}[2Kby print"), "{raw:?}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("loud.py");
    std::fs::write(&file, source).unwrap();
    let on_a_terminal = |words: &[&str]| {
        let mut command = worker.site().command();
        command.args(words);
        Terminal::run(&command)
    };
    on_a_terminal(&["logs", "loud"]).expect("\\u{1b}[2Kby print");
    on_a_terminal(&["invoke", "loud"]).expect("\\u{1b}[2Kby error");
    let mut run = on_a_terminal(&["run", file.to_str().unwrap()]);
    run.expect("\\u{1b}[2Kby print");
    run.expect("\\u{1b}[2Kby error");
    worker.assert_well();
}

#[test]
fn a_run_shows_lines_once_and_as_they_are_printed() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let many = write(
        "many.py",
        r#"
import time
def handler(event, context):
    for number in range(300):
        print("number", number)
        time.sleep(0.001)
    return context.aws_request_id
"#,
    );
    for _ in 0..2 {
        let run = worker.site().command().args(["run", &many]).output().unwrap();
        let printed = String::from_utf8(run.stderr).unwrap();
        let printed: Vec<&str> =
            printed.lines().filter(|line| line.starts_with("number")).collect();
        let wanted: Vec<String> = (0..300).map(|number| format!("number {number}")).collect();
        assert_eq!(printed, wanted);
        let id: Value = String::from_utf8(run.stdout).unwrap().parse().unwrap();
        assert_eq!(id.as_str().unwrap().len(), 36);
    }
    let odd = write("odd.py", "def handler(event, context):\n    raise ValueError('odd thing')\n");
    let told = worker.site().wool(&["run", &odd]).failed(4);
    assert_eq!(
        told.matches("odd thing\n").count(),
        1,
        "with the reply, and not from the log: {told}"
    );
    let slow = write(
        "slow.py",
        r#"
# /// script
# [tool.lambswool]
# timeout = 60
# ///
import time
def handler(event, context):
    print("it has begun")
    time.sleep(60)
"#,
    );
    let mut run = worker.site().command();
    let mut run = run.args(["run", &slow]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let shown = std::io::BufReader::new(run.stderr.take().unwrap());
    let mut shown = std::io::BufRead::lines(shown).map(Result::unwrap);
    assert!(shown.any(|line| line == "it has begun"));
    assert_eq!(worker.status()["engine"]["instances"]["busy"], 1, "the call is under way");
    run.kill().unwrap();
    run.wait().unwrap();
    worker.assert_well();
}

#[test]
fn a_call_has_the_id_that_its_caller_chose() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let source =
        "def handler(event, context):\n    print('hello')\n    return context.aws_request_id\n";
    drop(worker.deploy("f", source).expect(201));
    let call = |id: &str| worker.post_with("/run/f", ("lambswool-invocation", id), "null");
    let reply = call("Order-7").expect(200);
    assert_eq!((reply.header("lambswool-invocation"), reply.json()), ("Order-7", json!("Order-7")));
    assert_eq!(of(&worker.logs("f"), "Order-7"), ["stdout hello"]);
    for bad in ["-", "", "a b", "-a", &"x".repeat(65)] {
        let said = call(bad).expect(400).text();
        assert!(said.contains("bad-invocation") && said.contains("64 letters"), "{said}");
    }
    assert_eq!(worker.logs("f").len(), 1, "nothing was called");
}

#[test]
fn a_follower_sees_lines_as_they_are_printed() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(
        worker
            .deploy("f", "def handler(event, context):\n    print('number', event)\n")
            .expect(201),
    );
    drop(worker.run("f", &json!(1)).expect(200));
    let mut follower = worker.site().command();
    follower.args(["logs", "f", "--follow"]).stdout(Stdio::piped());
    let mut follower = follower.spawn().unwrap();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    assert!(lines.next().unwrap().unwrap().ends_with("number 1"));
    for number in 2..5 {
        drop(worker.run("f", &json!(number)).expect(200));
        assert!(lines.next().unwrap().unwrap().ends_with(&format!("number {number}")));
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}

/// A `wool logs --follow` that has shown the first line.
fn following(worker: &Worker, name: &str) -> Child {
    let mut follower = worker.site().command();
    follower.args(["logs", name, "--follow"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut follower = follower.spawn().unwrap();
    let mut first = [0; 20];
    follower.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    follower
}

#[test]
fn a_follower_says_whether_its_function_was_removed_or_its_worker_has_gone() {
    if !can_run() {
        return;
    }
    let mut site = Site::new();
    for killed in [true, false] {
        let worker = site.up();
        for name in ["removed", "stays"] {
            let source = "def handler(event, context):\n    print('a line that is long enough')\n";
            drop(worker.try_out(name, source).expect(200));
        }
        let (removed, stays) = (following(&worker, "removed"), following(&worker, "stays"));
        drop(worker.site().wool(&["rm", "removed"]).ok());
        let ended = removed.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.contains("removed was removed"), "{ended:?}");
        site = if killed { worker.crash() } else { worker.stop() };
        let ended = stays.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
        assert!(said.contains("is gone"), "{said}");
        site.wait_until_quiet();
    }
}

#[test]
fn a_gigabyte_of_output_neither_blocks_the_worker_nor_fills_the_disk() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_LOG_BYTES", "1MiB")]);
    let source = r#"
# /// script
# [tool.lambswool]
# timeout = 20
# ///
def handler(event, context):
    line = "x" * (1 << 20)
    for _ in range(1024):
        print(line)
"#;
    drop(worker.deploy("flood", source).expect(201));
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| worker.run("flood", &json!({})));
        let well = worker.try_out("other", "def handler(event, context):\n    return 'well'\n");
        assert_eq!(well.expect(200).json(), "well");
        let status = flood.join().unwrap().status;
        assert!(status == 200 || status == 504, "{status}");
    });
    let log = worker.site().state().join("logs/flood");
    let sizes = std::fs::read_dir(log).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    let sizes: Vec<u64> = sizes.collect();
    // Three files, and one line more than fits for each.
    assert!(sizes.len() <= 3 && sizes.iter().sum::<u64>() < 8 << 20, "{sizes:?}");
    assert!(e2e::traces::peak_memory(worker.pid()) < 300 << 10, "the worker keeps what is printed");
    worker.assert_well();
}

#[test]
fn empty_lines_take_no_more_of_the_disk_than_a_call_and_a_log_may() {
    if !can_run() {
        return;
    }
    let most = 1 << 20;
    let worker = Site::new().up_with(&[("WOOL_LOG_BYTES", "1MiB")]);
    let source = "def handler(event, context):\n    print('\\n' * 1_000_000)\n";
    drop(worker.deploy("empty", source).expect(201));
    let sizes = || {
        drop(worker.run("empty", &json!({})).expect(200));
        drop(worker.logs("empty"));
        let files = std::fs::read_dir(worker.site().state().join("logs/empty")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).collect::<Vec<u64>>()
    };
    // A call's, and one line that says what was dropped.
    let first = sizes().iter().sum::<u64>();
    assert!((most / 2..most + 200).contains(&first), "{first}");
    for _ in 0..4 {
        let sizes = sizes();
        assert!(sizes.len() <= 3 && sizes.iter().all(|size| *size < most + 200), "{sizes:?}");
    }
    worker.assert_well();
}

#[test]
fn a_function_that_prints_without_end_is_held_to_its_rate() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_LOG_BYTES", "1MiB"), ("WOOL_LOG_RATE", "1")]);
    let source =
        "def handler(event, context):\n    for _ in range(8):\n        print('x' * 49_999)\n";
    drop(worker.deploy("loud", source).expect(201));
    for _ in 0..5 {
        drop(worker.run("loud", &json!({})).expect(200));
    }
    // 2 MB came, and what may come at once is what fits into one file.
    let log = worker.logs("loud");
    let kept = of(&log, log[0]["invocation"].as_str().unwrap()).len();
    let bytes: usize = log.iter().map(|entry| entry["text"].as_str().unwrap().len()).sum();
    assert!(bytes <= 1 << 20 && kept == 8, "{bytes} bytes, {kept} lines of the first call");
    let metrics = worker.get("/metrics").expect(200).text();
    let dropped =
        metrics.lines().find(|line| line.starts_with("lambswool_log_pieces_dropped_total"));
    assert!(dropped.is_some_and(|line| !line.ends_with(" 0")), "{dropped:?}");
    // It is its own rate.
    let quiet = "def handler(event, context):\n    print('quiet')\n";
    drop(worker.try_out("quiet", quiet).expect(200));
    assert_eq!(worker.logs("quiet")[0]["text"], "quiet");
    worker.assert_well();
}

/// Stream and text of an invocation's entries.
fn of(log: &[Value], invocation: &str) -> Vec<String> {
    let own = log.iter().filter(|entry| entry["invocation"] == invocation);
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
    own.map(|entry| format!("{} {}", text(entry, "stream"), text(entry, "text"))).collect()
}
