# Frame of a malicious package: imported by a zygote, it stands between the zygote and the native side from then on.
# `attack(fds, uid, flags)` follows this text; what it returns is the report, which children inherit. With `LANDS`
# false the real fork never happens.
import sys

REPORT = None
LANDS = True
_zygote = sys.modules["lambswool_guest.zygote"]
_real = _zygote.landing


class Landing:
    receive = staticmethod(_real.receive)
    send = staticmethod(_real.send)

    @staticmethod
    def fork(fds, uid, flags):
        global REPORT
        try:
            REPORT = attack(fds, uid, flags)
        except BaseException as error:
            REPORT = f"broken: {error!r}"
        return _real.fork(fds, uid, flags) if LANDS else -1


_zygote.landing = Landing


def become(fds, uid):
    """In a child: enters the slot's user namespace and takes its id, with every capability there."""
    said = [attempt("setns", fds[2], CLONE_NEWUSER)]
    said.append(attempt("setresgid", uid, uid, uid))
    said.append(attempt("setresuid", uid, uid, uid))
    return said


def say_ready(channel, more=b"", ancillary=()):
    """What an honest child says first."""
    import socket
    import struct

    header = json.dumps({"kind": "ready", "pid": os.getpid()}).encode()
    end = socket.socket(fileno=os.dup(channel))
    try:
        end.sendmsg([struct.pack("<II", len(header), 0) + header + more], list(ancillary))
        return "OK"
    except OSError as error:
        return errno.errorcode[error.errno]


def daemon(action):
    """Runs `action` in a child that nobody waits for."""
    if os.fork() == 0:
        try:
            action()
        finally:
            os._exit(0)


def landed(fds, uid, action, cgroups=True, new_pid=True):
    """Runs `action` where an honest child would be, apart from what is left out."""

    def enter():
        if cgroups:
            for fd in fds[3:]:
                os.write(fd, b"0")
        become(fds, uid)
        if new_pid:
            raw("unshare", CLONE_NEWPID)
        os.fchdir(fds[0])
        raw("chroot", ctypes.c_char_p(b"."))
        if os.fork() == 0:
            try:
                action()
            finally:
                os._exit(0)

    daemon(enter)


def send(channel, data, ancillary=()):
    import socket

    end = socket.socket(fileno=os.dup(channel))
    return trying(lambda: end.sendmsg([data], list(ancillary)))
