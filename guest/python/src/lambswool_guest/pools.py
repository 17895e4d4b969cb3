"""Thread pools of numeric libraries: one thread in a zygote, the handler's own number in a fork.

A fork takes only the forking thread along, so sandboxes start with variables that keep every pool
at one thread. The handler gets the number back: by the same variables for what it imports later,
and for what its zygote has loaded by the library's own function. That is looked up in the zygote,
where nobody waits; a handler without such libraries pays four assignments.
"""

import sys
from posix import environ, putenv

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

_VARIABLES = (
    b"OPENBLAS_NUM_THREADS",
    b"OMP_NUM_THREADS",
    b"MKL_NUM_THREADS",
    b"NUMEXPR_NUM_THREADS",
)
_USERS = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath", "scipy.linalg._fblas")
"""Modules that are linked to such a library, the wheels' own copies included."""
_SETTERS = {
    "scipy_openblas_set_num_threads64_": b"OPENBLAS_NUM_THREADS",
    "scipy_openblas_set_num_threads": b"OPENBLAS_NUM_THREADS",
    "openblas_set_num_threads64_": b"OPENBLAS_NUM_THREADS",
    "openblas_set_num_threads": b"OPENBLAS_NUM_THREADS",
    "MKL_Set_Num_Threads": b"MKL_NUM_THREADS",
}

_OPENMP = ("libgomp", "libomp", "libiomp5")
"""Its libraries, as wheels and distributions name them, whatever hash stands behind."""

_LINK_MAP = 2
"""RTLD_DI_LINKMAP of `dlfcn.h`."""

most = 1 << 16
"""Threads that a pool may have at most; a micro-VM has one processor, and no threads."""

_found: dict[str, list[tuple[bytes, "Callable"]]] = {}


def find() -> None:
    """In a zygote, after it has imported: remembers how to set the pools that are loaded."""
    _rehearse()
    for name in _USERS:
        module = sys.modules.get(name)
        if module is not None and name not in _found:
            _found[name] = _setters(getattr(module, "__file__", None), _SETTERS)
    # Whoever loads OpenMP has ctypes by then: numpy imports it, and who has no numpy calls by it.
    if "ctypes" in sys.modules:
        for path in _libraries():
            if path not in _found and path.rpartition("/")[2].startswith(_OPENMP):
                _found[path] = _setters(path, {"omp_set_num_threads": b"OMP_NUM_THREADS"})
    numexpr = sys.modules.get("numexpr")
    set_threads = getattr(numexpr, "set_num_threads", None)
    if set_threads is not None:
        _found["numexpr"] = [(b"NUMEXPR_NUM_THREADS", set_threads)]


def _rehearse() -> None:
    """Multiplies once, with the one thread that there is: some forty pages less to be written to in
    each fork that does."""
    linalg = sys.modules.get("numpy.linalg")
    try:
        identity = linalg.inv([[1.0, 0.0], [0.0, 1.0]])  # type: ignore[union-attr]
        identity @ identity
    except BaseException:  # there is no numpy, or one that somebody has patched
        return


def restore(threads: int, own: dict[str, str]) -> None:
    """In an instance, before the handler is imported: that many threads, but where its own
    environment says otherwise."""
    threads = min(threads, most)
    number = b"%d" % threads
    for variable in _VARIABLES:
        if variable.decode() not in own:
            putenv(variable, number)
            environ[variable] = number
    for setters in _found.values():
        for variable, set_threads in setters:
            wanted = own.get(variable.decode(), "")
            number = int(wanted) if wanted.isdecimal() and int(wanted) > 0 else threads
            try:
                set_threads(min(number, most))
            except Exception:  # it has one thread, then: the handler is right, and slower
                continue


def _libraries() -> list[str]:
    """The shared libraries that are loaded, from the linker's list: there need not be a /proc."""
    import ctypes

    class Library(ctypes.Structure):
        # The beginning of link_map, dlinfo(3).
        _fields_ = (
            ("address", ctypes.c_void_p),
            ("name", ctypes.c_char_p),
            ("dynamic", ctypes.c_void_p),
            ("next", ctypes.c_void_p),
        )

    program, at = ctypes.CDLL(None), ctypes.c_void_p()
    try:
        failed = program.dlinfo(ctypes.c_void_p(program._handle), _LINK_MAP, ctypes.byref(at))
    except AttributeError:
        return []
    found = []
    while not failed and at.value:
        library = Library.from_address(at.value)
        found.append((library.name or b"").decode("utf-8", "replace"))
        at = ctypes.c_void_p(library.next)
    return found


def _setters(path: str | None, names: dict[str, bytes]) -> list[tuple[bytes, "Callable"]]:
    # numpy imports it as well.
    import ctypes

    try:
        # Loaded already: a symbol is looked up in it and in all that it is linked to.
        library = ctypes.CDLL(path)
    except (OSError, TypeError):
        return []
    found = []
    for name, variable in names.items():
        try:
            function = library[name]
        except AttributeError:
            continue
        function.argtypes, function.restype = [ctypes.c_int], None
        if variable == b"OPENBLAS_NUM_THREADS":
            found.append((variable, _at_first_use(library, function)))
        else:
            found.append((variable, function))
    return found


def _at_first_use(library: "ctypes.CDLL", set_threads: "Callable") -> "Callable":
    """Like `set_threads` of OpenBLAS, which starts the threads at once, and they spin: milliseconds
    of all processors for a handler that may never multiply. A pool that was shut down starts as
    many as it should have when it is first needed: so it is shut down here, in the zygote, where it
    has no thread, and a fork tells it the number only."""
    import ctypes

    names = ("blas_server_avail", "blas_num_threads", "blas_cpu_number")
    try:
        started, threads, shared_among = (ctypes.c_int.in_dll(library, name) for name in names)
        library.blas_thread_shutdown_()
    except (AttributeError, ValueError):
        return set_threads

    def set_at_first_use(number: int) -> None:
        if started.value:
            set_threads(number)
        else:
            threads.value = shared_among.value = number

    return set_at_first_use
