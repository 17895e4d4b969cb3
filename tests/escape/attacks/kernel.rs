//! After the kernel: parts of it that no function needs, and that have been ways out before.

use container::Defence;

use crate::attack::{Attack, Who};

/// A filter of 4000 instructions that divide, and then allow, in a process of its own.
macro_rules! install {
    ($call:literal) => {
        concat!(
            "
def install():
    body = struct.pack('HBBI', 0x34, 0, 0, 7) * 4000 + struct.pack('HBBI', 6, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(body, len(body))
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 4001, ctypes.addressof(code)))
    _, error = raw(",
            $call,
            ")
    return error or got('4001 instructions')

def attack(turn, told):
    return child(install)
"
        )
    };
}
const INSTALL: &str = install!("'seccomp', 1, 0, program");
const INSTALL_BY_PRCTL: &str = install!("'prctl', 22, 2, program");

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new(
        Who::Handler,
        "make a forbidden socket past the filter",
        "io_uring",
        &[Defence::FilterUring],
        &["ENOSYS"],
        "
def attack(turn, told):
    setup = ctypes.create_string_buffer(120)
    ring, error = raw('io_uring_setup', 2, setup)
    if error:
        return error
    sq = struct.unpack_from('10I', setup.raw, 40)
    cq = struct.unpack_from('10I', setup.raw, 80)
    queue = mmap.mmap(ring, sq[6] + 8, offset=0)
    answers = mmap.mmap(ring, cq[5] + 2 * 16 * 2, offset=0x8000000)
    entries = mmap.mmap(ring, 2 * 64, offset=0x10000000)
    # IORING_OP_SOCKET: AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT.
    struct.pack_into('BBHiQQII', entries, 0, 45, 0, 0, 16, 3, 0, 15, 0)
    struct.pack_into('I', queue, sq[6], 0)
    struct.pack_into('I', queue, sq[1], 1)
    _, error = raw('io_uring_enter', ring, 1, 1, 1, None, 0)
    if error:
        return error
    result = struct.unpack_from('Qi', answers, cq[5])[1]
    return got('a uevent socket') if result >= 0 else errno.errorcode[-result]
",
    )
    .refused_by_host(&["EPERM"]),
    Attack::new(
        Who::Handler,
        "take the host's contexts of asynchronous I/O",
        "io_setup",
        &[Defence::FilterAio],
        &["ENOSYS"],
        "
def attack(turn, told):
    context = ctypes.c_uint64()
    _, error = raw('io_setup', 4096, ctypes.byref(context))
    return error or got('4096 of them')
",
    ),
    Attack::new(
        Who::Handler,
        "have the kernel compile programs, into memory that nobody is charged for",
        "setsockopt(SO_ATTACH_FILTER)",
        &[Defence::FilterPrograms],
        &["ENOSYS"],
        "
def attack(turn, told):
    # 2000 times: load a constant; then accept.
    body = struct.pack('HBBI', 0, 0, 0, 7) * 2000 + struct.pack('HBBI', 6, 0, 0, 0xFFFF)
    code = ctypes.create_string_buffer(body, len(body))
    program = struct.pack('HxxxxxxQ', 2001, ctypes.addressof(code))
    def attach():
        KEPT.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        KEPT[-1].setsockopt(socket.SOL_SOCKET, 26, program)
    return attempted(lambda: f'{[attach() for _ in range(100)].count(None)} programs')
",
    ),
    Attack::new(
        Who::Handler,
        "have the kernel compile filters, into memory that nobody is charged for",
        "seccomp(SECCOMP_SET_MODE_FILTER)",
        &[Defence::StackedFilter],
        &["ENOSYS"],
        INSTALL,
    ),
    Attack::new(
        Who::Fresh,
        "have the kernel compile filters, where no zygote has stacked one",
        "seccomp(SECCOMP_SET_MODE_FILTER)",
        &[Defence::FilterPrograms],
        &["ENOSYS"],
        INSTALL,
    ),
    Attack::new(
        Who::Handler,
        "have the kernel compile filters by the older call",
        "prctl(PR_SET_SECCOMP)",
        &[Defence::FilterPrograms],
        &["ENOSYS"],
        INSTALL_BY_PRCTL,
    ),
    Attack::new(
        Who::Handler,
        "count what happens on the processor",
        "perf_event_open",
        &[Defence::FilterPerf],
        &["ENOSYS"],
        "
def attack(turn, told):
    # The software clock of the caller, without the kernel and the hypervisor.
    event = ctypes.create_string_buffer(struct.pack('IIQQQQQ', 1, 64, 0, 0, 0, 0, 0x60), 64)
    counter, error = raw('perf_event_open', event, 0, -1, -1, 0)
    return error or got(struct.unpack('Q', os.read(counter, 8))[0])
",
    )
    .refused_by_host(&["EPERM", "EACCES"]),
    Attack::new(
        Who::Handler,
        "hold the kernel in the middle of a copy",
        "userfaultfd",
        &[Defence::FilterUserfaultfd],
        &["ENOSYS"],
        "
def attack(turn, told):
    return taken(raw('userfaultfd', 1))
",
    )
    .refused_by_host(&["EPERM"]),
    Attack::new(
        Who::Handler,
        "have memory that nobody can look into",
        "memfd_secret",
        &[Defence::FilterSecretMemory],
        &["ENOSYS"],
        "
def attack(turn, told):
    secret, error = raw('memfd_secret', 0)
    if error:
        return error
    os.ftruncate(secret, 4096)
    memory = mmap.mmap(secret, 4096)
    memory[:6] = b'hidden'
    return got(memory[:6].decode())
",
    ),
    #[cfg(target_arch = "x86_64")]
    Attack::new(
        Who::Handler,
        "write a segment descriptor",
        "modify_ldt",
        &[Defence::FilterSegments],
        &["ENOSYS"],
        "
def attack(turn, told):
    segment = (ctypes.c_uint32 * 4)(0, 0, 0xFFFFF, 0x51)
    _, error = raw('modify_ldt', 1, segment, 16)
    return error or got('segment 0')
",
    ),
    Attack::new(
        Who::Handler,
        "put what it runs at addresses that are known",
        "personality(ADDR_NO_RANDOMIZE)",
        &[Defence::FilterPersonality],
        &["ENOSYS"],
        "
def attack(turn, told):
    _, error = raw('personality', 0x40000)
    return error or got(hex(raw('personality', 0xFFFFFFFF)[0]))
",
    ),
    Attack::new(
        Who::Handler,
        "have the host write all its disks",
        "sync",
        &[Defence::FilterHost],
        &["ENOSYS"],
        "
def attack(turn, told):
    _, error = raw('sync')
    return error or got('written')
",
    ),
    Attack::new(
        Who::Handler,
        "have the host write the disk that layers are on",
        "syncfs",
        &[Defence::FilterHost],
        &["ENOSYS"],
        "
def attack(turn, told):
    _, error = raw('syncfs', os.open('/var/task', os.O_RDONLY))
    return error or got('written')
",
    ),
    #[cfg(target_arch = "x86_64")]
    Attack::new(
        Who::Handler,
        "call by numbers that the filter does not mean",
        "int 0x80",
        &[Defence::FilterArchitecture],
        &["died"],
        "
def call():
    # inotify_init has number 291 there.
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b'\\xb8\\x23\\x01\\x00\\x00\\xcd\\x80\\xc3')
    return got(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())

def attack(turn, told):
    return child(call)
",
    ),
    Attack::new(
        Who::Handler,
        "make a user namespace",
        "unshare(CLONE_NEWUSER)",
        &[],
        &["EPERM"],
        "
def attack(turn, told):
    return child(lambda: taken(raw('unshare', CLONE_NEWUSER)))
",
    ),
    Attack::new(
        Who::Handler,
        "make a user namespace with hidden flags",
        "clone3(CLONE_NEWUSER)",
        &[],
        &["ENOSYS", "EPERM"],
        "
def attack(turn, told):
    new, error = raw('clone3', (ctypes.c_uint64 * 11)(CLONE_NEWUSER, 0, 0, 0, SIGCHLD), 88)
    if new == 0:
        os._exit(0)
    return error or got(new)
",
    ),
    Attack::new(
        Who::Handler,
        "leave the other threads of a core idle",
        "prctl(PR_SCHED_CORE)",
        &[Defence::FilterProcessOptions],
        &["ENOSYS"],
        "
def attack(turn, told):
    _, error = raw('prctl', 62, 1, 0, 0, 0)
    return error or got('a cookie of its own')
",
    )
    // A kernel without it, or one that was told to go without sibling threads.
    .refused_by_host(&["EINVAL", "ENODEV"]),
    Attack::new(
        Who::Handler,
        "have pages merged with those of others",
        "prctl(PR_SET_MEMORY_MERGE)",
        &[Defence::FilterProcessOptions],
        &["ENOSYS"],
        "
def attack(turn, told):
    _, error = raw('prctl', 67, 1, 0, 0, 0)
    return error or got('all that it has')
",
    )
    .refused_by_host(&["EINVAL", "EPERM"]),
    Attack::new(
        Who::Handler,
        "have a page merged with those of others",
        "madvise(MADV_MERGEABLE)",
        &[Defence::FilterProcessOptions],
        &["EINVAL"],
        "
def attack(turn, told):
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page.madvise(mmap.MADV_WILLNEED)
    said = trying(lambda: page.madvise(mmap.MADV_MERGEABLE))
    return got('one that it has') if said == 'OK' else said
",
    )
    .refused_by_host(&["EINVAL"]),
];
