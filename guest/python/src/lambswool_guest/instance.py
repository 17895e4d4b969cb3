"""An instance: one handler, called again and again.

```text
  ── ready ──► load ──► loaded ──► invoke ──► done | failed ──┐     EOF at any point: exit 0
                 │                   ▲                        │
                 └► failed, then     └────────────────────────┘
                    only EOF
```

A clone of a micro-VM is told so by `wake`, before whatever else it is asked; that has no answer.
Neither has `rehearse`, which the machine's monitor asks of a clone that it will reset afterwards,
nor `settle`: it has loaded, and will be frozen and cloned for each call.

When `load` asks for it, `imports` goes before `loaded` and before the first call's answer: what the
handler imported from its packages.

Whatever the handler does is answered: an exception of any kind, `sys.exit` among them, is a
`failed` and the instance goes on. Only what ends the process (`os._exit`, a signal) is left to the
worker, which then sees the channel close.

All that a call may need of the guest is imported before a function's file is. Then the guest's own
modules leave `sys.modules`: what replaces functions in all modules that it finds there (a frozen
clock, a file system of a test's) finds none of ours, and a function may have names like theirs.
"""

import sys
import time
from posix import _exit, getpid

from lambswool_guest import interpreter, reseed, stdlib
from lambswool_guest.failure import describe
from lambswool_guest.handler import Handler
from lambswool_guest.logs import Logs
from lambswool_guest.places import Places
from lambswool_guest.wire import BrokenFrame, Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import NoReturn

    from lambswool_guest.capture import Capture
    from lambswool_guest.imports import Witness

_CLOCK = (time.perf_counter,)
"""Held where nothing that replaces the clock of a module looks for it."""

_STAY = ("lambswool_guest.context", "lambswool_guest.zygote")
"""The class of one is a function's to pickle, and the other is of no use to an instance."""

later: "dict[str, ModuleType]" = {}
"""Modules that few instances need, where what they come from has imported them."""


def hide() -> None:
    """Takes the guest's modules out of `sys.modules`, when all that are needed are there. What
    stays has no file: libraries take each file that is no package's for the function's own."""
    for name in [name for name in sys.modules if name.startswith("lambswool_")]:
        if name.partition(".")[0] != __package__ or (name != __package__ and name not in _STAY):
            del sys.modules[name]
        else:
            vars(sys.modules[name]).pop("__file__", None)
    vars(sys.modules["__main__"]).pop("__file__", None)


def serve(fd: int, places: Places) -> "NoReturn":
    """A fresh interpreter: speaks on `fd` until it closes. READY was said."""
    stdlib.begin(places)
    interpreter.prepare(places)
    logs = Logs()
    logs.install()
    go_on(Channel(fd), places, logs)


def go_on(
    channel: Channel, places: Places, logs: Logs, capture: "Capture | None" = None
) -> "NoReturn":
    """READY was said: by `fresh.py`, or, for a fork, by the native side. A machine has a
    `capture`."""
    logs.attach(channel, capture)
    Instance(channel, logs, places).converse(channel)
    _exit(0)


class Instance:
    """One handler's side of the conversation."""

    def __init__(self, channel: Channel, logs: Logs, places: Places) -> None:
        self._channel = channel
        self._logs = logs
        self._places = places
        self._pid = getpid()
        self._handler: Handler | None = None
        self._witness: Witness | None = None

    def converse(self, requests: Channel) -> None:
        """Answers on its own channel what comes from `requests`, until that closes."""
        while True:
            try:
                message = requests.receive()
                if message is None:
                    return
                self._answer(*message)
            except BrokenFrame:
                raise
            except BaseException as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # the channel's
                self._between(error)

    def _answer(self, header: dict, body: bytes) -> None:
        kind = header["kind"]
        if kind == "load":
            self.load(header)
        elif kind == "invoke":
            self.invoke(header, body)
        elif kind == "wake":
            self._pid = getpid()
            reseed.after_clone()
        elif kind == "settle":
            reseed.before_forks()
        elif kind == "rehearse":
            later["rehearsal"].once(self._places, self._logs)

    def load(self, header: dict) -> None:
        observe = header.get("observe")
        if not later:
            if observe:
                from lambswool_guest import imports

                later["imports"] = imports
            hide()
        if observe:
            self._witness = later["imports"].Witness(self._places)
        begin = _CLOCK[0]()
        try:
            handler = Handler(header, self._places)
        except BaseException as error:
            self._fail("", error)
            return
        self._end()
        self._handler = handler
        milliseconds = (_CLOCK[0]() - begin) * 1000
        self._tell_imports()
        self._channel.send({"kind": "loaded", "milliseconds": milliseconds})

    def invoke(self, header: dict, body: bytes) -> None:
        if self._handler is None:  # the worker was told so already
            return
        invocation = header["id"]
        self._logs.begin(invocation)
        try:
            answer, content_type = self._handler.call(header, body)
        except BaseException as error:
            self._fail(invocation, error)
            return
        self._end()
        self._tell_imports(last=True)
        self._channel.send({"kind": "done", "id": invocation, "content_type": content_type}, answer)

    def _fail(self, invocation: str, error: BaseException) -> None:
        said = describe(error)
        self._end(error)
        self._tell_imports(last=True)
        self._channel.send({"kind": "failed", "id": invocation} | said)

    def _between(self, error: BaseException) -> None:
        """A signal's handler, the function's own, has raised while no call was running."""
        said = describe(error)
        lines = said["traceback"] or [f"{said['error_type']}: {said['message']}"]
        self._logs.note("".join(f"{line}\n" for line in ["Between two calls:", *lines]))

    def _tell_imports(self, last: bool = False) -> None:
        if self._witness is not None:
            try:
                seen = self._witness.seen()
            except Exception:  # the function has changed what is asked
                seen = b""
            self._channel.send({"kind": "imports"}, seen)
        if last:
            self._witness = None

    def _end(self, error: BaseException | None = None) -> None:
        """The user's code is through. A process that it forked ends here: its parent answers."""
        if getpid() == self._pid:
            self._logs.end()
        else:
            _end_of_fork(error)


def _end_of_fork(error: BaseException | None) -> "NoReturn":
    code: object = int(error is not None)
    try:
        if isinstance(error, SystemExit):
            code = error.code
        elif error is not None:
            sys.excepthook(type(error), error, error.__traceback__)
    finally:
        _exit(code & 0xFF if isinstance(code, int) else int(code is not None))
