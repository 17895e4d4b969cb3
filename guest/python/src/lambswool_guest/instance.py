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
`failed` and the instance goes on, unless AWS's runtime would end there (`aws`). Only what ends the
process (`os._exit`, a signal) is left to the worker, which then sees the channel close.

A function's signal handlers, what it has set to trace or to profile it, and its threads may raise
in the guest's own work, too, wherever a call returns. So a message is held until it is answered,
and each step on the way there can be taken once more:

```text
  new ──────────► running ──────────────────► over ──────────► queued ──► (no message)
   ▲ begin        the function's own code,     ▲ the answer     ▲ sent
   │              once, whatever it raises     │ is made        │
   └─────────────────── what the guest's own work raised ───────┘
```

What was raised there is told in the log. Where nothing helps the process ends.

All that a call may need of the guest is imported before a function's file is. Then the guest's own
modules leave `sys.modules`: what replaces functions in all modules that it finds there (a frozen
clock, a file system of a test's) finds none of ours, and a function may have names like theirs.
"""

import sys
import time
from _signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask
from posix import _exit, getpid
from sys import getrecursionlimit, setrecursionlimit

from lambswool_guest import aws, failure, interpreter, program, reseed, stdlib
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

_OF_PROGRAMS = "provided"
"""How AWS's runtimes begin that bring a program of their own: see `program`."""

MOST_TRIES = 100
"""How often the guest begins again, without having come any further, before it gives up."""

MOST_UNANSWERED = 3
"""The same of a message that has no answer, which it then passes over."""

_SIGNALS = (*range(1, 32), *range(34, 65))
"""Linux's, without the two that the C library has for itself."""

_GUARDS = 4
"""Alarms that would have to come within microseconds, one after the other, to end the instance."""

_MORE_FRAMES = 200
"""Of Python's, beyond those that the function has set as the limit."""

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
        self._handler: Handler | aws.Function | program.Program | None = None
        # The load of a function that is called as AWS calls it.
        self._aws: dict | None = None
        self._witness: Witness | None = None
        # The message that is being answered, whether the function's own code has begun with it,
        # what that came to, and what it imported.
        self._message: tuple[dict, bytes] | None = None
        self._running = False
        self._outcome: (
            Handler | aws.Function | program.Program | tuple[bytes, str] | BaseException | None
        ) = None
        self._seen: bytes | None = None
        # What was raised, and how often since something was answered.
        self._raised: BaseException | None = None
        self._tries = 0
        self._begin = 0.0

    def converse(self, requests: Channel, guards: int = _GUARDS) -> None:
        """Answers on its own channel what comes from `requests`, until that closes."""
        # What keeps an exception makes no call: nothing else is raised there. The jump back may
        # raise, where alarms come thick and fast. So this guards itself a few times over.
        while True:
            try:
                if guards:
                    return self.converse(requests, guards - 1)
                return self._converse(requests)
            except BrokenFrame:
                raise
            except BaseException as error:
                self._raised = error if self._raised is None else self._raised
                self._tries += 1
                if self._tries > MOST_TRIES:
                    raise

    def _converse(self, requests: Channel) -> None:
        if self._raised is not None:
            self._go_on(requests)
        while (message := requests.look()) is not None:
            if self._message is not message:
                self._message, self._running, self._outcome, self._seen = message, False, None, None
            kind = message[0]["kind"]
            if kind == "invoke" or kind == "load":
                if self._outcome is None:
                    self._run(*message)
                self._answer(requests)
            else:
                if self._tries < MOST_UNANSWERED:
                    self._do(kind)
                requests.held = None
            self._message, self._outcome, self._tries = None, None, 0

    def _do(self, kind: str) -> None:
        """What has no answer."""
        if kind == "wake":
            self._pid = getpid()
            reseed.after_clone()
        elif kind == "settle":
            reseed.before_forks()
            later["running"].hold(self._channel.fileno())
        elif kind == "rehearse":
            later["rehearsal"].once(self._places, self._logs)

    def _run(self, header: dict, body: bytes) -> None:
        """Has the function's own code run, which it does once for each message."""
        if header["kind"] == "load":
            self._prepare(header)
            self._begin = _CLOCK[0]()
            self._running = True
            if self._aws is None:
                self._outcome = self._handler = Handler(header, self._places)
            else:
                is_program = header["lambda"]["runtime"].startswith(_OF_PROGRAMS)
                kind = program.Program if is_program else aws.Function
                self._outcome = self._handler = kind(header, self._places, self._part)
        elif self._handler is not None:
            self._logs.begin(header["id"])
            self._running = True
            self._outcome = self._handler.call(header, body)

    def _part(self, invocation: str, part: bytes) -> None:
        """Sends a part of an answer; not in a process that the function has forked."""
        if part and getpid() == self._pid:
            self._channel.send({"kind": "part", "id": invocation}, part)

    def _prepare(self, header: dict) -> None:
        self._aws = header if "lambda" in header else None
        observe = header.get("observe")
        if not later:
            if observe:
                from lambswool_guest import imports

                later["imports"] = imports
            hide()
        if observe:
            self._witness = later["imports"].Witness(self._places)

    def _answer(self, requests: Channel) -> None:
        """Sends what has come of the message, behind what was printed."""
        message, outcome = self._message, self._outcome
        if message is None or outcome is None:  # no handler: the worker was told so already
            requests.held = None
            return
        error = outcome if isinstance(outcome, BaseException) else None
        if getpid() != self._pid:  # the function has forked this process: its parent answers
            _end_of_fork(error, self._logs)
        header, body = message[0], b""
        if error is not None:
            invocation = header.get("id", "")
            if self._aws is None:
                told = failure.describe(error)
            else:
                told = aws.told(error, invocation, self._aws, self._logs)
            said = {"kind": "failed", "id": invocation} | told
        elif isinstance(outcome, tuple):
            body, content_type = outcome
            said = {"kind": "done", "id": header["id"], "content_type": content_type}
        else:
            said = {"kind": "loaded", "milliseconds": (_CLOCK[0]() - self._begin) * 1000}
        self._logs.end()
        ahead = None
        if self._witness is not None or self._seen is not None:
            ahead = {"kind": "imports"}, self._imported(last=said["kind"] != "loaded")
        self._channel.answer(requests, self._logs, said, body, ahead)

    def _imported(self, *, last: bool) -> bytes:
        if self._seen is None and self._witness is not None:
            try:
                self._seen = self._witness.seen()
            except Exception:  # the function has changed what is asked
                self._seen = b""
        if last:
            self._witness = None
        return self._seen or b""

    def _go_on(self, requests: Channel) -> None:
        """After something was raised: by the function's own code, or in the guest's work."""
        asked = self._message is not None and self._message is requests.held
        if asked and self._running and self._outcome is None:
            self._outcome, self._raised = self._raised, None
            return
        blocked, limit = pthread_sigmask(SIG_BLOCK, ()), getrecursionlimit()
        try:
            pthread_sigmask(SIG_BLOCK, _SIGNALS)
            setrecursionlimit(limit + _MORE_FRAMES)
            error, self._raised = self._raised, None
            if error is not None:
                self._tell(error)
            self._channel.flush()
            if asked and self._outcome is not None:
                self._answer(requests)
            if requests.held is None:
                self._message, self._outcome, self._tries = None, None, 0
        finally:
            try:
                try:
                    setrecursionlimit(limit)
                finally:
                    pthread_sigmask(SIG_SETMASK, blocked)
            except BaseException as error:
                # A signal was waiting. The next message is looked at before another one counts: an
                # alarm may come again and again.
                self._try_to_tell(error)

    def _try_to_tell(self, error: BaseException) -> None:
        try:
            self._tell(error)
        except BaseException:
            return

    def _tell(self, error: BaseException) -> None:
        """What was raised while no code of the function's own ran."""
        said = failure.describe(error)
        lines = said["traceback"] or [f"{said['error_type']}: {said['message']}"]
        self._logs.note("".join(f"{line}\n" for line in ["Between two calls:", *lines]))


def _end_of_fork(error: BaseException | None, logs: Logs) -> "NoReturn":
    code: object = int(error is not None)
    try:
        if isinstance(error, SystemExit):
            code = error.code
        elif error is not None:
            sys.excepthook(type(error), error, error.__traceback__)
        logs.leave()
    finally:
        _exit(code & 0xFF if isinstance(code, int) else int(code is not None))
