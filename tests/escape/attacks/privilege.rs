//! After privilege: what a capability, another's number or what was left open would give.

use container::Defence;

use crate::attack::{Attack, Who};

const CAPABILITIES: &[Defence] = &[Defence::Capabilities];

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new(
        Who::Fresh,
        "become root",
        "setresuid",
        CAPABILITIES,
        // Uid 0 has no meaning in its user namespace.
        &["EINVAL"],
        "
def attack(turn, told):
    return attempted(lambda: (os.setresuid(0, 0, 0), f'uid {os.getuid()}')[1])
",
    ),
    Attack::new(
        Who::Fresh,
        "run before everybody else on the processor",
        "sched_setscheduler(SCHED_FIFO)",
        &[Defence::Capabilities, Defence::ProcessorGroup],
        &["EPERM"],
        "
def attack(turn, told):
    before = os.sched_getscheduler(0)
    said = attempted(lambda: (os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), 'real-time')[1])
    trying(lambda: os.sched_setscheduler(0, before, os.sched_param(0)))
    return said
",
    ),
    Attack::new(
        Who::Fresh,
        "raise a limit of its own",
        "prlimit64",
        CAPABILITIES,
        &["EPERM"],
        "
def attack(turn, told):
    limit = (ctypes.c_uint64 * 2)(2048, 2048)
    said = attempt('prlimit64', 0, 7, limit, None)
    return said if said != 'OK' else got('2048 files')
",
    )
    // A machine may have taken CAP_SYS_RESOURCE from everybody.
    .refused_by_host(&["EPERM"]),
    Attack::new(
        Who::Fresh,
        "forge packets",
        "socket(AF_INET, SOCK_RAW)",
        &[Defence::Capabilities, Defence::FilterSockets],
        &["ENOSYS"],
        "
def attack(turn, told):
    return attempted(lambda: (socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), 'a raw socket')[1])
",
    ),
    Attack::new(
        Who::Fresh,
        "bring up the loopback that sandboxes share",
        "ioctl(SIOCSIFFLAGS)",
        CAPABILITIES,
        &["EPERM"],
        "
def attack(turn, told):
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    up = struct.pack('16sh14x', b'lo', 1)
    return attempted(lambda: (fcntl.ioctl(end, 0x8914, up), 'up')[1])
",
    ),
    Attack::new(
        Who::Fresh,
        "hold up whoever changes a shared file",
        "fcntl(F_SETLEASE)",
        CAPABILITIES,
        &["EACCES"],
        "
def attack(turn, told):
    KEPT.append(open(os.path.realpath('/var/task/handler.py'), 'rb'))
    return attempted(lambda: (fcntl.fcntl(KEPT[0], 1024, fcntl.F_RDLCK), 'a lease')[1])
",
    ),
    Attack::new(
        Who::Fresh,
        "hear every packet",
        "socket(AF_PACKET)",
        &[Defence::Capabilities, Defence::FilterSockets],
        &["ENOSYS"],
        "
def attack(turn, told):
    return taken(raw('socket', 17, 3, 0x0300))
",
    ),
    Attack::new(
        Who::Fresh,
        "open a file of the host by its handle",
        "open_by_handle_at",
        &[Defence::Capabilities, Defence::FilterHandles],
        &["ENOSYS"],
        "
def attack(turn, told):
    kind, body = HOST['handle']
    body = bytes.fromhex(body)
    handle = ctypes.create_string_buffer(struct.pack('Ii', len(body), kind) + body)
    file, error = raw('open_by_handle_at', os.open('/var/task', os.O_RDONLY), handle, os.O_RDONLY)
    return error or got(os.read(file, 64).decode())
",
    ),
    Attack::new(
        Who::Fresh,
        "load a program into the kernel",
        "bpf",
        &[Defence::Capabilities, Defence::FilterBpf],
        &["ENOSYS"],
        "
def attack(turn, told):
    array = ctypes.create_string_buffer(struct.pack('IIIII', 2, 4, 8, 1, 0), 72)
    return taken(raw('bpf', 0, array, 72))
",
    )
    .refused_by_host(&["EPERM"]),
    Attack::new(
        Who::Fresh,
        "read the host's kernel log",
        "syslog",
        &[Defence::Capabilities, Defence::FilterHost],
        &["ENOSYS"],
        "
def attack(turn, told):
    return taken(raw('syslog', 3, ctypes.create_string_buffer(4096), 4096))
",
    ),
    Attack::new(
        Who::Fresh,
        "name the host's handler of core files",
        "/proc/sys/kernel/core_pattern",
        &[Defence::Capabilities, Defence::ProcSubset, Defence::ReadOnlyProc],
        &["ENOENT"],
        "
def attack(turn, told):
    trying(lambda: os.setresuid(0, 0, 0))
    return attempted(lambda: (os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY), 'open for writing')[1])
",
    )
    .through_proc(),
    Attack::new(
        Who::Handler,
        "leave the root",
        "chroot",
        &[Defence::Capabilities, Defence::StackedFilter],
        &["EPERM"],
        "
def attack(turn, told):
    outside = os.open('/', os.O_RDONLY)
    said = attempt('chroot', text('/opt'))
    return said if said != 'OK' else got('a root within the root')
",
    ),
    Attack::new(
        Who::Fresh,
        "have the kernel do as the trigger says",
        "/proc/sysrq-trigger",
        &[Defence::Capabilities, Defence::ProcSubset],
        &["ENOENT"],
        "
def attack(turn, told):
    trying(lambda: os.setresuid(0, 0, 0))
    return attempted(lambda: (os.open('/proc/sysrq-trigger', os.O_WRONLY), 'open for writing')[1])
",
    )
    .through_proc()
    // A kernel that was built without it.
    .refused_by_host(&["ENOENT"]),
    Attack::new(
        Who::Fresh,
        "reach the warden through the channel",
        "SO_PEERPIDFD",
        &[
            Defence::Capabilities,
            Defence::FilterTracing,
            Defence::LandlockNetwork,
            Defence::LandlockScopes,
        ],
        &["EINVAL", "EPERM", "ESRCH", "EOPNOTSUPP", "ENOPROTOOPT", "ENOSYS"],
        "
def attack(turn, told):
    channel = socket.socket(fileno=os.dup(3))
    try:
        pidfd = channel.getsockopt(socket.SOL_SOCKET, 77)
    except OSError as error:
        return errno.errorcode[error.errno]
    for said in (attempt('pidfd_send_signal', pidfd, 0, None, 0), attempt('pidfd_getfd', pidfd, 0, 0), attempt('setns', pidfd, CLONE_NEWNS)):
        if said == 'OK':
            return got('the warden')
    return attempt('pidfd_send_signal', pidfd, 0, None, 0)
",
    )
    .refused_by_host(&["ENOPROTOOPT"]),
    Attack::new(
        Who::Handler,
        "read the worker's environment",
        "os.environ",
        &[Defence::CleanEnvironment],
        &["not there", "nothing to read"],
        "
def attack(turn, told):
    if HOST['variable'] is None:
        return 'nothing to read'
    return got(HOST['variable']) if HOST['variable'] in os.environ else 'not there'
",
    )
    .refused_by_host(&["nothing to read"]),
    Attack::new(
        Who::Handler,
        "have a program that it runs read its memory",
        "/proc/1/mem",
        &[Defence::Undumpable],
        &["EACCES", "EPERM"],
        "
SECRET = ctypes.create_string_buffer(b'a secret of the handler')

def look():
    with open('/proc/1/mem', 'rb', buffering=0) as memory:
        memory.seek(ctypes.addressof(SECRET))
        return memory.read(23).decode()

def attack(turn, told):
    return child(lambda: attempted(look))
",
    )
    .through_proc_of_another(),
    Attack::new(
        Who::Handler,
        "run before everybody else, as the worker may",
        "an inherited RLIMIT_RTPRIO",
        &[Defence::LimitPriority, Defence::ProcessorGroup],
        &["EPERM"],
        "
def attack(turn, told):
    said = attempted(lambda: (os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), 'real-time')[1])
    trying(lambda: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0)))
    return said
",
    )
    .refused_by_host(&["EPERM"]),
    Attack::new(
        Who::Handler,
        "take more of the processor than others, as the worker may",
        "an inherited RLIMIT_NICE",
        &[Defence::LimitPriority],
        &["EACCES"],
        "
def attack(turn, told):
    said = attempted(lambda: (os.setpriority(os.PRIO_PROCESS, 0, -10), os.getpriority(os.PRIO_PROCESS, 0))[1])
    trying(lambda: os.setpriority(os.PRIO_PROCESS, 0, 0))
    return said
",
    )
    .refused_by_host(&["EACCES"]),
    Attack::new(
        Who::Handler,
        "outlive the worker when the host is out of memory",
        "an inherited oom_score_adj",
        &[Defence::DieFirst],
        &["500"],
        "
def attack(turn, told):
    own = open('/proc/self/oom_score_adj').read().strip()
    return own if int(own) > 0 else got(own)
",
    )
    .through_proc(),
    Attack::new(
        Who::Handler,
        "have its cores handed to a program of the host's",
        "setrlimit(RLIMIT_CORE, 0)",
        &[Defence::LimitCore],
        &["it stays"],
        "
import resource
def attack(turn, told):
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    now = resource.getrlimit(resource.RLIMIT_CORE)
    return 'it stays' if now == before else got(now)
",
    ),
    Attack::new(
        Who::Handler,
        "leave a core file",
        "abort in a program that it runs",
        &[Defence::LimitCore],
        &["no core", "cores go elsewhere"],
        "
def attack(turn, told):
    if HOST['core'][0] in '|/':
        return 'cores go elsewhere'
    if (pid := os.fork()) == 0:
        os.chdir('/tmp')
        os.execv('/usr/bin/python3', ['python3', '-I', '-S', '-c', 'import os; os.abort()'])
    os.waitpid(pid, 0)
    cores = [name for name in os.listdir('/tmp') if name.startswith('core')]
    return got(cores[0]) if cores else 'no core'
",
    )
    .refused_by_host(&["cores go elsewhere"]),
];
