"""The second argument of a function that AWS Lambda's runtime calls: its fields and its text."""

import time

from lambswool_guest import aws_logging, codec, context
from lambswool_guest.handler import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# As in `context`.
_CLOCKS = (time.monotonic, time.time)

_TRACES = ("traceparent", "tracestate", "baggage")


def register() -> None:
    """In an instance: pickles name these classes."""
    for kind in (LambdaContext, CognitoIdentity, ClientContext, Client):
        kind.__module__ = context.__name__
        setattr(context, kind.__name__, kind)


class _Fields:
    """Fields that are all there, None where nothing is said of them."""

    __slots__ = ()

    def __init__(self, said: dict) -> None:
        for name in self.__slots__:
            setattr(self, name, said.get(name))

    def __repr__(self) -> str:
        shown = ",".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"{type(self).__name__}([{shown}])"


class CognitoIdentity(_Fields):
    """No identity pool stands before a function here."""

    __slots__ = ("cognito_identity_id", "cognito_identity_pool_id")


class Client(_Fields):
    """The app that called, as it says."""

    __slots__ = (  # noqa: RUF023 - AWS's order
        "installation_id",
        "app_title",
        "app_version_name",
        "app_version_code",
        "app_package_name",
    )


class ClientContext(_Fields):
    """What a mobile app says of itself."""

    __slots__ = ("custom", "env", "client")  # noqa: RUF023 - AWS's order

    def __init__(self, said: dict) -> None:
        super().__init__(said)
        self.client = None if self.client is None else Client(self.client)


class LambdaContext:
    """One invocation, as the function sees it."""

    def __init__(
        self, load: dict, invoke: dict, version: str, stream: str, arn: str, given: dict
    ) -> None:
        monotonic, now = _CLOCKS
        self._deadline = monotonic() + invoke["remaining_ms"] / 1000
        client = _parsed(given.get("client_context"))
        self.aws_request_id: str = invoke["id"]
        self.log_group_name = f"/aws/lambda/{load['name']}"
        self.log_stream_name = stream
        self.function_name: str = load["name"]
        self.memory_limit_in_mb = str(load["memory_mb"])
        self.function_version = version
        self.invoked_function_arn = arn
        self.tenant_id: str | None = given.get("tenant_id")
        traces = client.pop("w3c", None) if isinstance(client, dict) else None
        self._w3c_fields = dict(_texts(traces))
        self.client_context = None if client is None else ClientContext(client)  # type: ignore
        self.identity = CognitoIdentity({})
        self._epoch_deadline_time_in_ms = int(now() * 1000) + invoke["remaining_ms"]

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the worker gives up; never negative."""
        return max(0, int((self._deadline - _CLOCKS[0]()) * 1000))

    def w3c(self) -> dict[str, str]:
        """The trace that a client context named."""
        return dict(self._w3c_fields)

    def log(self, message: object) -> None:
        """Writes to the log, as it is."""
        aws_logging.Sink.log(str(message))

    def __repr__(self) -> str:
        names = (
            "aws_request_id",
            "log_group_name",
            "log_stream_name",
            "function_name",
            "memory_limit_in_mb",
            "function_version",
            "invoked_function_arn",
            "client_context",
            "identity",
            "tenant_id",
        )
        shown = ",".join(f"{name}={getattr(self, name)}" for name in names)
        return f"LambdaContext([{shown}])"


def _parsed(text: "str | None") -> object:
    if not text:
        return None
    try:
        return codec.loads(text.encode("utf-8", "surrogatepass"))
    except Exception as error:
        words = f"Unable to parse Client Context JSON: {error}"
        raise Refused("Runtime.LambdaContextUnmarshalError", words) from None


def _texts(traces: object) -> "Iterator[tuple[str, str]]":
    if isinstance(traces, dict):
        for name in _TRACES:
            if isinstance(traces.get(name), str):
                yield name, traces[name]
