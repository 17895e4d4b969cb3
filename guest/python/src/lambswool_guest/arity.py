"""How many arguments a handler takes that is no plain function: a wrapper that a decorator made, an
instance that can be called, a bound method, a `functools.partial`."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

_DEPTH = 16
"""Wrappers in each other that are looked into."""

_VARARGS = 0x04
"""CO_VARARGS, Include/cpython/code.h."""


def positional(handler: object, depth: int = _DEPTH) -> int | None:
    """The number of its arguments that can be given by position. None: any number, or unknown."""
    if depth == 0:
        return None
    kind = type(handler)
    if kind is type(positional):
        code: CodeType = handler.__code__  # type: ignore[attr-defined]
        if not code.co_flags & _VARARGS or code.co_argcount > 1:
            return code.co_argcount
        most = None
    elif kind is type(_Bound().method):
        most = _less(positional(handler.__func__, depth - 1), 1)  # type: ignore[attr-defined]
    elif kind is getattr(sys.modules.get("functools"), "partial", None):
        return _of_partial(handler, depth)
    else:
        most = _less(_of_call(kind, depth), 1)
    if most is None:
        # `functools.wraps` tells what is called with the arguments.
        inner = _own(handler).get("__wrapped__")
        most = None if inner is None else positional(inner, depth - 1)
    return most


class _Bound:
    def method(self) -> None: ...


def _own(handler: object) -> dict:
    try:
        names = object.__getattribute__(handler, "__dict__")
    except AttributeError:
        return {}
    return names if type(names) is dict else {}


def _of_call(kind: type, depth: int) -> int | None:
    """Of a class's `__call__`, the instance counted."""
    for base in type.__dict__["__mro__"].__get__(kind):
        call = base.__dict__.get("__call__")
        if call is not None:
            return positional(call, depth - 1) if type(call) is type(positional) else None
    return None


def _of_partial(partial, depth: int) -> int | None:
    function, named = partial.func, partial.keywords
    most = positional(function, depth - 1)
    if named and type(function) is type(positional):
        # What stands behind an argument that is given by name can be given by name only.
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        given = [place for place, name in enumerate(names) if name in named]
        most = given[0] if given else most
    return _less(most, len(partial.args))


def _less(most: int | None, given: int) -> int | None:
    return None if most is None else most - given
