"""A machine's output that goes around `sys.stdout`: C libraries, `os.write(1, …)`, subprocesses.

File descriptors 1 and 2 of a machine are one nameless file in its scratch, opened for appending.
After a load or an invocation one `fstat` tells whether anybody wrote. The scratch's own size bounds
a flood: the writer then sees ENOSPC, as on any full disk. Such output arrives when the invocation
ends.

A container has a pipe there instead, which the worker reads.
"""

import posix
from posix import fstat, ftruncate, pread

from lambswool_guest.logs import between_characters

LIMIT = 256 << 10
"""Bytes passed on of one invocation's output."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lambswool_guest.logs import LogBuffer

_FLAGS = posix.O_RDWR | posix.O_APPEND | posix.O_CLOEXEC


class Capture:
    """The file behind descriptors 1 and 2."""

    __slots__ = ("_emptied", "_fd", "_file", "_read", "_size")

    def __init__(self, directory: str) -> None:
        """`directory` is where the file is made."""
        self._fd = _nameless_file(directory)
        # Our own descriptor stays: the handler may put something else in the place of 1 and 2 for a
        # while.
        posix.dup2(self._fd, 1)
        posix.dup2(self._fd, 2)
        # A function may close that one, and open a file of its own at its number: that has a name,
        # or another inode.
        self._file = _identity(fstat(self._fd))
        # What the file held, and whether it was emptied before that was moved.
        self._size = 0
        self._read: list[bytes] = []
        self._emptied: list[None] = []

    def move(self, buffer: "LogBuffer") -> None:
        """Moves what was written since the last time to a stream's text, and counts the bytes that
        are dropped. Nothing is lost when this raises: the call that empties the file is also the
        call that notes it, as in `wire`."""
        if not self._emptied:
            fd = self._descriptor()
            if fd is None or self._size == 0:
                return
            try:
                text = pread(fd, min(self._size, LIMIT + 1), 0)
                self._read = [text[: between_characters(text, LIMIT)]]
                self._emptied.extend(map(ftruncate, (fd,), (0,)))
            except OSError:
                return
        text, dropped = self._read[0], buffer.dropped + self._size - len(self._read[0])
        buffer.pending, buffer.dropped, self._emptied = buffer.pending + text, dropped, []

    def _descriptor(self) -> int | None:
        """One that still is the file's, whose size is noted; None when the function closed all."""
        for fd in (self._fd, 1, 2):
            try:
                found = fstat(fd)
            except OSError:
                continue
            if found.st_nlink == 0 and _identity(found) == self._file:
                self._size = found.st_size
                return fd
        return None


def _identity(status: posix.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _nameless_file(directory: str) -> int:
    try:
        return posix.open(directory, _FLAGS | posix.O_TMPFILE, 0o600)
    except OSError:
        pass  # a file system without O_TMPFILE, such as overlayfs before Linux 6.1
    name = f"{directory}/.lambswool-{posix.urandom(8).hex()}"
    try:
        fd = posix.open(name, _FLAGS | posix.O_CREAT | posix.O_EXCL, 0o600)
    except OSError:  # no room or no scratch: a handler without captured output is better than none
        return posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)
    posix.unlink(name)
    return fd
