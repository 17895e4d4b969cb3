"""Thread pools of numeric libraries: one thread in a zygote, the handler's own number in a fork.

A fork takes only the forking thread along, so sandboxes start with variables that keep every pool
at one thread. The handler gets the number back: by the same variables for what it imports later,
and for what its zygote has loaded by the library's own function. That is looked up in the zygote,
where nobody waits; a handler without such libraries pays four assignments.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
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

_found: dict[str, list[tuple[bytes, "Callable"]]] = {}


def find() -> None:
    """In a zygote, after it has imported: remembers how to set the pools that are loaded."""
    for name in _USERS:
        module = sys.modules.get(name)
        if module is not None and name not in _found:
            _found[name] = _setters(getattr(module, "__file__", None))


def restore(threads: int, own: dict[str, str]) -> None:
    """In an instance, before the handler is imported: that many threads, but where its own
    environment says otherwise."""
    number = b"%d" % threads
    for variable in _VARIABLES:
        if variable.decode() not in own:
            posix.putenv(variable, number)
            posix.environ[variable] = number
    for setters in _found.values():
        for variable, set_threads in setters:
            wanted = own.get(variable.decode(), "")
            set_threads(int(wanted) if wanted.isdecimal() and int(wanted) > 0 else threads)


def _setters(path: str | None) -> list[tuple[bytes, "Callable"]]:
    # numpy imports it as well.
    import ctypes

    try:
        # Loaded already: a symbol is looked up in it and in all that it is linked to.
        library = ctypes.CDLL(path)
    except (OSError, TypeError):
        return []
    found = []
    for name, variable in _SETTERS.items():
        try:
            function = library[name]
        except AttributeError:
            continue
        function.argtypes, function.restype = [ctypes.c_int], None
        found.append((variable, function))
    return found
