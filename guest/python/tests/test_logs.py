"""Everything a handler can print, and where it arrives."""

import json
import subprocess
import time

import pytest

from conftest import PYTHON


def test_lines_carry_their_invocation_and_stream(loaded):
    guest = loaded(
        """
        import sys
        def handler(event, context):
            print("out", event)
            print("err", event, file=sys.stderr)
            print("no end", end="")
        """
    )
    for n in (1, 2):
        answer = guest.call(n)
        assert answer.logs == [
            (f"call-{n}", "stdout", b"out %d\n" % n),
            (f"call-{n}", "stderr", b"err %d\n" % n),
            (f"call-{n}", "stdout", b"no end"),
        ]


def test_a_line_written_in_parts_is_one_frame(loaded):
    guest = loaded(
        """
        import sys
        def handler(event, context):
            for part in ("a", "b", "c\\nd", "e\\n"):
                sys.stdout.write(part)
            sys.stdout.writelines(["x", "y"])
            sys.stdout.flush()
            sys.stdout.write("z")
        """
    )
    bodies = [body for _, _, body in guest.call().logs]
    assert bodies == [b"abc\n", b"de\n", b"xy", b"z"]


def test_a_line_arrives_before_the_call_is_over(loaded):
    guest = loaded("import time\ndef handler(e, c):\n print('early')\n time.sleep(1.5)")
    begin = time.monotonic()
    guest.peer.send(
        {"kind": "invoke", "id": "i", "remaining_ms": 9999, "content_type": "application/json"}
    )
    header, body = guest.peer.receive()
    assert (header["kind"], body) == ("log", b"early\n")
    assert time.monotonic() - begin < 1.2
    assert guest.answer().kind == "done"


@pytest.mark.parametrize("unit", ["x", "ü", "世", "🐑", "line\n"])
def test_a_megabyte_at_once_arrives_whole_in_frames_of_whole_characters(loaded, unit):
    guest = loaded("def handler(event, context): print('.' + event * (1 << 20), end='')")
    answer = guest.call(unit)
    assert answer.text("stdout") == "." + unit * (1 << 20)
    assert len(answer.logs) >= 16
    for _, _, body in answer.logs:
        body.decode()
        if unit == "line\n" and body is not answer.logs[-1][2]:
            assert body.endswith(b"\n")


def test_many_small_writes_without_a_line_end_arrive_whole(loaded):
    guest = loaded(
        """
        import sys
        def handler(event, context):
            for _ in range(300_000):
                sys.stdout.write("abc")
        """
    )
    answer = guest.call()
    assert answer.text("stdout") == "abc" * 300_000
    assert len(answer.logs) < 20


def test_the_streams_are_files_to_whoever_asks(loaded):
    guest = loaded(
        """
        import io, sys
        def handler(event, context):
            out = sys.stdout
            seen = [out.isatty(), out.fileno(), sys.stderr.fileno(), out.encoding, out.errors,
                    out.writable(), out.readable(), out.seekable(), out.closed, out.name,
                    out is sys.__stdout__, isinstance(out, io.TextIOBase)]
            out.buffer.write(b"bytes \\xff\\n")
            out.buffer.write(memoryview(b"view\\n"))
            out.buffer.write(bytearray(b"array\\n"))
            out.reconfigure(line_buffering=True)
            print("half \\ud800 pair")
            out.close()
            print("still open")
            io.TextIOWrapper(out.buffer, encoding="latin-1").write("wrapped \\xfc\\n")
            return seen
        """
    )
    answer = guest.call()
    assert answer.value == [
        *(False, 1, 2, "utf-8", "backslashreplace"),
        *(True, False, False, False, "<stdout>", True, True),
    ]
    written = b"".join(body for _, _, body in answer.logs)
    assert written == (b"bytes \xff\nview\narray\nhalf \\ud800 pair\nstill open\nwrapped \xfc\n")
    assert guest.call().kind == "done"


LOOKS = """
import sys
def looks():
    told = {}
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        for at, one in ((name, stream), (name + ".buffer", stream.buffer)):
            for attribute in dir(one):
                if attribute[0] != "_":
                    value = getattr(one, attribute)
                    plain = value is None or isinstance(value, (bool, int, str))
                    told[f"{at}.{attribute}"] = value if plain else callable(value)
    return told
"""
DIFFERENT = {
    # Written through, so that the log alone decides what a line is; nothing printed is an error.
    "stdout.errors": "backslashreplace",
    "stdout.write_through": True,
    "stderr.write_through": True,
    "stderr.line_buffering": False,
}


def test_the_streams_have_what_those_of_a_plain_python_have(loaded):
    program = LOOKS + "import json\nprint(json.dumps(looks()))"
    command = [PYTHON, "-I", "-c", program]
    run = subprocess.run(command, env={"LANG": "C.UTF-8"}, capture_output=True, check=True)
    plain = json.loads(run.stdout)
    ours = loaded(LOOKS + "def handler(event, context): return looks()").call().value
    assert plain.keys() - ours.keys() == set()
    assert {name: ours[name] for name in plain if ours[name] != plain[name]} == DIFFERENT


def test_logging_works_without_and_with_configuration(loaded):
    guest = loaded(
        """
        import logging, warnings
        def handler(event, context):
            if event == "level":
                logging.getLogger().setLevel(logging.INFO)
            if event == "configure":
                logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
            logging.getLogger("x").info("quiet")
            logging.getLogger("x").warning("grüß %s", event)
            warnings.warn("careful")
        """
    )
    first = guest.call("last resort").text("stderr")
    assert first.startswith("[WARNING] grüß last resort\n") and "UserWarning: careful" in first
    # As on Lambda, where it is enough to set a level.
    assert guest.call("level").text("stderr") == "[INFO] quiet\n[WARNING] grüß level\n"
    assert guest.call("configure").text("stderr").startswith("INFO quiet\nWARNING grüß configure\n")


LOGGERS = """
    import logging, logging.config, sys
    root, app = logging.getLogger(), logging.getLogger("app")
    {setting}
    def handler(event, context):
        app.warning("said")
        return [len(root.handlers), root.level]
"""


@pytest.mark.parametrize(
    ("setting", "lines", "handlers"),
    [
        ("", ["[WARNING] said"], 1),
        ("root.handlers[0].setFormatter(logging.Formatter('fmt|%(message)s'))", ["fmt|said"], 1),
        ("app.addHandler(logging.StreamHandler())", ["said"], 1),
        ("app.addHandler(logging.StreamHandler(sys.stdout))", ["said"], 1),
        ("app.addHandler(logging.NullHandler())", ["[WARNING] said"], 1),
        ("app.addHandler(logging.FileHandler('/dev/null'))", ["[WARNING] said"], 1),
        ("app.propagate = False", ["said"], 1),
        ("root.addHandler(logging.StreamHandler())", ["said"], 2),
        ("root.handlers.clear()", ["said"], 0),
        ("[root.removeHandler(one) for one in list(root.handlers)]", ["said"], 0),
        ("root.handlers[0].setLevel(logging.ERROR)", [], 1),
        ("root.handlers[0].addFilter(lambda record: False)", [], 1),
        ("logging.basicConfig()", ["WARNING:app:said"], 1),
        ("logging.basicConfig(format='%(message)s!')", ["said!"], 1),
        ("logging.basicConfig(force=True, format='%(name)s')", ["app"], 1),
        ("logging.basicConfig(handlers=[logging.NullHandler()])", [], 1),
        (
            "logging.config.dictConfig({'version': 1, 'root': {'handlers': ['a']}, 'handlers': "
            "{'a': {'class': 'logging.StreamHandler', 'stream': 'ext://sys.stdout'}}})",
            [],
            1,
        ),
        ("logging.disable(logging.CRITICAL)", [], 1),
        ("logging.Logger.manager.loggerDict.clear()", ["[WARNING] said"], 1),
    ],
)
def test_the_root_logger_has_a_handler_and_each_line_comes_once(loaded, setting, lines, handlers):
    answer = loaded(LOGGERS.format(setting=setting)).call()
    # By `dictConfig` loggers that there were are disabled, as under a plain Python.
    assert (answer.text("stderr") + answer.text("stdout")).splitlines() == lines
    assert answer.value == [handlers, 30]


UNSEEN = """
    import logging, logging.handlers, queue
    app, lines = logging.getLogger("app"), queue.SimpleQueue()
    listener = logging.handlers.QueueListener(lines, logging.StreamHandler())
    def handler(event, context):
        app.propagate = event
        {adds}
        app.warning("said")
        {ends}
"""


@pytest.mark.parametrize(
    ("adds", "ends"),
    [
        ("app.addHandler(logging.FileHandler('/proc/self/fd/2'))", ""),
        (
            "app.addHandler(logging.handlers.QueueHandler(lines)); listener.start()",
            "listener.stop()",
        ),
    ],
)
@pytest.mark.parametrize("propagates", [True, False])
def test_a_handler_that_the_root_logger_cannot_see_makes_a_second_line(
    loaded, adds, ends, propagates
):
    text = loaded(UNSEEN.format(adds=adds, ends=ends)).call(propagates).text("stderr")
    assert sorted(text.splitlines()) == ["[WARNING] said", "said"][not propagates :]


def test_basicconfig_that_is_refused_takes_nothing_away(loaded):
    guest = loaded(
        """
        import inspect, logging
        def handler(event, context):
            try:
                logging.basicConfig(colour="red")
            except ValueError:
                parameters = inspect.signature(logging.basicConfig).parameters
                return [len(logging.getLogger().handlers), *parameters]
        """
    )
    assert guest.call().value == [1, "kwargs"]


def test_logging_that_is_imported_during_a_call_is_shown(loaded):
    guest = loaded(
        """
        def handler(event, context):
            import logging
            logging.getLogger().setLevel(logging.INFO)
            logging.info("late")
        """
    )
    assert guest.call().text("stderr") == "[INFO] late\n"


def test_what_goes_around_python_is_captured(loaded):
    guest = loaded(
        """
        import ctypes, os, subprocess, sys
        def handler(event, context):
            os.write(1, b"one\\n")
            os.write(2, b"two\\n")
            subprocess.run(["sh", "-c", "echo three; echo four >&2"])
            os.system("echo five")
            subprocess.run(["echo", "six"], stdout=sys.stdout, stderr=sys.stderr)
            libc = ctypes.CDLL(None)
            libc.puts(b"seven"); libc.fflush(None)
            print("from Python")
        """
    )
    for n in (1, 2):
        answer = guest.call()
        assert answer.text("stdout") == "from Python\n"
        assert answer.text("stderr") == "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
        assert {name for name, _, _ in answer.logs} == {f"call-{n}"}


def test_descriptors_put_elsewhere_or_closed_do_no_harm(loaded):
    guest = loaded(
        """
        import os
        def handler(event, context):
            if event == "swap":
                kept = os.dup(1); r, w = os.pipe()
                os.dup2(w, 1); os.write(1, b"elsewhere"); os.dup2(kept, 1)
                os.write(1, b"here\\n")
                return os.read(r, 100).decode()
            if event == "close":
                os.close(1); os.close(2)
            print("from Python")
        """
    )
    swapped = guest.call("swap")
    assert (swapped.value, swapped.text("stderr")) == ("elsewhere", "here\n")
    assert guest.call("close").text("stdout") == "from Python\n"
    assert guest.call().text("stdout") == "from Python\n"


CHILDREN = """
    import multiprocessing, os, sys
    def speak(n, end="\\n"):
        for at in range(200):
            print("child", n, "line", at, file=sys.stderr if at % 2 else sys.stdout)
        print("last of", n, end=end)
    def forked(n):
        if pid := os.fork():
            return pid
        speak(n, end="")
        if n % 2:
            sys.exit()
        sys.stdout.flush()
        os._exit(0)
    def handler(event, context):
        if event == "pool":
            with multiprocessing.get_context("fork").Pool(4) as pool:
                pool.map(speak, range(4), chunksize=1)
            return
        print("begun ", end="")
        for pid in [forked(n) for n in range(4)]:
            os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("kind", ["pool", "forks"])
def test_forked_children_print_whole_lines(loaded, kind):
    answer = loaded(CHILDREN).call(kind)
    text = answer.text("stderr")
    for n in range(4):
        assert f"last of {n}" in text
        text = text.replace(f"last of {n}", "")
    lines = [line for line in text.splitlines() if line]
    assert sorted(lines) == sorted(f"child {n} line {at}" for n in range(4) for at in range(200))
    assert answer.text("stdout") == "begun " * (kind == "forks")


def test_threads_print_whole_lines(loaded):
    guest = loaded(
        """
        import threading
        def speak(n):
            for at in range(200):
                print(f"{n}:{at}:" + "x" * 300 + "\\n", end="")
        def handler(event, context):
            threads = [threading.Thread(target=speak, args=(n,)) for n in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        """
    )
    lines = guest.call().text("stdout").splitlines()
    assert sorted(lines) == sorted(f"{n}:{at}:" + "x" * 300 for n in range(8) for at in range(200))


def test_a_thread_that_goes_on_between_calls_speaks_in_the_next(loaded):
    guest = loaded(
        """
        import threading, time
        def ticks(go):
            go.wait(5)
            for n in range(20):
                print("tick", n)
                time.sleep(0.01)
            print("x" * 1_000_000)
        def handler(event, context):
            if event == "start":
                go = threading.Event()
                threading.Thread(target=ticks, args=(go,), daemon=True).start()
                threading.Timer(0.2, go.set).start()
        """
    )
    assert guest.call("start").logs == []
    guest.peer.sock.settimeout(1.5)
    with pytest.raises(TimeoutError):
        guest.peer.sock.recv(1)
    guest.peer.sock.settimeout(60)
    after = guest.call("look")
    assert {name for name, _, _ in after.logs} == {"call-2"}
    text = after.text("stdout")
    assert text.startswith("tick 0\ntick 1\n")
    assert len(text) < 300_000
    assert text.endswith("more bytes of output were dropped]\n")
    assert guest.call("again").logs == []


def test_a_signal_handler_may_print_while_the_handler_prints(loaded):
    guest = loaded(
        """
        import signal
        ticks = 0
        def tick(*_):
            global ticks
            ticks += 1
            print("tick")
        def handler(event, context):
            signal.signal(signal.SIGALRM, tick)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            for n in range(20_000):
                print("line", n)
            signal.setitimer(signal.ITIMER_REAL, 0)
            return ticks
        """
    )
    answer = guest.call()
    text = answer.text("stdout")
    assert answer.value > 0
    assert text.count("tick") == answer.value
    assert text.count("line") == 20_000
