"""`sys.stdout` and `sys.stderr` as log frames.

```text
  zygote ── attach ──► loading, id "" ── answer ──► between ── begin(id) ──► invocation ── answer ─┐
   (discards)                                         ▲  (holds)              (sends)              │
                                                      └────────────────────────────────────────────┘
  a process that the handler forks: lines go to descriptors 1 and 2, each in one write
```

A whole line is sent when it is complete, so that nothing said is lost with an instance that is
killed; a part of a line when it is flushed, longer than a frame, or the invocation ends. What a
background thread prints between two invocations is held (bounded) and sent with the next.

A function's signal handler or tracer may raise in here, too (see `wire`). So one step queues a
line and takes it out of `pending`, and one step queues an answer and ends its invocation: no line
is lost, and each frame names an invocation that is not over.

The streams are installed in the root zygote already, discarding, because modules keep references: a
`logging.StreamHandler(sys.stdout)` made in a zygote writes to the handler's log after the fork.
"""

import io
import sys
from _thread import RLock
from posix import register_at_fork, write

from lambswool_guest import codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lambswool_guest.capture import Capture
    from lambswool_guest.wire import Channel

LIMIT = 256 << 10
"""Bytes held of what is written between two invocations, on each stream."""

FRAME_BYTES = 64 << 10


class LogBuffer(io.BufferedIOBase):
    """The binary side of one stream: `sys.stdout.buffer`."""

    mode = "wb"

    def __init__(self, logs: "Logs", stream: str, fd: int) -> None:
        self.name = f"<{stream}>"
        self.stream = stream
        self.pending = bytearray()
        self.draining = False
        self.dropped = 0
        self._logs = logs
        self._fd = fd

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]
        piece = data if isinstance(data, bytes) else bytes(data)
        self._logs.write(self, piece)
        return len(piece)

    def flush(self) -> None:
        self._logs.flush(self)

    def close(self) -> None:
        """Only flushes: closed, it would lose the output of later invocations."""
        self.flush()

    @property
    def raw(self) -> "LogBuffer":
        """What has no buffer: this sends what it is given, as whole lines."""
        return self

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True


class Logs:
    """Both streams and what becomes of their text now."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.invocation: str | None = None
        """Whose text is sent now; None between two invocations, when it is held."""
        self._channel: Channel | None = None
        self._capture: Capture | None = None
        self._forked = False
        self._headers: dict[str, bytes] = {}
        self._stdout = LogBuffer(self, "stdout", 1)
        self._stderr = LogBuffer(self, "stderr", 2)

    def install(self) -> None:
        """Puts the streams in the place of the interpreter's own."""
        sys.stdout = sys.__stdout__ = _text(self._stdout)  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = _text(self._stderr)  # type: ignore[misc]

    def attach(self, channel: "Channel", capture: "Capture | None") -> None:
        """In an instance, after any fork: from now on text is sent, for the load first. In a
        container the worker itself reads what is written to descriptors 1 and 2."""
        self._channel = channel
        self._capture = capture
        self.begin("")
        register_at_fork(after_in_child=self._after_fork)

    def begin(self, invocation: str) -> None:
        """Text belongs to this invocation from here on, what was held included."""
        self._release()
        with self.lock:
            self.invocation, self._headers = invocation, {}
            for buffer in (self._stdout, self._stderr):
                if buffer.pending or buffer.dropped:
                    self._note_dropped(buffer)
                    self._drain(buffer, partial=False)

    def end(self) -> None:
        """Sends everything that is left, before the answer is queued."""
        self._release()
        with self.lock:
            for buffer in (self._stdout, self._stderr):
                buffer.draining = False  # something may have raised in there
                self._drain(buffer, partial=True)
            if self._capture is not None:
                self._capture.move(self._stderr)
                self._note_dropped(self._stderr)
                self._drain(self._stderr, partial=True)

    def write(self, buffer: LogBuffer, text: bytes) -> None:
        """Takes one write on a stream."""
        with self.lock:
            if self._channel is None:
                pass
            elif self.invocation is None and not self._forked:
                room = 0 if buffer.dropped else LIMIT - len(buffer.pending)
                held = text[: between_characters(text, room)]
                buffer.pending, buffer.dropped = (
                    buffer.pending + held,
                    buffer.dropped + len(text) - len(held),
                )
            else:
                buffer.pending += text
                if b"\n" in text or len(buffer.pending) > FRAME_BYTES:
                    self._drain(buffer, partial=False)

    def note(self, text: str) -> None:
        """Words of the guest's own on the standard error."""
        self.write(self._stderr, text.encode("utf-8", "backslashreplace"))

    def write_text(self, text: str) -> None:
        """Words of the guest's own on the standard output."""
        self.write(self._stdout, text.encode("utf-8", "backslashreplace"))

    def flush(self, buffer: LogBuffer) -> None:
        """Sends a stream's text as far as it has come."""
        with self.lock:
            if self.invocation is not None or self._forked:
                self._drain(buffer, partial=True)

    def leave(self) -> None:
        """Writes what is left of lines when a process that the handler forked ends."""
        self.flush(self._stdout)
        self.flush(self._stderr)

    def _after_fork(self) -> None:
        """In a process that the handler forked; another thread may have held the lock then."""
        self.lock = RLock()
        self._forked = True
        for buffer in (self._stdout, self._stderr):
            buffer.pending.clear()
            buffer.draining = False
        if self._channel is not None:
            self._channel.leave()

    def _release(self) -> None:
        """Releases locks that this thread still owns although it is past their use: a tracer raised
        where it released them, and every other thread that prints would wait for ever."""
        for lock in (self.lock, self._channel and self._channel.lock):
            if lock and lock._is_owned():  # type: ignore[attr-defined]
                lock._release_save()  # type: ignore[attr-defined]

    def _drain(self, buffer: LogBuffer, *, partial: bool) -> None:
        """Sends whole lines, and with `partial` the rest."""
        if buffer.draining:
            # A signal handler prints from inside the loop below, in this very thread: what it
            # has appended is sent by that loop.
            return
        buffer.draining = True
        try:
            while length := _ready(buffer.pending, partial):
                self._send(buffer, length)
        finally:
            buffer.draining = False

    def _send(self, buffer: LogBuffer, length: int) -> None:
        if self._channel is None:
            del buffer.pending[:length]
            return
        if self._forked:
            text = bytes(buffer.pending[:length])
            del buffer.pending[:length]
            _write_all(buffer.fileno(), text)
            return
        header = self._headers.get(buffer.stream)
        if header is None:
            header = codec.header({"kind": "log", "id": self.invocation, "stream": buffer.stream})
            self._headers[buffer.stream] = header
        self._channel.send_from(buffer.pending, length, header)

    def _note_dropped(self, buffer: LogBuffer) -> None:
        if buffer.dropped:
            words = f"[{buffer.dropped} more bytes of output were dropped]\n".encode()
            if buffer.pending and not buffer.pending.endswith(b"\n"):
                words = b"\n" + words
            buffer.dropped, buffer.pending = 0, buffer.pending + words


def _text(buffer: LogBuffer) -> io.TextIOWrapper:
    # Written through, so that the buffer alone decides what a line is and `flush` is always
    # somebody's wish.
    stream = io.TextIOWrapper(
        buffer,  # type: ignore[arg-type]
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )
    stream.mode = "w"  # type: ignore[misc] - as the interpreter does with its own
    return stream


def _ready(pending: bytearray, partial: bool) -> int:
    """How much of it makes the next frame."""
    if len(pending) > FRAME_BYTES:
        return _cut(pending)
    return len(pending) if partial else pending.rfind(b"\n") + 1


def _cut(pending: bytearray) -> int:
    """Where to end the first of several frames: behind a line, else between two characters."""
    line = pending.rfind(b"\n", 0, FRAME_BYTES) + 1
    if line:
        return line
    return between_characters(pending, FRAME_BYTES)


def between_characters(text: bytes | bytearray, most: int) -> int:
    """Where a text ends that is cut to so many bytes: not inside a character of UTF-8."""
    if most >= len(text):
        return len(text)
    for end in range(most, max(most - 4, 0), -1):
        if text[end] & 0xC0 != 0x80:
            return end
    return most


def _write_all(fd: int, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        rest = rest[write(fd, rest) :]
