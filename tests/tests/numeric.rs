//! Functions with numpy, forked from a zygote that has it: their threads and their randomness.

use std::collections::BTreeSet;
use std::fs;

use e2e::{Site, Value, Worker, can_run, json};

/// Says how many threads there are before and after a product that OpenBLAS shares out among all it may have, whether
/// that is right, and what it draws.
const SOURCE: &str = r#"
import ctypes, os, random, secrets, ssl, sys, time, uuid
BEFORE = "numpy" in sys.modules
import numpy

def handler(event, context):
    whole = numpy.arange(90_000).reshape(300, 300) % 7
    product = whole.astype(float) @ whole.astype(float)
    right = bool((product == whole @ whole).all())
    library = ctypes.CDLL(numpy._core._multiarray_umath.__file__)
    return {
        "imported before": BEFORE, "right": right, "pool": library.scipy_openblas_get_num_threads64_(),
        "tasks": len(os.listdir("/proc/self/task")), "variable": os.environ["OMP_NUM_THREADS"],
        "drawn": [str(numpy.random.rand()), str(random.random()), ssl.RAND_bytes(8).hex(), str(uuid.uuid4()),
                  secrets.token_hex(8)],
    }
"#;

#[test]
fn numpy_has_its_threads_back_after_the_fork_and_siblings_draw_different_numbers() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    let header = |more: &str| {
        format!(
            "# /// script\n# dependencies = [\"numpy==2.2.6\"]\n# [tool.lambswool]\n{more}# ///\n{SOURCE}"
        )
    };
    if !worker.deploys_from_index("free", &header("")) {
        return;
    }
    let one = "# [tool.lambswool.environment]\n# OPENBLAS_NUM_THREADS = \"1\"\n";
    drop(worker.deploy("one", &header(one)).expect(201));
    drop(worker.deploy("few", &header("# pids = 8\n")).expect(201));
    let processors = std::thread::available_parallelism().unwrap().get();

    let siblings: Vec<Value> = (0..6).map(|_| forked(&worker, "free")).collect();
    for said in &siblings {
        let threads = processors.min(16);
        assert_eq!((&said["pool"], &said["tasks"]), (&json!(threads), &json!(threads)), "{said}");
        assert_eq!(said["variable"], threads.to_string());
    }
    for source in 0..5 {
        let drawn: BTreeSet<&str> =
            siblings.iter().map(|said| said["drawn"][source].as_str().unwrap()).collect();
        assert_eq!(drawn.len(), siblings.len(), "source {source} repeats itself: {drawn:?}");
    }
    let said = forked(&worker, "one");
    assert_eq!((&said["pool"], &said["tasks"]), (&json!(1), &json!(1)), "{said}");
    let said = forked(&worker, "few");
    assert_eq!(said["pool"], processors.min(2), "{said}");

    // Nothing but zygotes, and forks of theirs that wait, is left: each has its one thread.
    e2e::eventually("all instances are gone", || {
        let tasks =
            |pid: &u32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        worker.status()["engine"]["reaping"] == 0
            && worker.site().sandboxed().iter().all(|pid| tasks(pid) <= 1)
    });
    worker.assert_well();
}

/// Calls it in a fork of a zygote that has imported numpy.
fn forked(worker: &Worker, name: &str) -> Value {
    let mut said = Value::Null;
    e2e::eventually("there is a zygote that has imported numpy", || {
        let reply = worker.run(name, &json!({})).expect(200);
        said = reply.json();
        assert_eq!(said["right"], true, "{said}");
        said["imported before"] == true
    });
    said
}
