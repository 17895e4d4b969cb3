"""Stands in for the native `lambswool_landing`, for the zygote's loop alone.

Messages and descriptors travel over the real kind of socket and `fork` is a real fork; what is
missing is the confinement: no user namespace, no root, no uid. Copied beside the guest under the
native module's name.
"""

import json
import os
import socket
import struct

REFUSED = 99
"""As `flags`: the fork fails in its `setns` step."""

SAY_READY = 16
"""As the native side's `LAND_SAY_READY`."""


def receive(fd: int) -> tuple[bytes, list[int]] | None:
    sock = socket.socket(fileno=fd)
    try:
        message, fds, _, _ = socket.recv_fds(sock, 1 << 20, 16)
    finally:
        sock.detach()
    return (message, fds) if message else None


def send(fd: int, message: bytes) -> None:
    os.write(fd, message)


def fork(fds: list[int], uid: int, flags: int) -> int:
    if not fds:
        raise ValueError("a slot has a channel")
    if flags == REFUSED:
        raise OSError(1, "Operation not permitted", "setns")
    if os.fork() != 0:
        return -1
    os.dup2(fds[0], 3)
    os.closerange(4, 1024)
    if flags & SAY_READY:
        header = json.dumps({"kind": "ready", "pid": os.getpid()}).encode()
        os.write(3, struct.pack("<II", len(header), 0) + header)
    return 0
