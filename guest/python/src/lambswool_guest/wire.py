"""Frames on the channel: the guest's side of `crates/sandbox/src/wire`.

```text
  0        4        8                8+H                8+H+B
  ├─ H u32 ┼─ B u32 ┼─ header, JSON ─┼─ body, any bytes ─┤      integers little-endian
```

The channel is a connected stream socket that blocks. Reading is the main thread's alone. Anyone may
send: a background thread that prints, and a signal handler that prints while the main thread is in
the middle of a frame.

A signal handler of the function's may raise in here, wherever a call returns, and so may what
traces or profiles lines and calls. No byte is lost by that and no frame is cut: what must happen
together stands in one line, without a call.
"""

from _thread import RLock
from posix import _exit, close, read, set_blocking, set_inheritable, write

from lambswool_guest import codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lambswool_guest.logs import Logs

PREFIX = 8
MAX_HEADER_BYTES = 256 << 10
MAX_BODY_BYTES = 1 << 30
"""Longest body accepted; the worker's own limit and the sandbox's memory end it sooner."""

_READ_AHEAD = 8 << 10
_PIECE = 1 << 20
_JOINED = 64 << 10


class BrokenFrame(Exception):
    """The bytes are no frame of ours, or the channel is gone: it is of no further use."""


class Channel:
    """One end of the conversation with the worker."""

    def __init__(self, fd: int) -> None:
        set_blocking(fd, True)
        set_inheritable(fd, False)
        self._fd = fd
        self.held: tuple[dict, bytes] | None = None
        """The message that was looked at, until it is answered."""
        self._pieces: list[bytes] = []
        self.lock = RLock()
        self._outgoing: list[tuple[memoryview, list[int]]] = []
        self._sending = False

    def fileno(self) -> int:
        return self._fd

    def receive(self) -> tuple[dict, bytes] | None:
        """The next message and its body; None when the channel closed between two frames."""
        message = self.look()
        self.held = None
        return message

    def look(self) -> tuple[dict, bytes] | None:
        """`receive`, but the message stays the next one as long as it is `held`."""
        if self.held is not None:
            return self.held
        head = self._beginning(PREFIX)
        if not head:
            return None
        header_length = int.from_bytes(head[:4], "little")
        body_length = int.from_bytes(head[4:PREFIX], "little")
        if header_length > MAX_HEADER_BYTES:
            raise BrokenFrame(f"a header of {header_length} bytes")
        if body_length > MAX_BODY_BYTES:
            raise BrokenFrame(f"a body of {body_length} bytes")
        start = PREFIX + header_length
        if len(head) < start:
            head = self._beginning(start)
        header = codec.loads(head[PREFIX:start])
        if not isinstance(header, dict):
            raise BrokenFrame("a header that is no object")
        end = start + body_length
        if len(head) < end:
            self._read_up_to(end)
            body = b"".join([head[start:], *self._pieces[1:]])
            body, rest = body[:body_length], body[body_length:]
        else:
            body, rest = head[start:end], head[end:]
        self.held, self._pieces = (header, body), [rest] if rest else []
        return self.held

    def send(self, header: dict, body: bytes = b"") -> None:
        """Sends a message, whole. Ends the process when the worker is gone."""
        frame = _frame(codec.header(header), body)
        with self.lock:
            self._outgoing += frame
            self._drain()

    def send_from(self, pending: bytearray, length: int, header: bytes) -> None:
        """Moves so many bytes from `pending` into a frame with this header, and sends it. When this
        raises, they are still in `pending`, or the next sender sends them."""
        frame = _frame(header, bytes(pending[:length]))
        with self.lock:
            self._outgoing, pending[:length] = self._outgoing + frame, b""
            self._drain()

    def answer(
        self,
        requests: "Channel",
        logs: "Logs",
        header: dict,
        body: bytes,
        ahead: "tuple[dict, bytes] | None",
    ) -> None:
        """Sends the answer to the message that `requests` holds, another message ahead of it. One
        step queues both, lets go of the message and ends the invocation of `logs`. When this raises
        while the message is still held, nothing was sent; otherwise `flush` sends what is left.
        Neither is called while this thread sends something else."""
        frames = _frame(codec.header(header), body)
        if ahead is not None:
            frames = _frame(codec.header(ahead[0]), ahead[1]) + frames
        # A thread that prints holds the first lock while it sends under the invocation's name.
        with logs.lock, self.lock:
            self._sending = False
            self._outgoing, requests.held, logs.invocation = self._outgoing + frames, None, None
        self.flush()

    def flush(self) -> None:
        """Sends what was not sent when something raised."""
        with self.lock:
            self._sending = False
            self._drain()

    def leave(self) -> None:
        """In a process that the handler forked: this end belongs to the parent."""
        self.lock = RLock()
        self._outgoing, self._sending = [], False
        close(self._fd)

    def _drain(self) -> None:
        if self._sending:
            # A signal handler interrupted this very thread below: that call takes the frame along.
            return
        self._sending = True
        try:
            # The next sender goes on where this one was stopped. So the count of bytes written has
            # to be noted by the same C call that writes them (`extend` over `map`), never by a
            # later bytecode.
            while self._outgoing:
                piece, written = self._outgoing[0]
                rest = piece[sum(written) :]
                if rest:
                    written.extend(map(write, (self._fd,), (rest,)))
                else:
                    del self._outgoing[0]
        except OSError as error:
            if _is_own(error):
                if isinstance(error, (BrokenPipeError, ConnectionResetError)):
                    _exit(0)
                raise BrokenFrame(f"the channel: {error}") from error
            raise
        finally:
            self._sending = False

    def _beginning(self, length: int) -> bytes:
        """At least so many of the bytes that have come, in one piece; none at the stream's end."""
        while True:
            pieces = self._pieces
            if len(pieces) > 1:
                pieces = self._pieces = [b"".join(pieces)]
            have = len(pieces[0]) if pieces else 0
            if have >= length:
                return pieces[0]
            if not self._read(length - have):
                if not have:
                    return b""
                raise BrokenFrame("the channel closed inside a frame")

    def _read_up_to(self, length: int) -> None:
        missing = length - sum(map(len, self._pieces))
        while missing > 0:
            piece = self._read(missing)
            if not piece:
                raise BrokenFrame("the channel closed inside a frame")
            missing -= len(piece)

    def _read(self, missing: int) -> bytes:
        """What has come, added to the pieces. As in `_drain`: the call that reads is the one
        that keeps what it has read."""
        size = min(max(missing, _READ_AHEAD), _PIECE)
        try:
            self._pieces.extend(map(read, (self._fd,), (size,)))
        except OSError as error:
            if _is_own(error):
                raise BrokenFrame(f"the channel: {error}") from error
            raise
        return self._pieces[-1]


def _frame(header: bytes, body: bytes) -> list[tuple[memoryview, list[int]]]:
    head = len(header).to_bytes(4, "little") + len(body).to_bytes(4, "little") + header
    pieces = [head + body] if len(body) < _JOINED else [head, body]
    return [(memoryview(piece), []) for piece in pieces]


def _is_own(error: OSError) -> bool:
    """Whether a call on the channel raised it, and no signal handler or other thread."""
    if error.errno is None:
        return False
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_globals is globals()
