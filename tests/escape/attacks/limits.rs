//! After more than a share: of memory, processes, files, scratch.

use container::Defence;

use crate::attack::{Attack, Who};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new(
        Who::Handler,
        "take the host's memory",
        "anonymous pages",
        &[Defence::LimitMemory],
        &["killed"],
        "
def attack(turn, told):
    return got(f'{len(bytearray(b\"x\") * (300 << 20)) >> 20} MiB')
",
    ),
    Attack::new(
        Who::Handler,
        "take the host's memory through a descriptor",
        "memfd_create",
        &[Defence::LimitMemory],
        &["killed"],
        "
def attack(turn, told):
    file = os.memfd_create('greedy')
    for _ in range(300):
        os.write(file, bytes(1 << 20))
    return got(f'{os.fstat(file).st_size >> 20} MiB')
",
    ),
    Attack::new(
        Who::Handler,
        "take the host's memory through the kernel's own",
        "buffers of sockets",
        &[Defence::LimitMemory],
        &["killed", "ENOMEM"],
        "
def fill():
    one, other = socket.socketpair()
    KEPT.append((one, other))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    one.setblocking(False)
    sent = 0
    try:
        while True:
            sent += one.send(bytes(1 << 16))
    except BlockingIOError:
        return sent

def attack(turn, told):
    return attempted(lambda: f'{sum(fill() for _ in range(500)) >> 20} MiB')
",
    ),
    Attack::new(
        Who::Handler,
        "take the host's memory through its map",
        "page tables",
        &[Defence::LimitMemory],
        &["killed"],
        "
def attack(turn, told):
    memory = mmap.mmap(-1, 160 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
    # A table of 4 KiB for every 2 MiB of which one byte is read.
    for at in range(0, len(memory), 2 << 20):
        memory[at]
    return got(f'{len(memory) >> 21 << 2} KiB of tables')
",
    ),
    Attack::new(
        Who::Handler,
        "fill the table of processes",
        "fork",
        &[Defence::LimitPids],
        &["EAGAIN"],
        "
def attack(turn, told):
    def fork():
        if (pid := os.fork()) == 0:
            time.sleep(60)
            os._exit(0)
        KEPT.append(pid)
    said = trying(lambda: [fork() for _ in range(100)])
    for pid in KEPT:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return said if said != 'OK' else got(f'{len(KEPT)} processes')
",
    ),
    Attack::new(
        Who::Handler,
        "fill the table of processes with threads",
        "clone(CLONE_THREAD)",
        &[Defence::LimitPids],
        &["EAGAIN"],
        "
import threading
def attack(turn, told):
    go = threading.Event()
    try:
        for number in range(100):
            threading.Thread(target=go.wait, daemon=True).start()
        return got('100 threads')
    except RuntimeError:
        return 'EAGAIN'
    finally:
        go.set()
",
    ),
    Attack::new(
        Who::Handler,
        "open more files than its share",
        "open",
        &[Defence::LimitFiles],
        &["EMFILE"],
        "
def attack(turn, told):
    said = trying(lambda: [KEPT.append(os.open('/dev/null', os.O_RDONLY)) for _ in range(2000)])
    for file in KEPT:
        os.close(file)
    return said if said != 'OK' else got(f'{len(KEPT)} files')
",
    ),
    Attack::new(
        Who::Handler,
        "fill the host's memory with files",
        "write to /tmp",
        &[Defence::LimitScratchBytes],
        &["ENOSPC"],
        "
def attack(turn, told):
    file = os.open('/tmp/large', os.O_CREAT | os.O_WRONLY)
    return attempted(lambda: f'{sum(os.write(file, bytes(1 << 20)) for _ in range(16)) >> 20} MiB')
",
    ),
    Attack::new(
        Who::Handler,
        "fill the host's memory with shared memory",
        "write to /dev/shm",
        &[Defence::LimitScratchBytes],
        &["ENOSPC"],
        "
def attack(turn, told):
    file = os.open('/dev/shm/large', os.O_CREAT | os.O_WRONLY)
    return attempted(lambda: f'{sum(os.write(file, bytes(1 << 20)) for _ in range(16)) >> 20} MiB')
",
    ),
    Attack::new(
        Who::Handler,
        "make files without end",
        "inodes of /tmp",
        &[Defence::LimitScratchFiles],
        &["ENOSPC"],
        "
def attack(turn, told):
    return attempted(lambda: f'{len([os.close(os.open(f\"/tmp/{n}\", os.O_CREAT)) for n in range(2000)])} files')
",
    ),
    Attack::new(
        Who::Handler,
        "take the host's processors",
        "spin",
        &[Defence::LimitCpu],
        &["throttled"],
        "
def attack(turn, told):
    begin, before = time.monotonic(), time.process_time()
    while time.monotonic() < begin + 1:
        pass
    part = (time.process_time() - before) / (time.monotonic() - begin)
    # A fiftieth is the limit: even among twenty others on its processor it would have had more.
    return got(f'{part:.2f} processors') if part > 0.04 else 'throttled'
",
    ),
    Attack::new(
        Who::Handler,
        "take as much of a processor as all others together",
        "setsid",
        &[Defence::ProcessorGroup],
        &["as a thread", "sessions weigh nothing"],
        "
def spin(apart):
    if (pid := os.fork()) == 0:
        if apart:
            os.setsid()
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        while True:
            pass
    return pid

def used(pid):
    os.kill(pid, signal.SIGKILL)
    return os.wait4(pid, 0)[2].ru_utime

def attack(turn, told):
    if not HOST['autogroup']:
        return 'sessions weigh nothing'
    pids = [spin(apart) for apart in (False, False, False, True)]
    time.sleep(1.5)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    *others, apart = [used(pid) for pid in pids]
    share = apart / (sum(others) + apart)
    return got(f'{share:.0%} with one thread of four') if share > 0.37 else 'as a thread'
",
    )
    // Without automatic groups, or where a group above holds all that is here.
    .refused_by_host(&["as a thread", "sessions weigh nothing"]),
    Attack::new(
        Who::Fresh,
        "say what all the others weigh",
        "/proc/self/autogroup",
        &[Defence::OwnSession, Defence::ReadOnlyProc],
        &["EROFS"],
        "
def victim(turn):
    return int(open('/proc/self/autogroup').read().split()[-1])

def weigh(nice):
    file = os.open('/proc/self/autogroup', os.O_WRONLY)
    os.write(file, nice)
    os.close(file)

def attack(turn, told):
    dumpable()
    if turn == 0:
        return trying(lambda: weigh(b'5'))
    time.sleep(0.2)
    said = trying(lambda: weigh(b'0'))
    return said if said != 'OK' else got('nice 5') if told == 5 else 'its own'
",
    )
    .turns(2)
    .through_proc()
    // A kernel without automatic groups.
    .refused_by_host(&["ENOENT"]),
];
