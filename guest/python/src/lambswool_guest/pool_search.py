"""Finds the thread pools that are loaded, in a zygote, where nobody waits: see `pools`."""

import sys

from lambswool_guest import pools

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

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


def find() -> None:
    """In a zygote, after it has imported: remembers how to set the pools that are loaded."""
    _rehearse()
    for name in _USERS:
        module = sys.modules.get(name)
        if module is not None and name not in pools.found:
            pools.found[name] = _setters(getattr(module, "__file__", None), _SETTERS)
    # Whoever loads OpenMP has ctypes by then: numpy imports it, and who has no numpy calls by it.
    if "ctypes" in sys.modules:
        for path in _libraries():
            if path not in pools.found and path.rpartition("/")[2].startswith(_OPENMP):
                pools.found[path] = _setters(path, {"omp_set_num_threads": b"OMP_NUM_THREADS"})
    numexpr = sys.modules.get("numexpr")
    set_threads = getattr(numexpr, "set_num_threads", None)
    if set_threads is not None:
        pools.found["numexpr"] = [(b"NUMEXPR_NUM_THREADS", set_threads)]


def _rehearse() -> None:
    """Multiplies once, with the one thread that there is: some forty pages less to be written to in
    each fork that does."""
    linalg = sys.modules.get("numpy.linalg")
    try:
        identity = linalg.inv([[1.0, 0.0], [0.0, 1.0]])  # type: ignore[union-attr]
        identity @ identity
    except BaseException:  # there is no numpy, or one that somebody has patched
        return


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
