//! The memory budget of a real worker: kept within, told, and shrunk under pressure.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use e2e::{Site, Worker, can_run, json};

const MIB: u64 = 1 << 20;

/// Holds about 6 MiB while it is kept.
const HEAVY: &str = "HELD = bytearray(6 << 20)\nfor at in range(0, len(HELD), 4096): HELD[at] = 1\ndef handler(event, context):\n    return len(HELD)\n";

/// What a worker takes for `/proc`: how a host is off for memory, as the test says.
struct Host(PathBuf);

impl Host {
    fn new(site: &Site) -> Self {
        let host = Self(site.state().with_file_name("proc"));
        fs::create_dir_all(host.0.join("pressure")).unwrap();
        host.say(0, 700_000);
        host
    }

    fn proc(&self) -> String {
        self.0.to_str().unwrap().to_owned()
    }

    /// So long somebody has waited, in all, and so much is available of a gigabyte.
    fn say(&self, stalled_us: u64, available_kilobytes: u64) {
        let stalls = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled_us}\n");
        let memory = format!("MemTotal: 1000000 kB\nMemAvailable: {available_kilobytes} kB\n");
        for (name, text) in [("meminfo", memory), ("pressure/memory", stalls)] {
            // Whole or not at all: it is read meanwhile.
            fs::write(self.0.join("new"), text).unwrap();
            fs::rename(self.0.join("new"), self.0.join(name)).unwrap();
        }
    }
}

fn memory(worker: &Worker, key: &str) -> u64 {
    worker.status()["engine"]["memory"][key].as_u64().unwrap()
}

fn deploy_and_call(worker: &Worker, count: u32) {
    for n in 0..count {
        // Each a version of its own.
        let source = format!("{HEAVY}# {n}\n");
        drop(worker.try_out(&format!("f{n}"), &source).expect(200));
    }
}

#[test]
fn many_functions_stay_within_one_budget_and_are_served_all_the_same() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let host = Host::new(&site);
    let worker = site.up_with(&[("WOOL_CACHE_MEMORY", "80MiB"), ("WOOL_PROC", &host.proc())]);
    let most = memory(&worker, "most_bytes");
    assert_eq!(most, 80 * MIB);
    deploy_and_call(&worker, 20);
    e2e::eventually("what is kept fits", || {
        let used = memory(&worker, "used_bytes");
        used > 30 * MIB && used <= most
    });
    let status = worker.status();
    let (idle, zygotes) =
        (&status["engine"]["instances"], status["engine"]["zygotes"].as_array().unwrap());
    assert!((2..15).contains(&idle["idle"].as_u64().unwrap()), "{status}");
    assert!(!zygotes.is_empty(), "{status}");
    let metrics = worker.get("/metrics").expect(200).text();
    for line in [
        "lambswool_memory_allowed_bytes 83886080",
        "lambswool_memory_bytes{kind=\"idle-instance\"}",
        "lambswool_memory_bytes{kind=\"zygote\"}",
        "lambswool_memory_bytes{kind=\"left-behind\"}",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    for n in 0..20 {
        let length = worker.run(&format!("f{n}"), &json!({})).expect(200).json();
        assert_eq!(length, 6 << 20);
    }
    e2e::eventually("what is kept fits again", || memory(&worker, "used_bytes") <= most);
    worker.assert_well();
}

#[test]
fn while_the_host_waits_for_memory_the_worker_gives_back_what_is_idle() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let host = Host::new(&site);
    let worker = site.up_with(&[("WOOL_CACHE_MEMORY", "1GiB"), ("WOOL_PROC", &host.proc())]);
    deploy_and_call(&worker, 8);
    e2e::eventually("all are kept", || worker.status()["engine"]["instances"]["idle"] == 8);
    e2e::eventually("they are weighed", || memory(&worker, "used_bytes") > 50 * MIB);
    assert_eq!(memory(&worker, "allowed_bytes"), 1024 * MIB);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Half of the time somebody waits, and hardly anything is left.
            for tenth in 1u64.. {
                if over.load(Ordering::SeqCst) {
                    host.say(tenth * 50_000, 700_000);
                    return;
                }
                host.say(tenth * 50_000, 30_000);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        e2e::eventually("all that was idle is given back", || {
            worker.status()["engine"]["instances"]["idle"] == 0
        });
        // Calls are served all the same.
        drop(worker.run("f0", &json!({})).expect(200));
        over.store(true, Ordering::SeqCst);
    });
    let least = memory(&worker, "allowed_bytes");
    assert!(least < 60 * MIB, "{least}");
    e2e::eventually("after it, more is allowed again", || {
        memory(&worker, "allowed_bytes") > least + 16 * MIB
    });
    let log = worker.log();
    assert!(log.contains("memory is short"), "{log}");
    worker.assert_well();
}
