"""Importing for children, and what it did; and what a handler imported.

Modules are imported each on its own; whatever one raises, `sys.exit` included, is reported and
stops no other. The report names every file that came from outside the standard library: the worker
compares it with the lock. It says how long each of them took by itself and which of them asked for
it first, which of the modules asked for left something behind that forks lack, and what each looked
up: environment variables, and modules and distributions that were not there. A handler that sets
such a variable, or has such a package, cannot share what came of that.
"""

import _frozen_importlib  # type: ignore[import-not-found]
import _signal
import posix
import sys
import time

from lambswool_guest import codec, scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from lambswool_guest.places import Places

_OURS = __file__.rpartition("/")[0] + "/"
_MESSAGE_CHARACTERS = 500
_FAILURES = 64
_DESCRIPTORS = 256
_VARIABLES_CHARACTERS = 4096
_VARIABLE_CHARACTERS = 200
_TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)
_ALL = ["*", "AWS_LAMBDA_*", "_HANDLER"]
"""Every variable that a handler may have a value of its own for."""
_ANY_PACKAGE = "=*"
"""All distributions were gone through: one more would be seen. No variable's name has a `=`."""
_MARK = type(sys)(__name__)
"""Stands in `sys.modules` for this module, and has no file."""


def run(modules: list[str], path: list[str], places: "Places") -> dict:
    """The fields of an `imported` message."""
    _extend(path, places)
    before, path_before = set(sys.modules), list(sys.path)
    open_before, left = _open(), _left(places)
    failed = []
    left_by = []
    clock = _Clock()
    with _Lookups(clock, path) as lookups:
        for name in modules:
            try:
                clock.time(name)
            except BaseException as error:
                failed.append([name, _words(error)])
            if left != (left := _left(places)):
                left_by.append(name)
    _note_added(places, path_before, sys.path)
    _forget_finders(places)
    files = _files([name for name in sys.modules if name not in before], places)
    named = {name for name, _ in files}
    variables = lookups.by(named)
    elsewhere = [[name, names] for name, names in variables.items() if name not in named]
    if sum(len(one) for _, names in elsewhere for one in names) > _VARIABLES_CHARACTERS:
        elsewhere = [[name, [*_ALL, _ANY_PACKAGE]] for name, _ in elsewhere]
    return {
        "milliseconds": clock.total * 1000,
        "files": [
            [*file, clock.own(file[0]), clock.asked_by(file[0], named), variables.get(file[0], [])]
            for file in files
        ],
        "variables": elsewhere[:_FAILURES],
        "threads": _threads(),
        "fds": max(0, _open() - open_before),
        "scratch": not scratch.remember(places.scratch),
        "timers": _timers(),
        "left_by": left_by,
        "failed": failed[:_FAILURES],
    }


# Most bytes of names that the worker takes. Whoever imports more is known by its first modules.
MOST = 1 << 20


class Witness:
    """Notices what is imported from the packages.

    Modules stand in the order in which they came, so what is new stands behind a mark. To note all
    that are there would count a reference to each name, and a fork copies the page of whatever it
    counts.
    """

    def __init__(self, places: "Places") -> None:
        self._packages = places.packages + "/"
        _mark()

    def seen(self) -> bytes:
        """The modules that came since this was asked last, a line each."""
        theirs = [name for name in _behind_mark() if _file(name).startswith(self._packages)]
        _mark()
        said = codec.clean("\n".join(theirs)).encode()
        return said[: max(0, said.rfind(b"\n", 0, MOST))] if len(said) > MOST else said


def _mark() -> None:
    """Makes the mark the last one."""
    sys.modules.pop(__name__, None)
    sys.modules[__name__] = _MARK


def _behind_mark() -> list[str]:
    """Those that came after the mark. None when somebody has taken it away."""
    while __name__ in sys.modules:
        names: list[str] = []
        try:
            for name in reversed(sys.modules):
                if name == __name__:
                    return names[::-1]
                names.append(name)
        except RuntimeError:  # another thread imports
            continue
    return []


class _Clock:
    """How long imports take by themselves, and who asked for them. What `-X importtime` tells."""

    def __init__(self) -> None:
        self.total = 0.0
        self._own: dict[str, float] = {}
        self._asked_by: dict[str, str] = {}
        self._stack: list[tuple[str, list[float]]] = []

    def time(self, name: str) -> None:
        """Imports it. Raises what that raises."""
        real = _frozen_importlib._find_and_load
        begin = time.perf_counter()

        def timed(name: str, import_: "Callable") -> object:
            return self._timed(real, name, import_)

        # Whatever is imported and not there yet comes through this function.
        _frozen_importlib._find_and_load = timed
        try:
            __import__(name)
        finally:
            _frozen_importlib._find_and_load = real
            self.total += time.perf_counter() - begin

    def own(self, name: str) -> float:
        """Milliseconds that it took, without what it imported."""
        return self._own.get(name, 0.0) * 1000

    def asked_by(self, name: str, among: set[str]) -> str:
        """The nearest of `among` on whose behalf it was imported; empty when there is none."""
        while (name := self._asked_by.get(name, "")) and name not in among:
            pass
        return name

    def asked_for(self, name: str) -> str:
        """The module that was asked for, on whose behalf it was imported."""
        while above := self._asked_by.get(name, ""):
            name = above
        return name

    def importing(self) -> str:
        """The module whose import goes on; empty when none does."""
        return self._stack[-1][0] if self._stack else ""

    def _timed(self, real: "Callable", name: str, import_: "Callable") -> object:
        above = self._stack[-1] if self._stack else ("", [0.0])
        self._asked_by.setdefault(name, above[0])
        inside = [0.0]
        self._stack.append((name, inside))
        begin = time.perf_counter()
        try:
            return real(name, import_)
        finally:
            took = time.perf_counter() - begin
            self._stack.pop()
            self._own[name] = self._own.get(name, 0.0) + took - inside[0]
            above[1][0] += took


class _Name(str):
    """A variable's name, for whoever goes through all of them: knows what it was asked to begin
    with, and whether it was of use beyond that."""

    begins: "set[str] | None"
    taken = False

    def startswith(self, prefix: "str | tuple[str, ...]", *limits: int) -> bool:
        answer = super().startswith(prefix, *limits)
        if self.begins is not None and not limits:
            self.begins.update(prefix if isinstance(prefix, tuple) else [prefix])
        return answer

    def __eq__(self, other: object) -> bool:
        self.taken = True
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        self.taken = True
        return super().__ne__(other)

    def __hash__(self) -> int:
        self.taken = True
        return super().__hash__()

    def __reduce__(self) -> tuple:
        return str, (str(self),)


class _Lookups:
    """What modules look up while they are imported, and might find in another handler's process.

    Each variable by its name. `os.environ` encodes each name that it is asked for. Who goes through
    all names, asks each for its beginning and lets it go is concerned by those alone that begin so:
    `NUMBA_*`. What goes around `os.environ`, as native code's `getenv`, is not seen.

    Modules that no finder finds, as `=import lxml`, and distributions that are asked for by name,
    as `=distribution numexpr`, or all of them, as `=*`. Those that are there may be among them: the
    worker knows them. Who lists a directory that several distributions have in common, as
    `pkgutil.iter_modules` does to find plug-ins, has gone through all.
    """

    def __init__(self, clock: _Clock, path: list[str]) -> None:
        self._clock = clock
        self._path = path
        self._seen: dict[str, set[str]] = {}
        self._gone_through: list[tuple[str, list[_Name]]] = []

    def __enter__(self) -> "_Lookups":
        import os

        self._kind, self._hooked = os._Environ, []
        # A package may have put something else there, which does not tell.
        self._blind = type(os.environ) is not os._Environ
        self._iterate = os._Environ.__iter__
        for environ in (os.environ, os.environb):
            if type(environ) is os._Environ:
                self._hooked.append((environ, environ.encodekey))
                environ.encodekey = self._noting(environ.encodekey)

        def iterate(own: object) -> "Iterator":
            if own is not os.environ:
                self._note("*")
                yield from self._iterate(own)
                return
            names: list[_Name] = []
            self._gone_through.append((self._clock.importing(), names))
            for name in self._iterate(own):
                one = _Name(name)
                one.begins = set()
                names.append(one)
                yield one

        self._kind.__iter__ = iterate  # type: ignore[method-assign]
        self._last = _Last(self._note)
        sys.meta_path.append(self._last)  # type: ignore[arg-type]
        self._os, self._lists = os, {name: getattr(os, name) for name in ("listdir", "scandir")}
        for name, real in self._lists.items():
            watching = self._watching(real)
            setattr(os, name, watching)
            # Modules look there for what they may call with a descriptor.
            os.supports_fd.add(watching)
        return self

    def _watching(self, real: "Callable") -> "Callable":
        def watching(path: object = None) -> object:
            if self._lists:
                self._listed(path, sys._getframe(1))
            return real(path)

        watching.__name__, watching.__doc__ = real.__name__, real.__doc__
        return watching

    def _listed(self, path: object, caller: "FrameType") -> None:
        """Notes who lists what several distributions have in common. Who looks for one of them
        asks the finders, too, and lists only to find its name."""
        if caller.f_globals.get("__name__", "").startswith(
            ("importlib.metadata", "importlib_meta")
        ):
            return
        try:
            where = posix.fspath("." if path is None else path)  # type: ignore[call-overload]
        except TypeError:  # a descriptor, or nothing that can be listed
            return
        text = where.decode("utf-8", "surrogateescape") if isinstance(where, bytes) else where
        inside = self._os.path.abspath(text) + "/"
        for packages in self._path:
            below = f"{packages}/"
            if inside.startswith(below):
                top = inside[len(below) :].partition("/")[0]
                if not top or not _exists(f"{below}{top}/__init__.py"):
                    self._note(_ANY_PACKAGE)

    def _noting(self, encode: "Callable") -> "Callable":
        def noting(name: "str | bytes") -> bytes:
            encoded = encode(name)
            if type(name) is not _Name:
                self._note(encoded.decode("utf-8", "surrogateescape"))
            return encoded

        return noting

    def __exit__(self, *_: object) -> None:
        for environ, encode in self._hooked:
            environ.encodekey = encode
        self._kind.__iter__ = self._iterate  # type: ignore[method-assign]
        if self._last in sys.meta_path:
            sys.meta_path.remove(self._last)  # type: ignore[arg-type]
        lists, self._lists = self._lists, {}
        for name, real in lists.items():
            self._os.supports_fd.discard(getattr(self._os, name))
            setattr(self._os, name, real)
        for module, names in self._gone_through:
            begins: set[str] = set()
            while names:
                one = names.pop()
                # Held by this frame and by the call alone.
                some = one.begins and not one.taken and sys.getrefcount(one) <= 2
                begins |= (one.begins or {""}) if some else {""}
                one.begins = None
            seen = self._seen.setdefault(module, set())
            seen.update({"*"} if "" in begins else (f"{begin}*" for begin in begins))

    def by(self, among: set[str]) -> dict[str, list[str]]:
        """By module, counting what others looked up on its behalf to the nearest of `among`, or,
        where there is none, to the module that was asked for."""
        if self._blind:
            return {module: ["*", _ANY_PACKAGE] for module in among}
        found: dict[str, set[str]] = {}
        for module, names in self._seen.items():
            nearest = module if module in among else self._clock.asked_by(module, among)
            found.setdefault(nearest or self._clock.asked_for(module), set()).update(names)
        # It goes through all distributions by itself.
        if "pkg_resources" in among:
            found.setdefault("pkg_resources", set()).add(_ANY_PACKAGE)
        return {module: _few(names) for module, names in found.items()}

    def _note(self, name: str) -> None:
        self._seen.setdefault(self._clock.importing(), set()).add(name)


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


class _Last:
    """The last of the finders: what it is asked for, nobody else has found."""

    def __init__(self, note: "Callable[[str], None]") -> None:
        self._note = note

    def find_spec(self, name: str, *_: object) -> None:
        # What Python has on other systems has nobody else.
        if name.partition(".")[0] not in sys.stdlib_module_names:
            self._note(f"=import {name}")

    def find_distributions(self, context: object = None) -> "Iterator":
        name = getattr(context, "name", None)
        named = isinstance(name, str) and f"=distribution {_normalised(name)}"
        self._note(named or _ANY_PACKAGE)
        return iter(())


def _normalised(name: str) -> str:
    """The name of a distribution as locks have it (PEP 503)."""
    return "-".join(
        part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part
    )


def _few(names: set[str]) -> list[str]:
    """The names, or, where they do not fit into a message, all that anybody sets or has."""
    return _some({name for name in names if not name.startswith("=")}, _ALL) + _some(
        {name for name in names if name.startswith("=")}, [_ANY_PACKAGE]
    )


def _some(names: set[str], every: list[str]) -> list[str]:
    long = any(len(name) > _VARIABLE_CHARACTERS for name in names)
    if long or sum(map(len, names)) > _VARIABLES_CHARACTERS:
        return every
    return sorted(codec.clean(name) for name in names)


def _extend(path: list[str], places: "Places") -> None:
    """Packages stand before the standard library, and the environment says where, as in an
    instance."""
    import os

    os.environ.update(places.variables())
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]


def _forget_finders(places: "Places") -> None:
    """Whoever comes of this process has other contents behind the same names. Here, where nobody
    waits: a finder lists its directory, and a fork that lets go of it writes to each name."""
    for entry in list(sys.path_importer_cache):
        if not _in_stdlib(places, f"{entry}/"):
            del sys.path_importer_cache[entry]


def _note_added(places: "Places", before: list[str], after: list) -> None:
    """Notes what has come to a zygote's `sys.path`, for all that come of it. Not the directory
    that it works in: theirs is another, and they have that."""
    first = places.stdlib[0] if places.stdlib else ""
    limit = after.index(first) if first in after else 0
    ahead, behind = places.added
    known = [*before, *ahead, *behind]
    try:
        known.append(posix.getcwd())
    except OSError:  # imports have deleted it
        pass
    new = [
        (at < limit, entry)
        for at, entry in enumerate(after)
        if isinstance(entry, str) and entry not in known
    ]
    places.added = (
        [entry for is_ahead, entry in new if is_ahead] + ahead,
        behind + [entry for is_ahead, entry in new if not is_ahead],
    )


def _in_stdlib(places: "Places", path: str) -> bool:
    """Whether `path` belongs to the interpreter."""
    if "/site-packages/" in path or "/dist-packages/" in path:
        return False
    return any(path.startswith(f"{directory}/") for directory in places.stdlib)


def _files(names: list[str], places: "Places") -> list[list[str]]:
    files = []
    for name in names:
        path = _file(name)
        if path and not path.startswith(_OURS) and not _in_stdlib(places, path):
            files.append([codec.clean(name), codec.clean(path)])
    return files


def _file(name: str) -> str:
    """The file that a module came from; empty when it has none."""
    try:
        path = object.__getattribute__(sys.modules[name], "__dict__").get("__file__")
    except Exception:  # not every entry is a module
        return ""
    return path if isinstance(path, str) else ""


def _left(places: "Places") -> tuple[int, int, bool, bool]:
    """What changes when an import leaves something behind: threads, the lowest descriptor that is
    free, whether the scratch can be remembered, and whether a timer is set."""
    lowest = posix.open("/", posix.O_RDONLY | posix.O_CLOEXEC)
    posix.close(lowest)
    return _threads(), lowest, scratch.remember(places.scratch), _timers()


def _timers() -> bool:
    """Whether an interval timer is set: a fork has none."""
    return any(any(_signal.getitimer(which)) for which in _TIMERS)


def _open() -> int:
    """Descriptors that are open; there need not be a /proc."""
    count = 0
    for fd in range(_DESCRIPTORS):
        try:
            posix.fstat(fd)
        except OSError:
            continue
        count += 1
    return count


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
