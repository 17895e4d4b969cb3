"""JSON, without the 10 ms that `import json` costs a fresh interpreter.

`json` is a thin layer over the C module `_json`; its price is `re`, `enum` and `functools`. What
follows is that layer for the settings that `json.loads` and `json.dumps` have by default, except
that NaN and the infinities are refused when writing: they are no JSON and no client could read
them. Whatever is out of the ordinary, malformed text above all, is left to `json` itself, so that
its own words reach the user.
"""

from _json import encode_basestring_ascii as _quote
from _json import make_encoder as _make_encoder
from _json import make_scanner as _make_scanner

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
    try:
        text = data.decode()
        value, end = _scan(text, len(text) - len(text.lstrip(_SPACE)))
        if end == len(text) or not text[end:].strip(_SPACE):
            return value
    except (StopIteration, UnicodeDecodeError, SystemError):
        pass  # SystemError: the C module had no `json` to take its exception from (3.11)
    import json

    return json.loads(data)


def dumps(value: object) -> bytes:
    """`json.dumps` in ASCII; raises what that raises."""
    # circular references, default, quoting, indent, separators, sort_keys, skipkeys, allow_nan
    encode = _make_encoder({}, _refuse, _quote, None, ": ", ", ", False, False, False)
    return "".join(encode(value, 0)).encode()


def escaped_length(text: str) -> int:
    """How many bytes a text takes as JSON."""
    return len(_quote(text))


def clean(text: str) -> str:
    """The text with halves of surrogate pairs spelled out: no strict JSON reader accepts them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _refuse(value: object) -> object:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
