//! What micro-VMs may take, each and all of one family together.

use std::fs;
use std::path::PathBuf;

use e2e::machine::skip;
use e2e::{Site, can_run_machines, eventually, json};

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
        assert!(refused.error().contains("MemoryError"), "{}", refused.error());
    }
    worker.assert_well();
}
