//! A malicious package in a zygote: what a slot's descriptors and capabilities give it, and whom it lets land.

use container::Defence;

use crate::attack::{Attack, Who};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new(
        Who::Package,
        "have a network of its own, and every privilege there",
        "unshare(CLONE_NEWNET) in a slot's user namespace",
        &[Defence::FilterNamespaces],
        &["ENOSYS"],
        "
def own_network(fds, uid):
    become(fds, uid)
    said = attempt('unshare', CLONE_NEWNET)
    end, up = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), struct.pack('16sh14x', b'lo', 1)
    return said if said != 'OK' else attempted(lambda: (fcntl.ioctl(end, 0x8914, up), 'a loopback that is up')[1])

def attack(fds, uid, flags):
    return child(lambda: own_network(fds, uid))
",
    ),
    Attack::new(
        Who::Package,
        "have a network of its own through a child",
        "clone(CLONE_NEWNET) in a slot's user namespace",
        &[Defence::FilterNamespaces],
        &["ENOSYS"],
        "
def attack(fds, uid, flags):
    said = child(lambda: (become(fds, uid), cloning(CLONE_NEWNET | SIGCHLD))[1])
    return said if said != 'OK' else got('a child with a network')
",
    ),
    Attack::new(
        Who::Package,
        "have a network of its own by flags that no filter sees",
        "clone3(CLONE_NEWNET) in a slot's user namespace",
        &[Defence::FilterNamespaces],
        &["ENOSYS"],
        "
def hidden():
    new, error = raw('clone3', (ctypes.c_uint64 * 11)(CLONE_NEWNET, 0, 0, 0, SIGCHLD), 88)
    if new == 0:
        os._exit(0)
    return error or got('a child with a network')

def attack(fds, uid, flags):
    return child(lambda: (become(fds, uid), hidden())[1])
",
    ),
    Attack::new(
        Who::Package,
        "leave the warden a child that it never waits for",
        "clone(CLONE_PARENT)",
        &[Defence::FilterCloneParent],
        &["ENOSYS"],
        "
def attack(fds, uid, flags):
    said = cloning(CLONE_PARENT | SIGCHLD)
    return said if said != 'OK' else got('left')
",
    ),
    Attack::new(
        Who::Package,
        "walk back to the host's root",
        "unshare(CLONE_NEWNS), setns to it",
        &[Defence::FilterNamespaces, Defence::EmptyPlace],
        &["ENOSYS"],
        "
def walk(fds, uid):
    become(fds, uid)
    said = attempt('unshare', CLONE_NEWNS)
    if said == 'OK':
        said = attempt('setns', raw('pidfd_open', os.getpid(), 0)[0], CLONE_NEWNS)
    return read(HOST['canary']) if said == 'OK' else said

def attack(fds, uid, flags):
    return child(lambda: walk(fds, uid))
",
    ),
    Attack::new(
        Who::Package,
        "mount something",
        "fsopen in a mount namespace of its own",
        &[Defence::FilterNamespaces, Defence::FilterMounts],
        &["ENOSYS"],
        "
def mount(fds, uid):
    become(fds, uid)
    raw('unshare', CLONE_NEWNS)
    return taken(raw('fsopen', text('tmpfs'), 0))

def attack(fds, uid, flags):
    return child(lambda: mount(fds, uid))
",
    ),
    Attack::new(
        Who::Package,
        "make a root's layers writable",
        "mount_setattr",
        &[Defence::FilterMounts, Defence::Capabilities],
        &["ENOSYS"],
        "
def change(fds):
    writable = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
    return taken(raw('mount_setattr', fds[0], text(''), AT_EMPTY_PATH, writable, 32))

def attack(fds, uid, flags):
    return child(lambda: either(fds, uid, lambda: change(fds)))
",
    ),
    Attack::new(
        Who::Package,
        "copy a root's mounts",
        "open_tree(OPEN_TREE_CLONE)",
        // A slot's capabilities are none over the mount namespace, and the root's only ones go before the first package runs.
        &[],
        &["ENOSYS"],
        "
def own_fds():
    # On the host: what hangs nowhere, as a slot's root does.
    return [raw('open_tree', -100, text('/usr'), 1)[0]]

def attack(fds, uid, flags):
    return child(lambda: either(fds, uid, lambda: taken(raw('open_tree', fds[0], text(''), 1 | AT_EMPTY_PATH))))
",
    )
    // Before Linux 6.15 such a tree cannot be copied.
    .refused_by_host(&["EINVAL"]),
    Attack::new(
        Who::Package,
        "take another's mount namespace",
        "setns by a pidfd",
        &[
            Defence::FilterNamespaces,
            Defence::Capabilities,
            Defence::LandlockNetwork,
            Defence::LandlockScopes,
        ],
        &["ENOSYS"],
        "
def attack(fds, uid, flags):
    return child(lambda: either(fds, uid, lambda: taken(raw('setns', raw('pidfd_open', 1, 0)[0], CLONE_NEWNS))))
",
    ),
    Attack::new(
        Who::Package,
        "climb from a slot's root",
        "..",
        &[],
        &["ENOENT"],
        "
def climb(fds, uid):
    become(fds, uid)
    os.fchdir(fds[0])
    raw('chroot', text('/opt'))
    for _ in range(40):
        os.chdir('..')
    return read(HOST['canary'][1:])

def attack(fds, uid, flags):
    return child(lambda: climb(fds, uid))
",
    ),
    Attack::new(
        Who::BoundPackage,
        "climb from a root that hangs in the mount table",
        "chroot, ..",
        &[Defence::PrivateStages],
        &["EACCES", "ENOENT"],
        "
def climb(fds, uid):
    become(fds, uid)
    outside = os.open('/', os.O_RDONLY)
    raw('chroot', text('/opt'))
    os.fchdir(outside)
    for _ in range(40):
        trying(lambda: os.chdir('..'))
    return read(HOST['canary'][1:])

def attack(fds, uid, flags):
    return child(lambda: climb(fds, uid))
",
    ),
    Attack::new(
        Who::Package,
        "make a device in a slot's scratch",
        "mknod",
        &[Defence::Capabilities],
        &["EPERM"],
        "
def make(fds):
    return attempted(lambda: (os.mknod('tmp/disk', 0o60666, os.makedev(8, 0), dir_fd=fds[0]), 'a disk that no mount opens')[1])

def attack(fds, uid, flags):
    return child(lambda: either(fds, uid, lambda: make(fds)))
",
    ),
    Attack::new(
        Who::Package,
        "move a neighbour into a cgroup of its own",
        "write to cgroup.procs",
        &[Defence::CgroupCredentials],
        &["nobody"],
        "
def attack(fds, uid, flags):
    for pid in range(2, 500):
        if pid != os.getpid() and all(trying(lambda: os.write(fd, str(pid).encode())) == 'OK' for fd in groups(fds)):
            return got(f'process {pid}')
    return 'nobody'
",
    ),
    Attack::new(
        Who::Package,
        "signal another zygote",
        "kill",
        &[Defence::Capabilities, Defence::LandlockScopes],
        &["nobody"],
        "
def attack(fds, uid, flags):
    own = {os.getpid()}
    found = [pid for pid in range(1, 500) if pid not in own and trying(lambda: os.kill(pid, 0)) == 'OK']
    return got(found) if found else 'nobody'
",
    )
    .by_scopes(),
    Attack::new(
        Who::Landing,
        "answer for a child with its own uid",
        "READY by a process that kept the zygote's uid",
        &[Defence::CheckUid],
        &["impostor"],
        "
def enter(fds):
    for fd in groups(fds):
        os.write(fd, b'0')
    raw('setns', fds[2], CLONE_NEWUSER)
    raw('unshare', CLONE_NEWPID | CLONE_NEWCGROUP)
    os.fchdir(fds[0])
    raw('chroot', text('.'))
    daemon(lambda: (say_ready(fds[1]), time.sleep(2)))

def attack(fds, uid, flags):
    daemon(lambda: enter(fds))
",
    ),
    Attack::new(
        Who::SecondLanding,
        "answer for a child as its sibling",
        "READY by a process with a sibling's uid",
        &[Defence::CheckUid],
        &["impostor"],
        "
FIRST = []
def attack(fds, uid, flags):
    global LANDS
    if FIRST:
        LANDS = False
        landed([*fds[:2], FIRST[0], *groups(fds)], uid, lambda: (say_ready(fds[1]), time.sleep(2)))
    else:
        FIRST.append(os.dup(fds[2]))
",
    ),
    Attack::new(
        Who::Landing,
        "answer for a child outside of its limits",
        "READY by a process in no cgroup of the slot's",
        &[Defence::CheckCgroup],
        &["impostor"],
        "
def attack(fds, uid, flags):
    landed(fds, uid, lambda: (say_ready(fds[1]), time.sleep(2)), cgroups=False)
",
    ),
    Attack::new(
        Who::Deriving,
        "answer for a derived zygote outside of its limits",
        "READY by a zygote in no cgroup of the slot's",
        &[Defence::CheckCgroup],
        &["impostor"],
        "
def serve(channel):
    send(channel, b'{\"kind\": \"ready\", \"pid\": 1}')
    end = socket.socket(fileno=os.dup(channel))
    end.recv(65536)
    said = {'kind': 'imported', 'files': [], 'milliseconds': 0.0, 'threads': 1, 'fds': 0, 'left_by': [], 'failed': []}
    send(channel, json.dumps(said).encode())
    time.sleep(2)

def attack(fds, uid, flags):
    landed(fds, uid, lambda: serve(fds[1]), cgroups=False, new_pid=False)
",
    ),
    Attack::new(
        Who::Landing,
        "answer for a child that sees every sandbox's processes",
        "READY by a process in no PID namespace of its own",
        &[Defence::CheckPidNamespace],
        &["impostor"],
        "
def attack(fds, uid, flags):
    landed(fds, uid, lambda: (say_ready(fds[1]), time.sleep(2)), new_pid=False)
",
    ),
    Attack::new(
        Who::Landing,
        "answer for a child itself",
        "READY by the zygote",
        &[Defence::CheckUid, Defence::CheckCgroup, Defence::CheckPidNamespace],
        &["impostor"],
        "
def attack(fds, uid, flags):
    say_ready(fds[1])
",
    ),
];
