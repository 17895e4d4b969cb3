"""Event loops that run in a machine's threads while the machine is frozen and cloned.

asyncio of Python 3.11 keeps for each thread which loop runs there and in which process, and takes
the record of another process for none: `RuntimeError: no running event loop`. A clone has another
pid and all threads of its machine. So the machine is frozen while its main thread has the
interpreter to itself, and the clone writes its own pid into these records before it lets go:

```text
  settle ─► no thread is let in ─► records are found ─► poll: frozen here, cloned ─► records are
            mended ─► threads are let in ─► wake
```
"""

import sys
import time
from _thread import _count
from posix import getpid

from lambswool_guest import stdlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

_RECORD = "_RunningLoopHolder"
"""Modules/_asynciomodule.c: an object's head, the loop, the pid."""

_LONG = 1e6
"""Seconds for which a thread that waits for the interpreter does not ask for it."""

_READABLE = 1
"""POLLIN, poll(2)."""


def hold(channel: int) -> None:
    """Waits for the next message on the channel, which is a clone's, where loops run in threads."""
    if sys.version_info >= (3, 12) or not _count() or stdlib.loaded("_asyncio") is None:
        return
    turns = sys.getswitchinterval()
    try:
        ctypes = stdlib.module("ctypes")
        # No thread may end while all are looked at, or run in the clone before its records are
        # right. Those that wait already ask once more, within the old interval.
        sys.setswitchinterval(_LONG)
        time.sleep(min(2 * turns, 0.1))
        if records := _records(ctypes):
            # Called without letting go of the interpreter.
            wanted = (ctypes.c_int * 2)(channel, _READABLE)
            ctypes.pythonapi.poll(wanted, ctypes.c_ulong(1), -1)
            for record in records:
                record.value = getpid()
    except Exception:  # an interpreter that is made otherwise
        return
    finally:
        sys.setswitchinterval(turns)


def _records(ctypes: "ModuleType") -> list:
    """Where the pid of each record stands."""
    python, pointer, found = ctypes.pythonapi, ctypes.c_void_p, []

    def function(name: str, *takes: object):
        return ctypes.PYFUNCTYPE(pointer, *takes)((name, python))

    following = function("PyThreadState_Next", pointer)
    names_of = function("_PyThreadState_GetDict", pointer)
    after_loop = object.__basicsize__ + ctypes.sizeof(pointer)
    interpreter = function("PyInterpreterState_Get")()
    thread = function("PyInterpreterState_ThreadHead", pointer)(interpreter)
    while thread:
        names = names_of(thread)
        for record in ctypes.cast(names, ctypes.py_object).value.values() if names else ():
            kind = type(record)
            if kind.__name__ == _RECORD and kind.__basicsize__ == after_loop + 8:
                pid = ctypes.c_int.from_address(id(record) + after_loop)
                if pid.value == getpid():
                    found.append(pid)
        thread = following(thread)
    return found
