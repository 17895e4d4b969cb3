"""Frames on the channel: the guest's side of `crates/sandbox/src/wire`.

```text
  0        4        8                8+H                8+H+B
  ├─ H u32 ┼─ B u32 ┼─ header, JSON ─┼─ body, any bytes ─┤      integers little-endian
```

The channel is a connected stream socket that blocks. Reading is the main thread's alone. Anyone may
send: a background thread that prints, and a signal handler that prints while the main thread is in
the middle of a frame.
"""

import posix
from _thread import RLock

from lambswool_guest import codec

PREFIX = 8
MAX_HEADER_BYTES = 256 << 10
MAX_BODY_BYTES = 1 << 30
"""Longest body accepted; the worker's own limit and the sandbox's memory end it sooner."""

_READ_AHEAD = 8 << 10
_PIECE = 1 << 20
_JOINED = 64 << 10


class BrokenFrame(Exception):
    """The bytes are no frame of ours: the channel is of no further use."""


class Channel:
    """One end of the conversation with the worker."""

    def __init__(self, fd: int) -> None:
        posix.set_blocking(fd, True)
        posix.set_inheritable(fd, False)
        self._fd = fd
        self._ahead = b""
        self._pieces: list[bytes] = []
        self._parts: list[bytes] = []
        self._lock = RLock()
        self._outgoing: list[tuple[memoryview, list[int]]] = []
        self._sending = False

    def receive(self) -> tuple[dict, bytes] | None:
        """The next message and its body; None when the channel closed between two frames."""
        # A signal handler may raise while this waits: what has come is kept for the next time.
        parts = self._parts
        if not parts:
            prefix = self._exactly(PREFIX, at_boundary=True)
            if prefix is None:
                return None
            parts.append(prefix)
        header_length = int.from_bytes(parts[0][:4], "little")
        body_length = int.from_bytes(parts[0][4:], "little")
        if header_length > MAX_HEADER_BYTES:
            raise BrokenFrame(f"a header of {header_length} bytes")
        if body_length > MAX_BODY_BYTES:
            raise BrokenFrame(f"a body of {body_length} bytes")
        if len(parts) == 1:
            parts.append(self._exactly(header_length) or b"")
        body = self._exactly(body_length) or b""
        header = codec.loads(parts[1])
        parts.clear()
        if not isinstance(header, dict):
            raise BrokenFrame("a header that is no object")
        return header, body

    def send(self, header: dict, body: bytes = b"") -> None:
        """Sends a message, whole. Ends the process when the worker is gone."""
        self.send_encoded(codec.header(header), body)

    def send_encoded(self, header: bytes, body: bytes) -> None:
        """`send` for a header that is JSON already."""
        head = len(header).to_bytes(4, "little") + len(body).to_bytes(4, "little") + header
        frame = [head + body] if len(body) < _JOINED else [head, body]
        with self._lock:
            self._outgoing += [(memoryview(piece), []) for piece in frame]
            if self._sending:
                # A signal handler interrupted this very thread inside `_drain`: that call takes the
                # frame along.
                return
            self._sending = True
            try:
                self._drain()
            except (BrokenPipeError, ConnectionResetError):
                posix._exit(0)
            finally:
                self._sending = False

    def leave(self) -> None:
        """In a process that the handler forked: this end belongs to the parent."""
        posix.close(self._fd)

    def _drain(self) -> None:
        # A signal handler may raise anywhere in here and must cut no frame short: the next sender
        # goes on where this one was stopped. So the count of bytes written has to be noted by the
        # same C call that writes them (`extend` over `map`), never by a later bytecode.
        while self._outgoing:
            piece, written = self._outgoing[0]
            rest = piece[sum(written) :]
            if rest:
                written.extend(map(posix.write, (self._fd,), (rest,)))
            else:
                del self._outgoing[0]

    def _exactly(self, length: int, *, at_boundary: bool = False) -> bytes | None:
        """That many bytes; None at the end of the stream where it may end."""
        if length <= len(self._ahead):
            taken, self._ahead = self._ahead[:length], self._ahead[length:]
            return taken
        pieces = self._pieces
        if self._ahead:
            pieces.append(self._ahead)
            self._ahead = b""
        missing = length - sum(map(len, pieces))
        while missing > 0:
            # As in `_drain`: the call that reads is the one that keeps what it has read.
            size = min(max(missing, _READ_AHEAD), _PIECE)
            pieces.extend(map(posix.read, (self._fd,), (size,)))
            piece = pieces[-1]
            if not piece:
                if at_boundary and len(pieces) == 1:
                    return None
                raise BrokenFrame("the channel closed inside a frame")
            missing -= len(piece)
        taken = b"".join(pieces)
        pieces.clear()
        if missing < 0:
            taken, self._ahead = taken[:length], taken[length:]
        return taken
