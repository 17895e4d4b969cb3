//! What crosses between sandboxes with everything in force, and is known to: `docs/threat-model.md` says so. Whoever closes
//! one of these takes it out of there as well.

use crate::attack::{Attack, Who};

pub(crate) const CHANNELS: &[Attack] = &[
    Attack::new(
        Who::Handler,
        "whether a neighbour has locked a shared file",
        "flock",
        &[],
        &[],
        "
def lock():
    KEPT.append(open('/usr/bin/python3', 'rb'))
    fcntl.flock(KEPT[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)

def victim(turn):
    return trying(lock)

def attack(turn, told):
    return got('locked') if trying(lock) == 'EAGAIN' else 'free'
",
    ),
    Attack::new(
        Who::Handler,
        "which part of a shared file a neighbour has locked",
        "fcntl(F_GETLK)",
        &[],
        &[],
        "
def lock(request, kind, start, length):
    wanted = struct.pack('hhqqi4x', kind, 0, start, length, 0)
    return struct.unpack('hhqqi4x', fcntl.fcntl(os.open('/usr/bin/python3', os.O_RDONLY), request, wanted))

def victim(turn):
    # They stay while it is paused.
    return lock(fcntl.F_SETLK, fcntl.F_RDLCK, 0x4C57, 3)[2]

def attack(turn, told):
    kind, _, start, length, _ = lock(fcntl.F_GETLK, fcntl.F_WRLCK, 0, 0)
    return got(f'{length} bytes at {start:#x}') if kind == fcntl.F_RDLCK and start == told else 'free'
",
    ),
    Attack::new(
        Who::Handler,
        "whether a neighbour has taken a number of netlink",
        "bind to a port of NETLINK_ROUTE",
        &[],
        &[],
        "
def take():
    KEPT.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
    KEPT[-1].bind((0x4C57, 0))

def victim(turn):
    return trying(take)

def attack(turn, told):
    return got('taken') if trying(take) == 'EADDRINUSE' else 'free'
",
    ),
    Attack::new(
        Who::Handler,
        "whether a neighbour has taken an abstract name",
        "bind to an abstract socket",
        &[],
        // Before Linux 6.12 there are no such sockets in a sandbox.
        &["ENOSYS"],
        "
def victim(turn):
    return abstract('taken', listen=True)

def attack(turn, told):
    said = abstract('taken', listen=True)
    return got('taken') if said == 'EADDRINUSE' else said
",
    ),
    Attack::new(
        Who::Handler,
        "whether a neighbour has taken a port",
        "bind to a port of UDP",
        &[],
        &[],
        "
def take():
    KEPT.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    KEPT[-1].bind(('', 5353))

def victim(turn):
    return trying(take)

def attack(turn, told):
    return got('taken') if trying(take) == 'EADDRINUSE' else 'free'
",
    ),
    Attack::new(
        Who::Handler,
        "whether a neighbour waits at a page of a shared file",
        "futex",
        &[],
        &[],
        "
import platform, threading
FUTEX = {'x86_64': 202, 'aarch64': 98}[platform.machine()]

def page():
    libc.mmap.restype = ctypes.c_void_p
    with open('/usr/bin/python3', 'rb') as file:
        return libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0))

def wait():
    place = page()
    found, soon = ctypes.c_uint32.from_address(place), struct.pack('2q', 20, 0)
    libc.syscall(FUTEX, ctypes.c_void_p(place), 0, found, soon, None, 0)

def victim(turn):
    threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.5)

def attack(turn, told):
    woken = libc.syscall(FUTEX, ctypes.c_void_p(page()), 1, 1, None, None, 0)
    return got(f'{woken} woken') if woken > 0 else 'nobody waits'
",
    ),
    Attack::new(
        Who::Handler,
        "where a sibling's code and data lie",
        "addresses of their zygote",
        &[],
        &[],
        "
def victim(turn):
    return ctypes.cast(libc.getpid, ctypes.c_void_p).value

def attack(turn, told):
    return got(hex(told)) if told == victim(turn) else 'elsewhere'
",
    ),
    Attack::new(
        Who::Handler,
        "how full the host's disk is",
        "statvfs",
        &[],
        &[],
        "
def attack(turn, told):
    return got(os.statvfs('/').f_bfree)
",
    ),
    Attack::new(
        Who::Handler,
        "how many neighbours of networks the host has looked up",
        "RTM_GETNEIGHTBL",
        &[],
        &[],
        "
def attributes(message):
    while len(message) >= 4:
        length, kind = struct.unpack_from('HH', message)
        yield kind & 0x3fff, message[4:length]
        message = message[(length + 3) & ~3:]

def attack(turn, told):
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    # Of IPv4. NDTA_STATS: what was made, taken away, grown, unresolved, looked up.
    kernel.send(struct.pack('IHHIIB3x', 20, 66, 0x301, 1, 0, socket.AF_INET))
    message = kernel.recv(65536)
    table = dict(attributes(message[20:struct.unpack_from('I', message)[0]]))
    looked_up = struct.unpack_from('5Q', table[7])[4]
    return got(looked_up) if looked_up else 'none'
",
    ),
    Attack::new(
        Who::Handler,
        "what the host calls its uid",
        "/proc/self/uid_map",
        &[],
        // Before Linux 6.17 there are no processes in a fork's /proc.
        &["ENOENT"],
        "
def attack(turn, told):
    return attempted(lambda: open('/proc/self/uid_map').read().split()[1])
",
    ),
    Attack::new(
        Who::Handler,
        "how many pipes a neighbour has made",
        "inode numbers of pipes",
        &[],
        &[],
        "
def last(count):
    # Each processor takes a thousand of the host's numbers at a time.
    highest = 0
    for _ in range(count):
        for fd in os.pipe():
            highest = max(highest, os.fstat(fd).st_ino)
            os.close(fd)
    return highest

def victim(turn):
    return last(100_000 if turn else 1)

def attack(turn, told):
    KEPT.append(last(2000))
    made = KEPT[-1] - KEPT[0]
    return got(f'{made} more') if made > 90_000 else f'{made} more'
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "how many file systems are mounted",
        "stat(/tmp)",
        &[],
        &[],
        "
def attack(turn, told):
    return got(os.minor(os.stat('/tmp').st_dev))
",
    ),
    Attack::new(
        Who::Handler,
        "how many namespaces there are",
        "/proc/self/ns",
        &[],
        // Before Linux 6.17 there are no processes in a fork's /proc.
        &["ENOENT"],
        "
def attack(turn, told):
    return attempted(lambda: [os.stat(f'/proc/self/ns/{kind}').st_ino for kind in ('pid', 'user')])
",
    ),
    Attack::new(
        Who::Handler,
        "how many mounts were made",
        "statx(STATX_MNT_ID)",
        &[],
        &[],
        "
STATX = {'x86_64': 332, 'aarch64': 291}[os.uname().machine]

def attack(turn, told):
    found = ctypes.create_string_buffer(256)
    number, error = raw(STATX, -100, text('/tmp'), 0, 0x1000, found)
    return error or got(struct.unpack_from('Q', found, 0x90)[0])
",
    ),
    Attack::new(
        Who::Handler,
        "how busy the host is",
        "sysinfo",
        &[],
        &[],
        "
def attack(turn, told):
    information = ctypes.create_string_buffer(128)
    return got(struct.unpack_from('4Q', information)[1]) if libc.sysinfo(information) == 0 else 'unknown'
",
    ),
    Attack::new(
        Who::Handler,
        "memory of the kernel's past its limit",
        "900000 locks",
        &[],
        // A kernel that charges locks to who makes them.
        &["killed"],
        "
def lock(file):
    wanted = ctypes.create_string_buffer(struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 1, 0))
    start = ctypes.c_int64.from_buffer(wanted, 8)
    for number in range(1000):
        start.value = 2 * number
        if libc.fcntl(file, fcntl.F_OFD_SETLK, wanted):
            raise OSError(ctypes.get_errno(), 'lock')

def attack(turn, told):
    return attempted(lambda: f'{[lock(os.memfd_create(str(n))) for n in range(900)].count(None)} thousand')
",
    ),
];
