"""The event loop of an instance: one for its life."""

import pytest

LOCK = """
    import asyncio
    lock, queue = asyncio.Lock(), asyncio.Queue()
    async def hold(n):
        async with lock:
            await asyncio.sleep(0.01)
            return n
    async def handler(event, context):
        await queue.put(event)
        both = await asyncio.gather(hold(1), hold(2))
        return [both, await queue.get(), id(asyncio.get_running_loop())]
"""


def test_locks_and_queues_of_a_module_work_in_each_call(loaded):
    guest = loaded(LOCK)
    first = guest.call(1).value
    assert first[:2] == [[1, 2], 1]
    assert [guest.call(n).value for n in (2, 3)] == [[[1, 2], n, first[2]] for n in (2, 3)]


def test_a_connection_lives_over_calls(loaded):
    guest = loaded(
        """
        import asyncio, socket
        ends = None
        async def handler(event, context):
            global ends
            if ends is None:
                ours, theirs = socket.socketpair()
                ends = [await asyncio.open_connection(sock=end) for end in (ours, theirs)]
            ends[0][1].write(f"{event}\\n".encode())
            return (await ends[1][0].readline()).decode()
        """
    )
    assert [guest.call(n).value for n in range(3)] == ["0\n", "1\n", "2\n"]


def test_a_task_that_a_call_leaves_goes_on_in_the_next(loaded):
    guest = loaded(
        """
        import asyncio
        done = []
        async def later(event):
            for step in range(3):
                await asyncio.sleep(0.01)
                done.append(step)
            raise eval(event)
        async def handler(event, context):
            if event:
                left = asyncio.create_task(later(event))
                return done
            await asyncio.sleep(0.2)
            return done
        """
    )
    assert guest.call("ValueError('of the task')").value == []
    answer = guest.call()
    assert answer.value == [0, 1, 2]
    assert "ValueError: of the task" in answer.text("stderr")
    # These leave the loop whoever raises them, and are not the failure of the call that runs.
    for error in ("SystemExit(3)", "KeyboardInterrupt()"):
        assert guest.call(error).kind == "done"
        answer = guest.call()
        assert answer.kind == "done", answer.header
        assert error.partition("(")[0] in answer.text("stderr")


def test_each_call_has_context_variables_of_its_own(loaded):
    guest = loaded(
        """
        import contextvars
        user = contextvars.ContextVar("user", default="nobody")
        async def handler(event, context):
            before = user.get()
            user.set(event)
            return [before, user.get()]
        """
    )
    assert [guest.call(n).value for n in "ab"] == [["nobody", "a"], ["nobody", "b"]]


def test_a_loop_that_the_module_has_set_is_the_calls(loaded):
    guest = loaded(
        """
        import asyncio
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        ready = loop.create_future()
        loop.run_until_complete(asyncio.sleep(0))
        async def handler(event, context):
            loop.call_later(0.01, lambda: ready.done() or ready.set_result(event))
            return [await ready, asyncio.get_running_loop() is loop]
        """
    )
    assert [guest.call(n).value for n in "ab"] == [["a", True], ["a", True]]


@pytest.mark.parametrize(
    "use",
    [
        "asyncio.run(work())",
        "asyncio.Runner().run(work())",
        "asyncio.new_event_loop().run_until_complete(work())",
        "asyncio.get_event_loop_policy().new_event_loop().run_until_complete(work())",
    ],
)
def test_a_handler_may_run_loops_itself_beside_ours(loaded, use):
    guest = loaded(
        f"""
        import asyncio
        async def work():
            await asyncio.sleep(0)
            return "worked"
        async def whole():
            return await work() + ", awaited"
        def handler(event, context):
            return whole() if event else {use}
        """
    )
    expected = ["worked, awaited", "worked"] * 2
    assert [guest.call(n).value for n in (1, 0, 1, 0)] == expected


def test_a_loop_that_is_stopped_or_closed_is_no_end(loaded):
    guest = loaded(
        """
        import asyncio
        seen = []
        async def clean():
            try:
                await asyncio.sleep(30)
            finally:
                seen.append("cancelled")
        async def handler(event, context):
            loop = asyncio.get_running_loop()
            if event == "stop":
                loop.stop()
                await clean()
            if event == "close":
                loop.call_soon(loop.stop)
                loop.call_later(0, loop.close)
            return seen
        """
    )
    assert guest.call().value == []
    stopped = guest.call("stop")
    assert (stopped.header["error_type"], "stopped before" in stopped.message) == (
        "RuntimeError",
        True,
    )
    assert guest.call().value == ["cancelled"]
    guest.call("close")
    assert guest.call().kind == "done"


def test_generators_that_a_call_drops_are_closed_before_its_answer(loaded):
    guest = loaded(
        """
        import asyncio
        closed = []
        async def rows():
            try:
                while True:
                    yield 1
            finally:
                await asyncio.sleep(0)
                print("closed")
        async def handler(event, context):
            async for row in rows():
                return row
        """
    )
    answer = guest.call()
    assert (answer.value, answer.text("stdout")) == (1, "closed\n")


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("sys.exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("os.kill(os.getpid(), 2); await asyncio.sleep(9)", "KeyboardInterrupt"),
        ("asyncio.current_task().cancel(); await asyncio.sleep(9)", "CancelledError"),
        ("async with asyncio.timeout(0.01): await asyncio.sleep(9)", "TimeoutError"),
        ("async with asyncio.TaskGroup() as g: g.create_task(bad())", "ExceptionGroup"),
    ],
)
def test_whatever_ends_a_task_is_the_calls_failure_alone(loaded, statement, kind):
    guest = loaded(
        f"""
        import asyncio, os, sys
        async def bad(): raise ValueError("bad")
        async def handler(event, context):
            if event:
                return event
            {statement}
        """
    )
    for n in (1, 2):
        failed = guest.call()
        assert failed.header["error_type"].endswith(kind), failed.header
        assert not any("lambswool_guest" in line for line in failed.header["traceback"])
        assert guest.call(n).value == n


def test_a_child_that_forks_while_the_loop_runs_disturbs_nothing(loaded):
    guest = loaded(
        """
        import asyncio, os
        async def handler(event, context):
            pid = os.fork()
            if not pid:
                return "the child"
            await asyncio.sleep(0.05)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        """
    )
    assert [guest.call().value for _ in range(3)] == [0] * 3


@pytest.mark.parametrize("own", ["selectors", "logging", "socket", "ssl", "types", "asyncio"])
def test_an_async_handler_runs_beside_own_files_of_such_names(start, task, own):
    (task / f"{own}.py").write_text("WHOSE = 'mine'")
    guest = start(f"import {own}\nasync def handler(event, context): return {own}.WHOSE")
    assert guest.load().kind == "loaded"
    assert [guest.call().value for _ in range(2)] == ["mine"] * 2


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_generator_is_refused_as_a_handler(start, kind):
    answer = start(f"{kind} handler(event, context): yield 1").load()
    assert answer.header["error_type"] == "Runtime.HandlerNotFound"
    assert "has a `yield`" in answer.message and "with `return`" in answer.message


@pytest.mark.parametrize("body", ["return [(yield from plain(event))[0]]", "return plain(event)"])
def test_a_generator_that_can_be_awaited_is_a_handler(loaded, body):
    guest = loaded(
        f"""
        import asyncio, types
        async def plain(event): return [event]
        @types.coroutine
        def handler(event, context):
            {body}
        """
    )
    assert [guest.call(n).value for n in (1, 2)] == [[1], [2]]
