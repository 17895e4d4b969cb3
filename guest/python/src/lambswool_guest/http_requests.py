"""Requests of HTTP/1.1, as far as the runtime API needs them: from bytes, within bounds.

```text
  head ─► body by its length ───────────────────┬─► Request ─► the next head
       └► chunks ─► trailers ───────────────────┘
  no HTTP, or a head beyond its bounds: Malformed, and the connection is of no further use
```

A body beyond its bounds is read to its end and dropped, so that its sender gets an answer. One
whose bytes are to go on as they come is never kept.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

HEAD_BYTES = 2 << 20
"""Longest head, and longest trailers. The trace of a failure, a header, has up to 1 MiB."""

BODY_BYTES = 6_291_556
"""Longest body that is kept: AWS Lambda's own limit of a response."""

_LINE_BYTES = 4096
"""Longest line before a chunk."""

_NUMBER_DIGITS = 15

_ONCE = ("content-length", "transfer-encoding")


class Malformed(Exception):
    """It is no HTTP, or longer than it may be."""


class Request:
    """One request. Names of headers are in lower case; trailers are among them."""

    __slots__ = ("body", "headers", "is_too_long", "keeps_alive", "method", "path", "sink")

    def __init__(self, head: bytes) -> None:
        first, *fields = head.split(b"\r\n")
        words = first.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise Malformed(f"a first line that is no request: {words[0][:20]!r}")
        self.method, target, version = words
        self.path = target.partition("?")[0]
        self.headers = _headers(fields)
        self.body = bytearray()
        # Its body was dropped.
        self.is_too_long = False
        # Where its body goes as it comes; None: it is kept.
        self.sink: Callable[[bytes], None] | None = None
        wish = self.headers.get("connection", "").lower()
        self.keeps_alive = wish != "close" and (version != "HTTP/1.0" or wish == "keep-alive")


class Reader:
    """Makes requests of what comes on one connection."""

    def __init__(self, go_on: "Callable[[], None]", begin: "Callable[[Request], None]") -> None:
        """`go_on` says `100 Continue` to a client that waits for it before it sends a body; `begin`
        is told of each request before its body is read."""
        self._bytes = bytearray()
        self._go_on = go_on
        self._begin = begin
        self._requests = self._read()

    def feed(self, data: bytes) -> None:
        """Takes what has come."""
        self._bytes += data

    def request(self) -> "Request | None":
        """The next request, when all of it has come. Raises Malformed, after which there is no
        other."""
        return next(self._requests, None)

    def _read(self) -> "Generator[Request | None]":
        while True:
            request = Request((yield from self._until(b"\r\n\r\n", HEAD_BYTES)))
            headers = request.headers
            self._begin(request)
            if headers.get("expect", "").lower() == "100-continue":
                self._go_on()
            length = headers.get("content-length")
            if (coding := headers.get("transfer-encoding")) is None:
                yield from self._append(request, _number(length or "0", 10))
            elif coding.lower() == "chunked" and length is None:
                yield from self._chunks(request)
            else:
                raise Malformed("a body in another coding than chunks, or in two")
            yield request

    def _until(self, end: bytes, limit: int) -> "Generator[None, None, bytes]":
        """What stands before `end`, which is taken, too."""
        looked = 0
        while (at := self._bytes.find(end, looked)) < 0:
            looked = max(0, len(self._bytes) - len(end))
            if looked > limit:
                raise Malformed(f"a line or a head of more than {limit} bytes")
            yield None
        if at > limit:
            raise Malformed(f"a line or a head of more than {limit} bytes")
        found = bytes(self._bytes[:at])
        del self._bytes[: at + len(end)]
        return found

    def _append(self, request: Request, length: int) -> "Generator[None]":
        """Moves so many bytes to the request's body."""
        while True:
            piece = self._bytes[:length]
            del self._bytes[: len(piece)]
            length -= len(piece)
            if request.sink is not None:
                if piece:
                    request.sink(bytes(piece))
                piece = b""
            if len(request.body) + len(piece) > BODY_BYTES:
                request.is_too_long = True
                request.body = bytearray()
            if not request.is_too_long:
                request.body += piece
            if not length:
                return
            yield None

    def _chunks(self, request: Request) -> "Generator[None]":
        while True:
            line = (yield from self._until(b"\r\n", _LINE_BYTES)).decode("latin-1")
            length = _number(line.partition(";")[0].strip(), 16)
            if not length:
                break
            yield from self._append(request, length)
            if (yield from self._until(b"\r\n", _LINE_BYTES)):
                raise Malformed("a chunk that is longer than it says")
        trailers, left = [], HEAD_BYTES
        while line := (yield from self._until(b"\r\n", left)):
            left = max(0, left - len(line) - 2)
            trailers.append(line)
        request.headers |= _headers(trailers)


def _headers(lines: list[bytes]) -> dict[str, str]:
    found = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or name != name.strip():
            raise Malformed("a header without a name")
        name, value = name.lower(), value.strip()
        if name in _ONCE and found.get(name, value) != value:
            raise Malformed(f"two headers {name}")
        found[name] = value
    return found


def _number(text: str, base: int) -> int:
    digits = "0123456789abcdef"[:base]
    if not 0 < len(text) <= _NUMBER_DIGITS or text.lower().strip(digits):
        raise Malformed(f"a length that is no number: {text[:20]!r}")
    return int(text, base)
