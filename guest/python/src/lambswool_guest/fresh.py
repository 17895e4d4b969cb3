"""A fresh interpreter that becomes an instance: `instance.pyc [--task DIR] [--packages DIR]`.

`instance.pyc` is this file with all modules of an instance inside: to find and read a dozen files
one by one takes a fresh interpreter a millisecond, a seventh of its whole start. READY is said
first, so that the worker does its part meanwhile: before the modules are even read from the bytes
that hold them. The collector waits until they are there, and then never looks at them. What few
instances need is executed when one does, from bytes that it holds from its start.
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
imports; of one in `bundle.LATER` the code is marshalled once more."""
PACKAGE = "lambswool_guest"
CHANNEL = 3

_loads = marshal.loads


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


class Later:
    """A module that is executed when something of it is first looked up."""

    def __init__(self, file: str, code: bytes, own: dict, held: dict) -> None:
        self._file = file
        self._code = code
        self._own = own
        self._held = held
        self._names: dict | None = None

    def __getattr__(self, name: str) -> object:
        if self._names is None:
            import_other, held = self._own["__import__"], self._held

            # What a function has made of `sys.modules` by now is nothing to the guest.
            def import_held(name: str, *rest: object, **more: object) -> object:
                return held[name] if name in held else import_other(name, *rest, **more)

            names = {
                "__file__": self._file,
                "__name__": f"{PACKAGE}.later",
                "__builtins__": {**self._own, "__import__": import_held},
            }
            exec(_loads(self._code), names)
            # Not before: a signal handler may have raised half-way.
            self._names = names
        try:
            return self._names[name]
        except KeyError:
            raise AttributeError(name) from None


def unpack(modules: tuple) -> None:
    """Has them imported as the files that they come from would be; others are found through the
    package's `__path__`. A function may put its own in the place of `open` or `isinstance`: the
    guest's are those that the interpreter has now."""
    own = dict(vars(builtins))
    held = {"posix": posix, "sys": sys}
    import_other, there = own["__import__"], sys.modules

    # Nearly all that they import is there, which the import system finds out in several steps.
    def import_there(name: str, *rest: object) -> object:
        return there[name] if name in there else import_other(name, *rest)

    own["__import__"] = import_there
    for name, file, code in modules:
        if type(code) is bytes:
            setattr(sys.modules[PACKAGE], name.rpartition(".")[2], Later(file, code, own, held))
            continue
        module = held[name] = type(sys)(name)
        module.__file__ = file
        module.__package__ = PACKAGE
        module.__builtins__ = own
        sys.modules[name] = module
        if name == PACKAGE:
            module.__path__ = [file.rpartition("/")[0]]
        exec(code, module.__dict__)
        if name != PACKAGE:
            setattr(sys.modules[PACKAGE], name.rpartition(".")[2], module)
    own["__import__"] = import_other


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
