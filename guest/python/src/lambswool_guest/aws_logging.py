"""The log of a function that AWS Lambda's runtime calls.

The root logger has AWS's handler, which writes `[LEVEL] TIME REQUEST MESSAGE`, with tabs, or a JSON
object, to the standard output. So `logging.basicConfig` does nothing, as there. What a call failed
with is a line of the same log.
"""

import sys
import time

from lambswool_guest import completion, interpreter, stdlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

current: list = ["", None]
"""The id of the call that runs, and its tenant."""

_DATE = "%Y-%m-%dT%H:%M:%S"

_OF_EVERY_RECORD = frozenset(
    "name msg args levelname levelno pathname filename module exc_info exc_text stack_info lineno"
    " funcName created msecs relativeCreated thread threadName processName process aws_request_id"
    " tenant_id".split()
)

_SPACE = "\u00a0"
"""AWS's indentation of a traceback: its console strips plain spaces."""


class Sink:
    """Where AWS's handler writes to."""

    @staticmethod
    def log(text: str) -> None:
        sys.stdout.write(text)


def prepare(said: dict) -> None:
    """Gives the root logger its handler, as soon as there is one."""

    def step(logging: "ModuleType") -> None:
        _have_handler(logging, said.get("json_level"))

    interpreter.steps["logging"] = step
    if (logging := stdlib.loaded("logging")) is not None:
        step(logging)


def _have_handler(logging: "ModuleType", level: "str | None") -> None:
    class LambdaLoggerHandler(logging.Handler):  # type: ignore[name-defined, misc]
        log_sink = Sink

        def emit(self, record: object) -> None:
            Sink.log(self.format(record))

    class LambdaLoggerFilter(logging.Filter):  # type: ignore[name-defined, misc]
        def filter(self, record) -> bool:
            record.aws_request_id, record.tenant_id = current
            return True

    completion.forget_root_handler(logging)
    logging.Formatter.converter = time.gmtime  # type: ignore[attr-defined]
    ours, root = LambdaLoggerHandler(), logging.getLogger()
    if level is None:
        line = "[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t%(aws_request_id)s\t%(message)s\n"
        ours.setFormatter(logging.Formatter(line, _DATE))
    else:
        ours.setFormatter(_json_formatter(logging))
        root.setLevel({"TRACE": "DEBUG"}.get(level, level))
    ours.addFilter(LambdaLoggerFilter())
    root.handlers.insert(0, ours)


def _json_formatter(logging: "ModuleType") -> object:
    class JsonFormatter(logging.Formatter):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__(datefmt=f"{_DATE}Z")

        def format(self, record) -> str:
            record.levelno = min(50, max(0, record.levelno)) // 10 * 10
            record.levelname = logging.getLevelName(record.levelno)
            is_object = isinstance(record.msg, dict) and not record.args
            said = {
                "timestamp": self.formatTime(record, self.datefmt),
                "level": record.levelname,
                "message": record.msg if is_object else record.getMessage(),
                "logger": record.name,
                **_raised(record),
                "requestId": getattr(record, "aws_request_id", None),
                "location": None,
                "tenantId": getattr(record, "tenant_id", None),
            }
            if record.exc_info:
                said["location"] = f"{record.pathname}:{record.funcName}:{record.lineno}"
            for name, value in vars(record).items():
                if name not in _OF_EVERY_RECORD:
                    said.setdefault(name, value)
            return _as_json({name: value for name, value in said.items() if value is not None})

    return JsonFormatter()


def _raised(record) -> dict[str, object]:
    if not record.exc_info:
        return {}
    kind, error, traceback = record.exc_info
    frames = stdlib.module("traceback").format_tb(traceback)
    return {"stackTrace": frames, "errorType": kind.__name__, "errorMessage": str(error)}


def _as_json(value: dict) -> str:
    return stdlib.module("json").dumps(value, ensure_ascii=False, default=str) + "\n"


def line(said: dict, invocation: str, settings: dict) -> str:
    """What the log says of a call that failed."""
    kind, message, frames = said["error_type"], said["message"], said["traceback"]
    if settings.get("json_level"):
        now = time.strftime(f"{_DATE}Z", time.gmtime())
        told = {"timestamp": now, "level": "ERROR", "errorMessage": message, "errorType": kind}
        return _as_json(told | {"requestId": invocation, "stackTrace": frames})
    first = f"[ERROR] {kind}: {message}" if message else f"[ERROR] {kind}"
    lines = [first, "Traceback (most recent call last):"]
    for frame in frames:
        for text in frame.splitlines():
            words = text.lstrip(" ")
            lines.append(_SPACE * (len(text) - len(words)) + words)
    return "\n".join(lines) + "\n"
