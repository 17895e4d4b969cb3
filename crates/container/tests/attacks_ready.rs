//! False READYs: what a malicious zygote answers in a slot's name, and what it sends to the worker
//! with it.
//!
//! These tests count the worker's own descriptors, so they run one at a time.

mod support;

use std::time::Duration;

use sandbox::{Provider, ProviderError};
use support::attack::REPORT;
use support::host::own_descriptors;
use support::{Conversation, NONE, World, can_run, patience};
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

#[derive(Debug, PartialEq, Clone, Copy)]
enum Seen {
    Lost,
    Impostor,
}
use Seen::{Impostor, Lost};

fn seen(error: &ProviderError) -> Seen {
    match error {
        ProviderError::ZygoteLost { .. } => Lost,
        ProviderError::Impostor { .. } => Impostor,
        other => panic!("{other:?}"),
    }
}

/// An instance's slot. In each attack everything is right except for the named detail.
const INSTANCES: &[(&str, Seen, &str)] = &[
    ("the zygote itself answers", Impostor, "say_ready(fds[1])"),
    ("a plain fork answers", Impostor, "child(lambda: say_ready(fds[1]))"),
    (
        "a child in the slot's user namespace that keeps the zygote's id",
        Impostor,
        "daemon(lambda: (attempt('setns', fds[2], CLONE_NEWUSER), say_ready(fds[1]), time.sleep(1)))",
    ),
    (
        "right id, outside the slot's cgroups",
        Impostor,
        "landed(fds, uid, lambda: (say_ready(fds[1]), time.sleep(1)), cgroups=False)",
    ),
    (
        "right id, in all cgroups but one",
        Impostor,
        "landed([*fds[:3], *groups(fds)[:-1]], uid, lambda: (say_ready(fds[1]), time.sleep(1)))",
    ),
    (
        "right id and cgroups, no pid namespace",
        Impostor,
        "landed(fds, uid, lambda: (say_ready(fds[1]), time.sleep(1)), new_pid=False)",
    ),
    ("the zygote names the slot's id as its own", Lost, "forged(fds[1], os.getpid(), 0x70000001)"),
    (
        "a child names another process as the sender",
        Lost,
        "child(lambda: (become(fds, uid), forged(fds[1], os.getppid(), uid)))",
    ),
    (
        "a child names pid 1 as the sender",
        Lost,
        "child(lambda: (become(fds, uid), forged(fds[1], 1, uid)))",
    ),
    ("no process answers", Lost, "None"),
    ("no frame", Lost, "landed(fds, uid, lambda: (send(fds[1], b'hello'), time.sleep(1)))"),
    ("noise", Lost, "landed(fds, uid, lambda: (send(fds[1], os.urandom(1000)), time.sleep(1)))"),
    (
        "more than fits",
        Lost,
        "landed(fds, uid, lambda: (send(fds[1], b'{' * 100000), time.sleep(1)))",
    ),
    (
        "a frame that claims four gigabytes",
        Lost,
        "landed(fds, uid, lambda: (send(fds[1], b'\\xff' * 8 + b'{}'), time.sleep(1)))",
    ),
    (
        "a frame that is cut",
        Lost,
        "landed(fds, uid, lambda: (send(fds[1], b'\\x20\\0\\0\\0\\0\\0\\0\\0{'), time.sleep(1)))",
    ),
    (
        "READY and more",
        Lost,
        "landed(fds, uid, lambda: (say_ready(fds[1], b'more'), time.sleep(1)))",
    ),
    (
        "another kind",
        Lost,
        "landed(fds, uid, lambda: (frame(fds[1], {'kind': 'loaded', 'milliseconds': 0}), time.sleep(1)))",
    ),
    ("no kind", Lost, "landed(fds, uid, lambda: (frame(fds[1], [1, 2, 3]), time.sleep(1)))"),
];

/// A derived zygote's slot.
const ZYGOTES: &[(&str, Seen, &str)] = &[
    ("the zygote itself answers", Impostor, "send(fds[1], b'{\"kind\": \"ready\", \"pid\": 1}')"),
    (
        "right id, outside the slot's cgroups",
        Impostor,
        "landed(fds, uid, lambda: (send(fds[1], b'{\"kind\": \"ready\", \"pid\": 1}'), time.sleep(1)), cgroups=False, new_pid=False)",
    ),
    ("noise", Lost, "send(fds[1], os.urandom(900))"),
    ("an empty packet", Lost, "send(fds[1], b'')"),
    ("a huge packet", Lost, "send(fds[1], b'{' * 100000)"),
    ("no process answers", Lost, "None"),
];

const MEANS: &str = "
import time, struct
LANDS = False
def frame(channel, header):
    header = json.dumps(header).encode()
    send(channel, struct.pack('<II', len(header), 0) + header)

def forged(channel, pid, uid):
    import socket
    credentials = struct.pack('iII', pid, uid, uid)
    said = say_ready(channel, ancillary=[(socket.SOL_SOCKET, 2, credentials)])
    assert said == 'EPERM', said
";

#[tokio::test(flavor = "multi_thread")]
async fn only_the_slots_own_child_is_accepted() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    let world = World::new(false, NONE).await;
    let honest = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    // The control: the same means, used rightly, do land.
    let rightly = format!(
        "{MEANS}\ndef attack(fds, uid, flags):\n    landed(fds, uid, lambda: (say_ready(fds[1]), time.sleep(1)))\n"
    );
    let zygote = world.containers.create_zygote(world.evil(&rightly)).await.unwrap();
    zygote.fork(world.instance(REPORT)).await.unwrap();
    drop(zygote);

    for (derive, attacks) in [(false, INSTANCES), (true, ZYGOTES)] {
        for (name, expected, attack) in attacks {
            world.settle().await;
            let before = own_descriptors();
            let source = format!("{MEANS}\ndef attack(fds, uid, flags):\n    {attack}\n");
            let zygote = world.containers.create_zygote(world.evil(&source)).await.unwrap();
            let error = if derive {
                zygote.derive(world.zygote(&["decimal"])).await.err()
            } else {
                zygote.fork(world.instance(REPORT)).await.err()
            };
            let error = error.unwrap_or_else(|| panic!("{name}: believed"));
            assert_eq!(seen(&error), *expected, "{name}: {error}");
            drop(zygote);
            world.settle().await;
            assert_eq!(own_descriptors(), before, "{name}: descriptors");
        }
    }
    assert_eq!(world.processes().len(), 1, "{:?}", world.processes());
    assert!(honest.alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slots_child_is_not_taken_for_another_slots() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    // The first fork's child stays; the second fork gets the READY of the first one's child.
    let attack = format!(
        "{MEANS}
FIRST = []
def attack(fds, uid, flags):
    if not FIRST:
        FIRST.extend(os.dup(fd) for fd in fds)
    else:
        landed([FIRST[0], fds[1], *FIRST[2:]], uid, lambda: (say_ready(fds[1]), time.sleep(1)))
"
    );
    let world = World::new(false, NONE).await;
    let zygote = world.containers.create_zygote(world.evil(&attack)).await.unwrap();
    let zygote = std::sync::Arc::new(zygote);
    let (first, spec) = (std::sync::Arc::clone(&zygote), world.instance(REPORT));
    let waiting = tokio::spawn(async move { first.fork(spec).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let error = zygote.fork(world.instance(REPORT)).await.unwrap_err();
    assert_eq!(seen(&error), Impostor, "{error}");
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptors_that_are_pushed_at_the_worker_are_closed() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    // Sent with READY, or with every frame after it. Otherwise the child speaks the protocol.
    let attack = format!(
        "{MEANS}
import array, socket
def rights(count):
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * count))]

def serve(channel, count):
    say_ready(channel, ancillary=rights(count) if WITH_READY else [])
    end = socket.socket(fileno=os.dup(channel))
    while end.recv(65536):
        header = json.dumps({{'kind': 'loaded', 'milliseconds': 0.0}}).encode()
        end.sendmsg([struct.pack('<II', len(header), 0) + header], rights(count))

def attack(fds, uid, flags):
    landed(fds, uid, lambda: serve(fds[1], COUNT))
"
    );
    let world = World::new(false, NONE).await;
    for (count, with_ready) in [1, 16, 40, 250].into_iter().flat_map(|n| [(n, true), (n, false)]) {
        let source = attack.replace("COUNT", &count.to_string());
        let source = source.replace("WITH_READY", if with_ready { "True" } else { "False" });
        let before = own_descriptors();
        let zygote = world.containers.create_zygote(world.evil(&source)).await.unwrap();
        let with_zygote = own_descriptors();
        let forked = zygote.fork(world.instance(REPORT)).await;
        if with_ready {
            assert_eq!(seen(&forked.unwrap_err()), Impostor, "{count}");
        } else {
            let mut instance = forked.unwrap();
            let with_instance = own_descriptors();
            // The channel, a pidfd, its output, two files of its cgroup.
            assert!(
                with_instance <= with_zygote + 5,
                "{count}: {with_zygote} then {with_instance}"
            );
            let mut talk = Conversation::load(instance.as_mut()).await;
            for _ in 0..20 {
                talk.load_again(None).await;
            }
            assert!(
                own_descriptors() <= with_instance + 1,
                "{count}: {with_instance} then {}",
                own_descriptors()
            );
        }
        drop(zygote);
        world.settle().await;
        // An earlier test's runtime may still be closing descriptors: fewer is fine.
        let begin = std::time::Instant::now();
        while own_descriptors() > before && begin.elapsed().as_secs() < 5 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(own_descriptors() <= before, "{count}: {before} then {}", own_descriptors());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_imports_without_end_is_cut_off() {
    if !can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    let world = World::new(false, NONE).await;
    for (file, at_most) in [
        ("['m', '/m', 0.0, '', []]] * 1500", "it names more than 100000 files and variables"),
        ("['m' * 40_000, '/m', 0.0, '', []]]", "it says more than 67108864 bytes of imports"),
    ] {
        let attack = format!(
            "
_packet = json.dumps({{'kind': 'files', 'files': [{file}}}).encode()
def flood():
    while True:
        _real.send(3, _packet)
flood()
"
        );
        let begin = std::time::Instant::now();
        let error = world.containers.create_zygote(world.evil(&attack)).await.unwrap_err();
        assert_eq!(seen(&error), Lost, "{error}");
        assert!(error.to_string().contains(at_most), "{error}");
        assert!(begin.elapsed() < patience(10));
    }
    world.settle().await;
    assert_eq!(world.processes().len(), 0);
}
