//! After neighbours: their processes, what is counted per user, what a package left open.

use container::Defence;

use crate::attack::{Attack, Who};

/// Only together: those that no zygote forked are in one user namespace, and have a Landlock domain each.
const LOOK_INTO: &[Defence] = &[
    Defence::FilterTracing,
    Defence::Capabilities,
    Defence::PidNamespace,
    Defence::LandlockNetwork,
    Defence::LandlockScopes,
];

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new(
        Who::Handler,
        "see what the neighbours run",
        "/proc/<pid>/cmdline",
        &[Defence::PidNamespace],
        &["nobody"],
        "
def attack(turn, told):
    others = [n for n in os.listdir('/proc') if n.isdigit() and int(n) not in (os.getpid(), os.getppid())]
    return read(f'/proc/{others[-1]}/cmdline') if others else 'nobody'
",
    )
    .through_proc(),
    Attack::new(
        Who::Handler,
        "find the neighbours' processes by their numbers",
        "getsid",
        &[Defence::PidNamespace],
        &["nobody"],
        "
def attack(turn, told):
    found = [pid for pid in range(1, 500) if pid != os.getpid() and trying(lambda: os.getsid(pid)) == 'OK']
    return got(found[:5]) if found else 'nobody'
",
    ),
    Attack::new(
        Who::Handler,
        "signal a neighbour",
        "kill",
        &[Defence::PidNamespace, Defence::OwnUid, Defence::LandlockScopes],
        &["nobody"],
        "
def victim(turn):
    return os.getpid()

def attack(turn, told):
    found = [pid for pid in range(1, 500) if pid != os.getpid() and trying(lambda: os.kill(pid, 0)) == 'OK']
    return got(found[:5]) if found else 'nobody'
",
    ),
    Attack::new(
        Who::Fresh,
        "trace a neighbour",
        "ptrace",
        LOOK_INTO,
        &["ENOSYS"],
        "
def victim(turn):
    return os.getpid()

def attack(turn, told):
    # PTRACE_ATTACH.
    said = attempt('ptrace', 16, told, 0, 0)
    return said if said != 'OK' else got(f'process {told}')
",
    ),
    Attack::new(
        Who::Fresh,
        "read a neighbour's memory",
        "process_vm_readv",
        LOOK_INTO,
        &["ENOSYS"],
        "
SECRET = ctypes.create_string_buffer(b'of a neighbour')

def victim(turn):
    return [os.getpid(), ctypes.addressof(SECRET)]

def attack(turn, told):
    buffer = ctypes.create_string_buffer(14)
    here, there = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 14), (ctypes.c_uint64 * 2)(told[1], 14)
    said = attempt('process_vm_readv', told[0], here, 1, there, 1, 0)
    return said if said != 'OK' else got(buffer.raw.decode())
",
    ),
    Attack::new(
        Who::Fresh,
        "write to a neighbour's memory",
        "process_vm_writev",
        LOOK_INTO,
        &["ENOSYS"],
        "
NOTES = ctypes.create_string_buffer(b'of a neighbour')

def victim(turn):
    return [os.getpid(), ctypes.addressof(NOTES), NOTES.value.decode()]

def attack(turn, told):
    if turn == 1:
        return HOST['said'] if HOST['said'] != 'OK' else got(told[2])
    words = ctypes.create_string_buffer(b'of an attacker')
    here, there = (ctypes.c_uint64 * 2)(ctypes.addressof(words), 14), (ctypes.c_uint64 * 2)(told[1], 14)
    HOST['said'] = attempt('process_vm_writev', told[0], here, 1, there, 1, 0)
",
    )
    .turns(2),
    Attack::new(
        Who::Fresh,
        "take a neighbour's descriptor",
        "pidfd_getfd",
        LOOK_INTO,
        &["ENOSYS"],
        "
def victim(turn):
    KEPT.append(os.memfd_create('notes'))
    os.write(KEPT[0], b'of a neighbour')
    return [os.getpid(), KEPT[0]]

def attack(turn, told):
    file, error = raw('pidfd_getfd', raw('pidfd_open', told[0], 0)[0], told[1], 0)
    return error or got(os.pread(file, 64, 0).decode())
",
    ),
    Attack::new(
        Who::Handler,
        "list the neighbours' sockets",
        "/proc/self/net/unix",
        &[Defence::HiddenSockets],
        &["EACCES"],
        "
def victim(turn):
    return abstract('seen neighbour', listen=True)

def attack(turn, told):
    return attempted(lambda: [line.split('@')[1] for line in open('/proc/self/net/unix') if '@seen' in line])
",
    )
    .through_proc(),
    Attack::new(
        Who::Handler,
        "use up the pipes of a neighbour",
        "fcntl(F_SETPIPE_SZ)",
        &[Defence::OwnUid],
        &["unharmed"],
        "
def enlarge():
    KEPT.append(os.pipe())
    fcntl.fcntl(KEPT[-1][1], 1031, 1 << 20)

def victim(turn):
    return trying(enlarge) if turn == 1 else None

def attack(turn, told):
    if turn == 1:
        return 'unharmed' if told == 'OK' else got(f'{told} for the neighbour')
    while len(KEPT) < 400 and trying(enlarge) == 'OK':
        pass
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "keep a neighbour from passing descriptors",
        "SCM_RIGHTS that nobody receives",
        &[Defence::OwnUid],
        &["unharmed"],
        "
def pass_on(count):
    KEPT.append(socket.socketpair())
    socket.send_fds(KEPT[-1][0], [b'x'], [0] * count)

def victim(turn):
    return trying(lambda: pass_on(1)) if turn == 1 else None

def attack(turn, told):
    if turn == 1:
        return 'unharmed' if told == 'OK' else got(f'{told} for the neighbour')
    while len(KEPT) < 400 and trying(lambda: pass_on(250)) == 'OK':
        pass
",
    )
    .turns(2),
    Attack::new(
        Who::Handler,
        "keep a neighbour from setting timers",
        "timer_create",
        &[Defence::LimitSignals],
        &["unharmed"],
        "
def make():
    return raw('timer_create', 1, None, ctypes.byref(ctypes.c_int()))[1] or 'OK'

def victim(turn):
    return make() if turn == 1 else None

def attack(turn, told):
    if turn == 1:
        return 'unharmed' if told == 'OK' else got(f'{told} for the neighbour')
    for _ in range(1 << 18):
        if make() != 'OK':
            break
",
    )
    .turns(2),
    Attack::new(
        Who::Careless,
        "find what a sibling wrote to a file that their package left open",
        "an inherited file",
        &[Defence::CloseDescriptors],
        &["nothing open"],
        "
import os
os.dup2(os.open('/tmp/notes', os.O_RDWR | os.O_CREAT), 20)
# ---
import stat

def left():
    for fd in range(5, 64):
        try:
            found = os.fstat(fd)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_RDWR:
            return fd

def victim(turn):
    return left() and os.pwrite(left(), b'of a sibling', 0)

def attack(turn, told):
    return got(os.pread(left(), 64, 0).decode()) if left() else 'nothing open'
",
    ),
    Attack::new(
        Who::Careless,
        "hear what a sibling says to a socket that their package left open",
        "an inherited socket",
        &[Defence::CloseDescriptors],
        &["nothing open"],
        "
import _socket, os
for number, end in enumerate(_socket.socketpair(_socket.AF_UNIX, _socket.SOCK_DGRAM)):
    os.dup2(end.fileno(), 20 + number)
# ---
import stat

def ends():
    open = {fd for fd in range(5, 64) if trying(lambda: os.fstat(fd)) == 'OK'}
    sockets = [fd for fd in sorted(open) if stat.S_ISSOCK(os.fstat(fd).st_mode)]
    found = [socket.socket(fileno=os.dup(fd)) for fd in sockets]
    return [end for end in found if end.type == socket.SOCK_DGRAM]

def victim(turn):
    return [end.send(b'of a sibling') for end in ends()[:1]]

def attack(turn, told):
    return got(ends()[1].recv(64, socket.MSG_DONTWAIT).decode()) if ends() else 'nothing open'
",
    )
    .through_sockets(),
    Attack::new(
        Who::Handler,
        "throw a file that all sandboxes share out of memory",
        "fadvise64(POSIX_FADV_DONTNEED)",
        &[Defence::FilterPageCache],
        &["they stay"],
        "
def in_memory(file):
    # One that is not owned has all its pages in memory, says mincore.
    return trying(lambda: os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT))

def attack(turn, told):
    # Nobody imports it, and so nobody has it mapped.
    file = os.open(os.path.join(os.path.dirname(os.__file__), 'antigravity.py'), os.O_RDONLY)
    os.read(file, 1)
    for _ in range(50):
        # What is not yet written out stays.
        os.fsync(file)
        said = trying(lambda: os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED))
        found = in_memory(file) if said == 'OK' else said
        if found != 'OK':
            return got('its pages are gone') if found == 'EAGAIN' else found
        time.sleep(0.01)
    return 'they stay'
",
    ),
];
