# Frame of a malicious package: imported by a zygote, it stands between the zygote and the native side from then on.
# `attack(fds, uid, flags)` follows this text; what it returns is the report, which children inherit. With `LANDS`
# false the real fork never happens.
import stat
import struct
import sys

REPORT = None
LANDS = True
_zygote = sys.modules["lambswool_guest.zygote"]
_real = _zygote.landing


class Landing:
    send = staticmethod(_real.send)

    @staticmethod
    def serve(control):
        global REPORT
        import socket

        while True:
            end = socket.socket(fileno=os.dup(control))
            message, fds, _, _ = socket.recv_fds(end, 65536, 16)
            end.close()
            if message[:1] != b"F":
                return message or None
            _, uid, flags = struct.unpack("=cII", message)
            try:
                REPORT = attack(fds, uid, flags)
            except BaseException as error:
                REPORT = f"broken: {error!r}"
            if LANDS and (landed := _forked(message, fds)) is not None:
                return landed
            for fd in fds:
                os.close(fd)


def _forked(message, fds):
    """The flags, in the child. The native side has but one door: the request goes through it again."""
    import socket

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(ours, [message], fds)
    ours.close()
    again = theirs.detach()
    flags = _real.serve(again)
    if flags is None:
        os.close(again)
    return flags


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


def groups(fds):
    """Of a slot's descriptors those that move processes: an instance's output, behind them, is a pipe."""
    return [fd for fd in fds[3:] if stat.S_ISREG(os.fstat(fd).st_mode)]


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
            for fd in groups(fds):
                os.write(fd, b"0")
        become(fds, uid)
        if new_pid:
            # What the filter allows is what an honest landing makes, which the isolation says.
            if raw("unshare", CLONE_NEWPID | CLONE_NEWCGROUP)[1]:
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
