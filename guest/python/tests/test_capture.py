"""The file behind descriptors 1 and 2 of a machine, in a process of its own for each test."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"

HEAD = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.chdir(sys.argv[2])
from lambswool_guest.capture import Capture

class Buffer:
    pending, dropped = b"", 0

told, buffer = os.dup(1), Buffer()
capture = Capture(sys.argv[2])
own = capture._fd
"""


def run(directory: Path, body: str) -> str:
    command = [sys.executable, "-c", HEAD + body, str(SOURCE), str(directory)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_moves_what_was_written_and_empties_the_file(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
os.write(1, b"one "); os.write(2, b"two"); capture.move(buffer); capture.move(buffer)
os.write(told, repr((buffer.pending, os.fstat(1).st_size)).encode())
""",
    )
    assert said == repr((b"one two", 0))


def test_leaves_a_file_that_took_its_descriptors_number(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
os.close(own)
fd = os.open("own", os.O_RDWR | os.O_CREAT)
assert fd == own
os.write(fd, b"precious"); os.write(1, b"printed"); capture.move(buffer)
os.write(told, repr((buffer.pending, os.fstat(fd).st_size)).encode())
""",
    )
    assert said == repr((b"printed", 8))


def test_moves_nothing_once_all_descriptors_are_closed(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
for fd in (own, 1, 2):
    os.close(fd)
own_files = [os.open(f"own{number}", os.O_RDWR | os.O_CREAT) for number in range(3)]
for fd in own_files:
    os.write(fd, b"precious")
capture.move(buffer)
os.write(told, repr((buffer.pending, [os.fstat(fd).st_size for fd in own_files])).encode())
""",
    )
    assert said == repr((b"", [8, 8, 8]))
