//! Scaling with the length of the queue, and its limits.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use e2e::{Site, Worker, can_run, eventually, json};

#[test]
fn ten_calls_at_once_of_a_fresh_function_run_side_by_side() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("slow", &sleeping("# timeout = 30")).expect(201));
    let spans = at_once(&worker, 10);
    let instances: BTreeSet<&str> = spans.iter().map(|span| span.2.as_str()).collect();
    // One after the other, one instance would do; each that waited for another's end shares its instance.
    assert!(instances.len() >= 9, "{} instances: {spans:?}", instances.len());
    assert!(side_by_side(&spans) >= 9, "{spans:?}");
    assert_eq!(worker.status()["engine"]["instances"]["idle"], instances.len());
    worker.assert_well();
}

#[test]
fn no_more_instances_run_than_the_function_allows() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("slow", &sleeping("# concurrency = 2")).expect(201));
    let spans = at_once(&worker, 4);
    assert_eq!(side_by_side(&spans), 2, "{spans:?}");
    worker.assert_well();
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_QUEUE", "1")]);
    drop(worker.deploy("slow", &sleeping("# concurrency = 1")).expect(201));
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..6).map(|_| scope.spawn(|| worker.run("slow", &json!({})))).collect();
        let replies: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        let busy: Vec<_> = replies.iter().filter(|reply| reply.status == 429).collect();
        assert!(!busy.is_empty() && replies.iter().any(|reply| reply.status == 200));
        assert!(busy.iter().all(|reply| !reply.header("retry-after").is_empty()));
    });
    worker.assert_well();
}

#[test]
fn cgroups_that_a_burst_has_left_idle_are_given_back() {
    if !can_run() {
        return;
    }
    fn below(directory: &Path) -> usize {
        let inside = fs::read_dir(directory).into_iter().flatten().flatten();
        let directories = inside.map(|entry| entry.path()).filter(|path| path.is_dir());
        directories.map(|path| 1 + below(&path)).sum()
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    drop(worker.deploy("slow", &sleeping("# timeout = 60")).expect(201));
    let groups = || worker.site().cgroups().iter().map(|path| below(path)).sum::<usize>();
    drop(at_once(&worker, 40));
    let most = groups();
    eventually("fewer than half of them are left", || groups() * 2 < most);
    worker.assert_well();
}

#[test]
fn what_calls_leave_behind_is_taken_apart_while_calls_go_on() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    drop(worker.deploy("f", "def handler(event, context):\n    return 1\n").expect(201));
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", worker.warden())).unwrap().count();
    let (done, mut most) = (AtomicUsize::new(0), 0);
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..60 {
                    drop(worker.run("f", &json!({})).expect(200));
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        while done.load(Ordering::Relaxed) < 10 {
            most = descriptors().max(most);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    // Some eight for each sandbox: those that run, those that are ready, those that wait for their end.
    assert!(most < 800, "600 calls, ten at a time, and the warden had {most} descriptors open");
    worker.assert_well();
}

#[test]
fn idle_instances_go_when_nobody_calls_them() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_IDLE", "200ms")]);
    drop(worker.try_out("f", "def handler(event, context):\n    return 1\n").expect(200));
    e2e::eventually("the idle instance is gone", || {
        worker.status()["engine"]["instances"]["idle"] == 0
    });
    assert_eq!(worker.run("f", &json!({})).expect(200).header("lambswool-start"), "fork");
}

/// Sleeps for a second (longer where everything takes longer) and says when, by a clock that all sandboxes share, and who
/// it is.
fn sleeping(setting: &str) -> String {
    let seconds = e2e::slow();
    format!(
        r#"
# /// script
# [tool.lambswool]
{setting}
# ///
import os, time
WHO = os.urandom(8).hex()
def handler(event, context):
    begin = time.monotonic()
    time.sleep({seconds})
    return [begin, time.monotonic(), WHO]
"#
    )
}

type Span = (f64, f64, String);

fn at_once(worker: &Worker, count: usize) -> Vec<Span> {
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..count).map(|_| scope.spawn(|| worker.run("slow", &json!({})))).collect();
        let span = |said: e2e::Value| -> Span {
            (
                said[0].as_f64().unwrap(),
                said[1].as_f64().unwrap(),
                said[2].as_str().unwrap().to_owned(),
            )
        };
        calls.into_iter().map(|call| span(call.join().unwrap().expect(200).json())).collect()
    })
}

/// The most calls that ran at one moment.
fn side_by_side(spans: &[Span]) -> usize {
    let at = |moment: f64| {
        spans.iter().filter(|(begin, end, _)| *begin <= moment && moment < *end).count()
    };
    spans.iter().map(|(begin, ..)| at(*begin)).max().unwrap_or(0)
}
