"""Rehearsals: what a first call does for the first time is done before anybody waits.

In the zygote, often: the interpreter then has specialised its bytecode, filled its caches and bound
its symbols, and no fork has to, each on pages of its own. In a fork that waits for its handler,
once: the pages that a call writes to anyhow are copied while nobody waits.

The handler of a rehearsal is `rehearsed.py`, loaded and called as any other, over pipes in place of
the channel. The real load sets anew all that this one has set.
"""

import posix
import sys

from lambswool_guest import reseed
from lambswool_guest.instance import Instance
from lambswool_guest.logs import Logs
from lambswool_guest.places import Places
from lambswool_guest.wire import Channel

ROUNDS = 24
"""CPython 3.11 specialises a function from its eighth call on, and then bytecode by bytecode."""

_TASK = __file__.rpartition("/")[0]
_LOAD = {
    "kind": "load",
    "module": "rehearsed",
    "function": "handler",
    "convention": "lambda",
    "name": "",
    "version": "",
    "memory_mb": 0,
    "environment": {},
    "binary": False,
    "threads": 1,
    # As if it were alone: the guest's other files hide nothing of a handler's.
    "entries": ["__pycache__", "rehearsed.py"],
}
_INVOKE = {"kind": "invoke", "id": "", "remaining_ms": 0, "content_type": "application/json"}


def in_zygote(places: Places, logs: Logs, rounds: int = ROUNDS) -> None:
    """Leaves the process as it was, but for what is cached."""
    path, environment = list(sys.path), dict(posix.environ)
    # Not its name: imports may have left it, and deleted it.
    directory = posix.open(".", posix.O_PATH | posix.O_CLOEXEC)
    for _ in range(rounds):
        reseed.after_fork()
        once(places, logs)
    sys.path[:] = path
    posix.fchdir(directory)
    posix.close(directory)
    for name in posix.environ.keys() - environment.keys():
        del posix.environ[name]
        posix.unsetenv(name)
    for name, value in environment.items():
        if posix.environ.get(name) != value:
            posix.environ[name] = value
            posix.putenv(name, value)


def once(places: Places, logs: Logs) -> None:
    """One conversation from load to reply. Before `logs.attach`: nothing is to be sent."""
    requests, writing = posix.pipe()
    reading, replies = posix.pipe()
    worker = Channel(writing)
    worker.send(_LOAD)
    worker.send(_INVOKE, b'{"": [0]}')
    posix.close(writing)
    stage = Places(stdlib=places.stdlib, task=_TASK, packages=places.packages)
    Instance(Channel(replies), logs, stage).converse(Channel(requests))
    for fd in (requests, reading, replies):
        posix.close(fd)
    sys.modules.pop("rehearsed", None)
    sys.path_importer_cache.pop(_TASK, None)
