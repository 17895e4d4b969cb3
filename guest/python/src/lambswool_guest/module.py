"""The handler's module from its bytecode, without asking the import system.

`import` asks every finder, makes one for the directory, lists it and looks for each suffix: some
two hundred calls, of which each writes to pages that a fork shares with its zygote. A deployed
handler is one file beside its bytecode, which says itself that it need not be checked against the
source (PEP 552). Whatever is not exactly that is left to `import`. The module looks the same either
way: what reads `__spec__`, reloads or pickles finds what it expects.
"""

import builtins
import marshal
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader  # type: ignore[attr-defined]
from posix import O_CLOEXEC, O_RDONLY, close, fstat, read
from posix import open as open_file

_UNCHECKED = MAGIC_NUMBER + b"\x01\x00\x00\x00"
_HEADER_BYTES = 16
_TAG = sys.implementation.cache_tag
_BUILT_IN = frozenset(sys.builtin_module_names)


def load(name: str, directory: str, entries: list[str]) -> object | None:
    """The module `name`, executed and in `sys.modules`; None when it is not ours to load. `entries`
    is what the directory holds. Raises what the module raises."""
    if name in sys.modules or name in _BUILT_IN or not _is_one_file(name, entries):
        return None
    cached = f"{directory}/__pycache__/{name}.{_TAG}.pyc"
    bytecode = _read(cached)
    if not bytecode.startswith(_UNCHECKED):
        return None
    code = marshal.loads(memoryview(bytecode)[_HEADER_BYTES:])
    file = f"{directory}/{name}.py"
    loader = SourceFileLoader(name, file)
    spec = ModuleSpec(name, loader, origin=file)
    spec._set_fileattr = True  # type: ignore[attr-defined]
    spec.cached = cached
    module = type(sys)(name)
    vars(module).update(
        __spec__=spec,
        __loader__=loader,
        __package__="",
        __file__=file,
        __cached__=cached,
        # Else `exec` gives it those of the guest.
        __builtins__=vars(builtins),
    )
    sys.modules[name] = module
    try:
        exec(code, vars(module))
    except BaseException:
        sys.modules.pop(name, None)
        raise
    # As `import` does: a module may put something else in its place.
    return sys.modules[name]


def _is_one_file(name: str, entries: list[str]) -> bool:
    """Whether a source file, and nothing that `import` would prefer to it, has the name."""
    same = [entry for entry in entries if entry.partition(".")[0] == name]
    return same == [f"{name}.py"]


def _read(path: str) -> bytes:
    try:
        fd = open_file(path, O_RDONLY | O_CLOEXEC)
    except OSError:
        return b""
    try:
        size = fstat(fd).st_size
        return read(fd, size)
    finally:
        close(fd)
