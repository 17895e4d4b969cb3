"""The guest keeps out of the function's way, whatever names and functions that takes."""

import sys
import textwrap
from pathlib import Path

import pytest

from conftest import Guest
from test_loop import LOCK
from test_reference import reference  # noqa: F401 - a fixture
from test_zygote import zygote  # noqa: F401 - a fixture

ANSWERS = """
import {name} as own
def handler(event, context):
    if event == "fail":
        raise ValueError("so")
    return getattr(own, "WHOSE", "the interpreter's")
"""
# This is the module of the program itself, which no import finds; two print, or open a browser.
NAMES = sorted(sys.stdlib_module_names - {"__main__", "this", "antigravity"})
TELLING = [
    *(
        "ast",
        "asyncio",
        "codecs",
        "ctypes",
        "enum",
        "functools",
        "genericpath",
        "json",
        "linecache",
    ),
    *("logging", "os", "random", "re", "site", "ssl", "tokenize", "traceback", "types", "typing"),
    *("uuid", "warnings"),
]


def answers_and_fails(guest: Guest, name: str) -> None:
    loaded = guest.load()
    assert loaded.kind == "loaded", (name, loaded.header)
    value = guest.call().value
    assert value in ("mine", "the interpreter's"), name
    failed = guest.call("fail")
    assert (failed.header["error_type"], failed.message) == ("ValueError", "so"), name
    told = failed.header["traceback"]
    assert told[-1] == "ValueError: so" and any("main.py" in line for line in told), (name, told)
    assert guest.call().value == value, name


def put(task: Path, *names: str) -> None:
    for name in names:
        (task / f"{name}.py").write_text("WHOSE = 'mine'")


@pytest.mark.parametrize("name", TELLING)
def test_a_file_named_like_a_module_of_pythons_does_no_harm(start, task, name):
    put(task, name)
    answers_and_fails(start(ANSWERS.replace("{name}", name)), name)


def test_a_file_of_any_such_name_does_no_harm_in_a_fork(zygote, task):  # noqa: F811
    for name in NAMES:
        put(task, name)
        (task / "main.py").write_text(ANSWERS.replace("{name}", name))
        answers_and_fails(zygote.fork(), name)
        (task / f"{name}.py").unlink()


def test_files_of_all_names_at_once_do_no_harm(start, task):
    put(task, *NAMES, "lambswool_guest", "lambswool_sharing", "numpy")
    # It is frozen, found before any file, and wants Python's own `importlib`.
    imported = "\n".join(f"import {name}" for name in NAMES if name != "runpy")
    guest = start(imported + "\nimport lambswool_guest" + ANSWERS.replace("{name}", "random"))
    answers_and_fails(guest, "all")


MACHINES = ["random", "uuid", "ctypes", "_ssl", "ssl", "sqlite3", "_sqlite3", "numpy", "json"]
HOSTILE = """
WHOSE = "mine"
def seed(value): raise RuntimeError("not to be called")
RAND_add = RAND_bytes = _generate_time_safe = sqlite3_randomness = CDLL = dumps = loads = seed
OPENSSL_VERSION_INFO = (1, 1, 1)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_clone_reseeds_nothing_of_a_functions_own(reference, task, packages, when):  # noqa: F811
    (packages / "draws.py").write_text("import random, uuid, ssl, sqlite3\n")
    reference.peer.send({"kind": "import", "modules": ["draws"], "path": [str(packages)]})
    assert reference.answer().kind == "imported"
    reference.peer.send({"kind": "settle"})
    for name in [*MACHINES, "lambswool_guest"]:
        (task / f"{name}.py").write_text(HOSTILE)
    (task / "numpy.py").unlink()
    (task / "numpy").mkdir()
    (task / "numpy" / "__init__.py").write_text("from . import random\n" + HOSTILE)
    (task / "numpy" / "random.py").write_text(
        "import sys\nmtrand = sys.modules[__name__]" + HOSTILE
    )
    imported = "".join(f"import {name}\n" for name in MACHINES)
    (task / "main.py").write_text(
        imported
        + "import draws\nTHEIRS = draws.random"
        + ANSWERS.replace("{name}", "random").replace('"so")', '"so", THEIRS.random())')
    )
    if when == "before":
        reference.peer.send({"kind": "wake"})
        reference.peer.send({"kind": "rehearse"})
    assert reference.load().kind == "loaded"
    reference.peer.send({"kind": "settle"})
    drawn = set()
    for _ in range(3):
        reference.peer.send({"kind": "wake"})
        assert reference.call().value == "mine"
        failed = reference.call("fail")
        assert failed.header["error_type"] == "ValueError", failed.header
        drawn.add(failed.message)
    assert len(drawn) == 3


TAKEN = """
import {imports}
def handler(event, context):
    {body}
    if event == "fail":
        raise ValueError("so")
    return "well"
"""
DEEDS = [
    ("builtins", "builtins.print = builtins.open = builtins.isinstance = builtins.len = None"),
    ("builtins", "builtins.__import__ = builtins.getattr = builtins.str = builtins.type = None"),
    ("sys", "[vars(sys).pop(n, 0) for n in ('stdout', 'stderr', '__stdout__', '__stderr__')]"),
    ("sys", "sys.stdout = sys.stderr = None"),
    ("sys", "sys.meta_path[:] = []; sys.path_hooks[:] = []; sys.path[:] = []"),
    ("sys", "sys.meta_path = sys.path = sys.path_hooks = None"),
    ("sys", "sys.modules.clear()"),
    ("sys", "sys.modules = {}"),
    ("sys", "vars(sys).pop('modules', 0)"),
    ("sys", "sys.excepthook = sys.unraisablehook = None"),
    ("sys", "[sys.modules.pop(n) for n in list(sys.modules) if n.startswith('lambswool')]"),
    ("sys", "sys.setrecursionlimit(60)"),
    ("json", "json.dumps = json.loads = json.JSONEncoder = json.decoder = None"),
    ("traceback, linecache", "traceback.TracebackException = linecache.getline = None"),
    ("traceback", "traceback.TracebackException.format = lambda *_, **__: 1 / 0"),
    ("time, os", "time.perf_counter = time.monotonic = os.getpid = os.write = None"),
    ("posix", "posix.getpid = lambda: 42"),
    ("posix", "[delattr(posix, name) for name in dir(posix) if name[0] != '_']"),
    ("posix", "vars(posix).clear()"),
    ("_thread, _json, _io", "[vars(one).clear() for one in (_thread, _json, _io)]"),
    ("_signal, time, marshal", "[vars(one).clear() for one in (_signal, time, marshal)]"),
    ("sys", "[vars(sys).pop(n, 0) for n in ('getrecursionlimit', 'setrecursionlimit', 'intern')]"),
    ("random, uuid", "random.seed = random.Random = uuid._node = None"),
    ("logging", "logging.Logger.manager = logging.root = logging.getLogger = None"),
    ("codecs", "codecs.lookup = codecs.register = None"),
    ("gc", "gc.disable(); gc.set_threshold(1)"),
    ("threading", "threading.excepthook = threading.Thread = threading.current_thread = None"),
    ("warnings", "warnings.simplefilter('error'); warnings.warn = None"),
    ("io", "io.TextIOWrapper = io.open = None"),
]


@pytest.mark.parametrize(("imports", "body"), DEEDS, ids=[body for _, body in DEEDS])
@pytest.mark.parametrize("zygotes", [False, True])
def test_what_a_function_does_to_pythons_modules_ends_no_instance(
    request, start, task, imports, body, zygotes
):
    code = TAKEN.format(imports=imports, body=body)
    (task / "main.py").write_text(code)
    guest = request.getfixturevalue("zygote").fork() if zygotes else start()
    assert guest.load().kind == "loaded"
    for _ in range(2):
        assert guest.call().value == "well"
        failed = guest.call("fail")
        assert (failed.header["error_type"], failed.message) == ("ValueError", "so")
        assert failed.header["traceback"][-1] == "ValueError: so"


@pytest.mark.parametrize("calls", ["os.close(3)", "os.closerange(3, 64)", "os.dup2(0, 3)"])
def test_who_closes_the_channel_ends_the_instance_at_once(start, calls):
    guest = start(f"import os\ndef handler(event, context):\n    {calls}")
    assert guest.load().kind == "loaded"
    with pytest.raises(EOFError):
        guest.call()
    assert guest.process.wait(10) is not None


@pytest.mark.parametrize(
    "raised",
    [
        "class E(Exception):\n    def __str__(self): raise KeyboardInterrupt",
        "class T(str):\n    encode = __len__ = __getitem__ = None\n"
        "class E(Exception):\n    def __str__(self): return T('words')",
        "class E(Exception):\n    __class__ = property(lambda self: 1 / 0)",
        "class E(Exception):\n    __traceback__ = __notes__ = property(lambda self: 1 / 0)",
        "class E(Exception):\n    __cause__ = __context__ = property(lambda self: 1 / 0)",
        "class E(Exception):\n    def __getattribute__(self, name): raise SystemExit(1)",
        "class E(Exception):\n    def __str__(self): return self.__str__()",
        "class M(type):\n    def __getattribute__(self, name): 1 / 0\n"
        "class E(Exception, metaclass=M): 0",
        "class E(Exception):\n    __module__ = 3",
        "class E(SystemExit):\n    code = property(lambda self: 1 / 0)",
        "class E(ExceptionGroup):\n"
        "    def __new__(c): return super().__new__(c, 'g', [ValueError()])\n"
        "    exceptions = property(lambda self: 1 / 0)",
    ],
)
def test_whatever_an_exception_does_its_type_is_told(start, raised):
    guest = start(
        f"{raised}\ndef handler(event, context):\n    if event: return event\n    raise E()"
    )
    assert guest.load().kind == "loaded"
    answer = guest.call()
    assert answer.kind == "failed"
    assert answer.header["error_type"] in ("main.E", "E"), answer.header
    assert answer.header["traceback"][-1].startswith(
        ("main.E", "E", "<unknown>.E", "    |", "    +")
    ), answer.header
    assert guest.call(1).value == 1


@pytest.mark.parametrize("signal", ["setitimer(signal.ITIMER_REAL, 0.05)", "alarm(1)"])
def test_an_alarm_that_raises_between_two_calls_is_told_in_the_next(loaded, signal):
    guest = loaded(
        f"""
        import signal
        def late(*_): raise TimeoutError("too late")
        signal.signal(signal.SIGALRM, late)
        def handler(event, context):
            if event: signal.{signal}
            return 1
        """
    )
    assert guest.call(1).value == 1
    guest.peer.sock.settimeout(1.5)
    with pytest.raises(TimeoutError):
        guest.peer.sock.recv(1)
    guest.peer.sock.settimeout(60)
    answer = guest.call()
    assert answer.value == 1
    assert "TimeoutError: too late" in answer.text("stderr")


def test_a_module_may_put_anything_in_its_place(start):
    code = "import sys\nclass Own:\n    __slots__ = ()\n    def handler(self, event, context):\n"
    code += "        return [type(self).__name__, event]\nsys.modules[__name__] = Own()\n"
    guest = start(code)
    assert guest.load().kind == "loaded"
    assert guest.call(1).value == ["Own", 1]
    answer = start(code).load(function="missing")
    assert answer.header["error_type"] == "Runtime.HandlerNotFound", answer.header


def test_a_clock_that_stands_still_is_not_the_guests(loaded):
    guest = loaded(
        """
        import sys, time
        def handler(event, context):
            real = {time.monotonic, time.perf_counter, time.time}
            for module in list(sys.modules.values()):
                for name, value in list(vars(module).items()):
                    if any(value is one for one in real):
                        setattr(module, name, lambda: 0.0)
            return [context.get_remaining_time_in_millis(), time.monotonic()]
        """
    )
    for _ in range(2):
        left, clock = guest.call(remaining_ms=3000).value
        assert 1000 < left <= 3000 and clock == 0.0


def test_locks_work_in_forks_as_well(zygote, task):  # noqa: F811
    (task / "main.py").write_text(textwrap.dedent(LOCK))
    guest = zygote.fork()
    assert guest.load().kind == "loaded"
    assert [guest.call(n).value[:2] for n in (1, 2)] == [[[1, 2], 1], [[1, 2], 2]]


def test_a_fresh_guest_has_no_annotations_and_imports_as_usual(start):
    guest = start("""
        import builtins
        def handler(event, context):
            method = type(context).get_remaining_time_in_millis
            usual = method.__builtins__["__import__"] is builtins.__import__
            return [method.__annotations__, usual]
    """)
    guest.load()
    assert guest.call().value == [{}, True]
