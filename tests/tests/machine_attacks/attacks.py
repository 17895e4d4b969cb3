"""What a hostile handler tries in its machine. As a program: the same outside, unconfined.

An attack returns what it met, or `{"got": evidence}`. One that ends its process has met a signal.
"""

import ctypes
import errno
import mmap
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)

# Where ring 0 and the monitor have their pages, the ends of the halves, and what is in none.
WILD = [
    0, 1, 4096, 0x7fff_f000, 0x7fff_ffff, 0x8000_0000, 0x8000_1000, 0x8000_3000, 0x8001_0000,
    0x8020_0000, 0x8080_0000, 0xffff_f000, 0x7fff_ffff_f000, 0x8000_0000_0000, 1 << 63,
    0xffff_ffff_8000_0000, 0xffff_ffff_8000_3000, 0xffff_ffff_ffff_f000,
]
# Calls that end it, wait, or take its own ground from under it.
SPARED = {
    *(7, 10, 11, 12, 13, 15, 23, 24, 25, 28, 34, 35, 56, 57, 58, 60, 61, 62, 112, 128, 130, 131),
    *(158, 186, 200, 202, 218, 219, 230, 231, 232, 234, 247, 270, 271, 273, 281, 334, 435, 436),
    441,
}


def refused(result):
    return errno.errorcode[ctypes.get_errno()] if result == -1 else {"got": str(result)}


def read_file(path):
    with open(path, "rb") as file:
        return {"got": file.read(20).decode(errors="replace")}


def path(event):
    return read_file(event["secret"])


def dots(event):
    return read_file("/tmp/" + "../" * 60 + event["secret"])


def dots_from_a_descriptor(event):
    above = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(60):
            below, above = above, os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=above)
            os.close(below)
        return read_file(os.open(event["secret"].lstrip("/"), os.O_RDONLY, dir_fd=above))
    finally:
        os.close(above)


def link(event):
    name = f"/tmp/link-{os.getpid()}-{time.time_ns()}"
    os.symlink(event["secret"], name)
    try:
        return read_file(name)
    finally:
        os.unlink(name)


def root_of_process_one(event):
    return read_file("/proc/1/root" + event["secret"])


def own_root(event):
    return read_file("/proc/self/root" + event["secret"])


def kvm(event):
    return {"got": str(os.open("/dev/kvm", os.O_RDWR))}


def physical_memory(event):
    return {"got": str(os.open("/dev/mem", os.O_RDONLY))}


def own_memory(event):
    return {"got": str(os.open("/proc/self/mem", os.O_RDWR))}


def processes(event):
    found = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return {"got": f"{len(found)} processes"} if found else "none"


def descriptors(event):
    # 0 to 3 are its own streams and channel.
    found = []
    for number in range(4, 5000):
        try:
            status = os.fstat(number)
        except OSError:
            continue
        # libffi keeps an empty file of its own in scratch open.
        if status.st_size or not stat.S_ISREG(status.st_mode):
            found.append((number, oct(status.st_mode), status.st_ino, status.st_size))
    return {"got": str(found)} if found else "none"


def tcp(event):
    end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    end.bind(("127.0.0.1", 0))
    return {"got": str(end.getsockname())}


def unix(event):
    return {"got": str(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).fileno())}


def pair(event):
    return {"got": str(socket.socketpair(type=socket.SOCK_DGRAM)[0].fileno())}


def fork(event):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return {"got": f"child {child}"}


def spawn(event):
    return {"got": str(subprocess.run(["/bin/sh", "-c", "exit 0"]).returncode)}


def execute(event):
    # Outside it becomes a program that says so.
    said = '{"got": "a program"}'
    return os.execv("/bin/sh", ["sh", "-c", f"echo '{said}'"])


def signal(event):
    os.kill(event["victim"], 0)
    return {"got": "a signal's way"}


def trace(event):
    return refused(libc.ptrace(0, 0, 0, 0))


def read_process(event):
    class Piece(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    here, there = ctypes.create_string_buffer(8), ctypes.create_string_buffer(b"theirs!")
    ours, theirs = (Piece(ctypes.addressof(buffer), 8) for buffer in (here, there))
    process = os.getpid()
    return refused(
        libc.process_vm_readv(process, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    )


def namespace(event):
    return refused(libc.unshare(0x10000000))


def mount(event):
    return refused(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))


def call(number, *arguments):
    return libc.syscall(number, *(ctypes.c_uint64(argument) for argument in arguments))


def wild_pointers(event):
    """Every call, with pointers that lead nowhere in each place."""
    answered = 0
    for number in [*range(335), *range(424, 452)]:
        for wild in WILD if number not in SPARED else ():
            file = os.open("/tmp/wild", os.O_RDWR | os.O_CREAT)
            # One of its calls may leave a file nobody may open any more.
            os.unlink("/tmp/wild")
            for arguments in ((wild,) * 6, (file, wild, 64, wild), (wild, 64, wild, 64)):
                answered += call(number, *arguments) is not None
            try:
                os.close(file)
            except OSError:
                pass
    return "answered" if answered > 10_000 else f"answered {answered}"


def monitors_memory_by_a_call(event):
    """A call of the monitor's that reads where the caller could not."""
    file = os.open("/tmp/leak", os.O_RDWR | os.O_CREAT)
    for wild in WILD:
        written = call(1, file, wild, 64)
        if written > 0:
            return {"got": f"{written} bytes at {wild:#x}"}
    return "EFAULT"


def monitors_memory_by_a_write(event):
    with open("/dev/zero", "rb") as zero:
        for wild in WILD:
            if call(0, zero.fileno(), wild, 64) > 0:
                return {"got": f"a write at {wild:#x}"}
    return "EFAULT"


def load(event):
    return {"got": ctypes.string_at(int(event["address"], 16), 8).hex()}


def store(event):
    ctypes.memset(int(event["address"], 16), 0, 8)
    return {"got": "a write"}


def execute_code(event):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex(event["code"]))
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    return "its own number" if result == os.getpid() else {"got": str(result)}


def memory(event):
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def open_files(event):
    kept = []
    while True:
        kept.append(open("/dev/null"))


def threads(event):
    end = threading.Event()
    try:
        while True:
            threading.Thread(target=end.wait).start()
    finally:
        end.set()


def scratch(event):
    with open("/tmp/full", "wb") as file:
        while True:
            file.write(bytes(1 << 16))


def names(event):
    number = 0
    while True:
        number += 1
        os.symlink("x", f"/tmp/name-{number}")


def output(event):
    for _ in range(200):
        print("x" * 100_000)
    return "answered"


def spin(event):
    while True:
        pass


def sleep(event):
    time.sleep(10_000)


def deadlock(event):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def flood(event):
    while True:
        os.write(3, bytes(range(256)) * 256)


def close_channel(event):
    os.close(3)
    return {"got": "an answer without a channel"}


SECRET = b"of-a-" + b"sibling-"
KEPT = []


def keep(event):
    KEPT.extend(SECRET + os.urandom(8).hex().encode() for _ in range(1000))
    with open("/tmp/kept", "wb") as file:
        file.write(b"".join(KEPT))
    return "kept"


def search(event):
    """All memory that it can read, for what another call or machine keeps."""
    pattern = re.compile(SECRET + b"[0-9a-f]{16}")
    if os.path.exists("/tmp/kept"):
        return {"got": "its file"}
    probe = os.open("/tmp/probe", os.O_RDWR | os.O_CREAT)
    seen = 0
    for address in range(0x1_0000, 0x8000_0000, 4096):
        if libc.pwrite(probe, ctypes.c_void_p(address), 1, ctypes.c_long(0)) == 1:
            seen += 1
            found = pattern.search(ctypes.string_at(address, 4096))
            if found:
                return {"got": found.group().decode()}
    return "nothing" if seen > 1000 else f"only {seen} pages"


def handler(event, context):
    try:
        return globals()[event["attack"]](event)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    except Exception as error:
        return type(error).__name__


if __name__ == "__main__":
    import json

    print(json.dumps(handler(json.loads(sys.argv[1]), None)))
