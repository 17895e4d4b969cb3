"""Names of the standard library's that a function, or a package, has modules of: see `stdlib`."""

import sys
from posix import listdir

from lambswool_guest import stdlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def taken(names: frozenset[str], directories: list[str]) -> set[str]:
    """Those of the names that others have modules of, loaded or to be found first."""
    modules = stdlib.modules
    taken = {name for name in names if name in modules and not stdlib.is_own(modules[name])}
    for directory in sys.path:
        if directory in directories:
            break
        try:
            entries = listdir(directory or ".")
        except (OSError, TypeError, ValueError):  # an archive, or nothing
            continue
        taken |= names & {entry.partition(".")[0] for entry in entries}
    return taken


def imported(name: str, taken: set[str], directories: list[str], first: str) -> "ModuleType":
    """The standard library's module of this name, found in the interpreter's own directories
    alone."""
    modules = stdlib.modules
    path = list(sys.path)
    others = {}
    for one in list(modules):
        if one.partition(".")[0] in taken and not stdlib.is_own(modules[one]):
            others[one] = modules.pop(one)
    before = set(modules)
    sys.path[:] = directories
    try:
        __import__(name)
        found = modules[name]
        if first:
            getattr(found, first)()
        return found
    finally:
        sys.path[:] = path
        for one in modules.keys() - before:
            if one.partition(".")[0] in taken:
                del modules[one]
        modules.update(others)
