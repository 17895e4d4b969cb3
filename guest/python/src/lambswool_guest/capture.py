"""A machine's output that goes around `sys.stdout`: C libraries, `os.write(1, …)`, subprocesses.

File descriptors 1 and 2 of a machine are one nameless file in its scratch, opened for appending.
After a load or an invocation one `fstat` tells whether anybody wrote. The scratch's own size bounds
a flood: the writer then sees ENOSPC, as on any full disk. Such output arrives when the invocation
ends.

A container has a pipe there instead, which the worker reads.
"""

import posix
from posix import fstat, ftruncate, pread

LIMIT = 256 << 10
"""Bytes passed on of one invocation's output."""

_FLAGS = posix.O_RDWR | posix.O_APPEND | posix.O_CLOEXEC


class Capture:
    """The file behind descriptors 1 and 2."""

    __slots__ = ("_fd",)

    def __init__(self, directory: str) -> None:
        """`directory` is where the file is made."""
        self._fd = _nameless_file(directory)
        # Our own descriptor stays: the handler may put something else in the place of 1 and 2 for a
        # while.
        posix.dup2(self._fd, 1)
        posix.dup2(self._fd, 2)

    def take(self) -> tuple[bytes, int]:
        """What was written since the last time, and how many bytes more were dropped."""
        try:
            size = fstat(self._fd).st_size
            if size == 0:
                return b"", 0
            text = pread(self._fd, min(size, LIMIT), 0)
            ftruncate(self._fd, 0)
        except OSError:  # the handler closed what is not its own
            return b"", 0
        return text, size - len(text)


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
