"""What a function leaves behind that raises in the guest's own work: each call has one answer."""

import random
import textwrap

import pytest

from conftest import Answer, Guest
from test_zygote import zygote  # noqa: F401 - a fixture

PATIENCE = 10
ALARMS = """
    import signal
    class Late(Exception): ...
    class Own(Exception): ...
    KINDS = [
        Late("late"), KeyboardInterrupt("late"), SystemExit("late"), ValueError("late"),
        TypeError("late"), RecursionError("late"), TimeoutError(110, "late"),
        BrokenPipeError(32, "late"), GeneratorExit("late"),
    ]
    def late(*_):
        raise type(KINDS[kind])(*KINDS[kind].args)
    signal.signal(signal.SIGALRM, late)
    def handler(event, context):
        global kind
        kind = event["kind"]
        signal.setitimer(signal.ITIMER_REAL, event["first"], event.get("each", 0))
        if event["ends"] == "raises":
            raise Own("mine")
        if event["ends"] == "prints":
            print("said")
        return [event["n"]] * event["size"]
"""
NAMES = [
    *("main.Late", "KeyboardInterrupt", "SystemExit", "ValueError", "TypeError", "RecursionError"),
    *("TimeoutError", "BrokenPipeError", "GeneratorExit"),
]


def is_right(answer: Answer, guest: Guest, event: dict) -> None:
    """The result, or one of the two exceptions that there are, and what was printed."""
    assert answer.header["id"] == f"call-{guest.calls}"
    if answer.kind == "done":
        assert answer.text("stdout") == "said\n" * (event["ends"] == "prints")
        assert event["ends"] != "raises"
        assert answer.value == [event["n"]] * event["size"]
        return
    kind, message = answer.header["error_type"], answer.message
    if kind == "main.Own":
        assert (event["ends"], message) == ("raises", "mine")
    else:
        assert kind in NAMES, answer.header  # of the call before, it may be
        assert "late" in message, answer.header


@pytest.mark.parametrize("forked", [False, True])
def test_an_alarm_at_any_moment_costs_no_call_its_answer(loaded, zygote, task, forked):  # noqa: F811
    code = textwrap.dedent(ALARMS)
    (task / "main.py").write_text(code)
    guest = zygote.fork() if forked else loaded(code)
    if forked:
        assert guest.load().kind == "loaded"
    guest.peer.sock.settimeout(PATIENCE)
    chance = random.Random(6)
    ends = set()
    for n in range(500):
        event = {
            "n": n,
            "kind": chance.randrange(len(NAMES)),
            "first": chance.uniform(1e-6, 400e-6),
            "ends": chance.choice(["returns", "prints", "raises"]),
            "size": chance.choice([1, 3, 3000]),
        }
        answer = guest.call(event)
        is_right(answer, guest, event)
        ends.add(answer.header.get("error_type", "done"))
    assert len(ends) > 4


TRACED = """
    import sys
    class Late(Exception): ...
    def at(number):
        def trace(frame, event, argument):
            nonlocal number
            if frame.f_globals.get("__name__") != "main":
                number -= 1
                if number == 0:
                    raise Late("late")
            return trace
        return trace
    def handler(event, context):
        print("said")
        first, second = event["at"]
        sys.settrace(at(first))
        sys.setprofile(at(second))
        if event["ends"] == "raises":
            raise KeyError("mine")
        return event["at"]
"""


@pytest.mark.parametrize("ends", ["returns", "raises"])
@pytest.mark.parametrize("second", [-1, 1, 7, 40])
def test_what_raises_at_any_line_or_call_costs_no_call_its_answer(loaded, ends, second):
    guest = loaded(TRACED)
    guest.peer.sock.settimeout(PATIENCE)
    told = set()
    for first in (*range(400), *range(400, 4000, 37)):
        event = {"at": [first, second + first if second > 0 else second], "ends": ends}
        answer = guest.call(event)
        assert answer.header["id"] == f"call-{guest.calls}"
        # What a call has set may raise in the next, before that has printed.
        assert answer.text("stdout") == "said\n" or answer.message == "late"
        told.add(answer.header.get("error_type", "done"))
        if answer.kind == "done":
            assert answer.value == event["at"]
        else:
            # Raised twice where the guest asks for the message twice, it is all that there is.
            told_otherwise = second > 0 and answer.message.startswith("<str() of the exception")
            assert answer.message in ("late", "'mine'") or told_otherwise, (first, answer.header)
    assert told >= {"done" if ends == "returns" else "KeyError", "main.Late"}


PROFILED = """
    import sys, threading
    class Late(Exception): ...
    def at(number):
        def profile(frame, event, argument):
            nonlocal number
            if frame.f_globals.get("__name__").startswith("lambswool"):
                number -= 1
                if number == 0:
                    raise Late("late")
        return profile
    def handler(event, context):
        other = threading.Thread(target=print, args=("other",))
        other.start()
        other.join(5)
        sys.stdout.write("said ")
        sys.setprofile(at(event))
        return [event, other.is_alive()]
"""


def test_a_profiler_that_raises_at_any_call_costs_neither_answer_nor_line(loaded):
    guest = loaded(PROFILED)
    guest.peer.sock.settimeout(PATIENCE)
    told = set()
    for first in range(1, 300):
        answer = guest.call(first)
        assert answer.header["id"] == f"call-{guest.calls}"
        if answer.kind == "failed":  # before it has printed
            assert answer.message == "late"
        else:
            # A thread that a call has left behind, since it failed, prints in the next.
            assert answer.value == [first, False]
            assert answer.text("stdout").replace("other\nother\n", "other\n") == "other\nsaid "
        told.add((answer.kind, "main.Late: late" in answer.text("stderr")))
    assert told == {("failed", False), ("done", True), ("done", False)}


def test_alarms_that_come_again_and_again_end_no_instance(loaded):
    guest = loaded(ALARMS)
    guest.peer.sock.settimeout(PATIENCE)
    event = {"n": 1, "kind": 0, "first": 50e-6, "each": 100e-6, "ends": "raises", "size": 1}
    for _ in range(50):
        is_right(guest.call(event), guest, event)
    guest.call(event | {"first": 0})
    assert guest.call(event | {"first": 0, "ends": "returns"}).value == [1]


def test_a_limit_of_recursion_too_low_for_the_guest_is_the_functions_alone(loaded):
    guest = loaded(
        """
        import sys
        def deepest():
            for limit in range(1, 100):
                try:
                    return sys.setrecursionlimit(limit)
                except RecursionError:
                    continue
        def handler(event, context):
            if event == "low":
                deepest()
            raise ValueError("so")
        """
    )
    assert guest.call().header["error_type"] == "ValueError"
    assert guest.call("low").header["error_type"] == "ValueError"
    assert guest.call().header["error_type"] in ("ValueError", "RecursionError")


def test_a_loop_that_was_left_by_raising_runs_in_the_next_call(loaded):
    guest = loaded(
        """
        import asyncio, linecache, sys
        class Late(Exception): ...
        def trace(frame, event, argument):
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if event == "line" and "self._thread_id = None" in line:
                raise Late("late")
            return trace
        async def handler(event, context):
            if event:
                frame = sys._getframe()
                while frame.f_code.co_name != "run_forever":
                    frame = frame.f_back
                frame.f_trace = trace
                sys.settrace(trace)
            return id(asyncio.get_running_loop())
        """
    )
    first = guest.call().value
    assert guest.call(1).header["error_type"] == "main.Late"
    assert [guest.call().value for _ in range(2)] == [first, first]


def test_a_task_that_cannot_end_any_more_does_not_keep_its_call_from_ending(loaded):
    guest = loaded(
        """
        import asyncio
        async def handler(event, context):
            if event:
                asyncio.get_running_loop().stop()
            while event:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    continue
            return "well"
        """
    )
    guest.peer.sock.settimeout(PATIENCE)
    assert guest.call(1).header["error_type"] == "RuntimeError"
    assert guest.call().value == "well"
