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

from lambswool_guest import shadowing

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
        # Where there are no directories this is no instance, and there is no function.
        taken = shadowing.taken(_NAMES, _directories) if _directories else None
        if taken:
            _held[name] = shadowing.imported(name, taken, _directories, first)
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
