"""A zygote: imports modules, then forks whatever it is asked for.

Its channel is a SEQPACKET socket; every message is one JSON object, some with file descriptors:

```text
  worker                                     zygote
    │ ◄──── ready {pid} ───────────────────── │
    │ ───── import {modules, path} ─────────► │   each module on its own: one that fails stops none
    │ ◄──── files {files} * ───────────────── │   only when all do not fit into one message
    │ ◄──── imported {milliseconds, …} ────── │
    │ ───── fork {uid, flags, role} + fds ──► │──┬─► instance: `instance.serve` on its own fd 3
    │ ◄──── fork-failed {…}, if it failed ─── │  └─► zygote: this loop again on its own fd 3
    │ ───── anything else ──────────────────► │   unknown {kind}
```

A fork that succeeds is answered by the child alone. EOF: exit 0. Children are the kernel's to reap;
an instance gets the default treatment of SIGCHLD back, for the sake of its own subprocesses. `json`
and `traceback` are imported here although the guest could do without: most handlers want them, and
they are shared by all.
"""

import gc
import json
import linecache  # noqa: F401 - for the children
import posix
import signal
import sys
import traceback  # noqa: F401 - for the children

import lambswool_landing as landing  # type: ignore[import-not-found]

from lambswool_guest import failure, imports, instance, reseed  # noqa: F401 - for the children
from lambswool_guest.logs import Logs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from lambswool_guest.places import Places

CHILD_CHANNEL = 3
REPLY_BYTES = 48 << 10
"""Longest list of files in one message: the kernel refuses one beyond its socket buffer."""


def serve(control: int, places: "Places") -> "NoReturn":
    """Serves requests on `control`, in this process and, on fd 3, in zygotes derived from it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    logs = Logs()
    logs.install()
    _settle()
    _say(control, {"kind": "ready", "pid": posix.getpid()})
    while (received := landing.receive(control)) is not None:
        message, fds = received
        request = _parsed(message)
        if request["kind"] == "fork":
            if _fork(control, request, fds):
                continue
            # In the child: the zygote's channel is gone, its own is at a fixed place.
            control = CHILD_CHANNEL
            reseed.after_fork()
            if request["role"] == "instance":
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                instance.serve(control, places, logs, request.get("rehearse", False))
            _say(control, {"kind": "ready", "pid": posix.getpid()})
            continue
        _close(fds)
        if request["kind"] == "import":
            _import(control, request, places)
        else:
            _say(control, {"kind": "unknown"})
    posix._exit(0)


def _parsed(message: bytes) -> dict:
    try:
        request = json.loads(message)
    except ValueError:
        request = None
    known = isinstance(request, dict) and isinstance(request.get("kind"), str)
    return request if known else {"kind": ""}


def _fork(control: int, request: dict, fds: list[int]) -> bool:
    """Whether this is still the zygote."""
    try:
        child = landing.fork(fds, request["uid"], request["flags"]) == 0
    except (OSError, ValueError) as error:
        _close(fds)
        # The intermediate could not be made, or this is no slot. A step that fails later is told
        # by the native side, on the child's channel.
        step = getattr(error, "filename", None) or "fork"
        said = {"step": step, "errno": getattr(error, "errno", 0), "message": str(error)}
        _say(control, {"kind": "fork-failed"} | said)
        return True
    if not child:
        _close(fds)
    return not child


def _import(control: int, request: dict, places: "Places") -> None:
    said = imports.run(request["modules"], request.get("path", []), places)
    _settle()
    files = said.pop("files")
    head, size = 0, 0
    for position, entry in enumerate(files):
        size += len(entry[0]) + len(entry[1]) + len(entry[3]) + 40
        if size > REPLY_BYTES:
            _say(control, {"kind": "files", "files": files[head:position]})
            head, size = position, 0
    _say(control, {"kind": "imported", "files": files[head:]} | said)


def _settle() -> None:
    """Hides what is alive from the collector: one that runs in a child writes to no shared page."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    gc.collect()
    gc.freeze()


def _say(control: int, message: dict) -> None:
    landing.send(control, json.dumps(message).encode())


def _close(fds: list[int]) -> None:
    for fd in fds:
        posix.close(fd)
