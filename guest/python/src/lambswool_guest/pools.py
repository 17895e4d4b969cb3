"""Thread pools of numeric libraries: one thread in a zygote, the handler's own number in a fork.

A fork takes only the forking thread along, so sandboxes start with variables that keep every pool
at one thread. The handler gets the number back: by the same variables for what it imports later,
and for what its zygote has loaded by the library's own function, which `pool_search` has found. A
handler without such libraries pays four assignments.
"""

from posix import environ, putenv

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_VARIABLES = (
    b"OPENBLAS_NUM_THREADS",
    b"OMP_NUM_THREADS",
    b"MKL_NUM_THREADS",
    b"NUMEXPR_NUM_THREADS",
)

most = 1 << 16
"""Threads that a pool may have at most; a micro-VM has one processor, and no threads."""

found: "dict[str, list[tuple[bytes, Callable]]]" = {}
"""For each library that is loaded: its variables, and its functions that set the number."""


def restore(threads: int, own: dict[str, str]) -> None:
    """In an instance, before the handler is imported: that many threads, but where its own
    environment says otherwise."""
    threads = min(threads, most)
    number = b"%d" % threads
    for variable in _VARIABLES:
        if variable.decode() not in own:
            putenv(variable, number)
            environ[variable] = number
    for setters in found.values():
        for variable, set_threads in setters:
            wanted = own.get(variable.decode(), "")
            number = int(wanted) if wanted.isdecimal() and int(wanted) > 0 else threads
            try:
                set_threads(min(number, most))
            except Exception:  # it has one thread, then: the handler is right, and slower
                continue
