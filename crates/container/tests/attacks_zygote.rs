//! A malicious zygote: a package that a zygote has imported abuses the descriptors of a fork.
//!
//! Each attack runs in the zygote at a fork, with the slot's descriptors (root, channel, user
//! namespace, cgroups). The honest fork follows: every test also shows that an ordinary instance
//! lands afterwards and reports.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sandbox::{Death, Provider};
use serde_json::Value;
use support::attack::REPORT;
use support::{Conversation, NONE, World, ask, can_run, patience};
use warden::protocol::{Answer, Command, Cpu, Limits};

/// The result of an attack from a root zygote and from a derived one, for both ways of building
/// roots.
async fn everywhere(attack: &str, check: impl Fn(&Value)) {
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let root = world.containers.create_zygote(world.evil(attack)).await.unwrap();
        check(&world.report(root.as_ref()).await);
        let honest = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let derived = honest.derive(world.evil(attack)).await.unwrap();
        check(&world.report(derived.as_ref()).await);
        assert!(root.alive() && honest.alive() && derived.alive());
    }
}

fn all(report: &Value, expected: &[&str]) {
    let wrong: Vec<_> = report
        .as_object()
        .unwrap_or_else(|| panic!("{report}"))
        .iter()
        .filter(|(_, result)| !expected.contains(&result.as_str().unwrap_or("?")))
        .collect();
    assert!(wrong.is_empty(), "not {expected:?}: {wrong:#?}");
}

fn numbers(report: &Value) -> BTreeSet<i64> {
    report
        .as_array()
        .unwrap_or_else(|| panic!("{report}"))
        .iter()
        .map(|n| n.as_i64().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_with_a_slots_capabilities_does_not_walk_back_to_the_hosts_root() {
    if !can_run() {
        return;
    }
    let attack = "
def walk(fds, uid):
    entered = become(fds, uid)
    self, one = raw('pidfd_open', os.getpid(), 0)[0], raw('pidfd_open', 1, 0)[0]
    refused = {
        'unshare mount': attempt('unshare', CLONE_NEWNS),
        'unshare mount and pid': attempt('unshare', CLONE_NEWNS | CLONE_NEWPID),
        'unshare user': attempt('unshare', CLONE_NEWUSER),
        'unshare network': attempt('unshare', CLONE_NEWNET),
        'setns own mount': attempt('setns', self, CLONE_NEWNS),
        'setns mount of 1': attempt('setns', one, CLONE_NEWNS),
        'setns pid of 1': attempt('setns', one, CLONE_NEWPID),
        'setns everything of 1': attempt('setns', one, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC),
        'setns user of 1': attempt('setns', one, CLONE_NEWUSER),
        'setns user by pidfd': attempt('setns', self, CLONE_NEWUSER),
    }
    # The classic: a root below the working directory does not stop a process that climbs from outside of it.
    os.mkdir('/dev/shm/jail') if os.access('/dev/shm', os.W_OK) else None
    outside = os.open('/', os.O_RDONLY)
    chrooted = attempt('chroot', ctypes.c_char_p(b'/opt'))
    os.fchdir(outside)
    for _ in range(40):
        os.chdir('..')
    climbed = attempt('chroot', ctypes.c_char_p(b'.'))
    return {
        'entered': entered, 'capabilities': capabilities(), 'refused': refused,
        'chrooted': [chrooted, climbed], 'root': sorted(os.listdir('/')),
        'host': [p for p in ['/etc/shadow', '/home', '/boot', '/work', '/proc/1'] if os.path.exists(p) and (p != '/home' or os.listdir(p))],
        'slot': sorted(os.listdir(os.open('.', os.O_RDONLY, dir_fd=fds[0]))),
        'slot up': os.path.samestat(os.stat('../../..', dir_fd=fds[0]), os.fstat(fds[0])),
    }

def attack(fds, uid, flags):
    return child(lambda: walk(fds, uid))
";
    everywhere(attack, |said| {
        // The control: it does take over the slot.
        assert_eq!(said["entered"], serde_json::json!(["OK", "OK", "OK"]), "{said}");
        assert_ne!(said["capabilities"], 0);
        assert_eq!(said["chrooted"], serde_json::json!(["OK", "OK"]));
        all(&said["refused"], &["ENOSYS", "EPERM", "EINVAL"]);
        assert_eq!(said["refused"]["unshare mount"], "ENOSYS");
        assert_eq!(said["refused"]["setns own mount"], "ENOSYS");
        assert_eq!(said["host"], serde_json::json!([]));
        assert_eq!(said["root"], said["slot"], "both are the base");
        assert_eq!(said["slot up"], true);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_with_a_slots_capabilities_changes_no_mount_and_writes_to_no_layer() {
    if !can_run() {
        return;
    }
    let attack = "
def change(fds, uid):
    become(fds, uid)
    root, empty = fds[0], ctypes.c_char_p(b'')
    writable = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
    def making(path):
        return trying(lambda: os.open(path, os.O_CREAT | os.O_WRONLY, dir_fd=root))
    return {
        'mounts': {
            'drop read-only': attempt('mount_setattr', root, empty, AT_EMPTY_PATH, writable, 32),
            'drop it everywhere': attempt('mount_setattr', root, empty, AT_EMPTY_PATH | 0x8000, writable, 32),
            'clone the tree': attempt('open_tree', root, empty, 1 | AT_EMPTY_PATH),
            'mount': attempt('mount', None, ctypes.c_char_p(b'/tmp'), None, 32, None),
            'fsopen': attempt('fsopen', ctypes.c_char_p(b'tmpfs'), 0),
            'fspick': attempt('fspick', root, empty, 8),
            'umount': attempt('umount2', ctypes.c_char_p(b'/tmp'), 2),
        },
        'layers': {p: making(p) for p in ['new', 'usr/new', 'opt/lambswool/new', 'etc/new', 'dev/new', 'var/task/new', 'opt/python/new']},
        'node': trying(lambda: os.mknod('tmp/sda', 0o60666, os.makedev(8, 0), dir_fd=root)),
        'scratch': making('tmp/mine'),
    }

def attack(fds, uid, flags):
    return {'inside': child(lambda: change(fds, uid)), 'own': refused(), 'control': allowed()}
";
    everywhere(attack, |said| {
        all(&said["inside"]["mounts"], &["ENOSYS"]);
        all(&said["inside"]["layers"], &["EROFS", "EACCES", "EPERM"]);
        assert_eq!(said["inside"]["node"], "EPERM");
        assert_eq!(said["inside"]["scratch"], "OK", "the slot's own scratch is its own");
        all(&said["own"], &["ENOSYS"]);
        all(&said["control"], &["OK"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_moves_only_its_own_processes_into_a_slots_cgroup() {
    if !can_run() {
        return;
    }
    let attack = "
import signal, time
def attack(fds, uid, flags):
    me, own = os.getpid(), os.fork()
    if own == 0:
        time.sleep(30)
        os._exit(0)
    moved = [pid for fd in groups(fds) for pid in range(1, 200)
             if pid not in (own, me) and trying(lambda: os.write(fd, str(pid).encode())) == 'OK']
    entered = child(lambda: (become(fds, uid), [pid for fd in groups(fds) for pid in range(1, 200)
             if pid not in (own, me, os.getpid()) and trying(lambda: os.write(fd, str(pid).encode())) == 'OK'])[1])
    mine = [trying(lambda: os.write(fd, str(own).encode())) for fd in groups(fds)]
    os.kill(own, signal.SIGKILL)
    return {'cgroups': len(groups(fds)), 'moved': moved, 'entered': entered, 'mine': mine}
";
    let world = World::new(false, NONE).await;
    let victim = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let bystander = victim.fork(world.instance(REPORT)).await.unwrap();
    let root = world.containers.create_zygote(world.evil(attack)).await.unwrap();
    let derived = victim.derive(world.evil(attack)).await.unwrap();
    for zygote in [&root, &derived] {
        let said = world.report(zygote.as_ref()).await;
        assert_eq!(said["moved"], serde_json::json!([]), "{said}");
        assert_eq!(said["entered"], serde_json::json!([]), "{said}");
        let mine = said["mine"].as_array().unwrap();
        assert!(mine.iter().all(|result| result == "OK"), "{said}");
        assert_eq!(said["cgroups"], mine.len());
    }
    assert!(bystander.alive());
}

/// Other processes and the sandbox's own, by their numbers in P, which the host knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_signals_and_reaches_only_its_descendants() {
    if !can_run() {
        return;
    }
    let attack = "
def attack(fds, uid, flags):
    def reached():
        return [pid for pid in range(1, 300) if trying(lambda: os.kill(pid, 0)) == 'OK']
    return {
        'self': os.getpid(), 'parent': os.getppid(),
        'reached': reached(),
        'entered': child(lambda: (become(fds, uid), reached(), os.getpid())[1:]),
        'abstract': abstract('name'),
        'proc': sorted(n for n in os.listdir('/proc') if n.isdigit()),
        'limits': [pid for pid in range(1, 300) if pid != os.getpid() and raw('prlimit64', pid, 7, None, None)[0] == 0],
    }
";
    let listener = "
def handler(event, context):
    return [abstract('name', listen=True), abstract('name')]
";
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let victim = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let mut bystander = victim.fork(world.attacker(listener)).await.unwrap();
        let mut talk = Conversation::load(bystander.as_mut()).await;
        assert_eq!(talk.ask("{}").await, world.own_abstract_socket());

        let before = world.processes();
        let foreign: BTreeSet<i64> =
            before.iter().map(|p| i64::from(p.inside)).chain([1]).collect();
        let root = world.containers.create_zygote(world.evil(attack)).await.unwrap();
        let own = i64::from(world.newcomer(&before).inside);
        // Its report comes with the second fork: the first one is there then.
        let first = root.fork(world.instance(REPORT)).await.unwrap();
        let said = world.report(root.as_ref()).await;
        let reached = numbers(&said["reached"]);
        assert!(reached.contains(&own), "{said}");
        assert!(reached.is_disjoint(&foreign), "{said} against {foreign:?}");
        let entered = numbers(&said["entered"][0]);
        assert!(entered.is_disjoint(&foreign) && !entered.contains(&own), "{said}");
        assert!(entered.contains(&said["entered"][1].as_i64().unwrap()));
        assert!(numbers(&said["limits"]).is_disjoint(&foreign));
        assert_ne!(said["abstract"], "OK");
        assert_eq!(said["proc"], serde_json::json!([]), "a zygote has no /proc");
        drop(first);

        // A derived zygote does not reach its parent, nor its parent's other children.
        let before: BTreeSet<i64> =
            world.processes().iter().map(|p| i64::from(p.inside)).chain([1]).collect();
        let derived = victim.derive(world.evil(attack)).await.unwrap();
        let said = world.report(derived.as_ref()).await;
        let reached = numbers(&said["reached"]);
        assert!(reached.contains(&said["self"].as_i64().unwrap()));
        assert!(reached.is_disjoint(&before), "{said} against {before:?}");
        assert!(numbers(&said["entered"][0]).is_disjoint(&before));
        assert_ne!(said["abstract"], "OK");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_that_kills_everybody_harms_only_its_own() {
    if !can_run() {
        return;
    }
    let attack = "
import signal
def attack(fds, uid, flags):
    child(lambda: (os.setsid(), os.kill(-1, signal.SIGKILL)))
    child(lambda: (become(fds, uid), os.kill(-1, signal.SIGKILL)))
    return 'done'
";
    let world = World::new(false, NONE).await;
    let victim = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let bystander = victim.fork(world.instance(REPORT)).await.unwrap();
    let sibling = victim.derive(world.zygote(&["decimal"])).await.unwrap();
    let root = world.containers.create_zygote(world.evil(attack)).await.unwrap();
    let derived = victim.derive(world.evil(attack)).await.unwrap();
    for zygote in [&root, &derived] {
        // kill(-1) of its own uid takes the zygote itself along: the control.
        let forked = zygote.fork(world.instance(REPORT)).await;
        assert!(forked.is_err(), "{forked:?}");
        let begin = Instant::now();
        while zygote.alive() && begin.elapsed() < patience(1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!zygote.alive());
    }
    assert!(victim.alive() && bystander.alive() && sibling.alive());
    let mut after =
        sibling.fork(world.instance("def handler(event, context): return 1")).await.unwrap();
    assert_eq!(ask(after.as_mut(), "{}").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_zygotes_outlives_it() {
    if !can_run() {
        return;
    }
    // It keeps a slot's cgroups and leaves processes in them after they were given back, and from
    // the second fork on in its own cgroup, forking all the time.
    let attack = "
import time
KEPT = []
def breed():
    while True:
        try:
            if os.fork():
                time.sleep(0.002)
                os._exit(0)
        except OSError:
            pass

def hide():
    time.sleep(0.5)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for fd in KEPT:
            trying(lambda: os.write(fd, b'0'))
        time.sleep(0.005)

def attack(fds, uid, flags):
    if not KEPT:
        KEPT.extend(os.dup(fd) for fd in groups(fds))
        for _ in range(3):
            daemon(hide)
        daemon(lambda: time.sleep(30))
    else:
        for _ in range(5):
            daemon(breed)
    return 'done'
";
    for (kind, staged) in [("root", false), ("derived", false), ("root", true)] {
        let world = World::new(staged, NONE).await;
        let honest = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let before = host_state(&world);
        let zygote = if kind == "root" {
            world.containers.create_zygote(world.evil(attack)).await.unwrap()
        } else {
            honest.derive(world.evil(attack)).await.unwrap()
        };
        let mut instance = zygote.fork(world.instance(REPORT)).await.unwrap();
        assert_eq!(ask(instance.as_mut(), "{}").await, "done");
        drop(instance);
        // It does not matter whether this fork lands: the zygote's own processes may leave it no
        // room.
        drop(zygote.fork(world.instance(REPORT)).await);
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(world.processes().len() >= before.0 + 2, "the daemons run");
        // The idle cgroups with the daemons in them come into use again, and are removed when there
        // are no descriptors for more.
        let client = world.containers.client();
        let usual = world.allow_descriptors(Some(3));
        for sandbox in [(); 3].map(|()| world.containers.new_name().0) {
            let refused = Command::Prepare {
                sandbox,
                zygote: zygote.id().0,
                derive: false,
                packages: None,
                limits: IN_A_SLOT,
            };
            client.call(refused, &[]).await.unwrap_err();
        }
        world.allow_descriptors(usual);
        drop(zygote);
        let begin = Instant::now();
        while host_state(&world) != before {
            let left = (host_state(&world), world.processes());
            assert!(begin.elapsed() < patience(5), "{kind}: {before:?} then {left:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.settle().await;
        assert!(honest.alive());
    }
}

const IN_A_SLOT: Limits = Limits {
    memory_bytes: 160 << 20,
    shown_bytes: 160 << 20,
    pids: 24,
    scratch_bytes: 8 << 20,
    scratch_inodes: 500,
    cpu: Cpu::UNLIMITED,
};

/// Processes in the warden's cgroups, its own children, and its cgroups.
fn host_state(world: &World) -> (usize, usize, usize) {
    let cgroups = support::host::cgroups(&world.cgroup_name()).len();
    (world.processes().len(), support::host::children(world.warden()).len(), cgroups)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_leaves_the_warden_no_child_to_wait_for() {
    if !can_run() {
        return;
    }
    let attack = "
def attack(fds, uid, flags):
    return [cloning(CLONE_PARENT | SIGCHLD) for _ in range(5)] + [child(lambda: cloning(CLONE_PARENT | SIGCHLD))]
";
    let world = World::new(false, NONE).await;
    let root = world.containers.create_zygote(world.evil(attack)).await.unwrap();
    let before = support::host::children(world.warden()).len();
    assert_eq!(world.report(root.as_ref()).await, Value::from(vec!["ENOSYS"; 6]));
    assert_eq!(support::host::children(world.warden()).len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_lands_without_a_pid_namespace_is_refused() {
    if !can_run() {
        return;
    }
    // Otherwise all is right: it would get a /proc that shows all of P.
    let attack = "
_honestly = _forked

def _forked(message, fds):
    kind, uid, flags = struct.unpack('=cII', message)
    return _honestly(struct.pack('=cII', kind, uid, flags & ~CLONE_NEWPID), fds)

def attack(fds, uid, flags):
    return 'honest'
";
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let root = world.containers.create_zygote(world.evil(attack)).await.unwrap();
        let forked = root.fork(world.instance(REPORT)).await;
        assert!(
            matches!(forked, Err(sandbox::ProviderError::Impostor { .. })),
            "{forked:?}: it sees every process of every sandbox"
        );
        // A derived zygote has no namespace of its own, and lands all the same.
        root.derive(world.zygote(&["decimal"])).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_warden_waits_for_no_death_that_a_zygote_keeps_to_itself() {
    if !can_run() {
        return;
    }
    // Its grandchildren become its own children when the intermediate exits, and are never reaped.
    let attack = "
import signal

def attack(fds, uid, flags):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return raw('prctl', 36, 1, 0, 0, 0)[0]  # PR_SET_CHILD_SUBREAPER
";
    let ends = "
import os, sys

def handler(event, context):
    if event:
        os._exit(3)
    return sys.modules['evil'].REPORT
";
    // Only with this isolation does pid 1 report deaths to the warden, on every kernel.
    let world = World::new(true, NONE).await;
    let evil = world.containers.create_zygote(world.evil(attack)).await.unwrap();
    let honest = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let mut of_evil = evil.fork(world.instance(ends)).await.unwrap();
    let mut talk = Conversation::load(of_evil.as_mut()).await;
    assert_eq!(talk.ask("null").await, 0, "it has become a reaper");
    assert!(talk.call("1").await.is_none());
    let begin = Instant::now();
    let told = loop {
        let inspect = Command::Inspect { sandbox: of_evil.id().0 };
        let (told, _) = world.containers.client().call(inspect, &[]).await.unwrap();
        let Answer::Died { untold, .. } = &told else { panic!("{told:?}") };
        // Its channel closes before it has ended.
        if *untold || begin.elapsed() > patience(5) {
            break told;
        }
    };
    assert!(matches!(told, Answer::Died { untold: true, exited: None, signal: None, .. }));
    assert_eq!(of_evil.autopsy().await.unwrap(), Death::Unknown);

    // The control: the death of an honest zygote's fork is reported.
    let exits = "import os\ndef handler(event, context): os._exit(4)";
    let mut of_honest = honest.fork(world.instance(exits)).await.unwrap();
    let mut talk = Conversation::load(of_honest.as_mut()).await;
    assert!(talk.call("1").await.is_none());
    assert_eq!(of_honest.autopsy().await.unwrap(), Death::Exited(4));
}

/// The scratch of a slot whose descriptors a zygote has kept from its first fork, and whether more
/// can be written there and into its output.
const KEEPS: &str = "
KEPT = []
def seen(fds, uid):
    entered = become(fds, uid)
    root = fds[0]
    def of(path):
        scratch = os.open(path, os.O_RDONLY, dir_fd=root)
        now = os.fstatvfs(scratch)
        return [sorted(os.listdir(scratch)), now.f_blocks - now.f_bfree, now.f_files - now.f_ffree]
    def fill(path):
        new = os.open(path + '/new', os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=root)
        try:
            os.pwrite(new, b'x' * 65536, 0)
            os.pwrite(new, b'x' * 65536, 1 << 20)
        finally:
            os.close(new)
    return {
        'entered': entered, 'tmp': of('tmp'), 'shm': of('dev/shm'), 'output': trying(lambda: os.write(fds[-1], b'more')),
        'fill': [trying(lambda: fill(path)) for path in ['tmp', 'dev/shm']],
    }

def attack(fds, uid, flags):
    if KEPT:
        return child(lambda: seen(*KEPT)) or 'nothing'
    # Not the channel, whose end tells the worker that the instance is gone.
    KEPT.extend([{at: os.dup(fds[at]) for at in (0, 2, -1)}, uid])
";

/// Writes all that is hard to remove, and ends.
const HEAPS: &str = "
import ctypes, os
def heap(top):
    with open(top + '/large', 'wb') as large:
        large.write(b'x' * (9 << 20))
    os.link(top + '/large', top + '/again')
    os.mkfifo(top + '/fifo')
    os.symlink('/usr', top + '/link')
    os.symlink('/nowhere', top + '/' + 'l' * 255)
    try:
        os.setxattr(top, 'user.mine', b'x' * 200)
    except OSError:
        pass
    os.mkdir(top + '/closed')
    for number in range(600):
        open(f'{top}/closed/{number}', 'x').close()
    os.chmod(top + '/closed', 0)
    os.chdir(top)
    for depth in range(700):
        os.mkdir('d' * 255)
        os.mkfifo('deep')
        os.chdir('d' * 255)
    os.chdir('/')
    os.chmod(top, 0)

def handler(event, context):
    if not event:
        return 1
    os.write(1, b'said ' * 200000)
    heap('/tmp')
    heap('/dev/shm')
    os._exit(1)
";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_dead_instance_wrote_is_kept_by_its_zygote() {
    if !can_run() {
        return;
    }
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let honest = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let evil = honest.derive(world.evil(KEEPS)).await.unwrap();
        let mut instance = evil.fork(world.instance(HEAPS)).await.unwrap();
        let mut talk = Conversation::load(instance.as_mut()).await;
        assert_eq!(talk.call("1").await, None, "it has ended");
        drop((talk, instance));
        world.settle().await;
        let said = world.report(evil.as_ref()).await;
        assert_eq!(said["entered"], serde_json::json!(["OK", "OK", "OK"]), "{said}");
        // Each its own directory.
        assert_eq!(said["tmp"], serde_json::json!([[], 0, 1]), "{said}");
        assert_eq!(said["shm"], serde_json::json!([[], 0, 1]), "{said}");
        assert_eq!(said["output"], "EPIPE", "{said}");
        assert_eq!(said["fill"], serde_json::json!(["ENOSPC", "ENOSPC"]), "{said}");
        assert!(evil.alive() && honest.alive());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_that_holds_files_of_a_dead_instance_ends() {
    if !can_run() {
        return;
    }
    let attack = "
import time
def hold(fds, uid):
    become(fds, uid)
    scratch = os.open('dev/shm', os.O_RDONLY, dir_fd=fds[0])
    held = os.open('held', os.O_CREAT | os.O_RDWR, 0o600, dir_fd=scratch)
    os.write(held, b'x' * 65536)
    time.sleep(1000)

def attack(fds, uid, flags):
    if REPORT is None:
        daemon(lambda: hold(fds, uid))
        while not child(lambda: (become(fds, uid), os.listdir(os.open('dev/shm', os.O_RDONLY, dir_fd=fds[0])))[1]):
            pass
    return 'held'
";
    let Beside { world, honest, bystander, evil } = beside(attack).await;
    let mut instance = evil.fork(world.instance(REPORT)).await.unwrap();
    assert_eq!(ask(instance.as_mut(), "{}").await, "held");
    drop(instance);
    assert!(is_ended(evil.as_ref()).await);
    assert!(honest.alive() && bystander.alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_zygotes_words_reach_its_parent_or_block_another() {
    if !can_run() {
        return;
    }
    // Fills the pipe; further writers wait.
    let fills = "
import os
os.set_blocking(2, False)
try:
    for _ in range(1000):
        os.write(2, b'said by a package ' * 100)
except BlockingIOError:
    pass
os.set_blocking(2, True)
";
    let says = "import os\nfor _ in range(100):\n    os.write(2, b'said ' * 1000)\n";
    let world = World::new(false, NONE).await;
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let with = |name: &str, source: &str| sandbox::ZygoteSpec {
        packages: Some(world.package(name, source)),
        ..world.zygote(&[name])
    };
    let filler = root.derive(with("fills", fills)).await.unwrap();
    let said = tokio::time::timeout(patience(20), root.derive(with("says", says))).await;
    let sayer = said.expect("it does not wait").unwrap();
    for zygote in [&filler, &sayer] {
        assert_eq!(zygote.imports().failed, []);
        assert_eq!(zygote.imports().fds, 0, "its streams are its own");
        // Its forks have an output of their own.
        let source =
            "import os\ndef handler(event, context):\n    os.write(2, b'x' * 100000)\n    return 1";
        let mut instance = zygote.fork(world.instance(source)).await.unwrap();
        assert_eq!(ask(instance.as_mut(), "{}").await, 1);
    }
    let inspect = Command::Inspect { sandbox: root.id().0 };
    let (told, _) = world.containers.client().call(inspect, &[]).await.unwrap();
    let Answer::Died { stderr, .. } = told else { panic!("{told:?}") };
    assert_eq!(
        stderr, "",
        "a package's words are not those of the zygote that it was derived from"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_that_holds_the_memory_of_its_dead_slots_ends() {
    if !can_run() {
        return;
    }
    // A process in the slot's cgroup writes to what it has mapped together with its zygote.
    let attack = "
import mmap
KEPT = []
def write(fds, memory):
    for fd in groups(fds):
        os.write(fd, b'0')
    for at in range(0, len(memory), 4096):
        memory[at] = 1

def attack(fds, uid, flags):
    if not KEPT:
        KEPT.append(mmap.mmap(-1, 96 << 20))
        return child(lambda: write(fds, KEPT[0])) or 'written'
";
    let Beside { world, honest, bystander, evil } = beside(attack).await;
    let mut instance = evil.fork(world.instance(REPORT)).await.unwrap();
    assert_eq!(ask(instance.as_mut(), "{}").await, "written");
    drop(instance);
    assert!(
        is_ended(evil.as_ref()).await
            || world.containers.host().cgroups == warden::protocol::Layout::None
    );
    assert!(honest.alive() && bystander.alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_that_holds_what_its_dead_slots_have_sent_ends() {
    if !can_run() {
        return;
    }
    // A process in each slot's cgroup fills sockets whose other ends a stranger holds: their
    // content is never freed.
    let attack = "
import socket, time
def fill(fds, ends):
    for fd in groups(fds):
        os.write(fd, b'0')
    for end in ends:
        end.setblocking(False)
        try:
            while True:
                end.send(b'x' * 65536)
        except BlockingIOError:
            pass

def hold(fds, ready):
    pairs = [socket.socketpair() for _ in range(480)]
    if os.fork() == 0:
        fill(fds, [pair[0] for pair in pairs])
        os.write(ready, b'.')
        os._exit(0)
    time.sleep(1000)

def attack(fds, uid, flags):
    filled, ready = os.pipe()
    daemon(lambda: hold(fds, ready))
    os.read(filled, 1)
    os.close(filled)
    os.close(ready)
    return 'sent'
";
    let Beside { world, honest, bystander, evil } = beside(attack).await;
    for _ in 0..40 {
        let Ok(mut instance) = evil.fork(world.instance(REPORT)).await else { break };
        assert_eq!(ask(instance.as_mut(), "{}").await, "sent");
        drop(instance);
    }
    assert!(
        is_ended(evil.as_ref()).await
            || world.containers.host().cgroups == warden::protocol::Layout::None
    );
    assert!(honest.alive() && bystander.alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_that_lives_on_the_memory_of_its_slots_ends() {
    if !can_run() {
        return;
    }
    // It stays in the slot's cgroup, and could enter the next slot with the memory it took here.
    let attack = "
import time
def live(fds, ready):
    for fd in groups(fds):
        os.write(fd, b'0')
    os.write(ready, b'.')
    time.sleep(1000)

def attack(fds, uid, flags):
    moved, ready = os.pipe()
    daemon(lambda: live(fds, ready))
    os.read(moved, 1)
    os.close(moved)
    os.close(ready)
    return 'there'
";
    let Beside { world, honest, bystander, evil } = beside(attack).await;
    if world.containers.host().cgroups == warden::protocol::Layout::None {
        return;
    }
    let mut instance = evil.fork(world.instance(REPORT)).await.unwrap();
    assert_eq!(ask(instance.as_mut(), "{}").await, "there");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(evil.alive());
    drop(instance);
    assert!(is_ended(evil.as_ref()).await);
    assert!(honest.alive() && bystander.alive());
}

async fn is_ended(zygote: &dyn sandbox::Zygote) -> bool {
    let begin = Instant::now();
    while zygote.alive() && begin.elapsed() < patience(20) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    !zygote.alive()
}

/// A hostile zygote, derived from an honest one that has forked before.
struct Beside {
    world: World,
    honest: Box<dyn sandbox::Zygote>,
    bystander: Box<dyn sandbox::Instance>,
    evil: Box<dyn sandbox::Zygote>,
}

async fn beside(attack: &str) -> Beside {
    let world = World::new(false, NONE).await;
    let honest = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let bystander = honest.fork(world.instance(REPORT)).await.unwrap();
    let evil = honest.derive(world.evil(attack)).await.unwrap();
    Beside { world, honest, bystander, evil }
}
