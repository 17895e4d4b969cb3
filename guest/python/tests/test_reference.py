"""The reference machine's role: imports, then what its clones go on from. Here nothing is cloned:
the same process goes on."""

import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

from conftest import PATIENCE, PYTHON, Guest, Peer, skip, spawn


@pytest.fixture
def reference(layer: Path, task: Path, packages: Path) -> Iterator[Guest]:
    ours, theirs = socket.socketpair()
    with theirs:
        process = spawn("reference", task, packages, theirs, layer)
    guest = Guest(Peer(ours), process)
    yield guest
    ours.close()
    try:
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()


def imported(guest: Guest, *modules: str, path: Path) -> dict:
    guest.peer.send({"kind": "import", "modules": list(modules), "path": [str(path)]})
    answer = guest.answer()
    assert answer.kind == "imported"
    return json.loads(answer.body)


def test_what_is_imported_is_told_and_is_there_for_the_handler(
    reference: Guest, task: Path, packages: Path
) -> None:
    (packages / "ours.py").write_text("import random\nDRAWN = random.random()\n")
    (packages / "broken.py").write_text("raise ValueError('so')\n")
    said = imported(reference, "ours", "broken", path=packages)
    assert [module for module, *_ in said["files"]] == ["ours"]
    assert said["failed"] == [["broken", "ValueError: so"]]
    assert imported(reference, "ours", path=packages)["files"] == []
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text(
        "import os, sys\nTHERE = 'ours' in sys.modules\n"
        "def handler(event, context):\n    return [THERE, os.environ['OMP_NUM_THREADS']]\n"
    )
    # A machine has one processor, whatever the worker allows.
    assert reference.load(threads=4).kind == "loaded"
    assert reference.call().value == [True, "1"]


def test_what_packages_add_to_the_path_is_there_for_the_handler(
    reference: Guest, task: Path, packages: Path
) -> None:
    (packages / "adds.py").write_text("import sys; sys.path.append(__file__[:-3] + '_vendored')\n")
    (packages / "adds_vendored").mkdir()
    (packages / "adds_vendored" / "bundled.py").write_text("WHERE = __file__\n")
    imported(reference, "adds", path=packages)
    reference.peer.send({"kind": "settle"})
    reference.peer.send({"kind": "wake"})
    reference.peer.send({"kind": "rehearse"})
    (task / "main.py").write_text("import bundled\ndef handler(event): return bundled.WHERE\n")
    assert reference.load().kind == "loaded"
    assert reference.call().value == f"{packages}/adds_vendored/bundled.py"


def test_a_clone_that_wakes_draws_anew_and_a_rehearsal_leaves_nothing(
    reference: Guest, task: Path, packages: Path
) -> None:
    (packages / "seeded.py").write_text("import random\nrandom.seed(7)\n")
    imported(reference, "seeded", path=packages)
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text(
        "import os, random, sys\ndef handler(event, context):\n"
        "    drawn = [random.getstate()[1][1:4], context.generation_id]\n"
        "    return [*drawn, os.getcwd(), 'rehearsed' in sys.modules]\n"
    )
    # What is woken twice has drawn twice; no clone of ours keeps the state that it was frozen with.
    reference.peer.send({"kind": "wake"})
    reference.peer.send({"kind": "rehearse"})
    assert reference.load().kind == "loaded"
    first = reference.call().value
    reference.peer.send({"kind": "wake"})
    second = reference.call().value
    assert first[0] != second[0] and first[1] != second[1]
    assert first[2:] == second[2:] == [str(task), False]


def test_a_clone_does_what_packages_want_done_around_a_fork_and_not_what_the_library_wants(
    reference: Guest, task: Path, packages: Path
) -> None:
    (packages / "identified.py").write_text(
        "import os, threading\nDONE = []\n"
        "for name in ('first', 'second'):\n"
        "    os.register_at_fork(before=lambda name=name: DONE.append('before ' + name),\n"
        "                        after_in_child=lambda name=name: DONE.append(name))\n"
        "os.register_at_fork(after_in_parent=lambda: DONE.append('parent'))\n"
        "os.register_at_fork(after_in_child=lambda: 1 / 0)\n"
        "os.register_at_fork(after_in_child=lambda: DONE.append('last'))\n"
        # Its own hook takes every other thread for dead.
        "thread = threading.Thread(target=threading.Event().wait, daemon=True)\nthread.start()\n"
    )
    imported(reference, "identified", path=packages)
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text(
        "import identified\n"
        "def handler(event, context):\n"
        "    return [identified.DONE, identified.thread.is_alive()]\n"
    )
    reference.peer.send({"kind": "wake"})
    assert reference.load().kind == "loaded"
    done, lives = reference.call().value
    assert done == ["before second", "before first", "first", "second", "last"]
    assert lives


SQLITE = """
import os, sqlite3
def draw():
    return CONNECTION.execute('select lower(hex(randomblob(16)))').fetchone()[0]
CONNECTION = sqlite3.connect(':memory:')
draw()
def copies():
    # Each goes on from the state that this process is in, as a clone does.
    drawn = []
    for _ in range(3):
        reading, writing = os.pipe()
        if not (pid := os.fork()):
            os.write(writing, draw().encode())
            os._exit(0)
        os.waitpid(pid, 0)
        drawn.append(os.read(reading, 64).decode())
    return drawn
def handler(event, context):
    return copies()
"""


def test_clones_of_what_has_imported_draw_different_numbers_from_sqlite(
    reference: Guest, task: Path, packages: Path
) -> None:
    (packages / "keeps.py").write_text(SQLITE)
    imported(reference, "keeps", path=packages)
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text("from keeps import handler\n")
    # Not woken: what the reference machine has left is what is seen.
    assert reference.load().kind == "loaded"
    assert len(set(reference.call().value)) == 3


def test_clones_of_what_has_loaded_draw_different_numbers_from_sqlite(
    reference: Guest, task: Path
) -> None:
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text(SQLITE)
    reference.peer.send({"kind": "wake"})
    assert reference.load().kind == "loaded"
    reference.peer.send({"kind": "settle"})
    assert len(set(reference.call().value)) == 3


def test_a_clone_that_wakes_draws_what_no_thread_has_left_behind_from_sqlite(
    reference: Guest, task: Path, packages: Path
) -> None:
    (packages / "keeps.py").write_text(SQLITE)
    imported(reference, "keeps", path=packages)
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text(
        "import keeps\ndef handler(event, context):\n"
        "    return keeps.copies() if event else keeps.draw()\n"
    )
    reference.peer.send({"kind": "wake"})
    assert reference.load().kind == "loaded"
    # As a thread might have after the imports.
    reference.call(False)
    reference.peer.send({"kind": "wake"})
    assert len(set(reference.call(True).value)) == 3


def test_a_gaussian_number_that_was_left_over_is_drawn_in_no_clone(
    reference: Guest, task: Path, packages: Path
) -> None:
    if PYTHON != sys.executable:
        skip("pythons", "numpy is there for the tests' own interpreter")
    for name in ("numpy", "numpy.libs"):
        (packages / name).symlink_to(Path(numpy.__file__).parent.parent / name)
    imported(reference, "numpy.random", path=packages)
    (task / "main.py").write_text(
        "import numpy\ndef handler(event, context):\n"
        "    return [numpy.random.randn(), numpy.random.get_state()[4]]\n"
    )
    reference.peer.send({"kind": "settle"})
    assert reference.load().kind == "loaded"
    reference.peer.send({"kind": "settle"})
    # As a thread may while the machine is frozen.
    _, left = reference.call().value
    reference.peer.send({"kind": "wake"})
    drawn, _ = reference.call().value
    assert left not in (0.0, drawn)


def test_a_clone_may_wake_while_a_thread_imports_what_draws(reference: Guest, task: Path) -> None:
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text(
        "import sys, types\nfor name in ('random', 'numpy.random'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "def handler(event, context):\n    return 1\n"
    )
    assert reference.load().kind == "loaded"
    reference.peer.send({"kind": "settle"})
    reference.peer.send({"kind": "wake"})
    assert reference.call().value == 1


def test_a_flood_around_python_is_bounded_and_its_rest_counted(
    reference: Guest, task: Path
) -> None:
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text(
        "import os\n"
        "def handler(event, context):\n"
        "    os.write(1, b'x' * event)\n"
        "    return os.listdir('/tmp')\n"
    )
    assert reference.load().kind == "loaded"
    flood = reference.call(3 << 20)
    rest = (3 << 20) - (256 << 10)
    said = f"\n[{rest} more bytes of output were dropped]\n"
    assert flood.text("stderr") == "x" * (256 << 10) + said
    assert not [name for name in flood.value if name.startswith(".lambswool")]
    assert reference.call(3).text("stderr") == "xxx"


@pytest.mark.parametrize("before", ["", "x"])
def test_what_is_held_is_cut_between_characters(reference: Guest, task: Path, before: str) -> None:
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text(
        "import os, threading, time\n"
        "def speak(text):\n"
        "    time.sleep(0.2)\n"
        "    print(text, end='')\n"
        "def handler(text, context):\n"
        "    threading.Thread(target=speak, args=(text,)).start()\n"
        "    os.write(1, text.encode())\n"
    )
    assert reference.load().kind == "loaded"
    text = before + "é" * (200 << 10)
    # Beside Python, and printed between two calls.
    said = [reference.call(text).text("stderr")]
    time.sleep(0.6)
    said.append(reference.call("").text("stdout"))
    for one in said:
        kept, _, rest = one.partition("\n")
        assert kept == text[: len(kept)]
        assert f"[{len(text[len(kept) :].encode())} more bytes" in rest


def test_what_raises_in_the_guests_own_work_loses_no_output_around_python(
    reference: Guest, task: Path
) -> None:
    reference.peer.send({"kind": "settle"})
    (task / "main.py").write_text(
        "import os, sys\n"
        "def at(number):\n"
        "    def trace(frame, event, argument):\n"
        "        nonlocal number\n"
        "        if frame.f_globals['__name__'].startswith('lambswool'):\n"
        "            number -= 1\n"
        "            if number == 0:\n"
        "                raise ValueError('late')\n"
        "        return trace\n"
        "    return trace\n"
        "def handler(event, context):\n"
        "    os.write(1, b'said\\n')\n"
        "    (sys.setprofile if event[1] else sys.settrace)(at(event[0]))\n"
    )
    assert reference.load().kind == "loaded"
    for event in [(n, profiled) for n in range(1, 200) for profiled in (False, True)]:
        answer = reference.call(event)
        said = answer.text("stderr").count("said\n")
        # What the call before has set may have raised before this one began.
        assert said == 1 or (said == 0 and answer.message == "late"), event
