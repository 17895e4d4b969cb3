"""Stands in for the native `lambswool_landing`, for the zygote's loop alone.

Messages and descriptors travel over the real kind of socket and `fork` is a real fork; what is
missing is the confinement: no user namespace, no root, no uid. Copied beside the guest under the
native module's name.
"""

import json
import os
import socket
import struct
import tempfile

INSTANCE, REHEARSE = 16, 32
"""As the native side's `LAND_INSTANCE`, `LAND_REHEARSE`."""

FORK = struct.Struct("<cII")


def serve(fd: int) -> int | bytes | None:
    while True:
        sock = socket.socket(fileno=fd)
        try:
            message, fds, _, _ = socket.recv_fds(sock, 1 << 20, 16)
        finally:
            sock.detach()
        if len(message) == FORK.size and message[:1] == b"F" and fds:
            _, _, flags = FORK.unpack(message)
            if os.fork() == 0:
                os.dup2(fds[0], 3)
                os.closerange(4, 1024)
                if flags & INSTANCE:
                    append = os.O_TMPFILE | os.O_RDWR | os.O_APPEND
                    output = os.open(tempfile.gettempdir(), append, 0o600)
                    os.dup2(output, 1)
                    os.dup2(output, 2)
                    os.close(output)
                    header = json.dumps({"kind": "ready", "pid": os.getpid()}).encode()
                    os.write(3, struct.pack("<II", len(header), 0) + header)
                return flags
            message = b""
        for slot in fds:
            os.close(slot)
        if message or not fds:
            return message or None


def send(fd: int, message: bytes) -> None:
    os.write(fd, message)
