"""Randomness after a fork or a clone: siblings must not draw the same numbers.

`random` reseeds itself through its at-fork hook. OpenSSL ≥ 3.0, whenever it is used, notices a new
pid, which forks have and clones of a machine are given; 1.1.1 relies on hooks of the C library's
`fork`, which a raw fork does not run: Python's own is given fresh entropy here. numpy's global
generator has no hook at all.
SQLite has one generator for all connections, which seeds itself at its first use and then never
again, but where a pid differs, and sandboxes all have the same: what forks and clones come from
makes it forget its seed, so that each of them draws another from the kernel when it needs one.
Hash randomisation (`PYTHONHASHSEED`) stays common to all children of a zygote: it cannot change in
a live interpreter.

A function may have a `random.py`, or a `numpy` folder, of its own: only what is the standard
library's, or native, is seeded. What fails here ends no instance.
"""

import posix
import sys
from posix import getpid, urandom

from lambswool_guest import generation, stdlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_MT19937_KEY_BYTES = 624 * 4
_MT19937_USED_UP = (624).to_bytes(4, sys.byteorder)
_MULTICAST = 1 << 40
"""Set in a node that is no network card's (RFC 9562)."""

_before: list = []
_in_child: list = []
_sqlite3_randomness: "Callable | None" = None
_pid_of_openssl = 0
"""Where its generators were last used."""
_numpy_state: "memoryview | None" = None
"""Of its global generator: 624 words, and how many of them were used."""
_numpy_settled = b""
"""What that was before the forks."""
_numpy_generators: list = []
"""Whose state that is: it must stay where it is."""
_known: "dict[str, ModuleType]" = {}
"""Modules that were there before the forks: a function's own may stand in their places later."""


def after_fork() -> None:
    """In every child, before anything else runs."""
    generation.renew()
    if _is_plain():
        return
    try:
        _seed_numpy()
        _seed_openssl()
        _take_node()
    except Exception:  # a library that is made otherwise
        return


def _is_plain() -> bool:
    """Whether there is nothing to seed: to find that out otherwise, for one library after the
    other, writes to pages of a clone's."""
    modules = stdlib.modules
    return not (
        _known
        or "random" in modules
        or "uuid" in modules
        or "_ssl" in modules
        or "numpy.random.mtrand" in modules
    )


def _seed_numpy() -> None:
    if _numpy_state is not None:
        _numpy_state[:] = urandom(_MT19937_KEY_BYTES) + _MT19937_USED_UP
        return
    mtrand = _mtrand()
    if mtrand is not None:
        seed = urandom(16)
        _seed(mtrand, [int.from_bytes(seed[at : at + 4], "little") for at in range(0, 16, 4)])


def _seed_openssl() -> None:
    ssl = _module("_ssl")
    if ssl is not None and (ssl.OPENSSL_VERSION_INFO < (3,) or getpid() == _pid_of_openssl):
        ssl.RAND_add(urandom(32), 32.0)


def _take_node() -> None:
    uuid = _module("uuid")
    if uuid is not None:
        # A made-up node would be the same in all siblings, and so are the node and the clock that
        # libuuid never forgets once it was asked: `uuid1` asks it no more.
        node = int.from_bytes(urandom(6), "little") | _MULTICAST
        uuid._node, uuid._generate_time_safe = node, None  # type: ignore[attr-defined]


def _number_thread() -> None:
    """A machine's first thread has the machine's pid for its number, which Python keeps."""
    threading = _module("threading")
    try:
        threading._main_thread._native_id = posix.getpid()  # type: ignore[union-attr]
    except Exception:  # it was not imported, or is made otherwise
        return


def _module(name: str) -> "ModuleType | None":
    """The standard library's, also where a function's own has taken its place."""
    return stdlib.loaded(name) or _known.get(name)


def _mtrand() -> "ModuleType | None":
    """The module of numpy's global generator: a library, and no file of Python's."""
    module = sys.modules.get("numpy.random.mtrand")
    file = getattr(module, "__file__", None)
    if isinstance(file, str) and file.endswith(".so"):
        return module
    return _known.get("numpy.random.mtrand")


def before_forks() -> None:
    """In a zygote after it has imported, in a machine before it is frozen: not where each call
    waits, since to import ctypes takes milliseconds. Forks pay nothing for it."""
    global _sqlite3_randomness, _pid_of_openssl
    for name in ("random", "threading", "uuid", "_ssl", "_sqlite3"):
        if (module := stdlib.loaded(name)) is not None:
            _known[name] = module
    ssl = _module("_ssl")
    if ssl is not None:
        # Its generators are made here, which takes half a millisecond.
        try:
            ssl.RAND_bytes(1)
        except Exception:  # it is configured to have none, as a broken FIPS module has
            pass
        _pid_of_openssl = getpid()
    _find_state_of_numpy()
    sqlite = _module("_sqlite3")
    if sqlite is None:
        return
    if _sqlite3_randomness is None:
        try:
            ctypes = stdlib.module("ctypes")
            # Loaded already: a symbol is looked up in it and in all that it is linked to.
            library = ctypes.CDLL(getattr(sqlite, "__file__", None))
            function = library.sqlite3_randomness
        except Exception:  # linked into the interpreter, say, its symbols hidden
            return
        function.argtypes, function.restype = [ctypes.c_int, ctypes.c_void_p], None
        _sqlite3_randomness = function
    _forget_seed_of_sqlite()


def _find_state_of_numpy() -> None:
    """Its own `seed` writes to a hundred pages; to tell its state to one that has forgotten the
    Gaussian number that it had left over, to a few."""
    global _numpy_state, _numpy_settled
    _numpy_state = None
    mtrand = _mtrand()
    if mtrand is None:
        return
    _known["numpy.random.mtrand"] = mtrand
    try:
        mtrand.seed()
        generator = mtrand._rand._bit_generator
        state = generator.state
        if state["bit_generator"] != "MT19937":
            return
        key, position = state["state"]["key"].tobytes(), state["state"]["pos"]
        ctypes = stdlib.module("ctypes")
        there = (ctypes.c_ubyte * (len(key) + 4)).from_address(generator.ctypes.state_address)
        as_expected = bytes(there) == key + position.to_bytes(4, sys.byteorder)
        if as_expected and len(key) == _MT19937_KEY_BYTES:
            _numpy_generators.append(generator)
            _numpy_state, _numpy_settled = memoryview(there).cast("B"), bytes(there)
    except Exception:  # another numpy
        return


def _numpy_has_drawn() -> bool:
    """Whether its global generator has drawn since `before_forks`, or is another one."""
    generator = getattr(getattr(_mtrand(), "_rand", None), "_bit_generator", None)
    return _numpy_state != _numpy_settled or generator is not _numpy_generators[-1]


def _seed(module: "ModuleType | None", *seed: object) -> None:
    """Seeds a module's generator. In a clone another thread may be in the middle of importing it:
    it has none yet."""
    function = getattr(module, "seed", None)
    if function is not None:
        function(*seed)


def _forget_seed_of_sqlite() -> None:
    if _sqlite3_randomness is not None:
        # Documented: with less than one byte, or none to write to, it is seeded anew when it is
        # used next.
        _sqlite3_randomness(0, None)


def remember_hooks() -> None:
    """From now on what packages want done around a fork is known, to be done in clones as well.

    Not what the standard library wants done: that sees to locks of threads that a fork does not
    have any more, and a clone has all of them.
    """
    import functools
    import os

    register = posix.register_at_fork

    @functools.wraps(register)
    def register_at_fork(**hooks) -> None:
        register(**hooks)
        caller = sys._getframe(1).f_globals.get("__name__")
        # A compiled module has no frame: what is seen instead is the import that runs it.
        name = "" if str(caller).startswith(("importlib", "_frozen_importlib")) else str(caller)
        module = name.partition(".")[0]
        if module in sys.stdlib_module_names or module == __package__:
            return
        if "before" in hooks:
            _before.insert(0, hooks["before"])
        if "after_in_child" in hooks:
            _in_child.append(hooks["after_in_child"])

    os.register_at_fork = posix.register_at_fork = register_at_fork


def after_clone() -> None:
    """In a clone of a micro-VM, before anything else runs: nothing was forked, so no hook of
    Python's own has run."""
    # A machine's threads may have drawn since `before_forks`, and left half of a pair of Gaussian
    # numbers over, which only numpy itself forgets.
    global _numpy_state
    if _numpy_state is not None and _numpy_has_drawn():
        _numpy_state = None
    if not _is_plain():
        try:
            _seed(_module("random"))
        except Exception:  # the function has put something else in the place of its `seed`
            pass
    after_fork()
    _forget_seed_of_sqlite()
    _number_thread()
    for hook in [*_before, *_in_child]:
        try:
            hook()
        except Exception as error:
            # As after a fork: it is told, and ignored.
            try:
                sys.excepthook(type(error), error, error.__traceback__)
            except BaseException:  # the function's own
                continue
