//! What micro-VMs may take, each and all of one family together.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use e2e::machine::skip;
use e2e::{Site, Value, can_run_machines, eventually, json};

fn in_machine(settings: &[&str], source: &str) -> String {
    let settings: String = settings.iter().map(|line| format!("# {line}\n")).collect();
    format!(
        "# /// script\n# [tool.lambswool]\n# isolation = \"microvm\"\n{settings}# ///\n{source}"
    )
}

/// The one monitor of a site's worker.
fn monitor(site: &Site) -> u32 {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let monitors: Vec<u32> =
        site.sandboxed().into_iter().filter(|pid| name(pid).trim() == "wool-vmm").collect();
    let [monitor] = monitors[..] else { panic!("one family, one monitor: {monitors:?}") };
    monitor
}

/// Clock ticks that a process has had of the processors so far.
fn ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Behind the name, which ends with the last parenthesis: the state is the third field, the times are 14 and 15.
    let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Waits until a process does nothing any more.
fn is_quiet(pid: u32) {
    eventually("the monitor does nothing", || {
        let before = ticks(pid);
        std::thread::sleep(Duration::from_millis(300));
        ticks(pid) <= before + 1
    });
}

/// The limit of memory of the cgroup that a process is in; none where there are no cgroups.
fn limit(pid: u32) -> Option<u64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = |controller: &str| {
        let line = groups.lines().find(|line| line.split(':').nth(1) == Some(controller))?;
        line.splitn(3, ':').nth(2).map(|path| path.trim_start_matches('/').to_owned())
    };
    let first = path("memory").map(|path| {
        PathBuf::from("/sys/fs/cgroup/memory").join(path).join("memory.limit_in_bytes")
    });
    let second = path("").map(|path| PathBuf::from("/sys/fs/cgroup").join(path).join("memory.max"));
    let text = [first, second].into_iter().flatten().find_map(|it| fs::read_to_string(it).ok())?;
    text.trim().parse().ok()
}

#[test]
fn the_limit_of_a_family_of_machines_goes_up_and_down_with_them() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_SPARES", "0")]);
    let call = |name: &str, memory: &str| {
        let source = in_machine(&[memory], "def handler(event, context):\n    return 1\n");
        drop(worker.try_out(name, &source).expect(200));
    };
    call("small", "memory = \"64MB\"");
    let monitor = monitor(worker.site());
    let Some(one) = limit(monitor) else {
        skip("cgroup", "needs cgroups");
        return;
    };
    call("large", "memory = \"1GB\"");
    eventually("there is room for both", || {
        limit(monitor).is_some_and(|now| now > one + (1 << 30))
    });
    let both = limit(monitor).unwrap();
    for name in ["small", "large"] {
        drop(worker.delete(&format!("/v1/functions/{name}")).expect(204));
    }
    // The main thread, and one of the kernel's.
    let threads = || fs::read_dir(format!("/proc/{monitor}/task")).map_or(0, Iterator::count);
    eventually("both machines are gone", || threads() <= 2);
    call("next", "memory = \"64MB\"");
    eventually("there is no more room than for one", || {
        limit(monitor).is_some_and(|now| now < both - (1 << 30))
    });
    worker.assert_well();
}

#[test]
fn a_function_that_is_reset_has_its_memory_once() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let source = in_machine(
        &["reset = \"always\"", "memory = \"128MB\""],
        "kept = bytearray(80 << 20)\n\
         def handler(event, context):\n    return len(bytearray(event['more'] << 20))\n",
    );
    drop(worker.deploy("function", &source).expect(201));
    for _ in 0..2 {
        let reply = worker.run("function", &json!({"more": 20})).expect(200);
        assert_eq!(reply.json(), 20 << 20);
        let refused = worker.run("function", &json!({"more": 80}));
        assert_eq!(refused.status, 502, "{}", refused.text());
        let told = "it reached its memory limit";
        assert!(refused.error().contains(told), "{}", refused.error());
    }
    worker.assert_well();
}

#[test]
fn a_machine_that_touches_too_much_memory_ends_as_a_container_does() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    let source = "import mmap\n\
         def handler(event, context):\n    \
         all = mmap.mmap(-1, 1 << 30)\n    \
         all[event['at']] = 7\n    \
         for at in range(0, event['bytes'], 4096): all[at] = 1\n    \
         return all[event['at']]\n";
    let container =
        format!("# /// script\n# [tool.lambswool]\n# memory = \"64MB\"\n# ///\n{source}");
    let machine = in_machine(&["memory = \"64MB\""], source);
    for (name, source) in [("container", &container), ("machine", &machine)] {
        drop(worker.deploy(name, source).expect(201));
        for _ in 0..2 {
            let event = json!({"at": 900 << 20, "bytes": 16 << 20});
            assert_eq!(worker.run(name, &event).expect(200).json(), 7, "{name}");
            let refused = worker.run(name, &json!({"at": 5, "bytes": 128 << 20}));
            assert_eq!(refused.status, 502, "{name}: {}", refused.text());
            let told = "it reached its memory limit";
            assert!(refused.error().contains(told), "{name}: {}", refused.error());
        }
    }
    worker.assert_well();
}

/// Answers by itself, as the guest would, and computes on.
const ANSWERS_AND_SPINS: &str = "\
import json, os, struct
count = 0
def handler(event, context):
    global count
    count += 1
    if event.get('spin'):
        header = {'kind': 'done', 'id': context.aws_request_id, 'content_type': 'application/json'}
        header = json.dumps(header).encode()
        os.write(3, struct.pack('<II', len(header), 4) + header + b'true')
        while True: pass
    return count
";

#[test]
fn a_machine_whose_call_is_over_does_not_run_on() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_SPARES", "0")]);
    let source = in_machine(&["timeout = \"2s\""], ANSWERS_AND_SPINS);
    drop(worker.deploy("function", &source).expect(201));
    let call = |spin: bool| worker.run("function", &json!({"spin": spin}));
    assert_eq!(call(false).expect(200).json(), 1);
    let monitor = monitor(worker.site());
    is_quiet(monitor);
    // It rested, and goes on where it was.
    assert_eq!(call(false).expect(200).json(), 2);
    assert_eq!(call(true).expect(200).json(), true);
    is_quiet(monitor);
    // Here, too, which is not where a call is read: the next call's deadline ends it.
    assert_eq!(call(false).status, 504);
    assert_eq!(call(false).expect(200).json(), 1);
    worker.assert_well();
}

#[test]
fn a_machine_that_was_put_back_does_not_compute_before_its_next_call() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_SPARES", "0")]);
    // A guest seeds the generator anew whenever it wakes: at first it can, and after its first call it does not come back.
    let source = in_machine(
        &["reset = \"always\"", "timeout = \"30s\""],
        "import random, time\n\
         until, seed = time.time() + 5, random.seed\n\
         def spin(*given):\n    while time.time() > until: pass\n    seed(*given)\n\
         def handler(event, context):\n    while time.time() < until + 0.1: time.sleep(0.1)\n\
         random.seed = spin\n",
    );
    drop(worker.deploy("function", &source).expect(201));
    drop(worker.run("function", &json!({})).expect(200));
    is_quiet(monitor(worker.site()));
    worker.assert_well();
}

#[test]
fn what_functions_miss_is_told_however_they_end() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up();
    // Obsolete calls, in nobody's list. Before the first answer of a machine that then ends:
    let ends = "import ctypes, os\n\
        def handler(event, context):\n    ctypes.CDLL(None).syscall(136, 0, 0)\n    os._exit(3)\n";
    assert_eq!(worker.try_out("ends", &in_machine(&[], ends)).status, 502);
    // And while the code is loaded that each call begins with:
    let loads = "import ctypes\nctypes.CDLL(None).syscall(134, 0)\n\
        def handler(event, context):\n    return 1\n";
    let settings = ["reset = \"always\""];
    drop(worker.try_out("loads", &in_machine(&settings, loads)).expect(200));
    eventually("the doctor knows of both", || {
        let said = worker.site().wool(&["doctor", "--microvm", "--json"]).stdout;
        let all: Value = serde_json::from_str(&said).unwrap();
        let missed = |finding: &&Value| finding["what"] == "micro-VMs, missed";
        let missed = all.as_array().unwrap().iter().find(missed).unwrap();
        ["134", "136"].iter().all(|call| missed["found"].as_str().unwrap().contains(call))
    });
    worker.assert_well();
}
