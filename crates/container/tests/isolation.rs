//! Every isolation on the real kernel: what all share, what distinguishes each, and that it leaves
//! nothing behind.
//!
//! The counts belong to the whole warden or host, so these tests run one at a time.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use container::{CgroupSource, ContainerOptions, Isolation, Namespaces, RootMount};
use sandbox::{Instance, Provider, Zygote};
use serde_json::Value;
use support::{Conversation, NONE, World, ask, can_run, host};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

/// A handler that reports its ids and namespaces.
const WHO: &str = "
import os, socket
def loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.bind(('127.0.0.1', 0))
            one.connect(one.getsockname())
            one.send(b'x')
            return one.recv(1) == b'x'
        except OSError:
            return False
def handler(event, context):
    os.mkdir('/tmp/mine')
    scratch = os.statvfs('/tmp')
    return {
        'pid': os.getpid(), 'event': event, 'host': os.uname().nodename,
        'loopback': loopback(), 'code': 'handler.py' in os.listdir('/var/task'),
        'scratch': scratch.f_blocks * scratch.f_frsize,
        'proc': sorted(int(name) for name in os.listdir('/proc') if name.isdigit()) if os.listdir('/proc') else None,
    }
";

const KINDS: [&str; 6] = ["pid", "mnt", "net", "ipc", "uts", "cgroup"];

/// The recipes, and ablations that change one choice each.
fn all() -> Vec<Isolation> {
    let texts =
        ["lean", "sock", "general", "lean,root=bind", "lean,own=net+cgroup", "sock,cgroups=fresh"];
    let further = [
        "lean,root=staged,own=mnt",
        "general,root=detached",
        "general,own=net+ipc+uts+cgroup",
        #[cfg(debug_assertions)]
        "lean,unsafe-without=landlock-network+landlock-scopes",
    ];
    texts.iter().chain(&further).map(|text| text.parse().unwrap()).collect()
}

fn namespaces(pid: i32) -> BTreeMap<&'static str, std::path::PathBuf> {
    KINDS.map(|kind| (kind, std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap())).into()
}

fn wardens_mounts(world: &World) -> usize {
    let table = std::fs::read_to_string(format!("/proc/{}/mountinfo", world.warden())).unwrap();
    table.lines().count()
}

/// A zygote to fork from, if the isolation has zygotes.
async fn zygote(world: &World) -> Option<Box<dyn Zygote>> {
    let forks = world.containers.host().isolation.forks();
    if forks {
        Some(world.containers.create_zygote(world.zygote(&[])).await.unwrap())
    } else {
        None
    }
}

async fn instance(world: &World, zygote: Option<&dyn Zygote>, source: &str) -> Box<dyn Instance> {
    match zygote {
        Some(zygote) => zygote.fork(world.instance(source)).await.unwrap(),
        None => world.containers.create_instance(world.instance(source)).await.unwrap(),
    }
}

/// The process of a new sandbox: the only one with a kernel uid that is not in `before`.
async fn born(
    world: &World,
    zygote: Option<&dyn Zygote>,
    source: &str,
) -> (Box<dyn Instance>, host::Process) {
    let before = world.processes();
    let made = instance(world, zygote, source).await;
    (made, world.newcomer(&before))
}

/// Asserts what no isolation gives up.
fn confined(said: &Value, process: &host::Process, isolation: Isolation) {
    assert_eq!(said["pid"], 1, "{isolation}");
    assert_eq!(said["event"]["a"], 1, "{isolation}");
    assert_eq!(said["code"], true, "{isolation}: {said}");
    assert_eq!(said["scratch"], sandbox::Limits::default().scratch_bytes, "{isolation}");
    assert!(process.uid >= warden::uids::FIRST, "{isolation}: {process:?}");
    for key in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(process.status[key], "0000000000000000", "{isolation}: {key}");
    }
    assert_eq!(process.status["NoNewPrivs"], "1", "{isolation}");
    assert_eq!(process.status["Seccomp"], "2", "{isolation}");
    // A process with its own mount namespace sees its own processes on every kernel.
    assert!(
        said["proc"].is_null() || said["proc"] == serde_json::json!([1]),
        "{isolation}: {said}"
    );
    assert_eq!(said["host"], "sandbox", "{isolation}");
}

async fn lives(world: &World, zygote: Option<&dyn Zygote>) {
    let isolation = world.containers.host().isolation;
    let (mut made, process) = born(world, zygote, WHO).await;
    let mut talk = Conversation::load(made.as_mut()).await;
    let said = talk.ask(r#"{"a": 1}"#).await;
    confined(&said, &process, isolation);
    assert_eq!(said["proc"].is_null(), !world.containers.host().proc, "{isolation}: {said}");
    assert_eq!(said["loopback"], isolation.own.has(Namespaces::NETWORK), "{isolation}");
    made.pause().unwrap();
    assert!(made.memory().unwrap() > 0, "{isolation}");
    made.resume().unwrap();
    assert!(made.alive(), "{isolation}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_isolation_a_sandbox_is_confined_called_paused_and_limited() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for isolation in all() {
        let world = World::isolated(isolation, NONE).await;
        assert_eq!(world.containers.host().isolation, isolation);
        lives(&world, None).await;
        if let Some(root) = zygote(&world).await {
            lives(&world, Some(root.as_ref())).await;
            let derived = root.derive(world.zygote(&["decimal"])).await.unwrap();
            lives(&world, Some(derived.as_ref())).await;
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn siblings_share_only_namespaces_that_their_isolation_does_not_make() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for isolation in all() {
        let world = World::isolated(isolation, NONE).await;
        let root = zygote(&world).await;
        for zygote in [None, root.as_deref()] {
            let (one, first) = born(&world, zygote, WHO).await;
            let (two, second) = born(&world, zygote, WHO).await;
            let (first, second) = (namespaces(first.pid), namespaces(second.pid));
            for kind in KINDS {
                let own = kind == "pid" || isolation.own.to_string().split('+').any(|k| k == kind);
                assert_eq!(first[kind] != second[kind], own, "{isolation}: {kind}");
                let hosts = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
                // No sandbox is in the host's namespaces. The cgroup namespace is an exception: it
                // hides nothing from a process that sees no cgroup.
                assert!(first[kind] != hosts || kind == "cgroup" && !own, "{isolation}: {kind}");
            }
            drop((one, two));
        }
        drop(root);
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_bound_roots_are_in_the_wardens_mount_table() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    let hosts = host::mounts();
    for isolation in all() {
        let world = World::isolated(isolation, NONE).await;
        let root = zygote(&world).await;
        // The template is made once.
        drop(instance(&world, root.as_deref(), WHO).await);
        world.settle().await;
        let before = wardens_mounts(&world);
        let (one, two) = (
            instance(&world, root.as_deref(), WHO).await,
            instance(&world, root.as_deref(), WHO).await,
        );
        // SOCK's base, code and scratch; besides these the guest, devices, /dev/shm, /sys, the
        // links at /proc and, where it comes late, /proc itself with five files.
        let late_proc = world.containers.host().proc && isolation.forks();
        let each =
            if isolation.root == RootMount::Bind { 8 + 6 * usize::from(late_proc) } else { 0 };
        assert_eq!(wardens_mounts(&world), before + 2 * each, "{isolation}");
        assert_eq!(host::mounts(), hosts, "{isolation}: nothing is seen outside of the warden");
        drop((one, two));
        world.settle().await;
        assert_eq!(wardens_mounts(&world), before, "{isolation}");
        drop(root);
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_namespace_of_its_own_holds_the_root_and_nothing_of_the_hosts() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for isolation in all().into_iter().filter(|isolation| !isolation.forks()) {
        let world = World::isolated(isolation, NONE).await;
        let (kept, _) = born(&world, None, WHO).await;
        let (made, process) = born(&world, None, WHO).await;
        let table = std::fs::read_to_string(format!("/proc/{}/mountinfo", process.pid)).unwrap();
        let mut at: Vec<_> = table.lines().filter_map(|line| line.split(' ').nth(4)).collect();
        at.sort_unstable();
        let ours =
            ["/", "/dev", "/dev/shm", "/opt/lambswool", "/proc", "/sys", "/tmp", "/var/task"];
        let files =
            ["cpuinfo", "meminfo", "stat", "uptime", "loadavg"].map(|f| format!("/proc/{f}"));
        // The links that all roots begin with, and the processes mounted over them.
        let expected = ours.into_iter().chain(["/proc"]).chain(files.iter().map(String::as_str));
        let mut expected: Vec<_> = expected.collect();
        expected.sort_unstable();
        assert_eq!(at, expected, "{isolation}: {table}");
        assert!(world.containers.create_zygote(world.zygote(&[])).await.is_err(), "{isolation}");
        drop((kept, made));
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fresh_cgroups_go_with_their_sandboxes_and_pooled_ones_stay() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for isolation in
        [Isolation::SOCK, Isolation { cgroups: CgroupSource::Fresh, ..Isolation::SOCK }]
    {
        let world = World::isolated(isolation, NONE).await;
        let root = zygote(&world).await;
        for zygote in [None, root.as_deref()] {
            // Files that an interpreter is the first to read on this host are charged to its
            // cgroup.
            drop(instance(&world, zygote, WHO).await);
            world.settle().await;
            let before = host::cgroups(&world.cgroup_name());
            let (one, first) = born(&world, zygote, WHO).await;
            let first = std::fs::read_to_string(format!("/proc/{}/cgroup", first.pid)).unwrap();
            drop(one);
            world.settle().await;
            let after = host::cgroups(&world.cgroup_name());
            let (two, second) = born(&world, zygote, WHO).await;
            let second = std::fs::read_to_string(format!("/proc/{}/cgroup", second.pid)).unwrap();
            let pooled = isolation.cgroups == CgroupSource::Pooled;
            assert_eq!(first == second, pooled, "{isolation}: {first} {second}");
            assert!(pooled || after == before, "{isolation}: {after:?}");
            drop(two);
            world.settle().await;
        }
        drop(root);
        world.end().await;
    }
}

/// Counts that must be the same before and after.
fn held(world: &World) -> [usize; 6] {
    let warden = Path::new("/proc").join(world.warden().to_string());
    let stages = world.state.join("run/stages");
    let stages = stages.strip_prefix("/").unwrap();
    let entries = |path: &Path| std::fs::read_dir(path).unwrap().count();
    [
        host::mounts(),
        wardens_mounts(world),
        host::cgroups(&world.cgroup_name()).len(),
        host::children(world.warden()).len(),
        entries(&warden.join("fd")),
        entries(&warden.join("root").join(stages)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_isolation_leaves_mounts_cgroups_processes_or_directories_behind() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for isolation in all() {
        let world = World::isolated(isolation, NONE).await;
        drop((zygote(&world).await, instance(&world, None, WHO).await));
        world.settle().await;
        let before = held(&world);
        let root = zygote(&world).await;
        let mut all = Vec::new();
        for round in 0..12 {
            let from = if round % 3 == 0 { None } else { root.as_deref() };
            let mut made = instance(&world, from, WHO).await;
            let mut talk = Conversation::load(made.as_mut()).await;
            talk.ask(r#"{"a": 1}"#).await;
            if round % 2 == 0 {
                made.pause().unwrap();
            }
            all.push((made, talk));
        }
        // A failure after its root was made frees the root too.
        let mut broken = world.instance(WHO);
        broken.python.interpreter = "/usr/bin/not-there".to_owned();
        world.containers.create_instance(broken).await.unwrap_err();
        drop((all, root));
        let began = Instant::now();
        loop {
            world.settle().await;
            let mut after = held(&world);
            // Kept for the next ones, with their files: those of the four that no zygote forked, or
            // of all twelve.
            let idle = match isolation.cgroups {
                CgroupSource::Pooled if isolation.forks() => 4,
                CgroupSource::Pooled => 12,
                CgroupSource::Fresh => 0,
            };
            // Up to four namespaces are made ahead: more may be kept now than before.
            let kept = [0, 0, 3 * idle, 0, 5 * idle + 4, 0];
            for ((after, before), kept) in after.iter_mut().zip(before).zip(kept) {
                if (before..=before + kept).contains(after) {
                    *after = before;
                }
            }
            if after == before {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(3), "{isolation}: {before:?} {after:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_warden_left_is_gone_when_the_next_one_serves() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    for isolation in [Isolation::SOCK, Isolation::GENERAL] {
        let world =
            World::isolated(isolation, ContainerOptions { slots: 2, spares: 1, ..NONE }).await;
        let (name, hosts) = (world.cgroup_name(), host::mounts());
        let root = zygote(&world).await;
        let mut made = instance(&world, root.as_deref(), WHO).await;
        let mut talk = Conversation::load(made.as_mut()).await;
        talk.ask(r#"{"a": 1}"#).await;
        made.pause().unwrap();
        let living: Vec<i32> = world.processes().iter().map(|process| process.pid).collect();
        assert!(!living.is_empty());
        let state = world.crash().await;
        // Mount points lay in the warden's own mount namespace.
        assert_eq!(std::fs::read_dir(state.join("run/stages")).unwrap().count(), 0, "{isolation}");

        let again = World::on(state, isolation, NONE).await;
        let began = Instant::now();
        while living.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
            assert!(began.elapsed() < Duration::from_secs(5), "{isolation}: {living:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((again.processes().len(), host::mounts()), (0, hosts), "{isolation}");
        assert_eq!(again.cgroup_name(), name);
        let mut after = instance(&again, zygote(&again).await.as_deref(), WHO).await;
        assert_eq!(ask(after.as_mut(), r#"{"a": 1}"#).await["pid"], 1);
        drop((after, made, root));
        again.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_no_isolation_a_zygote_walks_out_of_its_root() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    let attack = "
def walk(fds, uid):
    entered = become(fds, uid)
    outside = os.open('/', os.O_RDONLY)
    chrooted = attempt('chroot', ctypes.c_char_p(b'/opt'))
    os.fchdir(outside)
    for _ in range(40):
        trying(lambda: os.chdir('..'))
    at_its_root = os.path.samestat(os.stat('.'), os.fstat(outside))
    return {'took over': entered + [chrooted], 'out': not at_its_root or os.path.exists('proc/1/status')}

def attack(fds, uid, flags):
    return child(lambda: walk(fds, uid))
";
    for isolation in all().into_iter().filter(|isolation| isolation.forks()) {
        let world = World::isolated(isolation, NONE).await;
        let root = world.containers.create_zygote(world.evil(attack)).await.unwrap();
        let said = world.report(root.as_ref()).await;
        assert_eq!(said["took over"], serde_json::json!(["OK", "OK", "OK", "OK"]), "{isolation}");
        assert_eq!(said["out"], false, "{isolation}");
        drop(root);
        world.end().await;
    }
}
