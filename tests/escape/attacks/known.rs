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
