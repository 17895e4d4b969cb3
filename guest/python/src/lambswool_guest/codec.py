"""JSON, without the 10 ms that `import json` costs a fresh interpreter.

`json` is a thin layer over the C module `_json`; its price is `re`, `enum` and `functools`. What
follows is that layer for the settings that `json.loads` and `json.dumps` have by default, except
that NaN and the infinities are refused when writing: they are no JSON and no client could read
them. Whatever is out of the ordinary, malformed text above all, is left to `json` itself, so that
its own words reach the user.
"""

from _json import encode_basestring as _quote
from _json import encode_basestring_ascii as _quote_in_ascii
from _json import make_encoder as _make_encoder
from _json import make_scanner as _make_scanner

from lambswool_guest import stdlib

_MARK = b"\xef\xbb\xbf"
"""Of UTF-8, which some programs put before it. A reader of JSON may pass over it (RFC 8259)."""

_SPACE = " \t\n\r"
_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Settings:
    """What the C scanner asks its `JSONDecoder` for."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_CONSTANTS.__getitem__)
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner's own, empty between calls


_scan = _make_scanner(_Settings())  # type: ignore[arg-type]


def loads(data: bytes) -> object:
    """`json.loads`, errors included."""
    if data.startswith(_MARK):
        data = data[len(_MARK) :]
    try:
        text = data.decode()
        value, end = _scan(text, len(text) - len(text.lstrip(_SPACE)))
        if end == len(text) or not text[end:].strip(_SPACE):
            return value
    except Exception:
        # Among them what the C module raises that finds no `json` to take its own from, and what a
        # signal handler of the function's raises.
        pass
    try:
        return stdlib.module("json").loads(data)
    except (AttributeError, ImportError, TypeError):  # the function has taken `json` apart
        raise ValueError("it is no JSON") from None


def dumps(value: object) -> bytes:
    """`json.dumps` in UTF-8; raises what that raises. Halves of surrogate pairs, which UTF-8 cannot
    say, are escaped, as `json.dumps` has them by default."""
    # circular references, default, quoting, indent, separators, sort_keys, skipkeys, allow_nan
    encode = _make_encoder({}, _refuse, _quote, None, ": ", ", ", False, False, False)
    text = "".join(encode(value, 0))
    # Python's escape of such a half is JSON's, too, and none is outside of a string.
    return text.encode() if text.isascii() else text.encode("utf-8", "backslashreplace")


def dumps_any(value: object, *, escapes: bool) -> bytes:
    """JSON as AWS Lambda's runtime writes it: NaN and the infinities are said by their names,
    numbers of `decimal` are numbers, and bytes are text. `escapes`: in ASCII."""
    quote = _quote_in_ascii if escapes else _quote
    try:
        encode = _make_encoder({}, _refuse, quote, None, ": ", ", ", False, False, True)
        text = "".join(encode(value, 0))
    except TypeError:
        # Once more, by a slower way.
        def quote_text(text: str) -> str:
            return str.__str__(text) if type(text) is _Number else quote(text)

        encode = _make_encoder({}, _replace, quote_text, None, ": ", ", ", False, False, True)
        text = "".join(encode(value, 0))
    return text.encode() if text.isascii() else text.encode("utf-8", "backslashreplace")


class _Number(str):
    """The text of a number, which is written without quotes."""


def _replace(value: object) -> object:
    kind = type(value)
    if kind.__name__ == "Decimal" and kind.__module__ == "decimal":
        return _CONSTANTS["NaN"] if value.is_nan() else _Number(value)  # type: ignore
    if isinstance(value, bytes):
        return value.decode()
    return _refuse(value)


def header(value: dict) -> bytes:
    """`json.dumps`, in ASCII."""
    encode = _make_encoder({}, _refuse, _quote_in_ascii, None, ": ", ", ", False, False, False)
    return "".join(encode(value, 0)).encode()


def escaped_length(text: str) -> int:
    """How many bytes a text takes in a header."""
    return len(_quote_in_ascii(text))


def clean(text: str) -> str:
    """The text with halves of surrogate pairs spelled out: no strict JSON reader accepts them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _refuse(value: object) -> object:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
