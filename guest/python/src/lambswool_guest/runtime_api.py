"""AWS Lambda's runtime API, as a server on loopback: a program asks for events there and answers.

```text
  GET  invocation/next ─► waits ─► the event ─► POST invocation/ID/response | error ─► 202, and done
  POST init/error                                instead of the first `next`
```

The server runs in the main thread, and only while something is asked of the function: what comes
between two calls waits in the kernel, as the whole sandbox does. Extensions and telemetry are 404.

Whatever a client sends, it gets an answer or loses its connection, and nothing else comes of it. An
answer counts for the event that was handed out, once.
"""

from lambswool_guest import codec, failure, handler, http_requests
from lambswool_guest.handler import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Outcome = tuple[bytes, str] | Refused

_PREFIX = "/2018-06-01/runtime/"

_MOST_CONNECTIONS = 32
_BACKLOG = 128
_PIECE = 256 << 10

_LAST_ROUNDS = 100
"""How often connections are read, at most, after the program has ended: what it said is heard, and
what it has left behind may talk for ever."""

_PAYLOAD_BYTES = 40 << 10
"""Longest failure that is passed on as it was written: it goes in a header of the channel."""

_MODE = "lambda-runtime-function-response-mode"

_REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}
_REASONS |= {413: "Request Entity Too Large"}


class Server:
    """The server, at `address`."""

    def __init__(self) -> None:
        from _socket import AF_INET, SOCK_STREAM, socket

        # Without `bind`, which a sandbox may not: `listen` takes a free port by itself.
        self._listener = socket(AF_INET, SOCK_STREAM)
        self._listener.listen(_BACKLOG)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: dict[int, _Connection] = {}
        # Those that have asked for the next event, and those that may have sent more than was read.
        self._waiting: list[_Connection] = []
        self._behind: list[_Connection] = []
        # The call that is to be answered, and whether its event was handed out.
        self._call: tuple[str, dict[str, str], bytes] | None = None
        self._is_handed = False
        # Whose parts are sent as they come, and where they go where that is wanted.
        self._stream: http_requests.Request | None = None
        self._part: Callable[[bytes], None] | None = None
        self._is_loading = True
        self._outcome: Outcome | None = None

    def begin(self) -> None:
        """Forgets what another program said."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._is_loading = True

    def load(self, end: int, ended: "Callable[[], Refused]") -> None:
        """Serves until the first `next`. `end` is the program's pidfd, `ended()` the failure when
        it has ended. Raises that, or the failure that the program tells."""
        try:
            self._serve(end, ended, lambda: not self._is_loading)
        finally:
            self._outcome = None

    def call(
        self,
        id: str,
        headers: dict[str, str],
        event: bytes,
        part: "Callable[[bytes], None] | None",
        end: int,
        ended: "Callable[[], Refused]",
    ) -> tuple[bytes, str]:
        """Hands out an event, and serves until it is answered; the answer and its content type. An
        answer that streams goes to `part`, where there is one. Raises as `load`."""
        self._call, self._is_handed, self._part = (id, headers, event), False, part
        try:
            self._hand_over()
            self._serve(end, ended, lambda: False)
            return self._outcome  # type: ignore[return-value]
        finally:
            self._call = self._outcome = self._stream = self._part = None
            self._is_handed = False

    def _serve(
        self, end: int, ended: "Callable[[], Refused]", is_over: "Callable[[], bool]"
    ) -> None:
        from select import POLLIN, POLLRDHUP, poll

        rounds = _LAST_ROUNDS
        while True:
            while self._behind and self._outcome is None:
                self._read(self._behind.pop())
            if isinstance(self._outcome, Refused):
                raise self._outcome
            if self._outcome is not None or is_over():
                return
            wanted = poll()
            wanted.register(end, POLLIN)
            wanted.register(self._listener.fileno(), POLLIN)
            for number, connection in self._connections.items():
                wanted.register(number, POLLRDHUP if connection in self._waiting else POLLIN)
            ready = [number for number, _ in wanted.poll()]
            if end in ready:
                rounds -= 1
                if ready == [end] or not rounds:
                    raise ended()
            for number in ready:
                if number == self._listener.fileno():
                    self._accept()
                elif number in self._connections:
                    self._receive(self._connections[number])

    def _accept(self) -> None:
        from _socket import IPPROTO_TCP, TCP_NODELAY, socket

        try:
            number, _ = self._listener._accept()  # type: ignore[attr-defined]
        except OSError:  # it has gone away, or there are no descriptors left
            return
        accepted = socket(fileno=number)
        if len(self._connections) >= _MOST_CONNECTIONS:
            accepted.close()
            return
        accepted.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self._connections[number] = _Connection(accepted, self._begin_stream)

    def _receive(self, connection: "_Connection") -> None:
        # One that waits is only looked at when it has closed.
        if connection in self._waiting or not connection.receive():
            self._drop(connection)
        elif self._outcome is None:
            self._read(connection)
        elif connection not in self._behind:
            self._behind.append(connection)

    def _read(self, connection: "_Connection") -> None:
        """Answers the requests that have come, up to one that has to wait."""
        try:
            while not (connection.is_closed or connection in self._waiting):
                if self._outcome is not None:
                    self._behind.append(connection)
                    return
                if (request := connection.reader.request()) is None:
                    return
                self._route(connection, request)
        except http_requests.Malformed as error:
            connection.keeps_alive = False
            connection.refuse(400, "Malformed", str(error))
            self._drop(connection)

    def _drop(self, connection: "_Connection") -> None:
        self._connections.pop(connection.number, None)
        if self._stream is not None and connection.request is self._stream:
            if self._outcome is None:
                self._outcome = _plain("Runtime.TruncatedResponse", "The response ended early.")
        for kept in (self._waiting, self._behind):
            if connection in kept:
                kept.remove(connection)
        connection.close()

    def _begin_stream(self, request: "http_requests.Request") -> None:
        """Has a body sent on as it comes, if it is the answer that is waited for."""
        is_free = self._part is not None and self._stream is None and self._outcome is None
        if is_free and self._is_handed and self._call is not None:
            answer = f"{_PREFIX}invocation/{self._call[0]}/response"
            streams = request.headers.get(_MODE) == "streaming"
            if streams and (request.method, request.path) == ("POST", answer):
                self._stream, request.sink = request, self._part

    def _route(self, connection: "_Connection", request: "http_requests.Request") -> None:
        connection.keeps_alive = request.keeps_alive
        path = request.path.removeprefix(_PREFIX) if request.path.startswith(_PREFIX) else ""
        match request.method, path.split("/"):
            case "GET", ["invocation", "next"]:
                self._wait(connection)
            case "POST", ["invocation", id, "response" | "error" as kind]:
                self._take(connection, request, id, kind)
            case "POST", ["init", "error"]:
                self._take_no_start(connection, request)
            case _:
                words = f"{request.method} {request.path[:200]} is not of this runtime API"
                connection.refuse(404, "NotFound", words)
        if not connection.keeps_alive and connection not in self._waiting:
            self._drop(connection)

    def _wait(self, connection: "_Connection") -> None:
        if self._is_handed:
            connection.refuse_turn("Running", "Ready")
            return
        self._is_loading = False
        self._waiting.append(connection)
        self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting and self._waiting[0].has_gone():
            self._drop(self._waiting[0])
        if self._call is None or self._is_handed or not self._waiting:
            return
        self._is_handed = True
        connection = self._waiting.pop(0)
        _, headers, event = self._call
        connection.answer(200, event, {"Content-Type": handler.JSON} | headers)
        if connection.keeps_alive:
            self._behind.append(connection)
        else:
            self._drop(connection)

    def _take_no_start(self, connection: "_Connection", request: "http_requests.Request") -> None:
        if not self._is_loading:
            connection.refuse_turn("Running", "InitError")
            return
        self._outcome = _failure(bytes(request.body), request.headers)
        connection.accept()

    def _take(
        self, connection: "_Connection", request: "http_requests.Request", id: str, kind: str
    ) -> None:
        if self._call is None or not self._is_handed:
            state = "InvocationResponse" if kind == "response" else "InvocationErrorResponse"
            connection.refuse_turn("Ready", state)
            return
        if id != self._call[0]:
            connection.refuse(400, "InvalidRequestID", "Invalid request ID")
            return
        if self._stream is not None and request is not self._stream and kind == "response":
            connection.refuse_turn("InvocationResponse", "InvocationResponse")
            return
        headers = request.headers
        if headers.get(_MODE, "streaming") != "streaming":
            words = "Invalid function response mode"
            self._outcome = _plain("Runtime.InvalidResponseModeHeader", words)
            connection.refuse(400, "InvalidFunctionResponseMode", words)
        elif request.is_too_long:
            words = f"maximum allowed payload size ({http_requests.BODY_BYTES} bytes)."
            too_long = "Function.ResponseSizeTooLarge"
            self._outcome = _plain(too_long, f"Response payload size exceeded {words}")
            connection.refuse(413, "RequestEntityTooLarge", f"Exceeded {words}")
        else:
            body = bytes(request.body)
            if kind == "error":
                self._outcome = _failure(body, headers)
            elif "lambda-runtime-function-error-type" in headers:  # a stream's trailers
                self._outcome = _failure(_trailing(headers), headers)
            else:
                self._outcome = body, _content_type(headers)
            connection.accept()


class _Connection:
    """One client."""

    def __init__(self, accepted, begin: "Callable[[http_requests.Request], None]") -> None:
        self.number: int = accepted.fileno()
        self.keeps_alive = True
        self.is_closed = False
        # The one that is read, or was read last.
        self.request: http_requests.Request | None = None
        self.reader = http_requests.Reader(self._go_on, self._note)
        self._begin = begin
        self._socket = accepted

    def receive(self) -> bool:
        """Reads what has come; false where the client has closed."""
        try:
            data = self._socket.recv(_PIECE)
        except OSError:
            return False
        self.reader.feed(data)
        return bool(data)

    def _go_on(self) -> None:
        self._send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _note(self, request: "http_requests.Request") -> None:
        self.request = request
        self._begin(request)

    def has_gone(self) -> bool:
        """Whether the client has closed, as far as can be told without reading."""
        from select import POLLRDHUP, poll

        closed = poll()
        closed.register(self.number, POLLRDHUP)
        return bool(closed.poll(0))

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()

    def accept(self) -> None:
        self.answer(202, b'{"status":"OK"}\n', {"Content-Type": handler.JSON})

    def refuse(self, status: int, kind: str, words: str) -> None:
        said = {"errorMessage": words, "errorType": kind}
        self.answer(status, codec.dumps(said) + b"\n", {"Content-Type": handler.JSON})

    def refuse_turn(self, state: str, wanted: str) -> None:
        words = f"State transition from {state} to {wanted} failed for runtime."
        words = f"{words} Error: State transition is not allowed"
        self.refuse(403, "InvalidStateTransition", words)

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if not self.keeps_alive:
            lines.append("Connection: close")
        self._send("\r\n".join([*lines, "\r\n"]).encode("utf-8", "surrogatepass") + body)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:  # it has gone away: its next look finds that
            self.keeps_alive = False


def _content_type(headers: dict[str, str]) -> str:
    """What a stream says of itself. Of another answer it is JSON, as on AWS: many a client says
    that each body is a form."""
    streams = headers.get("lambda-runtime-function-response-mode") == "streaming"
    said = headers.get("content-type", "") if streams else ""
    is_one = said and said.isascii() and said.isprintable() and len(said) <= 256
    return said if is_one else handler.JSON


def _trailing(headers: dict[str, str]) -> bytes:
    from binascii import a2b_base64

    try:
        return a2b_base64(headers.get("lambda-runtime-function-error-body", "").encode("latin-1"))
    except ValueError:
        return b""


def _failure(payload: bytes, headers: dict[str, str]) -> Refused:
    """What a program says that has failed. The caller is given it as it is, unless it is no JSON
    or too long."""
    try:
        text = payload.decode()
        said = codec.loads(payload)
    except (ValueError, RecursionError):
        text, said = "", None
    fields = said if isinstance(said, dict) else {}
    kind = headers.get("lambda-runtime-function-error-type") or fields.get("errorType")
    kind = kind if isinstance(kind, str) and kind else "Runtime.Unknown"
    message, trace = fields.get("errorMessage"), fields.get("stackTrace")
    message = message if isinstance(message, str) else ""
    trace = trace if isinstance(trace, list) else []
    frames = [one if isinstance(one, str) else codec.dumps(one).decode() for one in trace]
    if said is None:
        return _plain(kind, message)
    if codec.escaped_length(text) > _PAYLOAD_BYTES:
        return Refused(kind, message, failure.within(frames), payload="")
    return Refused(kind, message, payload=text)


def _plain(kind: str, words: str) -> Refused:
    return Refused(
        kind, words, payload=codec.dumps({"errorMessage": words, "errorType": kind}).decode()
    )
