"""Importing for children, and what it did.

Modules are imported each on its own; whatever one raises, `sys.exit` included, is reported and
stops no other. The report names every file that came from outside the standard library: the worker
compares it with the lock.
"""

import posix
import sys
import time

from lambswool_guest import codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lambswool_guest.places import Places

_OURS = __file__.rpartition("/")[0] + "/"
_MESSAGE_CHARACTERS = 500
_FAILURES = 64


def run(modules: list[str], path: list[str], places: "Places") -> dict:
    """The fields of an `imported` message."""
    _extend(path, places)
    before = set(sys.modules)
    begin = time.perf_counter()
    failed = []
    for name in modules:
        try:
            __import__(name)
        except BaseException as error:
            failed.append([name, _words(error)])
    milliseconds = (time.perf_counter() - begin) * 1000
    return {
        "milliseconds": milliseconds,
        "files": _files(set(sys.modules) - before, places),
        "threads": _threads(),
        "failed": failed[:_FAILURES],
    }


def _extend(path: list[str], places: "Places") -> None:
    """Packages stand before the standard library, as in an instance."""
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    # A derived zygote has other contents behind the same names, and a missing directory was
    # remembered as such.
    for entry in list(sys.path_importer_cache):
        if entry.startswith(tuple(path)) or not entry.startswith(tuple(places.stdlib)):
            del sys.path_importer_cache[entry]


def _files(names: set[str], places: "Places") -> list[list[str]]:
    files = []
    for name in sorted(names):
        try:
            path = object.__getattribute__(sys.modules[name], "__dict__").get("__file__")
        except Exception:  # not every entry is a module
            continue
        if isinstance(path, str) and not path.startswith(_OURS) and not places.in_stdlib(path):
            files.append([codec.clean(name), codec.clean(path)])
    return files


def _threads() -> int:
    """Threads beside this one: all of them where there is a /proc, else those that Python knows."""
    try:
        return len(posix.listdir("/proc/self/task")) - 1
    except OSError:
        import _thread

        return _thread._count()


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = "<no message>"
    return codec.clean(f"{type(error).__name__}: {text}"[:_MESSAGE_CHARACTERS])
