"""An exception, told to the worker: its type, its message, the user's own lines of the traceback.

The traceback's entries are the lines that Python would print, one each, without their ends: chained
exceptions, the caret under a syntax error and all. Frames of the guest and of the import machinery
are left out. Nothing here raises, whatever the exception's own methods do, and nothing is longer
than a header may be. What raises may be a signal handler of the function's: so all is asked twice.
"""

from lambswool_guest import codec, stdlib
from lambswool_guest.handler import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from traceback import TracebackException

# Together under 64 KiB, counted as JSON.
TYPE_BYTES = 1 << 10
MESSAGE_BYTES = 16 << 10
LINE_BYTES = 4 << 10
TRACEBACK_BYTES = 40 << 10

_OURS = __file__.rpartition("/")[0] + "/"
_CHAIN = 32

_MODULE = vars(type)["__module__"].__get__
_QUALNAME = vars(type)["__qualname__"].__get__
_TRACEBACK = vars(BaseException)["__traceback__"].__get__


def describe(error: BaseException) -> dict[str, object]:
    """The fields of a `failed` message."""
    if type(error) is Refused:
        said = named(error.error_type, error.message)
        return said | {"traceback": []}
    name, message = _class(type(error)), message_of(error)
    try:
        lines = _traceback(error)
    except BaseException:
        try:
            lines = _traceback(error)
        except BaseException:
            lines = _plain_traceback(error, f"{name}: {message}" if message else name)
    return named(name, message) | {"traceback": within(lines)}


def frames(error: BaseException) -> list[str]:
    """The user's own frames of the traceback, as `traceback.format_list` has them."""
    traceback = stdlib.module("traceback")
    found = traceback.extract_tb(_TRACEBACK(error))
    own = [(it.filename, it.lineno, it.name, it.line) for it in found if not is_ours(it.filename)]
    return traceback.format_list(own)


def named(error_type: str, message: str) -> dict[str, object]:
    return {"error_type": _cut(error_type, TYPE_BYTES), "message": _cut(message, MESSAGE_BYTES)}


def _class(kind: type[BaseException]) -> str:
    try:
        # Asked of `type`: a metaclass may answer anything.
        module, name = _MODULE(kind), _QUALNAME(kind)
    except AttributeError:
        module, name = "builtins", "Exception"
    if type(module) is not str or module == "builtins":
        return str.__str__(name)
    return f"{module}.{name}"


def message_of(error: BaseException) -> str:
    try:
        return _text(error)
    except BaseException:
        try:
            return _text(error)
        except BaseException as second:
            return f"<str() of the exception raised {_class(type(second))}>"


def _text(error: BaseException) -> str:
    if issubclass(type(error), SystemExit):
        code = error.code  # type: ignore[attr-defined]
        return f"the code called sys.exit({'' if code is None else repr(code)})"
    # Of a subclass of `str`, whose methods may do anything, the text alone.
    return str.__str__(str(error))


def _traceback(error: BaseException) -> list[str]:
    traceback = stdlib.module("traceback")
    at = _TRACEBACK(error)
    while at is not None and is_ours(at.tb_frame.f_code.co_filename):
        at = at.tb_next
    told = traceback.TracebackException(type(error), error, at, compact=True)
    _leave_out_ours(told, _CHAIN)
    return "".join(told.format()).rstrip("\n").split("\n")


def _plain_traceback(error: BaseException, words: str) -> list[str]:
    """Where it was raised, when the exception, or what the function has made of the standard
    library, lets nothing better be had."""
    lines = ["Traceback (most recent call last):"]
    at = _TRACEBACK(error)
    while at is not None:
        code = at.tb_frame.f_code
        if not is_ours(code.co_filename):
            lines.append(f'  File "{code.co_filename}", line {at.tb_lineno}, in {code.co_name}')
        at = at.tb_next
    return [*lines, *words.split("\n")] if len(lines) > 1 else words.split("\n")


def _leave_out_ours(told: "TracebackException | None", depth: int) -> None:
    """Takes our frames out of an exception, its causes and, in a group, its members."""
    if told is None:
        return
    if depth == 0:
        told.__cause__ = told.__context__ = None
        return
    told.stack[:] = [frame for frame in told.stack if not is_ours(frame.filename)]
    _leave_out_ours(told.__cause__, depth - 1)
    _leave_out_ours(told.__context__, depth - 1)
    for member in getattr(told, "exceptions", None) or ():
        _leave_out_ours(member, depth - 1)


def is_ours(path: str) -> bool:
    return path.startswith((_OURS, "<frozen importlib"))


def _cut(text: str, limit: int) -> str:
    """The text, or as much of its beginning as fits, with a note of what is missing."""
    text = codec.clean(text[:limit]) if len(text) > limit else codec.clean(text)
    size = codec.escaped_length(text)
    if size <= limit:
        return text
    kept = text
    while size > limit - 64:
        kept = kept[: max(0, min(len(kept) * (limit - 64) // size, len(kept) - 1))]
        size = codec.escaped_length(kept)
    return f"{kept}… ({len(text) - len(kept)} more characters)"


def within(lines: list[str]) -> list[str]:
    """All lines, or the first few and as many of the last as fit: the last call matters most."""
    lines = [_cut(line, LINE_BYTES) for line in lines]
    sizes = [codec.escaped_length(line) + 2 for line in lines]
    if sum(sizes) <= TRACEBACK_BYTES:
        return lines
    first = _fitting(sizes, TRACEBACK_BYTES // 4)
    last = _fitting(sizes[:first:-1], TRACEBACK_BYTES * 3 // 4 - 64)
    missing = len(lines) - first - last
    return [*lines[:first], f"  [{missing} lines left out]", *lines[len(lines) - last :]]


def _fitting(sizes: list[int], room: int) -> int:
    """How many from the start fit."""
    for count, size in enumerate(sizes):
        room -= size
        if room < 0:
            return count
    return len(sizes)
