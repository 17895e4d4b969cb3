"""The zygote's loop: importing, forking, and what children inherit."""

import json
import os
import signal
import socket
import textwrap
import time
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path

import numpy
import pytest

import landing
from conftest import PATIENCE, PYTHON, Guest, Peer, skip, spawn


class Zygote:
    """The worker's end of a zygote's control socket."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        control.settimeout(PATIENCE)
        self.pid = self.hear("ready")["pid"]

    def say(self, message: dict, *fds: int) -> None:
        socket.send_fds(self.control, [json.dumps(message).encode()], list(fds))

    def hear(self, kind: str) -> dict:
        message = json.loads(self.control.recv(1 << 20))
        assert message.pop("kind") == kind, message
        return message

    def imports(self, *modules: str, path: Path | None = None) -> dict:
        self.say({"kind": "import", "modules": modules, "path": [str(path)] if path else []})
        return self.hear("imported")

    def fork(self, flags: int = 0) -> Guest:
        """An instance. A few descriptors more come along, as they do in earnest."""
        ours, theirs = socket.socketpair()
        with theirs, open("/dev/null") as other:
            fds = [theirs.fileno(), other.fileno(), other.fileno()]
            request = landing.FORK.pack(b"F", 1000, flags | landing.INSTANCE)
            socket.send_fds(self.control, [request], fds)
        return Guest(Peer(ours))

    def derive(self) -> "Zygote":
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            request = landing.FORK.pack(b"F", 1000, 0)
            socket.send_fds(self.control, [request], [theirs.fileno()])
        return Zygote(ours)

    def descriptors(self) -> list[str]:
        return sorted(os.listdir(f"/proc/{self.pid}/fd"))


@pytest.fixture
def zygote(layer: Path, task: Path, packages: Path) -> Iterator[Zygote]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = spawn("zygote", task, packages, theirs, layer)
    zygote = Zygote(ours)
    assert zygote.pid == process.pid
    yield zygote
    ours.close()
    try:
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()


def write(path: Path, code: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(code))


def test_a_forked_instance_serves_as_a_fresh_one_does(zygote, task):
    write(task / "main.py", "def handler(event, context):\n print('hi')\n return event")
    guest = zygote.fork()
    assert guest.pid != zygote.pid
    assert guest.load().kind == "loaded"
    for n in range(3):
        answer = guest.call(n)
        assert answer.value == n
        assert answer.logs == [(f"call-{n + 1}", "stdout", b"hi\n")]


def test_imports_are_reported_with_the_files_from_outside_the_standard_library(zygote, packages):
    write(packages / "wool" / "__init__.py", "import fractions, wool.yarn")
    write(packages / "wool" / "yarn.py", "")
    said = zygote.imports("wool", "decimal", path=packages)
    assert said["milliseconds"] > 0
    assert [file[:2] for file in said["files"]] == [
        ["wool.yarn", f"{packages}/wool/yarn.py"],
        ["wool", f"{packages}/wool/__init__.py"],
    ]
    assert (said["threads"], said["failed"]) == (0, [])
    # Only what is new.
    assert zygote.imports("wool", path=packages)["files"] == []


def test_each_module_has_its_own_time_and_who_asked_for_it_first(zygote, packages):
    write(packages / "top.py", "import time, lazy.part; time.sleep(0.02)")
    write(packages / "lazy" / "__init__.py", "import fractions")
    write(packages / "lazy" / "part.py", "import time; time.sleep(0.06)")
    said = zygote.imports("top", "lazy", path=packages)
    own = {name: (ms, importer) for name, _, ms, importer, _ in said["files"]}
    assert list(own) == ["lazy", "lazy.part", "top"]
    assert 20 <= own["top"][0] < 60 <= own["lazy.part"][0]
    assert own["lazy"][0] < 20
    assert [importer for _, importer in own.values()] == ["lazy.part", "top", ""]
    assert sum(ms for ms, _ in own.values()) <= said["milliseconds"]


def test_the_variables_that_modules_look_up_are_told_and_whose_import_did(zygote, packages):
    write(packages / "plain.py", "")
    write(packages / "mode.py", "import os, inner; os.environ.get('MODE'); 'SPEED' in os.environ")
    write(packages / "inner.py", "from os import environ, getenv; getenv('DEPTH', '1')")
    write(packages / "whole.py", "import os; assert {**os.environ} == os.environ.copy()")
    write(
        packages / "begins.py",
        """
        import os, pickle
        [value for name, value in os.environ.items() if name.startswith(("A_", "B_"))]
        assert not any(name.startswith("C_") for name in list(os.environ))
        assert {type(name) for name in pickle.loads(pickle.dumps(dict(os.environ)))} == {str}
        """,
    )
    write(packages / "raw.py", "import os; assert {type(name) for name in os.environb} == {bytes}")
    for name, source in {
        "others": "ALL = {n: v for n, v in os.environ.items() if not n.startswith('_')}",
        "kept": "KEPT = [n for n in os.environ if n.startswith('A_') or len(n) > 1]",
        "either": "any(n.startswith('A_') or n == 'LANG' for n in os.environ)",
        "inside": "any(n.startswith('A_', 2) for n in os.environ)",
        "odd": "try:\n [n.startswith(b'A') for n in os.environ]\nexcept TypeError: pass",
        "bytes": "os.environb.get(b'RAW')",
    }.items():
        write(packages / f"{name}.py", f"import os\n{source}")
    write(packages / "lazy.py", "import os\ndef look(): os.getenv('LATE')")
    write(packages / "sets.py", "import os, lazy; os.environ['SET'] = '1'; lazy.look()")
    write(packages / "many.py", "import os; [os.getenv(f'VARIABLE_{n}') for n in range(1000)]")
    write(packages / "asks.py", "import sysconfig")
    write(packages / "fails.py", "import os; os.getenv('GONE'); import plain, nowhere")
    whole = ["whole", "begins", "raw", "others", "kept", "either", "inside", "odd", "many"]
    said = zygote.imports(
        "plain", "mode", *whole, "bytes", "lazy", "sets", "asks", "fails", path=packages
    )
    own = {name: variables_of(names) for name, _, _, _, names in said["files"]}
    assert own.pop("begins") == ["*", "A_*", "B_*", "C_*"]
    assert own.pop("many")[0] == "*"
    assert {name for name in whole if own.pop(name, ["*"]) != ["*"]} == set()
    assert [[of, variables_of(names)] for of, names in said["variables"]] == [["fails", ["GONE"]]]
    assert own.pop("asks"), "what the standard library does on its behalf counts, too"
    assert own == {
        "plain": [],
        "mode": ["MODE", "SPEED"],
        "inner": ["DEPTH"],
        "bytes": ["RAW"],
        "lazy": [],
        "sets": ["LATE", "SET"],
    }


def test_an_import_that_leaves_a_file_open_is_named(zygote, packages):
    write(packages / "clean.py", "open('/dev/null').close()")
    write(packages / "leaky.py", "import posix; FD = posix.open('/dev/null', 0)")
    write(packages / "last.py", "")
    said = zygote.imports("clean", "leaky", "last", path=packages)
    assert (said["fds"], said["threads"], said["left_by"]) == (1, 0, ["leaky"])


def test_an_import_that_leaves_a_timer_set_is_named(zygote, packages):
    write(
        packages / "watched.py",
        "import signal; signal.setitimer(signal.ITIMER_VIRTUAL, 600); signal.alarm(600)",
    )
    write(packages / "cleared.py", "import signal; signal.alarm(600); signal.alarm(0)")
    said = zygote.imports("cleared", path=packages)
    assert (said["timers"], said["left_by"]) == (False, [])
    said = zygote.imports("watched", path=packages)
    assert (said["timers"], said["left_by"]) == (True, ["watched"])


ADDS = """
    import os, sys
    HERE = os.path.dirname(__file__)
    sys.path.insert(0, HERE + "/first")
    sys.path.insert(1, HERE + "/second")
    sys.path.append(HERE + "/vendored")
    sys.path.insert(0, os.getcwd())
"""


def test_what_packages_add_to_the_path_is_there_in_forks(zygote, task, packages):
    write(packages / "adds" / "__init__.py", ADDS)
    write(
        packages / "more.py", "import sys; sys.path.append('/more'); sys.path.insert(0, '/front')"
    )
    for folder, module in (
        ("first", "both"),
        ("second", "both"),
        ("vendored", "both"),
        ("vendored", "bundled"),
        ("vendored", "shadowed"),
        ("first", "own"),
    ):
        write(packages / "adds" / folder / f"{module}.py", f"WHERE = {folder!r}")
    write(packages / "shadowed.py", "WHERE = 'packages'")
    write(task / "own.py", "WHERE = 'task'")
    write(
        task / "main.py",
        """
        import sys, both, bundled, own, shadowed
        def handler(event, context):
            return [[one.WHERE for one in (both, bundled, own, shadowed)], sys.path]
        """,
    )
    path, here = [str(task), str(packages)], f"{packages}/adds"
    assert zygote.imports("adds", path=packages)["failed"] == []
    derived = zygote.derive()
    derived.imports("more", path=packages)
    # What has been rehearsed has had another path meanwhile.
    for one, flags, ahead, behind in (
        (zygote, 0, [], []),
        (zygote, landing.REHEARSE, [], []),
        (derived, 0, ["/front"], ["/more"]),
    ):
        guest = one.fork(flags)
        assert guest.load().kind == "loaded"
        found, seen = guest.call().value
        assert found == ["first", "vendored", "task", "packages"]
        own = [entry for entry in seen if entry.startswith(("/front", "/more", *path))]
        assert own == [
            path[0],
            *ahead,
            f"{here}/first",
            f"{here}/second",
            path[1],
            f"{here}/vendored",
            *behind,
        ]
        assert "/" not in seen


def test_an_import_that_fails_stops_no_other(zygote, packages):
    write(packages / "exits.py", "import sys; sys.exit(1)")
    write(packages / "mute.py", "class E(Exception):\n def __str__(s): raise E\nraise E")
    write(packages / "odd.py", "raise ValueError('half \\ud800')")
    write(packages / "broken.py", "def (")
    write(packages / "good.py", "print('nobody hears this')")
    said = zygote.imports("exits", "nowhere", "mute", "odd", "broken", "good", path=packages)
    failed = dict(said["failed"])
    assert failed["exits"] == "SystemExit: 1"
    assert failed["nowhere"] == "ModuleNotFoundError: No module named 'nowhere'"
    assert failed["mute"] == "E: <no message>"
    assert failed["odd"] == "ValueError: half \\ud800"
    assert failed["broken"].startswith("SyntaxError: ")
    assert [file[0] for file in said["files"]] == ["good"]


def test_a_thread_left_running_is_counted(zygote, packages):
    write(
        packages / "busy.py",
        """
        import threading, time
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        """,
    )
    assert zygote.imports("busy", path=packages)["threads"] == 1


def test_more_files_than_a_message_holds_come_in_several(zygote, packages):
    for n in range(1500):
        write(packages / "many" / f"module_with_a_long_name_{n}.py", "")
    write(
        packages / "many" / "__init__.py",
        "for n in range(1500): __import__(f'many.module_with_a_long_name_{n}')",
    )
    zygote.say({"kind": "import", "modules": ["many"], "path": [str(packages)]})
    files, messages = [], 0
    while True:
        text = zygote.control.recv(1 << 20)
        assert len(text) < 64 << 10
        message = json.loads(text)
        files += message["files"]
        messages += 1
        if message["kind"] == "imported":
            break
        assert message["kind"] == "files"
    assert messages > 1
    assert len(files) == 1501


def test_what_a_zygote_imported_is_there_in_the_child_and_writes_to_its_log(zygote, task, packages):
    write(
        packages / "speaker.py",
        """
        import logging, sys
        out = sys.stdout
        log = logging.getLogger("speaker")
        log.addHandler(logging.StreamHandler(sys.stderr))
        print("at import, to nobody")
        print("an unfinished line", end="")
        """,
    )
    zygote.imports("speaker", path=packages)
    write(
        task / "main.py",
        """
        import sys
        there = "speaker" in sys.modules
        import speaker
        def handler(event, context):
            print("kept", file=speaker.out)
            speaker.log.warning("logged")
            return there
        """,
    )
    guest = zygote.fork()
    assert guest.load().logs == []
    answer = guest.call()
    assert answer.value is True
    assert answer.text("stdout") == "kept\n"
    assert answer.text("stderr") == "logged\n"


def test_a_derived_zygote_adds_imports_and_forks_and_leaves_its_parent_as_it_was(
    zygote, task, packages
):
    write(packages / "wool.py", "")
    write(packages / "yarn.py", "")
    code = "import sys\ndef handler(e, c): return [m in sys.modules for m in ('wool', 'yarn')]"
    write(task / "main.py", code)
    zygote.imports("wool", path=packages)
    derived = zygote.derive()
    assert derived.pid != zygote.pid
    assert [file[0] for file in derived.imports("yarn", path=packages)["files"]] == ["yarn"]
    twice = derived.derive()
    for parent, expected in (
        (zygote, [True, False]),
        (derived, [True, True]),
        (twice, [True, True]),
    ):
        guest = parent.fork()
        assert guest.load().kind == "loaded"
        assert guest.call().value == expected
    # A zygote's end is not its children's.
    derived.control.close()
    guest = twice.fork()
    assert guest.load().kind == "loaded"
    twice.control.close()
    assert guest.call().value == [True, True]


def test_siblings_draw_different_numbers(zygote, task):
    zygote.imports("random", "uuid", "ssl", "secrets", "tempfile")
    write(
        task / "main.py",
        """
        import random, secrets, ssl, tempfile, uuid
        def handler(event, context):
            return [random.random(), ssl.RAND_bytes(8).hex(), secrets.token_hex(),
                    str(uuid.uuid4()), str(uuid.uuid1()), next(tempfile._get_candidate_names())]
        """,
    )
    drawn = []
    for _ in range(8):
        guest = zygote.fork()
        assert guest.load().kind == "loaded"
        drawn.append(guest.call().value)
    for column in zip(*drawn, strict=True):
        assert len(set(column)) == len(drawn)


def test_siblings_have_uuids_of_their_own_though_one_was_drawn_before_the_fork(
    zygote, task, packages
):
    write(packages / "draws.py", "import uuid\nuuid.uuid1()\n")
    assert zygote.imports("draws", path=packages)["failed"] == []
    source = "import uuid\ndef handler(event, context): return uuid.uuid1().node\n"
    (task / "main.py").write_text(source)
    nodes = set()
    for _ in range(4):
        guest = zygote.fork()
        guest.load()
        nodes.add(guest.call().value)
    assert len(nodes) == 4


def test_what_imports_set_is_there_for_later_ones(zygote, task, packages):
    setting = "import os\nos.environ.update(_HANDLER='mine', OMP_NUM_THREADS='7', OWN='1')\n"
    write(packages / "sets.py", setting)
    names = ["_HANDLER", "OMP_NUM_THREADS", "OWN"]
    write(packages / "sees.py", f"import os\nSEEN = [os.environ.get(name) for name in {names}]\n")
    for name in ("sets", "sees"):
        assert zygote.imports(name, path=packages)["failed"] == []
    write(task / "main.py", "import sees\ndef handler(event, context): return sees.SEEN\n")
    guest = zygote.fork()
    guest.load()
    assert guest.call().value == ["mine", "7", "1"]


@pytest.mark.parametrize(
    "imported",
    [
        "",
        # Gaussian numbers come in pairs.
        "numpy.random.seed(1); numpy.random.randn()",
        "numpy.random.set_bit_generator(numpy.random.PCG64(1))",
    ],
)
def test_siblings_draw_different_numbers_from_numpy(zygote, task, packages, imported):
    if PYTHON != os.sys.executable:
        skip("pythons", "numpy is there for the tests' own interpreter")
    for name in ("numpy", "numpy.libs"):
        (packages / name).symlink_to(Path(numpy.__file__).parent.parent / name)
    write(packages / "draws.py", f"import numpy.random\n{imported}\n")
    said = zygote.imports("draws", path=packages)
    assert said["failed"] == []
    write(
        task / "main.py",
        """
        import numpy
        def handler(event, context):
            return [numpy.random.randn(), *numpy.random.rand(700)]
        """,
    )
    drawn = set()
    for _ in range(8):
        guest = zygote.fork()
        assert guest.load().kind == "loaded"
        said = guest.call().value
        assert 0.4 < sum(said[1:]) / 700 < 0.6
        drawn |= set(said)
    assert len(drawn) == 8 * 701


def test_siblings_draw_different_numbers_from_sqlite(zygote, task, packages):
    write(
        packages / "keeps.py",
        """
        import sqlite3
        DRAW = 'select lower(hex(randomblob(16)))'
        def draw(connection):
            return connection.execute(DRAW).fetchone()[0]
        CONNECTION = sqlite3.connect(':memory:')
        draw(CONNECTION)
        """,
    )
    write(
        task / "main.py",
        """
        import keeps, sqlite3
        def handler(event, context):
            with sqlite3.connect(':memory:') as another:
                return [keeps.draw(keeps.CONNECTION), keeps.draw(another)]
        """,
    )
    assert zygote.imports("keeps", path=packages)["failed"] == []
    derived = zygote.derive()
    derived.imports("calendar")
    drawn = []
    for parent in [zygote, derived]:
        for _ in range(4):
            guest = parent.fork()
            assert guest.load().kind == "loaded"
            drawn += guest.call().value
    derived.control.close()
    assert len(set(drawn)) == 16


def test_a_zygote_without_sqlite_imports_nothing_for_its_sake(zygote, task):
    zygote.imports("random", "json")
    write(
        task / "main.py",
        """
        import sys
        BEFORE = [name for name in ('sqlite3', '_sqlite3', 'ctypes') if name in sys.modules]
        import sqlite3
        def handler(event, context):
            return [BEFORE, 'ctypes' in sys.modules]
        """,
    )
    guest = zygote.fork()
    assert guest.load().kind == "loaded"
    # Nor does a fork: it is nobody's parent.
    assert guest.call().value == [[], False]


def test_a_childs_own_children_keep_their_exit_status(zygote, task):
    write(
        task / "main.py",
        """
        import subprocess
        def handler(event, context):
            return subprocess.run(["sh", "-c", "exit 7"]).returncode
        """,
    )
    guest = zygote.fork()
    assert guest.load().kind == "loaded"
    assert guest.call().value == 7


def test_code_that_appears_with_the_fork_is_found(zygote, task, packages):
    # The directory was looked at, and remembered as empty, before the fork; layers have no times
    # of their own that could tell one from another.
    os.utime(packages, (1, 1))
    zygote.imports("nothing", path=packages)
    write(packages / "late.py", "")
    write(task / "main.py", "import late\ndef handler(e, c): return 1")
    os.utime(packages, (1, 1))
    assert zygote.fork().load().kind == "loaded"
    assert zygote.derive().imports("late", path=packages)["failed"] == []


def test_a_handler_file_hides_a_module_that_the_zygote_imported(zygote, task):
    zygote.imports("statistics", "calendar")
    write(task / "statistics.py", "def handler(e, c): return 'ours'")
    guest = zygote.fork()
    assert guest.load(module="statistics").kind == "loaded"
    assert guest.call().value == "ours"


@pytest.mark.parametrize("told", [False, True])
def test_all_of_a_handlers_files_hide_modules_that_the_zygote_imported(
    zygote, task, packages, told
):
    for name in ("utils", "helper", "big/__init__", "big/part", "data/__init__"):
        write(packages / f"{name}.py", "WHO = 'package'")
    write(packages / "needs.py", "import utils, helper")
    assert zygote.imports("needs", "big.part", "data", "calendar", path=packages)["failed"] == []
    for name in ("utils", "big/__init__", "big/part", "calendar"):
        write(task / f"{name}.py", "WHO = 'handler'")
    # What gives way to a package's elsewhere, too, or is no module.
    write(task / "data/some.csv", "1,2")
    write(task / "helper.txt", "a note")
    write(task / "io.py", "WHO = 'handler'")
    write(
        task / "main.py",
        """
        import importlib
        def handler(e, c):
            return [getattr(importlib.import_module(name), "WHO", "python") for name in e]
        """,
    )
    guest = zygote.fork()
    entries = {"entries": os.listdir(task)} if told else {}
    assert guest.load(**entries).kind == "loaded"
    names = ["utils", "helper", "big", "big.part", "data", "calendar", "io"]
    theirs, own = "package", "handler"
    assert guest.call(names).value == [own, theirs, own, own, theirs, own, "python"]


def test_a_rehearsal_sets_aside_no_package_that_has_a_name_of_the_guests(zygote, task, packages):
    write(packages / "context.py", "")
    assert zygote.imports("context", path=packages)["failed"] == []
    write(
        task / "main.py",
        """
        import sys
        there = "context" in sys.modules
        def handler(e, c):
            return there
        """,
    )
    guest = zygote.fork(landing.REHEARSE)
    assert guest.load().kind == "loaded"
    assert guest.call().value is True


def variables_of(names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith("=")]


def lookups(said: dict) -> set[str]:
    files = [name for file in said["files"] for name in file[-1]]
    return {*files, *(name for _, names in said["variables"] for name in names)}


def test_what_imports_look_for_and_do_not_find_is_told(zygote, packages):
    write(packages / "there.py", "")
    write(packages / "there-1.dist-info/METADATA", "Name: there\nVersion: 1\n")
    write(packages / "outer/__init__.py", "")
    write(
        packages / "probes.py",
        """
        import importlib.util
        from importlib import metadata
        import there
        try:
            import winreg, lxml.etree
        except ImportError:
            pass
        try:
            import lxml.etree
        except ImportError:
            pass
        try:
            import outer.part
        except ImportError:
            pass
        assert importlib.util.find_spec("numexpr") is None
        try:
            metadata.version("Some_Thing")
        except metadata.PackageNotFoundError:
            pass
        """,
    )
    write(packages / "lists.py", "from importlib import metadata\nmetadata.entry_points()")
    write(packages / "pkg_resources.py", "")
    said = zygote.imports("probes", path=packages)
    expected = {"import lxml", "import outer.part", "import numexpr", "distribution some-thing"}
    assert {f"={name}" for name in expected} <= lookups(said)
    told = {name for name in lookups(said) if name.startswith("=")}
    assert not told & {"=*", "=import there", "=import winreg", "=import lxml.etree"}
    of = next(file for file in said["files"] if file[0] == "probes")
    assert "=import lxml" in of[-1]
    for lists in ("lists", "pkg_resources"):
        assert "=*" in lookups(zygote.imports(lists, path=packages))
    assert lookups(zygote.imports("there", path=packages)) == set()


def test_who_lists_what_several_packages_share_has_gone_through_all(zygote, tmp_path):
    packages = tmp_path / "packages"
    for package in ("own", "own/data", "shared"):
        (packages / package).mkdir(parents=True)
    write(packages / "own/part.py", "")
    looks = {
        "by_walking": "import os\nALL = list(os.walk(os.path.dirname(__file__)))",
        "by_plugins": "import pkgutil\nALL = list(pkgutil.iter_modules())",
        "by_namespace": "import pkgutil, shared\nALL = list(pkgutil.iter_modules(shared.__path__))",
        "by_name": "import os\nos.chdir(os.path.dirname(__file__))\nos.listdir()\nos.chdir('/')",
        "by_path": "import pathlib\nALL = list(pathlib.Path(__file__).parent.iterdir())",
    }
    for name, source in looks.items():
        write(packages / f"{name}.py", source)
        assert "=*" in lookups(zygote.imports(name, path=packages)), name
    write(
        packages / "own/__init__.py",
        """
        import os, pkgutil, shutil
        from importlib import metadata
        from os import scandir
        here = os.path.dirname(__file__)
        PARTS = [one.name for one in pkgutil.iter_modules(__path__)]
        assert os.listdir(here + "/data") == [] and PARTS == ["part"]
        assert [one.name for one in scandir(here) if one.name == "data"] == ["data"]
        assert os.listdir() and os.scandir(os.open("/", os.O_RDONLY)) and os.listdir("/")
        assert {os.scandir, os.listdir, scandir} <= os.supports_fd
        try:
            metadata.version("own")
        except metadata.PackageNotFoundError:
            pass
        """,
    )
    said = zygote.imports("own", path=packages)
    assert said["failed"] == []
    assert lookups(said) == {"=distribution own"}
    write(
        packages / "afterwards.py",
        "import os, own\nassert os.scandir is not own.scandir and list(own.scandir('/'))",
    )
    assert zygote.imports("afterwards", path=packages)["failed"] == []


def test_what_is_imported_is_told_how_its_children_ended(zygote, tmp_path):
    write(
        tmp_path / "starts.py",
        """
        import os, subprocess, sys
        END = subprocess.call([sys.executable, "-c", "raise SystemExit(3)"])
        child = os.fork() or os._exit(7)
        assert END == 3 and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        left = os.fork() or os._exit(0)
        os.waitid(os.P_PID, left, os.WEXITED | os.WNOWAIT)
        """,
    )
    said = zygote.imports("starts", path=tmp_path)
    assert said["failed"] == []
    children = f"/proc/{zygote.pid}/task/{zygote.pid}/children"
    assert open(children).read() == "", "who ended is still there"


def test_a_hundred_forks_leave_no_descriptor_and_no_zombie(zygote, task):
    before = zygote.descriptors()
    pids = []
    for _ in range(100):
        guest = zygote.fork()
        pids.append(guest.pid)
        guest.peer.sock.close()
    assert zygote.imports()["failed"] == []
    assert zygote.descriptors() == before
    deadline = time.monotonic() + PATIENCE
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline, "a child is left"
        time.sleep(0.01)


def test_a_child_has_only_its_channel_and_what_it_opened_itself(zygote, task):
    write(task / "main.py", "import os\ndef handler(e, c): return os.listdir('/proc/self/fd')")
    guest = zygote.fork()
    assert guest.load().kind == "loaded"
    # 0 to 3, and the listing itself
    assert len(guest.call().value) == 5


def test_a_rehearsal_leaves_nothing_for_the_handler_to_see(zygote, task):
    (task / "main.py").write_text(
        textwrap.dedent("""
        import os, sys
        def handler(event, context):
            return [sorted(os.environ.items()), sys.path, os.getcwd(), sorted(sys.modules)]
        """)
    )
    seen = []
    for flags in (0, landing.REHEARSE):
        guest = zygote.fork(flags)
        guest.load()
        seen.append(guest.call({}).value)
    assert seen[0] == seen[1]


def test_imports_may_leave_a_directory_that_is_gone(zygote, task, packages):
    write(
        packages / "leaves.py",
        """
        import os, tempfile
        with tempfile.TemporaryDirectory() as gone:
            os.chdir(gone)
        os.environ["SET_BY_IMPORT"] = "1"
        """,
    )
    assert zygote.imports("leaves", path=packages)["failed"] == []
    write(
        task / "main.py",
        """
        import os
        def handler(event, context):
            return os.environ["SET_BY_IMPORT"], os.getcwd()
        """,
    )
    guest = zygote.fork()
    guest.load()
    assert guest.call().value == ["1", str(task)]


@pytest.mark.parametrize("message", [b"{", b"3", b"{}", b'{"kind": 3}', b'{"kind": "dance"}'])
def test_an_unknown_message_is_said_to_be_one(zygote, message):
    before = zygote.descriptors()
    with open("/dev/null") as file:
        socket.send_fds(zygote.control, [message], [file.fileno()])
    zygote.hear("unknown")
    assert zygote.descriptors() == before
    assert zygote.imports()["failed"] == []


def test_a_killed_child_does_not_disturb_its_zygote(zygote):
    guest = zygote.fork()
    os.kill(guest.pid, signal.SIGKILL)
    assert guest.peer.ended()
    assert zygote.fork().pid != guest.pid


def test_what_a_zygote_imported_is_out_of_its_childrens_collectors_sight(zygote, task):
    zygote.imports("decimal")
    write(
        task / "main.py",
        """
        import gc
        def handler(event, context):
            return [gc.get_freeze_count(), len(gc.get_objects())]
        """,
    )
    guest = zygote.fork()
    assert guest.load().kind == "loaded"
    frozen, seen = guest.call().value
    assert frozen > 1000 > seen


def test_openmp_has_its_threads_back_after_the_fork(zygote, task, packages):
    library = find_library("gomp") or skip("compiler", "no OpenMP on this machine: gcc brings it")
    write(packages / "compute.py", f"import ctypes; gomp = ctypes.CDLL({library!r})")
    write(packages / "parallel.py", "import compute; compute.gomp.omp_set_num_threads(1)")
    write(
        task / "main.py",
        """
        def handler(event, context):
            import sys
            return sys.modules["compute"].gomp.omp_get_max_threads()
        """,
    )
    assert zygote.imports("parallel", path=packages)["failed"] == []
    guest = zygote.fork()
    guest.load(threads=3)
    assert guest.call().value == 3
    guest = zygote.fork()
    guest.load(threads=3, environment={"OMP_NUM_THREADS": "5"})
    assert guest.call().value == 5


def test_numexpr_has_its_threads_back_and_one_that_refuses_stops_nobody(zygote, task, packages):
    write(packages / "numexpr.py", "said = []\nset_num_threads = said.append")
    write(
        task / "main.py",
        """
        def handler(event, context):
            import sys
            return sys.modules["numexpr"].said
        """,
    )
    zygote.imports("numexpr", path=packages)
    guest = zygote.fork()
    guest.load(threads=3)
    assert guest.call().value == [3]
    write(packages / "breaks.py", "import numexpr; numexpr.set_num_threads = lambda n: 1 / 0")
    zygote.imports("breaks", path=packages)
    guest = zygote.fork()
    assert guest.load(threads=3).kind == "loaded"
    # The zygote's own rehearsals have one thread.
    assert 3 not in guest.call().value
