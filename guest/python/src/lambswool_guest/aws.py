"""A function that is called as AWS Lambda's own runtime calls it: see `function::Lambda`.

```text
  load   variables ─► logging ─► "dir/mod.func" divided ─► import ─► loaded | failed
  call   variables of the call ─► context ─► event ─► function(event, context) ─► done | failed
                                                         │
                                                         └ sys.exit: failed, Runtime.ExitError
```

Where a caller reads it as a stream, a generator yields the answer in parts, which are sent one by
one.

Failures have AWS's types and words, and the log has their line. A function takes `(event, context)`
and nothing else; what it returns is JSON, numbers of `decimal` among it, or bytes as they are.

Different from AWS: frames of the import system are left out of a traceback, and named tuples are
objects only where one is the whole result.
"""

import sys
from posix import environ
from time import gmtime, strftime

from lambswool_guest import aws_context, aws_logging, codec, failure, generation, handler, module
from lambswool_guest import stream as parts
from lambswool_guest.handler import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lambswool_guest.logs import Logs
    from lambswool_guest.places import Places

EXIT = "Runtime.ExitError"

_ESCAPED = ("python3.8", "python3.9", "python3.10", "python3.11")
"""Runtimes whose results are ASCII."""

_NAME = vars(type)["__name__"].__get__

_LOCALE = "en_US.UTF-8"


class Function:
    """A function that can be called, in the place of `handler.Handler`."""

    def __init__(self, load: dict, places: "Places", part: "Callable[[str, bytes], None]") -> None:
        """Imports it. Raises what the import raises, or what AWS says of it. `part` sends a part of
        an invocation's answer."""
        self._load = load
        self._part = part
        self._version = load["version"]
        self._stream = ""
        self._date = strftime("%Y/%m/%d", gmtime())
        self._no_trace = self._trace = places.variables()["_X_AMZN_TRACE_ID"]
        self._escapes = load["lambda"]["runtime"] in _ESCAPED
        handler.enter(load, places, usual(places), reserved(load))
        self._name_stream()
        aws_context.register()
        aws_logging.prepare(load["lambda"])
        self._function = _found(load, places)

    def call(self, invoke: dict, body: bytes) -> tuple[bytes, str]:
        """Calls it; the result's bytes and content type. Raises whatever the function raises."""
        given = invoke.get("lambda") or {}
        tenant = given.get("tenant_id")
        aws_logging.current[:] = invoke["id"], tenant
        version, trace = given.get("version", "$LATEST"), given.get("trace_id") or self._no_trace
        if version != self._version:
            self._version = version
            handler.set_variable("AWS_LAMBDA_FUNCTION_VERSION", version)
        self._name_stream()
        if trace != self._trace:
            self._trace = trace
            handler.set_variable("_X_AMZN_TRACE_ID", trace)
        arn = given.get("function_arn") or arn_of(self._load)
        context = aws_context.LambdaContext(self._load, invoke, version, self._stream, arn, given)
        result = self._function(handler.event(body), context)  # type: ignore[operator]
        if given.get("streams") and parts.is_one(result):
            parts.send(result, lambda part: self._part(invoke["id"], part))
            return b"", parts.TYPE
        return self._answer(result)

    def _name_stream(self) -> None:
        """AWS has a log stream for each instance. A clone of a machine is another one."""
        stream = f"{self._date}/[{self._version}]{generation.identity()}"
        if stream != self._stream:
            self._stream = stream
            handler.set_variable("AWS_LAMBDA_LOG_STREAM_NAME", stream)

    def _answer(self, result: object) -> tuple[bytes, str]:
        if isinstance(result, bytes):
            return result, "application/unknown"
        try:
            if isinstance(result, tuple) and hasattr(result, "_asdict"):
                result = result._asdict()
            return codec.dumps_any(result, escapes=self._escapes), handler.JSON
        except Exception as error:
            words = f"Unable to marshal response: {error}"
            raise Refused("Runtime.MarshalError", words) from None


def log_group(load: dict) -> str:
    """The name of a function's log group."""
    return f"/aws/lambda/{load['name']}"


def usual(places: "Places") -> dict[str, str]:
    """Variables that a function may set to something else."""
    task = places.task
    found = ("/var/lang/lib", "/lib64", "/usr/lib64", "/var/runtime", "/var/runtime/lib")
    libraries = ":".join([*found, task, f"{task}/lib", "/opt/lib"])
    variables = {"TZ": ":UTC", "LD_LIBRARY_PATH": libraries}
    return variables | ({"LANG": _LOCALE} if _has_locale() else {})


def reserved(load: dict) -> dict[str, str]:
    """Variables that no function sets."""
    said = load["lambda"]
    variables = {
        "_HANDLER": said["handler"],
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{said['runtime']}",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": log_group(load),
        "LAMBDA_RUNTIME_DIR": "/var/runtime",
    }
    if level := said.get("json_level"):
        variables |= {"AWS_LAMBDA_LOG_FORMAT": "JSON", "AWS_LAMBDA_LOG_LEVEL": level}
    return variables


def _has_locale() -> bool:
    """Whether AWS's locale is in the base: `setlocale(LC_ALL, "")` fails with one that is not."""
    import _locale

    before = _locale.setlocale(_locale.LC_COLLATE)
    try:
        _locale.setlocale(_locale.LC_COLLATE, _LOCALE)
    except _locale.Error:
        return False
    _locale.setlocale(_locale.LC_COLLATE, before)
    return True


def arn_of(load: dict) -> str:
    """Of a call that does not say it: it came through another door."""
    region = environ.get(b"AWS_REGION", b"us-east-1").decode()
    return f"arn:aws:lambda:{region}:000000000000:function:{load['name']}"


def _found(load: dict, places: "Places") -> object:
    text = load["lambda"]["handler"]
    name, dot, function = text.rpartition(".")
    if not dot:
        words = f"Bad handler '{text}': not enough values to unpack (expected 2, got 1)"
        raise Refused("Runtime.MalformedHandlerName", words)
    if name.partition(".")[0] in sys.builtin_module_names:
        words = f"Cannot use built-in module {name} as a handler module"
        raise Refused("Runtime.BuiltInModuleConflict", words)
    try:
        imported = _imported(name.replace("/", "."), load, places)
    except ImportError as error:
        words = f"Unable to import module '{name}': {error}"
        raise Refused("Runtime.ImportModuleError", words) from None
    except SyntaxError as error:
        words = f"Syntax error in module '{name}': {error}"
        place = f'  File "{error.filename}" Line {error.lineno}\n    {error.text}'
        raise Refused("Runtime.UserCodeSyntaxError", words, [place]) from None
    try:
        return getattr(imported, function)
    except AttributeError:
        words = f"Handler '{function}' missing on module '{name}'"
        raise Refused("Runtime.HandlerNotFound", words) from None


def _imported(name: str, load: dict, places: "Places") -> object:
    if name.startswith("."):
        words = f"the 'package' argument is required to perform a relative import for {name!r}"
        raise TypeError(words)
    entries = handler.entries(load, places)
    if module.load(name, places.task, entries) is None:
        __import__(name)
    return sys.modules[name]


def told(error: BaseException, invocation: str, load: dict, logs: "Logs") -> dict[str, object]:
    """The fields of a `failed` message. Its line goes into the log."""
    if not isinstance(error, Exception):
        return _ended(error)
    if type(error) is Refused:
        said = failure.named(error.error_type, error.message) | {"traceback": error.trace}
        if error.payload is not None:
            return said | {"payload": error.payload}
    else:
        said = failure.named(_NAME(type(error)), failure.message_of(error))
        said |= {"traceback": failure.within(_frames(error))}
    logs.write_text(aws_logging.line(said, invocation, load["lambda"]))
    return said


def _frames(error: Exception) -> list[str]:
    for _ in range(2):  # a signal handler may raise here
        try:
            return failure.frames(error)
        except BaseException:
            continue
    return []


def _ended(error: BaseException) -> dict[str, object]:
    """AWS's interpreter ends there, with the status that it has then. The worker ends this one."""
    status: object = 1
    if isinstance(error, SystemExit):
        status = error.code
        if status is not None and not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    number = int(status or 0) & 0xFF
    why = f"with error: exit status {number}" if number else "without providing a reason"
    return failure.named(EXIT, f"Runtime exited {why}") | {"traceback": []}
