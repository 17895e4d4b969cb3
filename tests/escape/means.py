# What the attacks of this suite have in common. An attack answers `got(evidence)` when it succeeded, else what stopped it.
import fcntl
import mmap
import signal
import socket
import struct
import time

libc.syscall.restype = ctypes.c_long
KEPT, HOST = [], {}


def got(evidence):
    return {"got": str(evidence)}


def text(words):
    return ctypes.c_char_p(words.encode())


def read(path):
    """What stands in a file, as a success; else why it cannot be read."""
    try:
        with open(path, "rb") as file:
            return got(file.read(64).decode(errors="replace").strip() or "empty")
    except OSError as error:
        return errno.errorcode[error.errno]


def attempted(action):
    """What `action` returns, as a success; else the name of its error."""
    try:
        return got(action())
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def taken(result):
    """Of `raw`: the number as a success."""
    number, error = result
    return error or got(number)


def either(fds, uid, action):
    """What `action` says as a zygote that has kept its capabilities, else with those of a slot."""
    said = action()
    if not isinstance(said, dict):
        become(fds, uid)
        said = action()
    return said


def victim(turn):
    return None


def dumpable():
    """Makes this process's files of /proc its own user's."""
    libc.prctl(4, 1, 0, 0, 0)


def executed(event):
    """What `handler` answers in a program of its own."""
    source = "exec(open('/var/task/handler.py').read()); print(json.dumps(handler(json.loads(input()), None)))"
    (given, give), (take, said) = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        os.dup2(given, 0)
        os.dup2(said, 1)
        os.execv("/usr/bin/python3", ["python3", "-I", "-S", "-c", source])
    os.close(given)
    os.close(said)
    with open(give, "w") as pipe:
        pipe.write(json.dumps({**event, "way": "as it is"}))
    with open(take) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(answer) if answer else "died"


def handler(event, context):
    HOST.update(event["host"])
    if event["who"] == "victim":
        return victim(event["turn"])
    if event.get("way") == "executed":
        return executed(event)
    if event.get("way") == "dumpable":
        dumpable()
    return attack(event["turn"], event["told"])
