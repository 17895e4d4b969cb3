//! Every way of building a root file system: a detached tree, one that is staged as kernels before 6.15 need it, and
//! those of the isolations that are there to be measured against.

use e2e::{Site, Value, Worker, can_run, json};

const LOOK: &str = r#"
import os, subprocess, sys, tempfile
def attempt(do):
    try:
        do()
    except OSError as error:
        return error.errno
    return 0
def handler(event, context):
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"scratch")
    child = subprocess.run([sys.executable, "-I", "-S", "-c", "print(6 * 7)"], capture_output=True)
    return {
        "root": sorted(os.listdir("/")),
        "task": sorted(os.listdir("/var/task")),
        "up": sorted(os.listdir("/../../..")) == sorted(os.listdir("/")),
        "child": child.stdout.decode(),
        "null": os.write(os.open("/dev/null", os.O_WRONLY), b"x"),
        "random": len(open("/dev/urandom", "rb").read(8)),
        "write": {place: attempt(lambda: open(place + "/x", "w")) for place in ("/", "/usr", "/etc", "/var/task", "/opt/lambswool")},
        "code": attempt(lambda: os.chmod("/var/task/look.py", 0o777)),
        "cwd": os.getcwd(),
        "uid": os.getuid(),
    }
"#;

#[test]
fn detached_trees_and_staged_ones_look_the_same_from_inside() {
    if !can_run() {
        return;
    }
    let detached = walk(Site::new().up(), "fork");
    let staged =
        walk(Site::new().up_with(&[("WOOL_CONTAINER_RECIPE", "lean,root=staged")]), "fork");
    assert_eq!(detached, staged);
    let erofs = 30;
    assert_eq!(
        detached["write"],
        json!({"/": erofs, "/usr": erofs, "/etc": erofs, "/var/task": erofs, "/opt/lambswool": erofs})
    );
    assert_eq!((&detached["child"], &detached["up"]), (&json!("42\n"), &json!(true)));
    assert_ne!(detached["code"], 0);
}

#[test]
fn other_isolations_look_the_same_from_inside() {
    if !can_run() {
        return;
    }
    let lean = walk(Site::new().up(), "fork");
    assert_eq!(walk(Site::new().up_with(&[("WOOL_CONTAINER_RECIPE", "sock")]), "fork"), lean);
    assert_eq!(walk(Site::new().up_with(&[("WOOL_CONTAINER_RECIPE", "general")]), "cold"), lean);
}

#[test]
fn a_staged_worker_scales_dies_and_recovers_like_any_other() {
    if !can_run() {
        return;
    }
    let settings = [("WOOL_CONTAINER_RECIPE", "lean,root=staged")];
    let worker = Site::new().up_with(&settings);
    drop(worker.deploy("f", "import time\ndef handler(event, context):\n    time.sleep(0.3)\n    return event\n").expect(201));
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..6)
            .map(|n| {
                (
                    n,
                    scope.spawn({
                        let worker = &worker;
                        move || worker.run("f", &json!(n))
                    }),
                )
            })
            .collect();
        for (number, call) in calls {
            assert_eq!(call.join().unwrap().expect(200).json(), number);
        }
    });
    let error = worker
        .try_out("dies", "import os\ndef handler(e, c):\n    os._exit(1)\n")
        .expect(502)
        .error();
    assert!(error.contains("exited with status 1"), "{error}");
    let site = worker.crash();
    site.wait_until_quiet();
    let worker = site.up_with(&settings);
    assert_eq!(worker.run("f", &json!(7)).expect(200).json(), 7);
    worker.assert_well();
}

/// The happy path, whole. `start` is how a first call is to find its sandbox.
fn walk(worker: Worker, start: &str) -> Value {
    let first = worker.try_out("look", LOOK).expect(200);
    let second = worker.run("look", &json!({})).expect(200);
    assert_eq!(
        (first.header("lambswool-start"), second.header("lambswool-start")),
        (start, "resume")
    );
    let seen = first.json();
    assert_eq!(seen, second.json());
    worker.assert_well();
    seen
}
