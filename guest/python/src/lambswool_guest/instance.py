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
"""

import posix
import sys
import time

from lambswool_guest import reseed
from lambswool_guest.handler import Handler
from lambswool_guest.logs import Logs, adopt_logging
from lambswool_guest.places import Places
from lambswool_guest.wire import Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from lambswool_guest.imports import Witness


def serve(fd: int, places: Places) -> "NoReturn":
    """A fresh interpreter: speaks on `fd` until it closes. READY was said."""
    logs = Logs()
    logs.install()
    go_on(Channel(fd), places, logs)


def go_on(channel: Channel, places: Places, logs: Logs, scratch: str | None = None) -> "NoReturn":
    """READY was said: by `fresh.py`, or, for a fork, by the native side. In a machine `scratch` is
    where its output is captured."""
    logs.attach(channel, scratch)
    Instance(channel, logs, places).converse(channel)
    posix._exit(0)


class Instance:
    """One handler's side of the conversation."""

    def __init__(self, channel: Channel, logs: Logs, places: Places) -> None:
        self._channel = channel
        self._logs = logs
        self._places = places
        self._pid = posix.getpid()
        self._handler: Handler | None = None
        self._witness: Witness | None = None

    def converse(self, requests: Channel) -> None:
        """Answers on its own channel what comes from `requests`, until that closes."""
        while (message := requests.receive()) is not None:
            header, body = message
            if header["kind"] == "load":
                self.load(header)
            elif header["kind"] == "invoke":
                self.invoke(header, body)
            elif header["kind"] == "wake":
                self._pid = posix.getpid()
                reseed.after_clone()
            elif header["kind"] == "settle":
                reseed.before_forks()
            elif header["kind"] == "rehearse":
                from lambswool_guest import rehearsal

                rehearsal.once(self._places, self._logs)

    def load(self, header: dict) -> None:
        if header.get("observe"):
            from lambswool_guest.imports import Witness

            self._witness = Witness(self._places)
        begin = time.perf_counter()
        try:
            handler = Handler(header, self._places)
        except BaseException as error:
            self._fail("", error)
            return
        adopt_logging()
        self._end()
        self._handler = handler
        milliseconds = (time.perf_counter() - begin) * 1000
        self._tell_imports()
        self._channel.send({"kind": "loaded", "milliseconds": milliseconds})

    def invoke(self, header: dict, body: bytes) -> None:
        if self._handler is None:  # the worker was told so already
            return
        invocation = header["id"]
        self._logs.begin(invocation)
        adopt_logging()
        try:
            answer, content_type = self._handler.call(header, body)
        except BaseException as error:
            self._fail(invocation, error)
            return
        self._end()
        self._tell_imports(last=True)
        self._channel.send({"kind": "done", "id": invocation, "content_type": content_type}, answer)

    def _fail(self, invocation: str, error: BaseException) -> None:
        from lambswool_guest.failure import describe

        said = describe(error)
        self._end(error)
        self._tell_imports(last=True)
        self._channel.send({"kind": "failed", "id": invocation} | said)

    def _tell_imports(self, last: bool = False) -> None:
        if self._witness is not None:
            self._channel.send({"kind": "imports"}, self._witness.seen())
        if last:
            self._witness = None

    def _end(self, error: BaseException | None = None) -> None:
        """The user's code is through. A process that it forked ends here: its parent answers."""
        if posix.getpid() == self._pid:
            self._logs.end()
        elif isinstance(error, SystemExit):
            code = error.code
            posix._exit(code & 0xFF if isinstance(code, int) else int(code is not None))
        else:
            if error is not None:
                sys.excepthook(type(error), error, error.__traceback__)
            posix._exit(int(error is not None))
