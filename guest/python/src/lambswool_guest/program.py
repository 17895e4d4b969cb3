"""A program of the function's own that asks for its events: AWS's runtimes `provided`.

```text
  load   listen ─► start /var/task/bootstrap, or /opt/bootstrap ─► its first `next` ─► loaded
                                  │ it ends, or says that it cannot ─────────────────► failed
  call   ended meanwhile? start it again ─► event ─► its answer ─► done | failed
                                              └ it ends: failed, Runtime.ExitError
```

What it asks, and what it is answered, is `runtime_api`'s. What it writes to descriptors 1 and 2 is
the call's log. Its failures reach the caller as it wrote them.
"""

import time
from _signal import SIGKILL, SIGPIPE, SIGXFSZ, strsignal
from posix import (
    WNOHANG,
    access,
    environ,
    killpg,
    pidfd_open,
    posix_spawn,
    strerror,
    waitpid,
    waitstatus_to_exitcode,
)

from lambswool_guest import aws, generation, handler, runtime_api
from lambswool_guest.handler import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lambswool_guest.places import Places

_NOT_OF_PROGRAMS = ("PYTHONPATH", "_X_AMZN_TRACE_ID", "AWS_EXECUTION_ENV")
"""Variables of Python's runtimes alone."""

_LAYERS = "/opt"

_CLOCK = time.time


class Program:
    """A program that can be called, in the place of `aws.Function`."""

    def __init__(self, load: dict, places: "Places", part: "Callable[[str, bytes], None]") -> None:
        """Starts it, and waits for its first `next`. Raises what AWS says of one that does not get
        so far. `part` sends a part of an invocation's answer."""
        self._load = load
        self._part = part
        handler.enter(load, places, aws.usual(places), aws.reserved(load))
        self._server = runtime_api.Server()
        self._variables = _variables(load, self._server.address)
        self._paths = (f"{places.task}/bootstrap", f"{_LAYERS}/bootstrap")
        self._pid = self._end = -1
        self._status: int | None = None
        self._start()

    def call(self, invoke: dict, body: bytes) -> tuple[bytes, str]:
        """Has it answer one event; the answer's bytes and content type. Raises what it says that
        has failed."""
        self._reap()
        if self._status is not None:
            self._start()
        id, headers, part = invoke["id"], self._headers(invoke), None
        if (invoke.get("lambda") or {}).get("streams"):

            def part(one: bytes) -> None:
                self._part(id, one)

        return self._server.call(id, headers, body or b"{}", part, self._end, self._ended)

    def _headers(self, invoke: dict) -> dict[str, str]:
        given = invoke.get("lambda") or {}
        deadline = int(_CLOCK() * 1000) + invoke["remaining_ms"]
        said = {
            "Aws-Request-Id": invoke["id"],
            "Deadline-Ms": str(deadline),
            "Invoked-Function-Arn": given.get("function_arn") or aws.arn_of(self._load),
            "Trace-Id": given.get("trace_id") or "",
            "Client-Context": given.get("client_context") or "",
            "Aws-Tenant-Id": given.get("tenant_id") or "",
        }
        # A client context may have lines, and a header has none.
        return {
            f"Lambda-Runtime-{name}": " ".join(value.split("\n")).replace("\r", " ")
            for name, value in said.items()
            if value
        }

    def _start(self) -> None:
        if self._end != -1:
            from posix import close

            # Of what has ended, processes may be left, which would ask for events.
            try:
                killpg(self._pid, SIGKILL)
            except OSError:
                pass
            close(self._end)
            self._end = -1
        self._server.begin()
        path = _found(self._paths)
        try:
            self._pid = posix_spawn(
                path,
                [path],
                self._variables,
                setpgroup=0,
                setsigmask=(),
                setsigdef=(SIGPIPE, SIGXFSZ),
            )
        except OSError as error:
            raise _no_entry(f"fork/exec {path}: {strerror(error.errno).lower()}") from None
        self._status = None
        self._end = pidfd_open(self._pid)
        self._server.load(self._end, self._ended)

    def _reap(self) -> None:
        """Takes leave of children that have ended: orphans are this process's, too."""
        while True:
            try:
                pid, status = waitpid(-1, WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._pid:
                self._status = waitstatus_to_exitcode(status)

    def _ended(self) -> Refused:
        """The failure of a call in which it has ended."""
        self._reap()
        status = self._status or 0
        why = f"with error: exit status {status}" if status else "without providing a reason"
        if status < 0:
            name = strsignal(-status)
            why = f"with error: signal: {name.lower() if name else -status}"
        return Refused(aws.EXIT, f"Runtime exited {why}", payload="")


def _variables(load: dict, address: str) -> dict[bytes, bytes]:
    own = load["environment"]
    left_out = [name.encode() for name in _NOT_OF_PROGRAMS if name not in own]
    said = {name: value for name, value in environ.items() if name not in left_out}
    stream = f"{time.strftime('%Y/%m/%d', time.gmtime())}/[{load['version']}]"
    said[b"AWS_LAMBDA_LOG_STREAM_NAME"] = f"{stream}{generation.identity()}".encode()
    said[b"AWS_LAMBDA_RUNTIME_API"] = address.encode()
    return said


def _found(paths: "tuple[str, ...]") -> str:
    for path in paths:
        if access(path, 0):
            return path
    raise _no_entry(f"Couldn't find valid bootstrap(s): [{' '.join(paths)}]")


def _no_entry(words: str) -> Refused:
    return Refused("Runtime.InvalidEntrypoint", words, payload="")
