//! A malicious handler: code in an instance tries to escape, or to reach its neighbours.

mod support;

use sandbox::{Instance, Provider, Zygote};
use serde_json::Value;
use support::{Conversation, NONE, World, ask, can_run};

const FORKED: &[&str] = &["root", "derived"];
const ALL: &[&str] = &["root", "derived", "fresh"];

/// An instance of `world`, made in the named way, with the zygotes that it needs.
async fn made(world: &World, way: &str, source: &str) -> (Box<dyn Instance>, Vec<Box<dyn Zygote>>) {
    let spec = world.attacker(source);
    if way == "fresh" {
        return (world.containers.create_instance(spec).await.unwrap(), vec![]);
    }
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    if way == "root" {
        return (root.fork(spec).await.unwrap(), vec![root]);
    }
    let derived = root.derive(world.zygote(&["decimal"])).await.unwrap();
    (derived.fork(spec).await.unwrap(), vec![root, derived])
}

/// A handler's answer, for every way of building roots and of making an instance.
async fn everywhere(ways: &[&str], source: &str, check: impl Fn(&str, &Value)) {
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        for way in ways {
            let (mut instance, _zygotes) = made(&world, way, source).await;
            let said = ask(instance.as_mut(), "{}").await;
            check(way, &said);
        }
    }
}

/// Asserts that all of a report's results are one of `expected`.
fn all(report: &Value, expected: &[&str]) {
    let wrong: Vec<_> = report
        .as_object()
        .unwrap_or_else(|| panic!("{report}"))
        .iter()
        .filter(|(_, result)| !expected.contains(&result.as_str().unwrap_or("?")))
        .collect();
    assert!(wrong.is_empty(), "not {expected:?}: {wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_gets_no_system_call_that_leads_out() {
    if !can_run() {
        return;
    }
    let source = "
def handler(event, context):
    self = raw('pidfd_open', os.getpid(), 0)[0]
    return {
        'refused': refused(),
        'allowed': allowed(),
        'zygotes': {
            'unshare user': attempt('unshare', CLONE_NEWUSER),
            'unshare pid': attempt('unshare', CLONE_NEWPID),
            'unshare mount': attempt('unshare', CLONE_NEWNS),
            'unshare nothing': attempt('unshare', 0),
            'setns user': attempt('setns', self, CLONE_NEWUSER),
            'setns all': attempt('setns', self, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET),
            'chroot': attempt('chroot', ctypes.c_char_p(b'/')),
        },
        'compatible': child(compatibility_call) if 'x32' in NR else 'died',
        'capabilities': capabilities(),
    }
";
    everywhere(ALL, source, |way, said| {
        all(&said["refused"], &["ENOSYS"]);
        all(&said["allowed"], &["OK"]);
        all(&said["zygotes"], if way == "fresh" { &["ENOSYS"] } else { &["EPERM"] });
        assert_eq!(said["compatible"], "died");
        assert_eq!(said["capabilities"], 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_sees_and_changes_no_file_but_its_own() {
    if !can_run() {
        return;
    }
    let source = "
import stat
def making(path):
    return trying(lambda: open(path, 'w'))

def handler(event, context):
    up, root = os.stat('/../../../..'), os.stat('/')
    device = trying(lambda: os.mknod('/tmp/memory', 0o666 | stat.S_IFCHR, os.makedev(1, 1)))
    world_writable = []
    for top in ['/usr', '/etc', '/opt', '/var', '/dev']:
        for dir, dirs, files in os.walk(top):
            if dir.startswith('/dev/shm'):
                continue
            world_writable += [f'{dir}/{n}' for n in dirs if n != 'shm' and not os.path.islink(f'{dir}/{n}') and os.access(f'{dir}/{n}', os.W_OK)]
    return {
        'root': sorted(os.listdir('/')),
        'host': os.path.exists('/etc/shadow') or os.path.exists('/../../../../etc/shadow'),
        'up': (up.st_ino, up.st_dev) == (root.st_ino, root.st_dev),
        'refused': {
            name: making(f'{name}/new')
            for name in ['/', '/usr', '/etc', '/var/task', '/opt/lambswool', '/opt/lambswool/lambswool_guest', '/dev', '/proc']
        },
        'changed': {
            'code': trying(lambda: os.chmod('/var/task/handler.py', 0o777)),
            'interpreter': trying(lambda: open('/usr/bin/python3', 'r+b')),
            'remove': trying(lambda: os.unlink('/var/task/handler.py')),
            'node': trying(lambda: os.chmod('/dev/null', 0o600)),
        },
        'device': device,
        'mem': os.path.exists('/dev/mem') or os.path.exists('/dev/kmsg'),
        'set-uid': [f for f in os.listdir('/usr/bin') if os.stat(f'/usr/bin/{f}').st_mode & 0o6000],
        'writable': world_writable,
        'code': open('/var/task/handler.py').read()[:4],
        'null': trying(lambda: open('/dev/null', 'r+b').write(b'x')),
        'full': trying(lambda: os.write(os.open('/dev/full', os.O_WRONLY), b'x')),
    }
";
    everywhere(ALL, source, |_, said| {
        let root: Vec<_> =
            said["root"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        for name in &root {
            assert!(
                [
                    "bin", "dev", "etc", "lib", "lib64", "home", "opt", "proc", "root", "run",
                    "sbin", "sys", "tmp", "usr", "var"
                ]
                .contains(name),
                "{root:?}"
            );
        }
        assert_eq!(said["host"], false);
        assert_eq!(said["up"], true);
        all(&said["refused"], &["EROFS", "EACCES", "ENOENT"]);
        all(&said["changed"], &["EROFS", "EACCES", "EPERM"]);
        assert_eq!(said["device"], "EPERM");
        assert_eq!(said["mem"], false);
        assert_eq!(said["set-uid"], Value::Array(vec![]));
        assert_eq!(said["writable"], Value::Array(vec![]));
        assert_eq!(said["code"], "NR =");
        assert_eq!(said["null"], "OK");
        assert_eq!(said["full"], "ENOSPC");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_holds_no_descriptor_and_no_variable_of_anybody_elses() {
    if !can_run() {
        return;
    }
    let source = "
import stat
def handler(event, context):
    fds = {}
    for fd in range(1024):
        try:
            found = os.fstat(fd)
        except OSError:
            continue
        kind = 'socket' if stat.S_ISSOCK(found.st_mode) else 'pipe' if stat.S_ISFIFO(found.st_mode) else 'other'
        null = stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(1, 3)
        fds[str(fd)] = ['null' if null else kind, found.st_uid == os.getuid(), found.st_nlink]
    return {
        'fds': fds,
        'same': len({(os.fstat(fd).st_dev, os.fstat(fd).st_ino) for fd in (1, 2)}),
        'environ': sorted(os.environ),
        'ids': [os.getresuid(), os.getresgid(), os.getgroups()],
        'scratch': os.stat('/tmp').st_uid == os.getuid(),
    }
";
    everywhere(ALL, source, |_, said| {
        let fds = said["fds"].as_object().unwrap();
        assert_eq!(fds.keys().collect::<Vec<_>>(), ["0", "1", "2", "3"], "{fds:?}");
        assert_eq!(fds["0"][0], "null");
        assert_eq!(fds["3"][0], "socket");
        assert_eq!(said["same"], 1);
        assert_eq!(fds["1"], serde_json::json!(["pipe", true, 1]));
        for name in said["environ"].as_array().unwrap() {
            let name = name.as_str().unwrap();
            let known = ["PATH", "PYTHONPATH", "LANG", "HOME", "TMPDIR", "_HANDLER"]
                .contains(&name)
                || name.ends_with("_NUM_THREADS")
                || name.starts_with("AWS_LAMBDA_FUNCTION_")
                || name == "LAMBDA_TASK_ROOT"
                || name == "_X_AMZN_TRACE_ID"
                || name == "LC_CTYPE";
            assert!(known, "{name}");
        }
        assert_eq!(said["ids"][2], Value::Array(vec![]), "supplementary groups");
        assert_eq!(said["scratch"], true);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_cannot_reach_the_warden_through_its_own_channel() {
    if !can_run() {
        return;
    }
    // The warden made the channel: its peer's pidfd (SO_PEERPIDFD) names the warden.
    let source = "
import socket
def handler(event, context):
    channel = socket.socket(fileno=os.dup(3))
    try:
        pidfd = channel.getsockopt(socket.SOL_SOCKET, 77)
    except OSError as error:
        return {'none': errno.errorcode[error.errno]}
    said = {'signal': attempt('pidfd_send_signal', pidfd, 9, None, 0), 'probe': attempt('pidfd_send_signal', pidfd, 0, None, 0)}
    for number in range(1, 11):
        said[f'namespace {number}'] = attempt('ioctl', pidfd, 0xff00 + number, 0)
    said['setns'] = attempt('setns', pidfd, CLONE_NEWNS)
    said['getfd'] = attempt('pidfd_getfd', pidfd, 0, 0)
    return said
";
    everywhere(FORKED, source, |_, said| {
        // EINVAL: not a process of the caller's PID namespace or below.
        let denied = ["EINVAL", "EPERM", "EACCES", "ENOSYS", "ESRCH", "EOPNOTSUPP", "ENOPROTOOPT"];
        all(said, &denied);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn siblings_neither_see_nor_signal_nor_connect_to_each_other() {
    if !can_run() {
        return;
    }
    let source = "
import subprocess
def handler(event, context):
    if event == 'listen':
        return [abstract('name', listen=True), abstract('name')]
    return {
        'connect': abstract('name'),
        'loopback': trying(lambda: __import__('socket').create_connection(('127.0.0.1', 80), 1)),
        'datagram': trying(lambda: __import__('socket').socket(2, 2).sendto(b'x', ('127.0.0.1', 53))),
        'kill': [pid for pid in range(2, 300) if trying(lambda: os.kill(pid, 0)) == 'OK'],
        'all': child(lambda: (os.setsid(), trying(lambda: os.kill(-1, 9)))[1]),
        'proc': sorted(n for n in os.listdir('/proc') if n.isdigit()),
        'proc others': sorted(n for n in os.listdir('/proc') if not n.isdigit()),
    }
";
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let derived = root.derive(world.zygote(&["decimal"])).await.unwrap();
        for (one, other) in
            [(&root, &root), (&derived, &derived), (&root, &derived), (&derived, &root)]
        {
            let mut listener = one.fork(world.attacker(source)).await.unwrap();
            let mut heard = Conversation::load(listener.as_mut()).await;
            // The control: it can connect to itself.
            assert_eq!(heard.ask("\"listen\"").await, world.own_abstract_socket());
            let mut sibling = other.fork(world.attacker(source)).await.unwrap();
            let mut talk = Conversation::load(sibling.as_mut()).await;
            let said = talk.ask("{}").await;
            let scopes = world.containers.host().scopes;
            let refused = if scopes { ["EPERM", "ECONNREFUSED"] } else { ["ENOSYS"; 2] };
            assert!(refused.contains(&said["connect"].as_str().unwrap()), "{said}");
            assert!(
                ["EACCES", "ENETUNREACH"].contains(&said["loopback"].as_str().unwrap()),
                "{said}"
            );
            assert_eq!(said["datagram"], "ENETUNREACH");
            assert_eq!(said["kill"], Value::Array(vec![]));
            // kill(-1) spares the caller, and pid 1 of its namespace.
            assert_eq!(said["all"], "ESRCH");
            let seen = said["proc"].as_array().unwrap();
            if world.containers.host().proc {
                assert_eq!(seen, &[Value::from("1")]);
                assert_eq!(said["proc others"], serde_json::json!(["self", "thread-self"]));
            } else {
                assert!(seen.is_empty());
            }
            assert_eq!(
                heard.ask("\"listen\"").await[0],
                if scopes { "EADDRINUSE" } else { "ENOSYS" },
                "it still lives and listens"
            );
            assert!(root.alive() && derived.alive() && listener.alive());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sandboxes_share_nothing_but_locks_of_shared_files() {
    if !can_run() {
        return;
    }
    let source = "
import fcntl
KEPT = open('/usr/bin/python3', 'rb')
def handler(event, context):
    return {
        'flock': trying(lambda: fcntl.flock(KEPT, fcntl.LOCK_EX | fcntl.LOCK_NB)),
        'inotify': attempt('inotify_init1', 0),
        'lease': trying(lambda: fcntl.fcntl(KEPT, fcntl.F_SETLEASE, fcntl.F_WRLCK)),
        'notify': trying(lambda: fcntl.fcntl(os.open('/usr/bin', os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS)),
    }
";
    let world = World::new(false, NONE).await;
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let mut one = root.fork(world.attacker(source)).await.unwrap();
    let mut other = root.fork(world.attacker(source)).await.unwrap();
    let mut one = Conversation::load(one.as_mut()).await;
    let mut other = Conversation::load(other.as_mut()).await;
    let (first, second) = (one.ask("{}").await, other.ask("{}").await);
    // flock needs no write permission: a known channel between sandboxes (SECURITY.md), not a
    // wanted one.
    assert_eq!((&first["flock"], &second["flock"]), (&"OK".into(), &"EAGAIN".into()));
    for said in [&first, &second] {
        assert_eq!(said["inotify"], "ENOSYS");
        assert_ne!(said["lease"], "OK");
        // dnotify is inotify's older sister, by fcntl.
        assert_ne!(said["notify"], "OK");
    }
}
