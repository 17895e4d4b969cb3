"""The event loop of an instance: one for its life, so that what a module or an earlier call has
made in it, locks, queues, clients and their connections, goes on working in each call.

```text
  first call ─► the loop that the module has set, or a new one ─► each call: a task of its own
                                                   ▲                 │
                                                   └─ closed: again ─┘
```

A call ends with its own task. Tasks that it has left stay as they are and go on while the next call
runs, as on AWS Lambda, where an environment is frozen between calls; what one of them raises is
logged, and no failure of the call that runs then. Each task has a copy of the context variables.
"""

from lambswool_guest import stdlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Awaitable, Callable
    from types import ModuleType

_TURNS = 2
"""How often what is ready may run once more when a call ends: generators that it has dropped, and
connections that it has closed, end in as many."""

_CLEANUP = 1.0
"""Seconds for a task whose call has failed to come to its end."""


class Loop:
    """Runs what an `async def` handler returned."""

    def __init__(self) -> None:
        """Imports `asyncio`."""
        self._loop: AbstractEventLoop | None = None
        _asyncio()

    def run(self, result: "Awaitable") -> object:
        """What it comes to. Raises what it raises."""
        asyncio = _asyncio()
        loop = self._current(asyncio)
        left = asyncio.all_tasks(loop)
        task = loop.create_task(_awaited(result, asyncio.sleep))
        try:
            return _finish(loop, task, left)
        finally:
            if not task.done() and not loop.is_closed():
                # The call has failed while its task goes on, as when the loop was stopped. It may
                # clean up, as in `asyncio.run`, if it can: a signal handler that has raised in the
                # loop itself may have lost what the task waits for.
                _release(asyncio, loop)
                task.cancel()
                loop.run_until_complete(asyncio.wait([task], timeout=_CLEANUP))
            for one in left:
                if getattr(one, "_log_traceback", False):  # failed, and nothing has asked why
                    _tell(loop, one, one.exception())

    def _current(self, asyncio: "ModuleType") -> "AbstractEventLoop":
        policy = asyncio.get_event_loop_policy()
        there = _set(policy)
        _release(asyncio, self._loop)
        if self._loop is None and there is not None and not there.is_running():
            self._loop = there
        if self._loop is None or self._loop.is_closed():
            self._loop = policy.new_event_loop()
        if there is None:  # or `asyncio.run`, called by the function, has taken it away
            policy.set_event_loop(self._loop)
        return self._loop


def _release(asyncio: "ModuleType", loop: "AbstractEventLoop | None") -> None:
    """No loop runs here now. One that a signal handler has left by raising may believe that it
    does, and would run no more."""
    if loop is not None and loop.is_running():
        asyncio._set_running_loop(None)
        loop._thread_id = None  # type: ignore[attr-defined]


def _asyncio() -> "ModuleType":
    return stdlib.module("asyncio", first="get_event_loop_policy")


def _set(policy: object) -> "AbstractEventLoop | None":
    """The loop that this thread has now. The public calls would make one."""
    loop = getattr(getattr(policy, "_local", None), "_loop", None)
    return None if loop is None or loop.is_closed() else loop


def _finish(loop: "AbstractEventLoop", task: "Task", left: "set[Task]") -> object:
    while True:
        try:
            return loop.run_until_complete(task)
        except (KeyboardInterrupt, SystemExit) as error:
            # These leave the loop from any task.
            whose = [one for one in left if _raised(one, error)]
            if not whose or task.done():
                raise
            left.difference_update(whose)
            _tell(loop, whose[0], error)


def _tell(loop: "AbstractEventLoop", task: "Task", error: BaseException | None) -> None:
    words = "a task that an earlier call has left failed"
    loop.call_exception_handler({"message": words, "exception": error, "task": task})


def _raised(task: "Task", error: BaseException) -> bool:
    return task.done() and not task.cancelled() and task.exception() is error


async def _awaited(result: "Awaitable", sleep: "Callable") -> object:
    try:
        return await result
    finally:
        for _ in range(_TURNS):
            await sleep(0)
