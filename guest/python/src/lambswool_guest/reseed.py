"""Randomness after a fork or a clone: siblings must not draw the same numbers.

`random` reseeds itself through its at-fork hook. OpenSSL ≥ 3.0 notices a new pid, which forks have
and clones of a machine are given; 1.1.1 relies on hooks of the C library's `fork`, which a raw fork
does not run: Python's own is given fresh entropy here. numpy's global generator has no hook at all.
Hash randomisation (`PYTHONHASHSEED`) stays common to all children of a zygote: it cannot change in
a live interpreter.

What draws by itself, with a state that nobody here knows of, can see by `generation_id` that it is
in another copy than before, as a virtual machine can by its VMGENID.
"""

import posix
import sys

_generation_id = ""
_before: list = []
_in_child: list = []


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
    random = sys.modules.get("random")
    if random is not None:
        random.seed()
    after_fork()
    for hook in [*_before, *_in_child]:
        try:
            hook()
        except Exception as error:
            # As after a fork: it is told, and ignored.
            sys.excepthook(type(error), error, error.__traceback__)
