"""Modules of the standard library, whatever names a function has taken.

What the guest needs for each call it holds before a function's file is loaded. What few calls need
(`traceback`, `asyncio`, `ctypes`) is imported when one does, and then a function's own `types.py`,
or a package called `enum`, must not be what is found. So such an import sees the interpreter's own
directories alone, and leaves no module behind under a name that is taken.

```text
  no name is taken   the plain import
  some are           others' modules of such names are set aside ─► import ─► they are put back
```
"""

import sys
from posix import listdir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from lambswool_guest.places import Places

_NAMES = sys.stdlib_module_names
# The interpreter's own dictionary: a function can put another in the place of `sys.modules`.
modules = sys.modules
_held: "dict[str, ModuleType]" = {}
_directories: list[str] = []


def begin(places: "Places") -> None:
    """Before any module that is not the interpreter's: says where those are."""
    _directories[:] = places.stdlib


def hold(*names: str) -> None:
    """Keeps what is imported already, for `module`."""
    for name in names:
        if name in modules:
            _held[name] = modules[name]


def module(name: str, first: str = "") -> "ModuleType":
    """The standard library's module of this name. Raises what its import raises. `first` is a
    function of it that imports more, and is called where its own names are found."""
    if name not in _held:
        taken = _taken()
        if taken:
            _held[name] = _imported_among_others(name, taken, first)
        else:
            __import__(name)
            _held[name] = modules[name]
    return _held[name]


def loaded(name: str) -> "ModuleType | None":
    """What `sys.modules` has by this name, if it is the standard library's."""
    found = modules.get(name)
    return found if found is not None and is_own(found) else None


def is_own(module: object) -> bool:
    """Whether a module is the standard library's."""
    try:
        names = object.__getattribute__(module, "__dict__")
        file, spec = names.get("__file__"), names.get("__spec__")
        return is_place(file if file is not None else getattr(spec, "origin", None))
    except Exception:  # not every entry of `sys.modules` is a module
        return False


def is_place(origin: object) -> bool:
    """Whether a module of this file, or of none, is the standard library's."""
    if type(origin) is not str or "/site-packages/" in origin or "/dist-packages/" in origin:
        return False
    if origin in ("built-in", "frozen"):
        return True
    return any(origin.startswith(f"{directory}/") for directory in _directories)


def _taken() -> set[str]:
    """Names of the standard library's that others have modules of, loaded or to be found first."""
    if not _directories:  # no instance: there is no function
        return set()
    taken = {name for name in _NAMES if name in modules and not is_own(modules[name])}
    for directory in sys.path:
        if directory in _directories:
            break
        try:
            entries = listdir(directory or ".")
        except (OSError, TypeError, ValueError):  # an archive, or nothing
            continue
        taken |= _NAMES & {entry.partition(".")[0] for entry in entries}
    return taken


def _imported_among_others(name: str, taken: set[str], first: str) -> "ModuleType":
    path = list(sys.path)
    others = {}
    for one in list(modules):
        if one.partition(".")[0] in taken and not is_own(modules[one]):
            others[one] = modules.pop(one)
    before = set(modules)
    sys.path[:] = _directories
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
