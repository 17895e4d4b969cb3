//! The process that keeps moves into cgroups quick: it has no privilege, sleeps when nothing is
//! made, and ends with the warden.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use sandbox::Provider;
use support::host::{self, Process};
use support::{NONE, World, can_run, patience};

const ONE: &str = "def handler(event, context):\n    return 1\n";

/// The warden's child outside of P; none where there are no cgroups to move into.
fn pacemaker(world: &World) -> Option<Process> {
    if host::cgroups(&world.cgroup_name()).is_empty() {
        return None;
    }
    let begin = Instant::now();
    loop {
        let mut outside = host::children(world.warden());
        // The guardian is root's, and so is the pacemaker while it moves to its cgroup.
        outside.retain(|process| process.inside == 0 && process.uid != 0);
        assert!(outside.len() < 2 && begin.elapsed() < patience(10), "{outside:?}");
        if outside.len() == 1 {
            return outside.pop();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How often it has gone to sleep.
fn sleeps(of: &Process) -> u64 {
    let now = host::children(of.status["PPid"].parse().unwrap());
    let again = now.iter().find(|process| process.pid == of.pid).unwrap();
    again.status["voluntary_ctxt_switches"].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pacemaker_holds_nothing_but_its_own_cgroup() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let Some(own) = pacemaker(&world) else { return };
    assert!(own.uid >= 0x6fff_0000 && own.uid < 0x7000_0000, "{own:?}");
    assert_eq!(own.status["NoNewPrivs"], "1");
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(own.status[set], "0000000000000000", "{set}");
    }
    let mut held: Vec<_> = std::fs::read_dir(format!("/proc/{}/fd", own.pid))
        .unwrap()
        .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap())
        .collect();
    held.sort();
    assert_eq!(held.len(), 2, "{held:?}");
    assert!(held[0].ends_with("cgroup.procs"), "{held:?}");
    assert!(held[1].to_string_lossy().starts_with("pipe:"), "{held:?}");
    let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", own.pid)).unwrap();
    let at = |line: &str| line.contains(&world.cgroup_name()) && line.contains("/pacemaker");
    assert!(cgroups.lines().any(at), "{cgroups}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_while_sandboxes_are_made_and_sleeps_otherwise() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let Some(own) = pacemaker(&world) else { return };
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let before = sleeps(&own);
    let begin = Instant::now();
    while sleeps(&own) < before + 20 {
        drop(root.fork(world.instance(ONE)).await.unwrap());
        assert!(begin.elapsed() < patience(10), "it does not work");
    }
    let begin = Instant::now();
    loop {
        let before = sleeps(&own);
        tokio::time::sleep(Duration::from_millis(300)).await;
        if sleeps(&own) == before {
            break;
        }
        assert!(begin.elapsed() < patience(10), "it never sleeps");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_with_a_warden_that_is_killed() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let Some(own) = pacemaker(&world) else { return };
    let path = format!("/proc/{}", own.pid);
    let state = world.crash().await;
    let begin = Instant::now();
    while Path::new(&path).join("cgroup").exists() && !ended(&path) {
        assert!(begin.elapsed() < patience(5), "it stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    World::on(state, support::rooted(false), NONE).await.end().await;
}

/// Whether the process is dead, reaped or not.
fn ended(path: &str) -> bool {
    let status = std::fs::read_to_string(format!("{path}/status")).unwrap_or_default();
    !status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}
