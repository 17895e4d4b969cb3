//! Processors: quotas that hold, for who has them and for nobody else.

use std::fs;
use std::path::PathBuf;

use e2e::machine::skip;
use e2e::{Site, Worker, can_run, can_run_machines, eventually, json};

/// Two children that run for a second; answers how many processors they had on the average.
const SPINS: &str = "\
import os, resource, time

def spin():
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass
    os._exit(0)

def handler(event, context):
    begin = time.monotonic()
    children = [os.fork() or spin() for _ in range(2)]
    for child in children:
        os.waitpid(child, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / (time.monotonic() - begin)
";

const IDLES: &str = "def handler(event, context):\n    return 'idle'\n";

/// A function with these settings.
fn with(settings: &str, source: &str) -> String {
    format!("# /// script\n# [tool.lambswool]\n{settings}# ///\n{source}")
}

/// What the kernel allows each sandboxed process, in thousandths of a processor: its own group's quota, of those that
/// have one.
fn quotas(worker: &Worker) -> Vec<u64> {
    worker.site().sandboxed().into_iter().filter_map(quota).collect()
}

fn quota(pid: u32) -> Option<u64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    for line in groups.lines() {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        let below = path.trim_start_matches('/');
        if controllers.split(',').any(|one| one == "cpu") {
            let dir = PathBuf::from("/sys/fs/cgroup").join(controllers).join(below);
            return Some(
                number(dir.join("cpu.cfs_quota_us"))? * 1000
                    / number(dir.join("cpu.cfs_period_us"))?,
            );
        }
        if controllers.is_empty() {
            let max =
                fs::read_to_string(PathBuf::from("/sys/fs/cgroup").join(below).join("cpu.max"));
            if let Some((quota, period)) =
                max.as_deref().ok().and_then(|max| max.trim().split_once(' '))
            {
                return Some(quota.parse::<u64>().ok()? * 1000 / period.parse::<u64>().ok()?);
            }
        }
    }
    None
}

#[test]
fn a_handler_takes_no_more_of_the_processors_than_its_quota() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    // The first call lands in a fork that waited for it, and the next in what is left of that one's group.
    for name in ["first", "second"] {
        let reply = worker.try_out(name, &with("# cpu = 0.2\n# memory = 64\n", SPINS));
        let had = reply.expect(200).json().as_f64().unwrap();
        // It can have one turn of its quota more than there are turns in a second. A busy machine gives it less.
        assert!(had < 0.25, "{had} processors");
        assert_eq!(quotas(&worker), [200]);
        drop(worker.delete(&format!("/v1/functions/{name}")).expect(204));
        eventually("its instance is gone", || quotas(&worker).is_empty());
    }
    worker.assert_well();
}

#[test]
fn who_asks_for_no_quota_has_none_whoever_had_the_group_before() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_SPARES", "0"), ("WOOL_SLOTS", "0")]);
    for turn in 0..3 {
        let asks =
            with(&format!("# cpu = 0.05\n# cpu_weight = 7\n# pids = {}\n", 20 + turn), IDLES);
        assert_eq!(worker.try_out("asks", &asks).expect(200).json(), "idle");
        eventually("only the newest version is there", || quotas(&worker) == [50]);
        drop(worker.delete("/v1/functions/asks").expect(204));
        eventually("it is gone", || quotas(&worker).is_empty());
        assert_eq!(worker.try_out("does-not", IDLES).expect(200).json(), "idle");
        assert_eq!(quotas(&worker), [0; 0]);
        drop(worker.delete("/v1/functions/does-not").expect(204));
    }
    worker.assert_well();
}

/// The session of a process (proc_pid_stat(5), field 6).
fn session(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_the_name = stat.rsplit_once(')').unwrap().1;
    behind_the_name.split_whitespace().nth(3).unwrap().to_owned()
}

/// What the group of the processors that holds a process weighs, as threads: of its name in hierarchies of version 1, else of the
/// worker's whole directory in that of version 2. None for the top group, which has no weight.
fn weight(pid: u32, name: &str) -> Option<f64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<f64>().ok();
    groups.lines().find_map(|line| {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        let dir = PathBuf::from("/sys/fs/cgroup").join(controllers);
        let below = &path[1..path.find(name)? + name.len()];
        match controllers.split(',').any(|one| one == "cpu") {
            true => number(dir.join(below).join("cpu.shares")).map(|shares| shares / 1024.0),
            false if controllers.is_empty() => {
                number(dir.join(below).join("cpu.weight")).map(|weight| weight / 100.0)
            }
            false => None,
        }
    })
}

#[test]
fn sandboxes_share_no_session_with_the_worker_and_weigh_a_thread_a_processor() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    assert_eq!(worker.try_out("inside", IDLES).expect(200).json(), "idle");
    if can_run_machines() {
        let machine = with("# isolation = \"microvm\"\n", IDLES);
        assert_eq!(worker.try_out("machine", &machine).expect(200).json(), "idle");
    }
    let name = worker.site().cgroups()[0].file_name().unwrap().to_str().unwrap().to_owned();
    let threads = std::thread::available_parallelism().unwrap().get();
    let outside = [worker.pid(), worker.warden()].map(session);
    assert_ne!(outside[0], outside[1]);
    let inside = worker.site().sandboxed();
    assert!(inside.len() >= 2, "{inside:?}");
    for pid in inside {
        assert!(!outside.contains(&session(pid)), "{pid} is in a session of {outside:?}");
        assert_eq!(weight(pid, &name), Some(threads as f64), "{pid}");
    }
    for pid in [worker.pid(), worker.warden()] {
        assert_eq!(weight(pid, &name), None);
    }
    worker.assert_well();
}

#[test]
fn the_operators_default_and_most_hold_for_every_function() {
    if !can_run() {
        return;
    }
    let settings = [("WOOL_CPU_DEFAULT", "0.5"), ("WOOL_CPU_MAX", "1.5")];
    let worker = Site::new().up_with(&settings);
    drop(worker.try_out("silent", IDLES).expect(200));
    // Zygotes, too, until they have imported.
    eventually("one instance has its quota", || quotas(&worker) == [500]);
    drop(worker.try_out("asks", &with("# cpu = 1.5\n", IDLES)).expect(200));
    eventually("both have theirs", || {
        let mut both = quotas(&worker);
        both.sort_unstable();
        both == [500, 1500]
    });
    let refused = worker.deploy("greedy", &with("# cpu = 1.6\n", IDLES)).expect(422).error();
    assert!(refused.contains("asks for 1.6") && refused.contains("cpu = 1.5"), "{refused}");
    let shown = worker.get("/v1/functions/asks").expect(200).json();
    assert_eq!(shown["cpu"], json!(1.5));
    // Whatever else this host lacks.
    let unenforced = shown["unenforced"].to_string();
    assert!(!unenforced.contains("processor"), "{unenforced}");
    worker.assert_well();
}

#[test]
fn a_worker_that_is_strict_starts_only_where_everything_is_enforced() {
    if !can_run() {
        return;
    }
    let (lacking, told) = ("lean,own=net", "sandboxes have a loopback of their own");
    let site = Site::new();
    let mut wool = site.command();
    wool.env("WOOL_CONTAINER_RECIPE", lacking).args(["up", "--strict"]);
    let refused = e2e::Said::from(wool.output().unwrap()).failed(1);
    assert!(refused.contains("this host does not enforce"), "{refused}");
    assert!(refused.contains(told), "{refused}");
    let worker = site.up_with(&[("WOOL_CONTAINER_RECIPE", lacking)]);
    let deployed = worker.deploy("told", IDLES).expect(201).json();
    let what = |one: &serde_json::Value| one["what"].as_str().unwrap().to_owned();
    let mut unenforced: Vec<_> =
        deployed["unenforced"].as_array().unwrap().iter().map(what).collect();
    let all = unenforced.len();
    unenforced.retain(|what| what != told);
    assert_eq!(unenforced.len(), all - 1, "{deployed}");
    let file = worker.site().own().join("idles.py");
    fs::write(&file, IDLES).unwrap();
    let said = worker.site().wool(&["deploy", file.to_str().unwrap()]);
    assert!(
        said.stderr.contains("not enforced on the worker's host: ") && said.stderr.contains(told),
        "{said:?}"
    );
    let site = worker.stop();
    if !unenforced.is_empty() {
        // This host lacks more, and says so.
        let refused = site.wool(&["up", "--strict"]).failed(1);
        assert!(unenforced.iter().all(|what| refused.contains(what)), "{refused}");
        return;
    }
    let worker = site.up_with(&[("WOOL_STRICT", "true")]);
    assert_eq!(worker.deploy("told", IDLES).expect(201).json()["unenforced"], json!([]));
    worker.assert_well();
}

#[test]
fn a_host_that_cannot_limit_processors_is_told_by_the_doctor_and_at_each_deploy() {
    if !can_run() {
        return;
    }
    let mount = "/sys/fs/cgroup/cpu";
    if !std::path::Path::new(mount).exists() {
        skip("cgroup-v1", "needs the controller `cpu` on a hierarchy of version 1");
        return;
    }
    // In a mount namespace where it is not mounted.
    let without =
        |words: &str| format!("unshare --mount sh -c 'umount -l {mount} && exec {words}'");
    let site = Site::new();
    let mut shell = site.command();
    let wool = shell.get_program().to_string_lossy().into_owned();
    let mut doctor = std::process::Command::new("sh");
    doctor.args(["-c", &without(&format!("{wool} doctor"))]);
    for (name, value) in shell.env("WOOL_STRICT", "true").get_envs() {
        doctor.env(name, value.unwrap_or_default());
    }
    let said = e2e::Said::from(doctor.output().unwrap());
    assert!(said.stdout.contains("not enforced: processors (no cgroup controller"), "{said:?}");
    let worker = site.up_after(&format!("exec {} \"$0\" \"$@\"", without("\"$0\" \"$@\"")));
    let asks = with("# cpu = 0.1\n", IDLES);
    let deployed = worker.deploy("asks", &asks).expect(201).json();
    assert_eq!(deployed["unenforced"][0]["what"], "processors", "{deployed}");
    assert_eq!(worker.run("asks", &json!({})).expect(200).json(), "idle");
    assert_eq!(quotas(&worker), [0; 0]);
    worker.assert_well();
}

#[test]
fn machines_that_come_from_one_have_the_operators_most_together() {
    if !can_run_machines() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_CPU_MAX", "0.5")]);
    let machine = "# isolation = \"microvm\"\n";
    drop(worker.try_out("inside", &with(machine, IDLES)).expect(200));
    // The monitor that holds them all.
    eventually("its monitor has the quota", || quotas(&worker) == [500]);
    let asks = with(&format!("{machine}# cpu = 0.1\n"), IDLES);
    let refused = worker.deploy("asks", &asks).expect(422).error();
    assert!(refused.contains("processors of a micro-VM cannot be limited yet"), "{refused}");
    worker.assert_well();
}
