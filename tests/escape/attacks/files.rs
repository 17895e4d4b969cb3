//! After files: of the host, of layers that all share, of a neighbour's scratch.

use container::Defence;

use crate::attack::{Attack, Who};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new(
        Who::Handler,
        "change a file of a package that lets everybody",
        "write to a layer",
        &[Defence::ReadOnlyLayers],
        &["EROFS"],
        "
def attack(turn, told):
    return attempted(lambda: (os.open('/opt/python/open.txt', os.O_WRONLY), 'open for writing')[1])
",
    ),
    Attack::new(
        Who::Handler,
        "add a file to a package that lets everybody",
        "create in a layer",
        &[Defence::ReadOnlyLayers],
        &["EROFS"],
        "
def attack(turn, told):
    return attempted(lambda: (os.close(os.open('/opt/python/open/new', os.O_CREAT | os.O_WRONLY)), os.unlink('/opt/python/open/new'), 'made')[2])
",
    ),
    Attack::new(
        Who::Handler,
        "open a device that came with a package",
        "a device node in a layer",
        &[Defence::NoDevices],
        &["EACCES"],
        "
def attack(turn, told):
    return attempted(lambda: os.read(os.open('/opt/python/device', os.O_RDONLY), 4).hex())
",
    ),
    Attack::new(
        Who::Bundle,
        "have a directory of the host as a package",
        "a link among the layers",
        &[Defence::LayersBeneath],
        &["ELOOP"],
        "
def attack(turn, told):
    return read('/opt/python/canary')
",
    ),
    Attack::new(
        Who::Handler,
        "climb out of the root",
        "..",
        &[],
        &["ENOENT"],
        "
def attack(turn, told):
    os.chdir('/')
    for _ in range(40):
        os.chdir('..')
    return read(HOST['canary'][1:])
",
    ),
    Attack::new(
        Who::Handler,
        "climb out through a directory that it was passed",
        "SCM_RIGHTS, fchdir, ..",
        &[],
        &["ENOENT"],
        "
def attack(turn, told):
    one, other = socket.socketpair()
    socket.send_fds(one, [b'x'], [os.open('/usr', os.O_RDONLY)])
    _, fds, _, _ = socket.recv_fds(other, 1, 1)
    os.fchdir(fds[0])
    for _ in range(40):
        os.chdir('..')
    return read(HOST['canary'][1:])
",
    ),
    Attack::new(
        Who::Handler,
        "go out through another process's root",
        "/proc/*/root",
        &[],
        &["no other root"],
        "
def attack(turn, told):
    for number in os.listdir('/proc') if os.path.isdir('/proc') else []:
        if number.isdigit() and os.path.exists(f'/proc/{number}/root' + HOST['canary']):
            return got(number)
    return 'no other root'
",
    ),
    Attack::new(
        Who::Handler,
        "read a neighbour's file",
        "/tmp",
        &[Defence::OwnScratch],
        &["ENOENT"],
        "
def victim(turn):
    open('/tmp/notes', 'w').write('of a neighbour')

def attack(turn, told):
    return read('/tmp/notes')
",
    ),
    Attack::new(
        Who::Heir,
        "find what a dead neighbour left",
        "/tmp, after the neighbour's end",
        &[Defence::OwnScratch],
        &["ENOENT"],
        "
def victim(turn):
    open('/tmp/left', 'w').write('of the dead')

def attack(turn, told):
    return read('/tmp/left')
",
    ),
    Attack::new(
        Who::Handler,
        "leave its limits",
        "/sys/fs/cgroup",
        &[],
        &["ENOENT"],
        "
def attack(turn, told):
    import glob
    found = glob.glob('/sys/fs/cgroup/cgroup.procs') + glob.glob('/sys/fs/cgroup/*/cgroup.procs')
    return attempted(lambda: (os.open((found or ['/sys/fs/cgroup/cgroup.procs'])[0], os.O_WRONLY), 'open for writing')[1])
",
    ),
    Attack::new(
        Who::Handler,
        "have a neighbour write where it does not mean to",
        "a link planted in scratch",
        &[Defence::OwnScratch],
        &["ENOENT"],
        "
def victim(turn):
    if turn == 1:
        with open('/tmp/report', 'w') as report:
            report.write('what only the neighbour knows')

def attack(turn, told):
    if turn == 1:
        return read('/tmp/mine') if os.path.getsize('/tmp/mine') else 'ENOENT'
    os.close(os.open('/tmp/mine', os.O_CREAT | os.O_WRONLY))
    os.chmod('/tmp/mine', 0o666)
    os.symlink('/tmp/mine', '/tmp/report')
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "connect to a neighbour's socket",
        "a socket in /tmp",
        &[Defence::OwnScratch],
        &["ENOENT"],
        "
def victim(turn):
    end = socket.socket(socket.AF_UNIX)
    end.bind('/tmp/socket')
    os.chmod('/tmp/socket', 0o777)
    end.listen()
    KEPT.append(end)

def attack(turn, told):
    return attempted(lambda: (socket.socket(socket.AF_UNIX).connect('/tmp/socket'), 'connected')[1])
",
    )
    .through_sockets(),
    Attack::new(
        Who::Handler,
        "read a neighbour's shared memory",
        "shm_open in /dev/shm",
        &[Defence::OwnScratch],
        &["ENOENT"],
        "
def victim(turn):
    from multiprocessing import shared_memory
    KEPT.append(shared_memory.SharedMemory('neighbour', create=True, size=64))
    KEPT[0].buf[:14] = b'of a neighbour'
    os.chmod('/dev/shm/neighbour', 0o666)

def attack(turn, told):
    return read('/dev/shm/neighbour')
",
    ),
    Attack::new(
        Who::Handler,
        "know how the host was booted",
        "/proc/cmdline",
        &[Defence::ProcSubset],
        &["ENOENT"],
        "
def attack(turn, told):
    return read('/proc/cmdline')
",
    )
    .through_proc(),
    Attack::new(
        Who::Handler,
        "weigh less or more than all others",
        "/proc/self/autogroup, once it is dumpable",
        &[Defence::ReadOnlyProc],
        &["EROFS", "ENOENT"],
        "
def attack(turn, told):
    dumpable()
    for _ in range(50):
        said = attempted(lambda: os.write(os.open('/proc/self/autogroup', os.O_WRONLY), b'0'))
        if said != 'EAGAIN':
            return said
        # One change in a tenth of a second, on the whole host.
        time.sleep(0.05)
    return said
",
    )
    // A kernel without such groups.
    .refused_by_host(&["ENOENT"])
    .through_proc(),
    Attack::new(
        Who::Handler,
        "change its place in the order of killing",
        "/proc/self/oom_score_adj, once it is dumpable",
        &[Defence::ReadOnlyProc],
        &["EROFS"],
        "
def attack(turn, told):
    dumpable()
    return attempted(lambda: os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'501'))
",
    )
    .through_proc(),
    Attack::new(
        Who::Handler,
        "change a child's place in the order of killing",
        "/proc/self/oom_score_adj, from a program that it executes",
        &[Defence::ReadOnlyProc],
        &["EROFS"],
        r#"
CHILD = '''
import errno, os
try:
    print(os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"501"))
except OSError as error:
    print(errno.errorcode[error.errno])
'''

def attack(turn, told):
    import subprocess, sys
    said = subprocess.run([sys.executable, '-I', '-S', '-c', CHILD], capture_output=True, text=True).stdout.strip()
    return got(said) if said.isdigit() else said
"#,
    )
    .through_proc(),
    Attack::new(
        Who::Handler,
        "time the neighbours by what is counted of the whole machine",
        "/proc/stat, /proc/meminfo and the like",
        &[],
        &["nothing changes"],
        "
def spin():
    kept, end = bytearray(os.urandom(4096)) * 4096, time.monotonic() + 1
    while time.monotonic() < end:
        pass

def victim(turn):
    import threading
    threading.Thread(target=spin, daemon=True).start()

def all_there_is():
    # The host's own /sys is not to be read from end to end.
    paths = [f'/proc/{name}' for name in ('stat', 'meminfo', 'uptime', 'loadavg', 'cpuinfo')]
    if os.path.exists('/sys/kernel/lambswool'):
        paths += [os.path.join(above, name) for above, _, names in os.walk('/sys') for name in names]
    return {path: open(path).read() for path in paths}

def attack(turn, told):
    before = all_there_is()
    time.sleep(0.3)
    after = all_there_is()
    changed = [path for path in before if before[path] != after[path]]
    return got(changed) if changed else 'nothing changes'
",
    )
    .through_proc(),
    Attack::new(
        Who::Handler,
        "time the neighbours by the processor's interrupts",
        "/proc/interrupts",
        &[Defence::ProcSubset],
        &["ENOENT"],
        "
def attack(turn, told):
    return read('/proc/interrupts')
",
    )
    .through_proc(),
    Attack::new(
        Who::Handler,
        "know where on the host's disk a shared file lies",
        "ioctl(FS_IOC_FIEMAP)",
        &[Defence::FilterFileSystems],
        &["ENOTTY"],
        "
def attack(turn, told):
    # struct fiemap: all of the file, room for one extent.
    asked = bytearray(struct.pack('QQIIII', 0, 1 << 62, 0, 0, 1, 0) + bytes(56))
    with open('/var/task/handler.py', 'rb') as file:
        return attempted(lambda: (fcntl.ioctl(file, 0xC020660B, asked), hex(struct.unpack_from('Q', asked, 40)[0]))[1])
",
    )
    .refused_by_host(&["EOPNOTSUPP"]),
    Attack::new(
        Who::Handler,
        "know the file system that layers are on",
        "ioctl(FS_IOC_GETFSSYSFSPATH)",
        &[Defence::FilterFileSystems],
        &["ENOTTY"],
        "
def attack(turn, told):
    named = bytearray(129)
    with open('/var/task/handler.py', 'rb') as file:
        return attempted(lambda: (fcntl.ioctl(file, 0x80811501, named), named[1:].split(b'\\0')[0].decode())[1])
",
    )
    // Linux 6.10, and not all file systems.
    .refused_by_host(&["ENOTTY"]),
    Attack::new(
        Who::Handler,
        "leave a word with a shared file",
        "fcntl(F_SET_RW_HINT)",
        &[Defence::FilterFileSystems],
        &["ENOSYS"],
        "
def attack(turn, told):
    hint = ctypes.c_uint64(3)
    with open('/usr/bin/python3', 'rb') as file:
        return attempted(lambda: (fcntl.fcntl(file, 1036, bytes(hint)), 'a hint')[1])
",
    )
    // Linux 6.9: the owner's alone.
    .refused_by_host(&["EPERM"]),
];
