"""A zygote: imports modules, then forks whatever it is asked for.

Its channel is a SEQPACKET socket. What asks for a fork, with a slot's descriptors, is served by the
native side alone (`landing.c`); every other message is one JSON object:

```text
  worker                                     zygote
    │ ◄──── ready {pid} ───────────────────── │
    │ ───── import {modules, path} ─────────► │   each module on its own: one that fails stops none
    │ ◄──── files {files} * ───────────────── │   only when all do not fit into one message
    │ ◄──── imported {milliseconds, …} ────── │
    │ ───── 'F', uid, flags + descriptors ──► │──┬─► instance: `instance.go_on` on its own fd 3
    │                                         │  └─► zygote: this loop again on its own fd 3
    │ ───── anything else ──────────────────► │   unknown {kind}
```

A fork is answered on the slot's own channel alone. EOF: exit 0. Children are the kernel's to reap;
what is imported, and an instance, have the default treatment of SIGCHLD, for the sake of their own
subprocesses. `json` and `traceback` are imported here although the guest could do without: most
handlers want them, and they are shared by all.
"""

import json  # noqa: F401 - for the children
import linecache  # noqa: F401 - for the children
import posix
import traceback  # noqa: F401 - for the children
from _signal import SIG_DFL, SIG_IGN, SIGCHLD, signal

import lambswool_landing as landing  # type: ignore[import-not-found]

from lambswool_guest import (
    codec,
    imports,
    instance,
    interpreter,
    pool_search,
    rehearsal,
    reseed,
    scratch,
    sharing,
    stdlib,
)
from lambswool_guest.logs import Logs
from lambswool_guest.wire import Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from lambswool_guest.places import Places

CHILD_CHANNEL = 3
INSTANCE, REHEARSE = 16, 32
"""Flags of a fork, as in `landing.c`."""
AFRESH = 4
"""Rehearsals after imports, which have taken over the caches that those before had filled."""
REPLY_BYTES = 48 << 10
"""Longest list of files in one message: the kernel refuses one beyond its socket buffer."""


def serve(control: int, places: "Places") -> "NoReturn":
    """Serves requests on `control`, in this process and, on fd 3, in zygotes derived from it."""
    signal(SIGCHLD, SIG_IGN)
    sharing.forget_binding()
    stdlib.begin(places)
    stdlib.hold("json", "linecache", "traceback")
    interpreter.prepare(places)
    instance.later.update(imports=imports, rehearsal=rehearsal)
    instance.hide()
    logs = Logs()
    logs.install()
    rehearsal.in_zygote(places, logs)
    sharing.settle()
    _say(control, {"kind": "ready", "pid": posix.getpid()})
    while (work := landing.serve(control)) is not None:
        if isinstance(work, int):
            # In a child: the zygote's channel is gone, its own is at a fixed place.
            control = CHILD_CHANNEL
            reseed.after_fork()
            scratch.lay()
            if work & INSTANCE:
                signal(SIGCHLD, SIG_DFL)
                if work & REHEARSE:
                    rehearsal.once(places, logs)
                instance.go_on(Channel(control), places, logs)
            _say(control, {"kind": "ready", "pid": posix.getpid()})
            continue
        request = _parsed(work)
        if request["kind"] == "import":
            _import(control, request, places, logs)
        else:
            _say(control, {"kind": "unknown"})
    posix._exit(0)


def _parsed(message: bytes) -> dict:
    try:
        request = codec.loads(message)
    except ValueError:
        request = None
    known = isinstance(request, dict) and isinstance(request.get("kind"), str)
    return request if known else {"kind": ""}


def _import(control: int, request: dict, places: "Places", logs: Logs) -> None:
    """Imports, rehearses and settles, then tells of it. Where no rehearsal is possible any more the
    zygote ends: each of its forks would."""
    signal(SIGCHLD, SIG_DFL)
    # What is freed after the process has settled leaves holes for its forks to write to.
    messages = _told(imports.run(request["modules"], request.get("path", []), places))
    signal(SIGCHLD, SIG_IGN)
    _reap()
    rehearsal.in_zygote(places, logs, rounds=AFRESH)
    pool_search.find()
    reseed.before_forks()
    sharing.settle()
    for message in messages:
        landing.send(control, message)


def _told(said: dict) -> list[bytes]:
    """The messages that tell what was imported, each of them short enough."""
    files = said.pop("files")
    messages, head, size = [], 0, 0
    for position, entry in enumerate(files):
        size += len(codec.header(entry))
        if size > REPLY_BYTES:
            messages.append({"kind": "files", "files": files[head:position]})
            head, size = position, 0
    messages.append({"kind": "imported", "files": files[head:]} | said)
    return [codec.header(message) for message in messages]


def _reap() -> None:
    """Lets go of children that an import has left behind, as far as they have ended."""
    try:
        while posix.waitpid(-1, posix.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _say(control: int, message: dict) -> None:
    landing.send(control, codec.header(message))
