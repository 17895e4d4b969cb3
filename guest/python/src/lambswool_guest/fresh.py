"""A fresh interpreter that becomes an instance: `instance.pyc [--task DIR] [--packages DIR]`.

`instance.pyc` is this file with all modules of an instance inside: to find and read a dozen files
one by one takes a fresh interpreter a millisecond, a seventh of its whole start. READY is said
first, so that the worker does its part meanwhile: before the modules are even read from the bytes
that hold them. The collector waits until they are there, and then never looks at them.
"""

import _imp
import builtins
import marshal
import posix
import sys
from _frozen_importlib import ModuleSpec, _load  # type: ignore[attr-defined]
from _frozen_importlib_external import ExtensionFileLoader

MODULES = b"the modules of an instance"
"""`bundle.py` puts them here, marshalled: (name, file, code) of each, behind those that it
imports."""
PACKAGE = "lambswool_guest"
CHANNEL = 3


def say_ready() -> None:
    """The frame of `wire.py`, which is not here yet."""
    header = b'{"kind":"ready","pid":%d}' % posix.getpid()
    posix.write(CHANNEL, len(header).to_bytes(4, "little") + bytes(4) + header)


def load_extension(name: str) -> None:
    """Has a module of the standard library's in `sys.modules` as its import would, which lists two
    directories first. Where it is elsewhere, its import finds it."""
    if name in sys.builtin_module_names or not sys.path:
        return
    file = f"{sys.path[-1]}/{name}{_imp.extension_suffixes()[0]}"
    spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
    spec._set_fileattr = True  # type: ignore[attr-defined]
    try:
        _load(spec)
    except ImportError:
        return


def unpack(modules: tuple) -> None:
    """Has them imported as the files that they come from would be; others are found through the
    package's `__path__`. A function may put its own in the place of `open` or `isinstance`: the
    guest's are those that the interpreter has now."""
    own = dict(vars(builtins))
    for name, file, code in modules:
        module = type(sys)(name)
        module.__file__ = file
        module.__package__ = PACKAGE
        module.__builtins__ = own
        sys.modules[name] = module
        if name == PACKAGE:
            module.__path__ = [file.rpartition("/")[0]]
        exec(code, module.__dict__)
        if name != PACKAGE:
            setattr(sys.modules[PACKAGE], name.rpartition(".")[2], module)


# `multiprocessing` runs this file again, under another name, in what it spawns.
if __name__ == "__main__":
    say_ready()
    import gc

    gc.disable()
    load_extension("_json")
    unpack(marshal.loads(MODULES))
    from lambswool_guest import instance
    from lambswool_guest.places import Places

    gc.freeze()
    gc.enable()
    instance.serve(CHANNEL, Places.told(sys.argv[1:], list(sys.path)))
