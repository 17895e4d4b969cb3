"""What imports have left in the scratch, which in each fork is a new one: laid there again.

matplotlib makes a directory for its fonts there, others unpack what they bring. A zygote remembers
it, within bounds; what exceeds them, or is no file, directory or link, cannot be had again, and
nothing is forked from such a zygote.
"""

import posix
import stat

MOST_ENTRIES = 256
MOST_BYTES = 1 << 20

_remembered: "list[tuple[str, int, bytes]]" = []


def remember(place: str) -> bool:
    """Remembers all that is in `place` now. False: it cannot be remembered."""
    _remembered.clear()
    try:
        fits = _look(place, MOST_BYTES) >= 0
    except OSError:  # it changes meanwhile, or may not be read
        fits = False
    if not fits:
        _remembered.clear()
    return fits


def lay() -> None:
    """Lays what is remembered into this process's scratch, where it is missing."""
    for path, mode, content in _remembered:
        try:
            _lay(path, mode, content)
        except OSError:  # it is there, or there is no room: as a handler finds it without a zygote
            continue


def _look(directory: str, room: int) -> int:
    """The bytes that are left of `room`; negative when it does not suffice."""
    for name in posix.listdir(directory):
        path = f"{directory}/{name}"
        mode = posix.lstat(path).st_mode
        content = b""
        if stat.S_ISLNK(mode):
            content = posix.readlink(path).encode("utf-8", "surrogateescape")
        elif stat.S_ISREG(mode):
            content = _read(path, room)
        elif not stat.S_ISDIR(mode):
            return -1
        room -= len(content)
        if room < 0 or len(_remembered) >= MOST_ENTRIES:
            return -1
        _remembered.append((path, mode, content))
        if stat.S_ISDIR(mode) and (room := _look(path, room)) < 0:
            return room
    return room


def _read(path: str, most: int) -> bytes:
    """The content, or something longer than `most`."""
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        if posix.fstat(fd).st_size > most:
            return bytes(most + 1)
        return b"".join(iter(lambda: posix.read(fd, most + 1), b""))
    finally:
        posix.close(fd)


def _lay(path: str, mode: int, content: bytes) -> None:
    if stat.S_ISLNK(mode):
        posix.symlink(content, path)
        return
    if stat.S_ISDIR(mode):
        posix.mkdir(path, 0o700)
    else:
        flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC
        fd = posix.open(path, flags, 0o600)
        try:
            while content:
                content = content[posix.write(fd, content) :]
        finally:
            posix.close(fd)
    posix.chmod(path, stat.S_IMODE(mode) | (0o300 if stat.S_ISDIR(mode) else 0))
