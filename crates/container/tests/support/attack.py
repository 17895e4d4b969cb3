# Raw system calls, for code that attacks from inside. `NR` (numbers of this architecture) stands before this text.
import ctypes
import errno
import json
import os

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME = 0x10000000, 0x20000000, 0x40000000, 0x80
CLONE_PARENT, SIGCHLD, AT_EMPTY_PATH = 0x8000, 17, 0x1000


def raw(name, *arguments):
    """Returns (result, error name or None)."""
    number = NR[name] if isinstance(name, str) else name
    ctypes.set_errno(0)
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    return result, errno.errorcode[ctypes.get_errno()] if result == -1 else None


def attempt(name, *arguments):
    """'OK' or the error's name."""
    return raw(name, *arguments)[1] or "OK"


def trying(action):
    """'OK' or the error's name of something that raises OSError."""
    try:
        action()
        return "OK"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def cloning(flags):
    """A raw clone; the child ends at once."""
    result, error = raw("clone", flags, 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    return error or "OK"


def child(action):
    """What `action` returns in a forked child; 'died' when it says nothing."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = action()
        except BaseException as error:
            said = f"broken: {error!r}"
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read()
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
    return json.loads(said) if said else "died"


def capabilities():
    """Effective ones."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    raw("capget", header, data)
    return data[0] | data[3] << 32


def abstract(name, listen=False, keep=[]):
    """Listens on, or connects to, an abstract socket."""
    import socket

    def reach():
        end = socket.socket(socket.AF_UNIX)
        keep.append(end)
        (end.bind("\0" + name), end.listen(4)) if listen else end.connect("\0" + name)

    return trying(reach)


def refused():
    """System calls that nobody in a sandbox may make, each with arguments that would do something."""
    here, path, empty = b"/tmp", ctypes.c_char_p(b"/tmp"), ctypes.c_char_p(b"")
    tmpfs = ctypes.c_char_p(b"tmpfs")
    buffer = ctypes.create_string_buffer(256)
    pidfd = raw("pidfd_open", os.getpid(), 0)[0]
    clone3 = (ctypes.c_uint64 * 11)(CLONE_NEWUSER, 0, 0, 0, SIGCHLD)
    said = {
        "mount": attempt("mount", tmpfs, path, tmpfs, 0, None),
        "umount2": attempt("umount2", path, 2),
        "pivot_root": attempt("pivot_root", path, path),
        "open_tree": attempt("open_tree", -100, path, 1),
        "move_mount": attempt("move_mount", -100, path, -100, path, 0),
        "fsopen": attempt("fsopen", tmpfs, 0),
        "fspick": attempt("fspick", -100, path, 0),
        "mount_setattr": attempt("mount_setattr", -100, path, 0, (ctypes.c_uint64 * 4)(), 32),
        "clone3 into a user namespace": attempt("clone3", clone3, 88),
        "clone3": attempt("clone3", (ctypes.c_uint64 * 11)(0, 0, 0, 0, SIGCHLD), 88),
        "ptrace": attempt("ptrace", 0, 0, 0, 0),
        "process_vm_readv": attempt("process_vm_readv", os.getpid(), buffer, 1, buffer, 1, 0),
        "process_vm_writev": attempt("process_vm_writev", os.getpid(), buffer, 1, buffer, 1, 0),
        "pidfd_getfd": attempt("pidfd_getfd", pidfd, 0, 0),
        "kcmp": attempt("kcmp", os.getpid(), os.getpid(), 0, 0, 0),
        "io_uring_setup": attempt("io_uring_setup", 8, buffer),
        "bpf": attempt("bpf", 0, buffer, 64),
        "userfaultfd": attempt("userfaultfd", 1),
        "keyctl": attempt("keyctl", 0, -3, 0),
        "add_key": attempt("add_key", ctypes.c_char_p(b"user"), path, path, 4, -3),
        "request_key": attempt("request_key", ctypes.c_char_p(b"user"), path, None, -3),
        "perf_event_open": attempt("perf_event_open", buffer, 0, -1, -1, 0),
        "inotify_init1": attempt("inotify_init1", 0),
        "fanotify_init": attempt("fanotify_init", 0, 0),
        "open_by_handle_at": attempt("open_by_handle_at", -100, buffer, 0),
        "name_to_handle_at": attempt("name_to_handle_at", -100, path, buffer, buffer, 0),
        "shmget": attempt("shmget", 1, 4096, 0o1777),
        "msgget": attempt("msgget", 1, 0o1777),
        "mq_open": attempt("mq_open", ctypes.c_char_p(b"q"), 0o102, 0o600, None),
        "personality": attempt("personality", 0xFFFFFFFF),
        "quotactl": attempt("quotactl", 0, path, 0, None),
        "reboot": attempt("reboot", 0, 0, 0, 0),
        "init_module": attempt("init_module", buffer, 1, empty),
        "sethostname": attempt("sethostname", path, 4),
        "clock_settime": attempt("clock_settime", 0, buffer),
        "memfd_secret": attempt("memfd_secret", 0),
        "vsock socket": attempt("socket", 40, 1, 0),
        "packet socket": attempt("socket", 17, 3, 0),
        "alg socket": attempt("socket", 38, 5, 0),
        "bluetooth socket": attempt("socket", 31, 3, 0),
        "tipc socket": attempt("socket", 30, 1, 0),
        "netlink audit": attempt("socket", 16, 3, 9),
        "netlink kobject": attempt("socket", 16, 3, 15),
        "netlink netfilter": attempt("socket", 16, 3, 12),
        "netlink generic": attempt("socket", 16, 3, 16),
        "socketpair of vsock": attempt("socketpair", 40, 1, 0, buffer),
        "socketpair of tipc": attempt("socketpair", 30, 1, 0, buffer),
        "socketpair of alg": attempt("socketpair", 38, 5, 0, buffer),
    }
    for name, flag in [
        ("NEWNS", CLONE_NEWNS),
        ("NEWCGROUP", CLONE_NEWCGROUP),
        ("NEWUTS", CLONE_NEWUTS),
        ("NEWIPC", CLONE_NEWIPC),
        ("NEWUSER", CLONE_NEWUSER),
        ("NEWPID", CLONE_NEWPID),
        ("NEWNET", CLONE_NEWNET),
        ("PARENT", CLONE_PARENT),
    ]:
        said[f"clone with {name}"] = cloning(flag | SIGCHLD)
    if "x32" in NR:
        said["x32 unshare"] = attempt(NR["x32"] | NR["unshare"], CLONE_NEWUSER)
        said["x32 getpid"] = attempt(NR["x32"] | NR["getpid"])
    os.close(pidfd)
    return said


def compatibility_call():
    """getpid through the 32-bit entry of x86-64, whose numbers the filter does not mean."""
    import mmap

    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def allowed():
    """The control: the same means, put to what is allowed."""
    import socket

    return {
        "getpid": attempt("getpid"),
        "fork": child(lambda: "OK"),
        "raw clone": cloning(SIGCHLD),
        "inet socket": attempt("socket", 2, 1, 0),
        "inet6 socket": attempt("socket", 10, 1, 0),
        "netlink route": attempt("socket", 16, 3, 0),
        "socketpair": trying(lambda: socket.socketpair()),
        "write /tmp": trying(lambda: open("/tmp/mine", "w").write("x")),
        "write /dev/shm": trying(lambda: open("/dev/shm/mine", "w").write("x")),
        "write /dev/null": trying(lambda: open("/dev/null", "w").write("x")),
        "read /dev/urandom": trying(lambda: open("/dev/urandom", "rb").read(1)),
        "pidfd_open": attempt("pidfd_open", os.getpid(), 0),
    }
