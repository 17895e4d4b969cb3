//! Nothing is left behind: mounts, cgroups, processes, descriptors, ids, however a sandbox ended.
//!
//! The counts belong to the whole process or host, so these tests run one at a time.

mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use container::ContainerOptions;
use sandbox::{Instance, Limits, Provider, Zygote};
use support::{Conversation, NONE, World, ask, can_run, host, patience, rooted};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());
const ONE: &str = "def handler(event, context):\n    return 1\n";
const DAEMONS: &str = "
import os, time
def handler(event, context):
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
    return 1
";

/// Counts that must be the same before and after.
#[derive(Debug, PartialEq)]
struct Held {
    mounts: usize,
    cgroups: usize,
    processes: usize,
    wardens_children: usize,
    wardens_descriptors: usize,
    wardens_mounts: usize,
    descriptors: usize,
}

fn held(world: &World) -> Held {
    let warden = PathBuf::from(format!("/proc/{}", world.warden()));
    let lines = std::fs::read_to_string(warden.join("mountinfo")).unwrap();
    Held {
        mounts: host::mounts(),
        cgroups: host::cgroups(&world.cgroup_name()).len(),
        processes: world.processes().len(),
        wardens_children: host::children(world.warden()).len(),
        wardens_descriptors: std::fs::read_dir(warden.join("fd")).unwrap().count(),
        wardens_mounts: lines.lines().count(),
        descriptors: host::own_descriptors(),
    }
}

/// Asserts that everything is as before, except for the cgroups of at most `idle` instances that no
/// zygote forked: they may be kept, with their files.
async fn same(world: &World, before: &Held, idle: usize, what: &str) {
    let begin = Instant::now();
    loop {
        world.settle().await;
        let after = held(world);
        let mut found = Held { ..after };
        if (before.cgroups..=before.cgroups + 3 * idle).contains(&after.cgroups) {
            found.cgroups = before.cgroups;
        }
        let files = before.wardens_descriptors..=before.wardens_descriptors + 5 * idle;
        if files.contains(&after.wardens_descriptors) {
            found.wardens_descriptors = before.wardens_descriptors;
        }
        if found == *before {
            return;
        }
        assert!(begin.elapsed() < patience(3), "{what}: {before:#?} then {after:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn living_in(namespace: &Path) -> Vec<i32> {
    host::living_in(namespace).iter().map(|process| process.pid).collect()
}

/// Asserts that these processes and all cgroups of that name are gone within five seconds. By
/// number: the next warden's namespaces may get the inodes of the last one's.
async fn gone(processes: &[i32], name: &str) {
    let begin = Instant::now();
    loop {
        let lives = |pid: &&i32| Path::new(&format!("/proc/{pid}")).exists();
        let left: Vec<_> = processes.iter().filter(lives).collect();
        let cgroups = host::cgroups(name);
        if left.is_empty() && cgroups.is_empty() {
            return;
        }
        assert!(begin.elapsed() < patience(5), "{left:?} {cgroups:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_forks_leave_nothing_behind() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let keeper = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let code = world.instance(DAEMONS);
        // Templates and the like are made once.
        drop(keeper.fork(code.clone()).await.unwrap());
        drop(keeper.derive(world.zygote(&["decimal"])).await.unwrap());
        world.settle().await;
        // The cgroups of the last zygote's forks are kept for that zygote: they go with it.
        drop(keeper);
        world.settle().await;
        let before = held(&world);
        let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let derived = root.derive(world.zygote(&["decimal"])).await.unwrap();
        let mut kept = vec![];
        for round in 0..50 {
            let zygote = if round % 3 == 0 { &derived } else { &root };
            let mut instance = match round % 10 {
                9 => world.containers.create_instance(code.clone()).await.unwrap(),
                _ => zygote.fork(code.clone()).await.unwrap(),
            };
            if round % 4 == 0 {
                let mut talk = Conversation::load(instance.as_mut()).await;
                talk.ask("{}").await;
                if round % 8 == 0 {
                    instance.pause().unwrap();
                    kept.push((instance, talk));
                }
            }
        }
        assert!(world.processes().len() > 20);
        drop((root, derived));
        drop(kept);
        same(&world, &before, 5, "fifty forks").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_goes_takes_everything_along() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for staged in [false, true] {
        let world = World::new(staged, ContainerOptions { slots: 3, spares: 2, ..NONE }).await;
        let (namespace, name) = (host::mount_namespace_of(world.pid_one()), world.cgroup_name());
        let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let derived = root.derive(world.zygote(&["decimal"])).await.unwrap();
        let mut running = derived.fork(world.instance(DAEMONS)).await.unwrap();
        let mut talk = Conversation::load(running.as_mut()).await;
        talk.ask("{}").await;
        let paused = root.fork(world.instance(ONE)).await.unwrap();
        paused.pause().unwrap();
        running.pause().unwrap();
        let living = living_in(&namespace);
        assert!(living.len() >= 7, "{living:?}");
        assert!(!host::cgroups(&name).is_empty());
        drop((root, derived, running, talk, paused));
        world.end().await;
        gone(&living, &name).await;
    }
}

/// Some live and some frozen sandboxes, daemons among them.
async fn populated(world: &World) -> Vec<(Box<dyn Instance>, Conversation)> {
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let derived = root.derive(world.zygote(&["decimal"])).await.unwrap();
    let mut all = vec![];
    for (number, zygote) in [&root, &derived, &root, &derived].into_iter().enumerate() {
        let mut instance = zygote.fork(world.instance(DAEMONS)).await.unwrap();
        let mut talk = Conversation::load(instance.as_mut()).await;
        talk.ask("{}").await;
        if number % 2 == 0 {
            instance.pause().unwrap();
        }
        all.push((instance, talk));
    }
    // They end with the warden, not with these values.
    std::mem::forget((root, derived));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_is_killed_is_cleaned_up_by_the_next() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let (namespace, name) = (host::mount_namespace_of(world.pid_one()), world.cgroup_name());
        let sandboxes = populated(&world).await;
        let mounts = host::mounts();
        let living = living_in(&namespace);
        // Pid 1 of P, two zygotes, four instances with three daemons each.
        assert_eq!(living.len(), 19, "{living:?}");
        assert!(world.containers.alive());
        let containers = world.containers.clone();
        let state = world.crash().await;
        let begin = Instant::now();
        while containers.alive() {
            assert!(begin.elapsed() < patience(2), "the worker does not notice");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let cgroups = host::cgroups(&name);
        assert!(!cgroups.is_empty(), "the crash left nothing to clean up");

        let again = World::on(state, rooted(staged), NONE).await;
        assert_eq!(again.cgroup_name(), name);
        let begin = Instant::now();
        while living.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
            assert!(begin.elapsed() < patience(5), "{living:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(again.processes().len(), 0);
        assert_eq!(host::mounts(), mounts);
        for (instance, _) in &sandboxes {
            assert!(!instance.alive());
        }
        let root = again.containers.create_zygote(again.zygote(&[])).await.unwrap();
        let mut after = root.fork(again.instance(ONE)).await.unwrap();
        assert_eq!(ask(after.as_mut(), "{}").await, 1);
        let living = living_in(&host::mount_namespace_of(again.pid_one()));
        drop((root, after, sandboxes));
        again.end().await;
        gone(&living, &name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_half_way_leaves_nothing_behind() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        drop(root.derive(world.zygote(&[])).await.unwrap());
        world.settle().await;
        let before = held(&world);

        let mut missing = world.zygote(&[]);
        missing.packages = Some("packages/not-there".parse().unwrap());
        let mut tiny = world.zygote(&[]);
        tiny.limits = Limits { memory_bytes: 64 << 10, ..Limits::default() };
        let mut no_program = world.zygote(&[]);
        no_program.python.interpreter = "/usr/bin/not-there".to_owned();
        let mut no_base = world.zygote(&[]);
        no_base.python.base = "base/not-there".parse().unwrap();
        for spec in [missing.clone(), tiny.clone(), no_program.clone(), no_base] {
            let error = world.containers.create_zygote(spec.clone()).await.unwrap_err();
            assert!(!error.to_string().is_empty());
            let mut instance = world.instance(ONE);
            (instance.python, instance.packages, instance.limits) =
                (spec.python, spec.packages, spec.limits);
            world.containers.create_instance(instance).await.unwrap_err();
        }
        for spec in [missing.clone(), tiny] {
            root.derive(spec).await.unwrap_err();
        }
        let mut no_code = world.instance(ONE);
        no_code.code = "code/not-there".parse().unwrap();
        root.fork(no_code).await.unwrap_err();
        assert!(root.alive());

        // A future that is dropped half-way undoes its work.
        for wait in [0u64, 100, 300, 600, 1000, 2000] {
            let limit = Duration::from_micros(wait);
            let _ = tokio::time::timeout(limit, root.fork(world.instance(ONE))).await;
            let _ = tokio::time::timeout(limit, root.derive(world.zygote(&[]))).await;
            let _ = tokio::time::timeout(limit, world.containers.create_zygote(world.zygote(&[])))
                .await;
        }
        calm(root.as_ref(), &world).await;
        let mut after = held(&world);
        // A zygote keeps the cgroups of its former slots, with their files: up to one for each
        // concurrent fork.
        assert!(after.cgroups <= before.cgroups + 4 * 6 * 3);
        assert!(after.wardens_descriptors <= before.wardens_descriptors + 4 * 6 * 5);
        after.cgroups = before.cgroups;
        after.wardens_descriptors = before.wardens_descriptors;
        // The view of `tiny`'s limits is kept for the next sandbox with the same limits: where
        // roots are staged, at a mount.
        assert!(after.wardens_mounts <= before.wardens_mounts + 1);
        after.wardens_mounts = before.wardens_mounts;
        assert_eq!(after, before);
    }
}

/// Waits until cancelled forks have left the zygote.
async fn calm(root: &dyn Zygote, world: &World) {
    assert!(root.alive());
    let begin = Instant::now();
    while world.processes().len() > 1 && begin.elapsed() < patience(3) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn derivations_that_fail_use_up_no_kernel_ids() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    let world = World::new(false, NONE).await;
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let mut missing = world.zygote(&[]);
    missing.packages = Some("packages/not-there".parse().unwrap());
    // A warden has 256 ranges, and a lost one is never found again.
    for _ in 0..300 {
        root.derive(missing.clone()).await.unwrap_err();
    }
    let derived = root.derive(world.zygote(&[])).await.unwrap();
    let mut instance = derived.fork(world.instance(ONE)).await.unwrap();
    assert_eq!(ask(instance.as_mut(), "{}").await, 1);
}
