"""What forks and clones share with what they come from, and how it stays shared.

Each page that a fork writes to is copied. Most of them hold nothing of its own: only the counts of
references in objects that all have, or a hole between such objects in which something new was put.
Before anything is forked or cloned, `settle` sees to it that neither happens:

- whatever is alive is hidden from the collector, which would write to it;
- it is made immortal where Python can do that (PEP 683, since 3.12), and counts no references;
- the holes beside it are filled, Python's and the C library's, so that what is new lies together in
  pages of its own;
- and the C library has bound all symbols at the start (`LD_BIND_NOW`), not each when it is needed.

The price: what was imported before stays in memory whatever becomes of it. It would anyway, in the
pages of the process that all come from.
"""

import gc
import posix
import sys

import lambswool_sharing as native  # type: ignore[import-not-found]

MOST_FILLED = 8 << 20
"""Bytes of holes that are filled at most, each time."""

_PLAIN_BUILD = "t" not in sys.abiflags and not hasattr(sys, "gettotalrefcount")
"""Whether the interpreter has its lock, and does not check its own counts."""

_CAN_BE_IMMORTAL = _PLAIN_BUILD and sys.version_info[:2] in ((3, 12), (3, 13))
"""Versions whose counts `sharing.c` knows, and was tried with. 3.11 has no immortal objects."""

_HAS_POOLS = _PLAIN_BUILD and sys.version_info < (3, 14) and sys.getallocatedblocks() > 0
"""The same of the allocator; one without pools counts no blocks."""

_CODE = type((lambda: None).__code__)
_ATOMS = (str, bytes, int, float, complex, tuple, frozenset, _CODE)
"""Types of which the collector does not know all objects, and which nobody watches die."""


def settle() -> None:
    """Call it last before a fork or a clone, and again after more was imported."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    gc.collect()
    if _CAN_BE_IMMORTAL:
        _immortalize()
    gc.freeze()
    if _HAS_POOLS:
        native.fill_pools(MOST_FILLED)
    native.fill_heap(MOST_FILLED)


def forget_binding() -> None:
    """The C library has read it at the start; it is no matter of the handler's programs."""
    posix.unsetenv("LD_BIND_NOW")
    posix.environ.pop(b"LD_BIND_NOW", None)


def _immortalize() -> None:
    """All that the collector knows, and what that holds. What was immortal before is passed over:
    the collector has forgotten it, and nothing new hangs on what cannot change."""
    known = gc.get_objects()
    native.immortalize(known)
    found = gc.get_referents(*known)
    while found:
        found = [one for one in found if type(one) in _ATOMS and not _is_immortal(one)]
        native.immortalize(found)
        found = [held for one in found for held in _held(one)]


def _is_immortal(one: object) -> bool:
    return sys.getrefcount(one) > 1 << 30


def _held(one: object) -> tuple:
    if type(one) is _CODE:
        names = (one.co_filename, one.co_name, one.co_qualname, one.co_names)
        return (*names, *one.co_names, one.co_consts, *one.co_consts)
    return tuple(one) if type(one) in (tuple, frozenset) else ()
