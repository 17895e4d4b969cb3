//! Functions in micro-VMs: the same worker, calls and limits, and a machine of its own for each instance.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use e2e::{Reply, Site, Value, Worker, can_run, can_run_machines, eventually, json};
use rustix::process::{Pid, Signal, kill_process};

/// A function in a micro-VM; `more` are further settings, `body` the lines of its one function.
fn in_machine(more: &str, body: &str) -> String {
    let settings: String = more.lines().map(|line| format!("# {line}\n")).collect();
    format!(
        "# /// script\n# [tool.lambswool]\n# isolation = \"microvm\"\n{settings}# ///\nimport os, sys, time\n\
         def handler(event, context):\n    {body}\n"
    )
}

/// The monitors of a site's worker.
fn monitors(site: &Site) -> Vec<u32> {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    site.sandboxed().into_iter().filter(|pid| name(pid).trim() == "wool-vmm").collect()
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

fn wrong(reply: &Reply, words: &str) {
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(reply.error().contains(words), "{}", reply.error());
}

#[test]
fn a_function_that_asks_for_it_runs_in_a_machine_and_is_called_as_any_other() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let body = "print('said', event['n']); return [os.uname().nodename, event['n'], os.listdir('/var/task')]";
    drop(worker.deploy("inside", &in_machine("", body)).expect(201));
    let first = worker.run("inside", &json!({"n": 1})).expect(200);
    assert_eq!(first.json()[0], "microvm");
    assert_eq!(first.header("lambswool-start"), "fork");
    for stage in ["fork;dur=", "load;dur=", "call;dur="] {
        assert!(first.header("server-timing").contains(stage), "{stage}");
    }
    let again = worker.run("inside", &json!({"n": 2})).expect(200);
    assert_eq!((again.json()[1].as_i64(), again.header("lambswool-start")), (Some(2), "resume"));
    let said: Vec<Value> = worker.logs("inside").iter().map(|line| line["text"].clone()).collect();
    assert_eq!(said, ["said 1", "said 2"]);
    // Another function goes on from the same reference machine, and sees its own code alone.
    let other = worker.try_out("other", &in_machine("", "return os.listdir('/var/task')"));
    let files = other.expect(200).json();
    assert!(files.as_array().unwrap().contains(&json!("other.py")), "{files}");
    assert!(!files.as_array().unwrap().contains(&json!("inside.py")), "{files}");
    assert_eq!(monitors(worker.site()).len(), 1);
    // And one that does not ask runs in a container.
    let outside = "import os\ndef handler(event, context):\n    return os.uname().nodename\n";
    assert_eq!(worker.try_out("outside", outside).expect(200).json(), "sandbox");
    worker.assert_well();
}

#[test]
fn an_async_handler_runs_in_a_machine() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    // In a machine that is kept, and in one that is put back after each call.
    let source = |more: &str| {
        format!(
            "# /// script\n# [tool.lambswool]\n# isolation = \"microvm\"\n{more}# ///\n{}",
            r#"
import asyncio, os, time

async def handler(event, context):
    parts = await asyncio.gather(*(part(n) for n in range(event["n"])))
    slow = await asyncio.wait_for(asyncio.to_thread(wait), 5)
    try:
        await asyncio.wait_for(asyncio.sleep(60), 0.02)
    except asyncio.TimeoutError:
        return [os.uname().nodename, sum(parts), slow]

async def part(n):
    await asyncio.sleep(0.01)
    return n

def wait():
    time.sleep(0.02)
    return "waited"
"#
        )
    };
    for (name, more) in [("kept", ""), ("reset", "# reset = \"always\"\n")] {
        drop(worker.deploy(name, &source(more)).expect(201));
        for n in 1..6 {
            let answer = worker.run(name, &json!({"n": n})).expect(200).json();
            assert_eq!(answer, json!(["microvm", n * (n - 1) / 2, "waited"]), "{name}");
        }
    }
    worker.assert_well();
}

#[test]
fn wool_run_puts_a_file_into_a_machine_when_told_to() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let file = worker.site().own().join("where.py");
    fs::write(&file, "import os\ndef handler(event, context):\n    return os.uname().nodename\n")
        .unwrap();
    let run = |more: &[&str]| {
        let arguments = [&["run", "--json"], more, &[file.to_str().unwrap()]].concat();
        worker.site().wool(&arguments).ok()
    };
    assert!(run(&["--isolation", "microvm"]).contains("microvm"));
    assert!(run(&[]).contains("sandbox"));
    assert!(run(&["--isolation", "container"]).contains("sandbox"));
}

#[test]
fn what_is_told_at_the_command_counts_and_is_what_is_listed() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let site = worker.site();
    let counts =
        "calls = []\ndef handler(event, context):\n    calls.append(1)\n    return len(calls)\n";
    let write = |name: &str, settings: &str| {
        let file = site.own().join(name);
        let lines: String = settings.lines().map(|line| format!("# {line}\n")).collect();
        let header = format!("# /// script\n# [tool.lambswool]\n{lines}# ///\n");
        fs::write(&file, header + counts).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (plain, resets) = (write("plain.py", ""), write("resets.py", "reset = \"always\""));
    let pristine = write("pristine.py", "isolation = \"microvm\"\nreset = \"always\"");
    let run = |more: &[&str]| site.wool(&[&["run"], more].concat());
    // It is put back, also between two runs.
    let machine = ["--isolation", "microvm"];
    let always = ["--isolation", "microvm", "--reset", "always"];
    for _ in 0..2 {
        assert_eq!(run(&[&always[..], &[&plain]].concat()).json(), 1);
        assert_eq!(run(&[&machine[..], &[&resets]].concat()).json(), 1);
    }
    // A container cannot be, and is not in silence what is not put back.
    for refused in
        [&["--reset", "always", &plain][..], &[&resets], &["--isolation", "container", &pristine]]
    {
        assert!(run(refused).failed(1).contains("cannot be reset"), "{refused:?}");
    }
    let never = ["--isolation", "container", "--reset", "never"];
    assert_eq!(run(&[&never[..], &[&pristine]].concat()).json(), 1);
    drop(site.wool(&[&["deploy"], &always[..], &[&plain]].concat()).ok());
    drop(site.wool(&[&["deploy"], &never[..], &[&pristine]].concat()).ok());
    let listed = site.wool(&["ls", "--json"]).json();
    let of = |index: usize| (&listed[index]["isolation"], &listed[index]["reset"]);
    assert_eq!(of(0), (&json!("microvm"), &json!("always")));
    assert_eq!(of(1), (&json!("container"), &json!("never")));
    assert!(site.wool(&["ls"]).ok().contains("microvm, reset"));
    worker.assert_well();
}

#[test]
fn a_monitor_has_no_rights_and_sees_no_files() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.try_out("inside", &in_machine("", "return 1")).expect(200));
    let [monitor] = monitors(worker.site())[..] else { panic!("one family, one monitor") };
    let proc = |file: &str| format!("/proc/{monitor}/{file}");
    let status = fs::read_to_string(proc("status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').split_whitespace().next().unwrap().to_owned()
    };
    let uid: u32 = field("Uid").parse().unwrap();
    assert!(uid >= 0x7000_0000, "a uid of the warden's: {uid}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
    assert_eq!(fs::read_dir(proc("root")).unwrap().count(), 0, "its root holds something");
    for kind in ["user", "net", "ipc", "uts", "mnt", "pid"] {
        let ours = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert_ne!(fs::read_link(proc(&format!("ns/{kind}"))).unwrap(), ours, "{kind}");
    }
    worker.assert_well();
}

#[test]
fn what_goes_wrong_in_a_machine_is_told_and_harms_nobody_else() {
    if !can_run_machines() {
        return;
    }
    // Spares have threads, too.
    let worker = Site::new().up_with(&[("WOOL_SPARES", "0")]);
    drop(worker.try_out("bystander", &in_machine("", "return 1")).expect(200));
    for (name, body, words) in [
        ("exits", "os._exit(3)", "it exited with status 3"),
        ("faults", "import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("raises", "raise ValueError('so')", "ValueError: so"),
        ("takes", "return len(bytearray(200_000_000))", "it reached its memory limit"),
        ("asks", "return len(bytearray(1 << 40))", "MemoryError"),
        ("opens", "files = [open('/dev/null') for _ in range(5000)]", "Too many open files"),
        ("writes", "open('/tmp/big', 'wb').write(bytes(3_000_000))", "No space left on device"),
        ("forks", "os.fork()", "Function not implemented"),
        ("starts", "import subprocess; subprocess.run(['true'])", "Function not implemented"),
        (
            "connects",
            "import socket; socket.socket().connect(('127.0.0.1', 80))",
            "PermissionError",
        ),
    ] {
        let limits = "memory = \"64MB\"\nscratch = \"2MB\"";
        wrong(&worker.try_out(name, &in_machine(limits, body)), words);
        // The next call finds a machine in which nothing has happened.
        wrong(&worker.run(name, &json!({})), words);
    }
    let spins =
        in_machine("timeout = \"500ms\"", "\n    while event.get('spin'): pass\n    return 1");
    drop(worker.deploy("spins", &spins).expect(201));
    let [monitor] = monitors(worker.site())[..] else { panic!("one family, one monitor") };
    for what in ["spin", "sleep"] {
        drop(worker.run("spins", &json!({what: true})));
    }
    let sleeps = in_machine("timeout = \"500ms\"", "time.sleep(1000)");
    assert_eq!(worker.try_out("sleeps", &sleeps).status, 504);
    assert_eq!(worker.run("spins", &json!({"spin": true})).status, 504);
    assert_eq!(worker.run("spins", &json!({})).expect(200).json(), 1);
    drop(worker.run("bystander", &json!({})).expect(200));
    assert_eq!(monitors(worker.site()), [monitor], "the family's monitor has changed");
    // Those that were stopped are gone, not only let go.
    for name in ["spins", "sleeps", "bystander"] {
        drop(worker.delete(&format!("/v1/functions/{name}")).expect(204));
    }
    let names = "exits faults raises takes opens writes forks starts connects";
    for name in names.split(' ') {
        drop(worker.delete(&format!("/v1/functions/{name}")).expect(204));
    }
    // The main thread, and one of the kernel's.
    eventually("no machine is left", || threads(monitor) <= 2);
    worker.assert_well();
}

#[test]
fn a_monitor_that_dies_takes_its_own_calls_with_it_and_nothing_else() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let slow = in_machine(
        "timeout = 20",
        "print('began', flush=True); time.sleep(event.get('s', 0)); return 1",
    );
    drop(worker.try_out("slow", &slow).expect(200));
    let outside = "def handler(event, context):\n    return 'outside'\n";
    drop(worker.try_out("outside", outside).expect(200));
    let [monitor] = monitors(worker.site())[..] else { panic!("one family, one monitor") };
    std::thread::scope(|scope| {
        let call = scope.spawn(|| worker.run("slow", &json!({"s": 15})));
        eventually("it has begun", || worker.logs("slow").len() == 2);
        let pid = Pid::from_raw(i32::try_from(monitor).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        wrong(&call.join().unwrap(), "SIGKILL");
    });
    assert_eq!(worker.run("outside", &json!({})).expect(200).header("lambswool-start"), "resume");
    drop(worker.run("slow", &json!({})).expect(200));
    assert!(!monitors(worker.site()).contains(&monitor));
    worker.assert_well();
}

/// Draws from every source of randomness that Python has, all of them imported before the first call, and says what it
/// finds of earlier calls.
fn draws(more: &str) -> String {
    let body = "\n    found = [os.listdir('/tmp'), os.getcwd(), hasattr(sys, 'left'), os.environ.get('LEFT')]\n    \
        open('/tmp/left', 'w').write('x'); os.chdir('/'); sys.left = True; os.environ['LEFT'] = '1'\n    \
        return {'found': found, 'drawn': [str(random.random()), str(uuid.uuid4()), str(uuid.uuid1().node), secrets.token_hex(8), ssl.RAND_bytes(8).hex(), context.generation_id, draw()]}";
    in_machine(more, body)
        .replace("import os, sys, time", "import os, sys, random, secrets, sqlite3, ssl, uuid\n\
            def draw():\n    return sqlite3.connect(':memory:').execute('select hex(randomblob(16))').fetchone()[0]\n\
            draw()")
}

fn assert_all_differ(answers: &[Value]) {
    for source in 0..7 {
        let drawn: BTreeSet<&str> =
            answers.iter().map(|answer| answer["drawn"][source].as_str().unwrap()).collect();
        assert_eq!(drawn.len(), answers.len(), "source {source} repeats itself: {drawn:?}");
    }
}

#[test]
fn machines_that_were_cloned_from_one_draw_different_numbers() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    drop(worker.deploy("draws", &draws("")).expect(201));
    let answers: Vec<Value> =
        (0..6).map(|_| worker.run("draws", &json!({})).expect(200).json()).collect();
    assert_all_differ(&answers);
}

#[test]
fn a_machine_that_is_reset_finds_nothing_of_the_call_before_and_draws_different_numbers() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("pristine", &draws("reset = \"always\"")).expect(201));
    drop(worker.deploy("kept", &draws("")).expect(201));
    let calls = |name: &str| -> Vec<(Value, String)> {
        let call = |_| {
            let reply = worker.run(name, &json!({})).expect(200);
            (reply.json(), reply.header("lambswool-start").to_owned())
        };
        (0..5).map(call).collect()
    };
    let pristine = calls("pristine");
    for (answer, _) in &pristine {
        assert_eq!(answer["found"], json!([[], "/var/task", false, null]));
    }
    assert!(pristine[1..].iter().all(|(_, start)| start == "resume"), "{pristine:?}");
    assert_all_differ(&pristine.into_iter().map(|(answer, _)| answer).collect::<Vec<_>>());
    // What is not reset finds it all: the probe sees what it looks for.
    assert_eq!(calls("kept")[1].0["found"], json!([["left"], "/", true, "1"]));
    // An exception is the end of a call like any other.
    let raises =
        "\n    if hasattr(sys, 'left'): return 'left'\n    sys.left = True; raise ValueError('so')";
    for _ in 0..3 {
        wrong(&worker.try_out("raises", &in_machine("reset = \"always\"", raises)), "so");
    }
    // Bodies that do not fit into one read.
    let length = in_machine("reset = \"always\"", "return len(event['text'])");
    drop(worker.deploy("length", &length).expect(201));
    for size in [10, 100_000, 3_000_000, 10] {
        let reply = worker.run("length", &json!({"text": "x".repeat(size)})).expect(200);
        assert_eq!(reply.json(), json!(size));
    }
    worker.assert_well();
}

/// Draws from libraries that bring a generator of their own, which all of them have drawn from before any clone was made.
const LIBRARIES: &str = r#"
import os, tempfile
import bson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

def draw():
    key = Ed25519PrivateKey.generate().private_bytes_raw().hex()
    return [key, str(bson.ObjectId()), tempfile.mktemp(), str(os.getpid())]

DRAWN = draw()

def handler(event, context):
    return {'before': DRAWN, 'now': draw()}
"#;

#[test]
fn libraries_with_generators_of_their_own_see_that_they_were_cloned_or_reset() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    let source = |more: &str| {
        format!(
            "# /// script\n# dependencies = [\"cryptography==46.0.3\", \"pymongo==4.15.4\"]\n# [tool.lambswool]\n\
             # isolation = \"microvm\"\n# timeout = 20\n{more}# ///\n{LIBRARIES}"
        )
    };
    if !worker.deploys_from_index("clones", &source("")) {
        return;
    }
    drop(worker.deploy("resets", &source("# reset = \"always\"\n")).expect(201));
    let all = |worker: &Worker, name: &str, what: &[&str]| {
        let answers: Vec<Value> =
            (0..4).map(|_| worker.run(name, &json!({})).expect(200).json()).collect();
        for (source, which) in ["key", "id", "name", "pid"].into_iter().enumerate() {
            let drawn = answers.iter().flat_map(|answer| what.iter().map(|when| &answer[*when]));
            let drawn: Vec<&str> = drawn.map(|drawn| drawn[source].as_str().unwrap()).collect();
            let different = drawn.iter().collect::<BTreeSet<_>>().len();
            // A machine that is not reset keeps its number for both draws.
            let expected = if which == "pid" { answers.len() } else { drawn.len() };
            assert_eq!(different, expected, "{name}: {which} repeats itself: {drawn:?}");
        }
        answers
    };
    // What was drawn at the load as well: a clone loads for itself.
    all(&worker, "clones", &["before", "now"]);
    let worker = worker.stop().up();
    let resets = all(&worker, "resets", &["now"]);
    assert!(resets.iter().all(|answer| answer["before"] == resets[0]["before"]), "{resets:?}");
    assert!(resets.iter().all(|answer| answer["before"] != answer["now"]), "{resets:?}");
    worker.assert_well();
}

#[test]
fn an_event_loop_in_a_modules_thread_runs_on_in_a_machine_that_is_reset() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let source = "
import asyncio, os, threading
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
ticks = 0
async def tick():
    global ticks
    while True:
        await asyncio.sleep(0.01)
        ticks += 1
task = asyncio.run_coroutine_threadsafe(tick(), loop)
async def slept():
    before = ticks
    await asyncio.sleep(0.1)
    return [asyncio.get_running_loop() is loop, ticks > before, task.done()]
def handler(event, context):
    return [os.getpid(), asyncio.run_coroutine_threadsafe(slept(), loop).result(5)]
";
    let header = "# /// script\n# [tool.lambswool]\n# isolation = \"microvm\"\n# reset = \"always\"\n# ///\n";
    drop(worker.deploy("loops", &format!("{header}{source}")).expect(201));
    let mut processes = BTreeSet::new();
    for _ in 0..4 {
        let answer = worker.run("loops", &json!({})).expect(200).json();
        assert_eq!(answer[1], json!([true, true, false]));
        processes.insert(answer[0].to_string());
    }
    assert_eq!(processes.len(), 4);
    worker.assert_well();
}

#[test]
fn what_a_call_says_or_does_behind_its_answer_is_no_matter_of_the_next() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let body = r#"
    if not event: return 'well'
    import json, struct
    header = json.dumps({'kind': 'done', 'id': context.aws_request_id, 'content_type': 'application/json'}).encode()
    frame = struct.pack('<II', len(header), 6) + header + b'"said"'
    os.write(3, frame * event['times'])
    if event.get('exit'): os._exit(0)
    while event.get('spin'): pass
    return 'another'
"#;
    let source = in_machine("reset = \"always\"\ntimeout = 5", body);
    drop(worker.deploy("talks", &source).expect(201));
    let events = [
        json!({"times": 1}),
        json!({"times": 3}),
        json!({"times": 1, "exit": true}),
        json!({"times": 2, "spin": true}),
    ];
    for event in events.iter().cycle().take(8) {
        assert_eq!(worker.run("talks", event).expect(200).json(), "said", "{event}");
        let next = worker.run("talks", &json!({})).expect(200);
        assert_eq!(next.json(), "well", "after {event}");
        assert_eq!(next.header("lambswool-start"), "resume", "after {event}");
    }
    worker.assert_well();
}

#[test]
fn without_micro_vms_a_function_says_why_or_falls_back_if_it_allows_that() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_MICROVMS", "false")]);
    let refused = worker.try_out("strict", &in_machine("", "return 1"));
    assert_eq!(refused.status, 503);
    assert!(refused.error().contains("`microvms`"), "{}", refused.error());
    let falls = in_machine("fallback = \"container\"", "return os.uname().nodename");
    assert_eq!(worker.try_out("falls", &falls).expect(200).json(), "sandbox");
    // Whoever deploys it is told at once, and not by its first call.
    let directory = tempfile::tempdir().unwrap();
    for (name, source, told) in
        [("strict", in_machine("", "return 1"), true), ("falls", falls, false)]
    {
        let file = directory.path().join(format!("{name}.py"));
        fs::write(&file, source).unwrap();
        let said = worker.site().wool(&["deploy", file.to_str().unwrap()]);
        let refused = said.stderr.contains("its calls will be refused: micro-VMs are switched off");
        assert_eq!(refused, told, "{said:?}");
    }
    worker.assert_well();
}

#[test]
fn where_kvm_cannot_be_used_a_function_says_why_or_falls_back_if_it_allows_that() {
    if !can_run_machines() {
        return;
    }
    // In a mount namespace: another device in its place, and one that nobody can open.
    for (breaks, why, doctors) in [
        ("mount --bind /dev/null /dev/kvm", "is not KVM", "/dev/kvm is not KVM"),
        (
            "mount --bind /dev/kvm /dev/kvm && mount -o remount,bind,nodev /dev/kvm",
            "Permission denied",
            "/dev/kvm is there and not for this user",
        ),
    ] {
        let apart =
            format!("exec unshare --mount sh -c '{breaks} && exec \"$0\" \"$@\"' \"$0\" \"$@\"");
        let worker = Site::new().up_after(&apart);
        let falls = in_machine("fallback = \"container\"", "return os.uname().nodename");
        assert_eq!(worker.try_out("falls", &falls).expect(200).json(), "sandbox");
        let refused = worker.try_out("strict", &in_machine("", "return 1"));
        assert_eq!(refused.status, 503, "{}", refused.text());
        for words in ["KVM cannot be used", why, "fallback = \"container\""] {
            assert!(refused.error().contains(words), "{}", refused.error());
        }
        let mut doctor = Command::new("nsenter");
        doctor.args(["--mount", "--target", &worker.pid().to_string()]);
        doctor.arg(e2e::machine::programs().join("wool")).args(["doctor", "--state"]);
        let said = e2e::Said::from(doctor.arg(worker.site().state()).output().unwrap());
        assert!(said.stdout.contains(doctors), "{said:?}");
        // It was found out once.
        let log = worker.log();
        assert_eq!(log.matches("functions run in containers only").count(), 1, "{log}");
        worker.assert_well();
    }
}

/// Builds a unikernel of C.
fn unikernel(site: &Site, name: &str, source: &str) -> std::path::PathBuf {
    let file = site.own().join(name);
    let header = e2e::machine::manifest_dir().join("../guest/unikernel");
    fs::write(file.with_extension("c"), source).unwrap();
    let mut cc = Command::new("cc");
    cc.args([
        "-O2",
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-pie",
        "-no-pie",
    ]);
    cc.arg("-I").arg(header).arg("-o").arg(&file).arg(file.with_extension("c"));
    assert!(cc.status().unwrap().success());
    file
}

#[test]
fn a_unikernel_answers_its_requests_and_exits_with_its_own_status() {
    if !can_run_machines() {
        return;
    }
    let site = Site::new();
    let example = e2e::machine::manifest_dir().join("../examples/unikernel/hello.c");
    let source = fs::read_to_string(example).unwrap().replace("../../guest/unikernel/", "");
    let hello = unikernel(&site, "hello", &source);
    let said = site.wool(&["unikernel", "run", hello.to_str().unwrap(), "Ada", "Grace"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "hello, Ada\nhello, Grace\n"),
        "{}",
        said.stderr
    );
    let run = |name: &str, body: &str| {
        let source = format!("#include \"wool.h\"\nvoid _start(void) {{ {body} }}\n");
        let file = unikernel(&site, name, &source);
        site.wool(&["unikernel", "run", "--timeout", "1s", file.to_str().unwrap()])
    };
    let exits = run("exits", "wool_log(\"bye\", 3); wool_exit(42);");
    assert_eq!((exits.code, exits.stderr.as_str()), (42, "bye"));
    let faults = run("faults", "*(volatile char *)8 = 1; wool_exit(0);");
    assert!(faults.code == 1 && faults.stderr.contains("exception 14"), "{}", faults.stderr);
    let spins = run("spins", "for (;;) ;");
    assert!(spins.code == 1 && spins.stderr.contains("--timeout"), "{}", spins.stderr);
    // What is no such program.
    let missing = site.wool(&["unikernel", "run", "/nowhere"]);
    assert!(missing.failed(1).contains("/nowhere"));
    let dynamic = site.wool(&["unikernel", "run", "/proc/self/exe"]);
    assert!(dynamic.failed(1).contains("statically"));
}

#[test]
fn a_unikernel_ends_with_the_command_that_started_it_however_that_is_killed() {
    if !can_run_machines() {
        return;
    }
    let site = Site::new();
    let source = "#include \"wool.h\"\nvoid _start(void) { for (;;) ; }\n";
    let spins = unikernel(&site, "spins", source);
    let mut wool = site.command();
    wool.args(["unikernel", "run", "--timeout", "60s"]).arg(&spins);
    let mut wool = wool.spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", wool.id());
    let monitor = || fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
    // By its name: before that it is a copy of the command.
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    eventually("the monitor runs", || name(&monitor()).trim() == "wool-vmm");
    let monitor = monitor();
    wool.kill().unwrap();
    wool.wait().unwrap();
    eventually("the monitor has ended", || !name(&monitor).starts_with("wool-vmm"));
}

#[test]
fn the_doctor_tries_kvm_out_and_tells_what_functions_missed() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    // Two that nobody does without, and one that event loops do.
    let misses = in_machine(
        "",
        "import ctypes; call = ctypes.CDLL(None).syscall; call(290, 0, 0); call(291, 0); return call(139, 3)",
    );
    assert_eq!(worker.try_out("misses", &misses).expect(200).json(), -1);
    let findings = |site: &Site| {
        let said = site.wool(&["doctor", "--microvm", "--json"]);
        serde_json::from_str::<Value>(&said.stdout).unwrap()
    };
    let find = |all: &Value, what: &str| {
        let found = all.as_array().unwrap().iter().find(|finding| finding["what"] == what);
        found.unwrap_or_else(|| panic!("{what}: {all}"))["found"].as_str().unwrap().to_owned()
    };
    eventually("the doctor knows", || {
        find(&findings(worker.site()), "micro-VMs, missed").contains("epoll_create1 (291)")
    });
    let missed = find(&findings(worker.site()), "micro-VMs, missed");
    let (needed, spared) = missed.split_once("; ").unwrap();
    assert!(needed.ends_with("sysfs (139), eventfd2 (290)"), "{missed}");
    assert!(
        spared.contains("usually do without") && spared.contains("epoll_create1 (291)"),
        "{missed}"
    );
    let found = findings(worker.site());
    assert!(find(&found, "micro-VMs").contains("µs from a guest"), "{found}");
    assert!(find(&found, "micro-VMs, quirks").contains("int 0x80"), "{found}");
    // Not unless asked.
    let plain = worker.site().wool(&["doctor", "--json"]);
    assert!(!plain.stdout.contains("micro-VMs, "), "{}", plain.stdout);
}

#[test]
fn numpy_works_in_a_machine_and_its_clones_draw_different_numbers() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    let source = |more: &str| {
        format!(
            "# /// script\n# dependencies = [\"numpy==2.2.6\"]\n# [tool.lambswool]\n# isolation = \"microvm\"\n{more}# ///\n\
             import os, sys\nhad = 'numpy.random' in sys.modules\nimport numpy, numpy.random\ndef handler(event, context):\n    whole = numpy.arange(10_000).reshape(100, 100) % 7\n    \
             right = bool((whole.astype(float) @ whole.astype(float) == whole @ whole).all())\n    \
             return [os.uname().nodename, right, str(numpy.random.rand()), had]\n"
        )
    };
    if !worker.deploys_from_index("clones", &source("")) {
        return;
    }
    drop(worker.deploy("resets", &source("# reset = \"always\"\n")).expect(201));
    let calls = |worker: &Worker, name: &str| {
        let mut drawn = BTreeSet::new();
        for _ in 0..4 {
            let answer = worker.run(name, &json!({})).expect(200).json();
            assert_eq!((&answer[0], &answer[1]), (&json!("microvm"), &json!(true)));
            drawn.insert(answer[2].as_str().unwrap().to_owned());
        }
        assert_eq!(drawn.len(), 4, "{name}: {drawn:?}");
    };
    // Each call another clone of the machine that has imported numpy; then one that is reset.
    eventually("clones have imported numpy before their code is loaded", || {
        worker.run("clones", &json!({})).expect(200).json()[3] == true
    });
    calls(&worker, "clones");
    let worker = worker.stop().up();
    calls(&worker, "resets");
}

#[test]
fn machines_with_a_functions_code_are_counted_and_go_once_nobody_has_a_clone() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_SPARES", "0"), ("WOOL_IDLE", "1")]);
    let zygotes_weigh = || {
        let zygotes = worker.status()["engine"]["zygotes"].as_array().unwrap().clone();
        zygotes.iter().filter_map(|zygote| zygote["memory_bytes"].as_u64()).sum::<u64>()
    };
    let idle = || worker.status()["engine"]["instances"]["idle"] == 0;
    drop(worker.try_out("plain", &in_machine("", "return 1")).expect(200));
    eventually("nothing but the reference machine is left", idle);
    let reference = zygotes_weigh();
    let call = |version: u32| {
        let body = format!("return {version}");
        drop(worker.deploy("function", &in_machine("reset = \"always\"", &body)));
        assert_eq!(worker.run("function", &json!({})).expect(200).json(), version);
    };
    call(0);
    eventually("the first machine with code is counted", || zygotes_weigh() > reference * 5 / 4);
    let one = zygotes_weigh() - reference;
    (1..8).for_each(call);
    eventually("those of versions that were replaced are gone", || {
        idle() && zygotes_weigh() < reference + 4 * one
    });
    worker.assert_well();
}
