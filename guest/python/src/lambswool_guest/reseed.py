"""Randomness after a fork or a clone: siblings must not draw the same numbers.

`random` reseeds itself through its at-fork hook. OpenSSL ≥ 3.0 notices a new pid, but siblings that
are pid 1 of their own namespaces look alike to anything that compares pids, and 1.1.1 relies on
hooks of the C library's `fork`, which a raw fork does not run: it is given fresh entropy here.
numpy's global generator has no hook at all. Hash randomisation (`PYTHONHASHSEED`) stays common to
all children of a zygote: it cannot change in a live interpreter.

What draws by itself, with a state that nobody here knows of, can see by `generation_id` that it is
in another copy than before, as a virtual machine can by its VMGENID.
"""

import posix
import sys

_generation_id = ""


def generation_id() -> str:
    """128 random bits in hexadecimal: others in each fork and clone, and after each reset."""
    global _generation_id
    if not _generation_id:
        _generation_id = posix.urandom(16).hex()
    return _generation_id


def _begin_generation() -> None:
    global _generation_id
    _generation_id = ""


def after_fork() -> None:
    """In every child, before anything else runs."""
    _begin_generation()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        seed = posix.urandom(16)
        words = [int.from_bytes(seed[at : at + 4], "little") for at in range(0, 16, 4)]
        numpy_random.seed(words)
    ssl = sys.modules.get("_ssl")
    if ssl is not None:
        ssl.RAND_add(posix.urandom(32), 32.0)
    uuid = sys.modules.get("uuid")
    if uuid is not None:
        # A made-up node would be the same in all siblings; `uuid1` finds it again when asked.
        uuid._node = None  # type: ignore[attr-defined]


def after_clone() -> None:
    """In a clone of a micro-VM, before anything else runs: nothing was forked, so no hook of
    Python's own has run."""
    random = sys.modules.get("random")
    if random is not None:
        random.seed()
    after_fork()
