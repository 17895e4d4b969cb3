//! How many sandboxes there may be at once, over all functions.

use std::time::{Duration, Instant};

use e2e::{Reply, Site, Value, Worker, can_run, json};

#[test]
fn a_call_beyond_the_most_sandboxes_takes_an_idle_ones_place_or_is_refused_at_once() {
    if !can_run() {
        return;
    }
    let settings = [("WOOL_SANDBOXES", "10"), ("WOOL_SLOTS", "1"), ("WOOL_SPARES", "1")];
    let worker = Site::new().up_with(&settings);
    let capacity = &worker.status()["capacity"];
    assert_eq!(capacity["sandboxes"], 10);
    assert!(capacity["bound_by"].as_str().unwrap().contains("setting"), "{capacity}");
    for name in ["a", "b", "c"] {
        drop(worker.try_out(name, "def handler(e, c):\n    return 1\n").expect(200));
    }
    let most = assert_bounded(&worker, 20);
    assert!((1..10).contains(&most), "{most}");
    let metrics = worker.get("/metrics").text();
    assert!(metrics.contains(&format!("lambswool_instances_most {most}\n")), "{metrics}");
    let evicted = metrics.lines().find(|line| line.starts_with("lambswool_evicted_for_room_total"));
    assert!(evicted.is_some_and(|line| !line.ends_with(" 0")), "{metrics}");
    worker.assert_well();
}

#[test]
fn a_worker_that_may_open_few_files_never_runs_out_of_them() {
    if !can_run() {
        return;
    }
    // What a shell, a unit or a container allows.
    let worker = Site::new().up_after("ulimit -n 300");
    let capacity = worker.status()["capacity"].clone();
    assert_eq!(capacity["sandboxes"], 20);
    assert!(capacity["bound_by"].as_str().unwrap().contains("open files"), "{capacity}");
    assert_bounded(&worker, 50);
    // Each takes the place of another one.
    for round in 0..2 {
        for number in 0..30 / e2e::slow() {
            let name = format!("f-{number}");
            let reply = if round == 0 {
                worker.try_out(&name, "def handler(e, c):\n    return 1\n")
            } else {
                worker.run(&name, &json!({}))
            };
            drop(reply.expect(200));
        }
    }
    let log = worker.log();
    // But for what the host lacks.
    let warned = |line: &str| line.contains("WARN") && !line.contains("not everything is enforced");
    assert!(!log.lines().any(warned) && !log.contains("os error 24"), "{log}");
    worker.assert_well();
}

/// Calls a slow function that often at once, and asserts that as many calls as there may be instances are served, and all
/// others refused while these still run. How many that is.
fn assert_bounded(worker: &Worker, calls: usize) -> u64 {
    let slow = "# /// script\n# [tool.lambswool]\n# timeout = 600\n# concurrency = 1000\n# ///\n\
        import time\ndef handler(event, context):\n    time.sleep(event['sleep'])\n";
    drop(worker.deploy("slow", slow).expect(201));
    // Its zygote is there, and counted whenever somebody asks.
    drop(worker.run("slow", &json!({ "sleep": 0 })).expect(200));
    let instances = || worker.status()["engine"]["instances"].clone();
    drop(instances());
    let sleep = Duration::from_secs(5) * e2e::slow();
    let called = || -> (Reply, Duration) {
        let began = Instant::now();
        (worker.run("slow", &json!({ "sleep": sleep.as_secs() })), began.elapsed())
    };
    let (replies, seen): (Vec<_>, Vec<Value>) = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..calls).map(|_| scope.spawn(called)).collect();
        let mut seen = Vec::new();
        while !calls.iter().all(|call| call.is_finished()) {
            seen.push(instances());
            std::thread::sleep(Duration::from_millis(20));
        }
        (calls.into_iter().map(|call| call.join().unwrap()).collect(), seen)
    });
    let most = instances()["most"].as_u64().unwrap();
    let live = |at: &Value| at["busy"].as_u64().unwrap() + at["idle"].as_u64().unwrap();
    assert_eq!(seen.iter().find(|at| live(at) > most), None, "more than {most}");
    let served = replies.iter().filter(|(reply, _)| reply.status == 200).count();
    assert_eq!(served as u64, most);
    for (reply, took) in replies.iter().filter(|(reply, _)| reply.status != 200) {
        assert_eq!(reply.status, 429, "{}", reply.text());
        assert!(!reply.header("retry-after").is_empty());
        assert!(*took < sleep, "{took:?}");
    }
    most
}
