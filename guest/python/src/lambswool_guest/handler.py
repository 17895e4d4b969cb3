"""The handler: its environment, its import and one call of it.

`sys.path` is the code, what the function's `PYTHONPATH` names, layers, the packages, the standard
library: Lambda's order, so a file of the handler's own hides a module of the same name. What a
package has added to it while a zygote imported it stands where it would, but behind the handler's
own. What is found must not depend on what a zygote imported before: modules of such names which are
loaded already are set aside first. A Python that the handler starts finds the same, and the
packages' commands are in its `PATH`.

An event is the JSON body's value; a call without a body gets `{}`, as Lambda's does. A result goes
back as JSON. A `binary` handler gets the body's bytes and may return bytes, text, or either with
its content type as a pair.
"""

import sys
from posix import chdir, environ, listdir, putenv, stat
from time import tzset

from lambswool_guest import answers, arity, codec, loop, module, pools, stdlib, unfit
from lambswool_guest.context import LambdaContext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from lambswool_guest.places import Places

JSON = "application/json"

_GENERATOR = type(_ for _ in ())

_OURS = __file__.rpartition("/")[0] + "/"

_COROUTINE = 0x80
"""CO_COROUTINE, Include/cpython/code.h."""

_AWAITED = 0x100
"""CO_ITERABLE_COROUTINE: of a generator that `types.coroutine` lets be awaited."""

_YIELDS = {0x20: "a generator", 0x200: "an async generator"}
"""CO_GENERATOR and CO_ASYNC_GENERATOR, Include/cpython/code.h."""


class Refused(Exception):
    """The guest itself says no; there is no traceback to show."""

    def __init__(
        self,
        error_type: str,
        message: str,
        trace: "list[str] | None" = None,
        payload: "str | None" = None,
    ) -> None:
        """`payload`: what the caller is given in place of the rest, if anything. The log has no
        line of such a failure."""
        super().__init__(message)
        self.error_type = error_type
        self.message = message
        self.trace = trace or []
        self.payload = payload


class Handler:
    """A function that can be called."""

    def __init__(self, load: dict, places: "Places") -> None:
        """Imports it. Raises whatever the import raises."""
        self._load = load
        enter(load, places)
        self._function = _find(_imported(load, places), load["function"])
        # What such a handler needs is imported where its calls will be: a machine that is put back
        # before each of them would import it each time.
        self._loop = loop.Loop() if _is_async(self._function) else None
        self._takes_context = _takes_context(self._function, load["convention"])

    def call(self, invoke: dict, body: bytes) -> tuple[bytes, str]:
        """Calls it; the result's bytes and content type. Raises whatever the function raises."""
        binary = self._load["binary"]
        told = body if binary else event(body)
        if self._takes_context:
            result = self._function(told, LambdaContext(self._load, invoke))
        else:
            result = self._function(told)
        if hasattr(type(result), "__await__") or _is_awaited(result):
            if self._loop is None:
                self._loop = loop.Loop()
            result = self._loop.run(result)
        return answers.binary(result) if binary else (as_json(result), JSON)


def _is_async(function: object) -> bool:
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return isinstance(flags, int) and bool(flags & (_COROUTINE | _AWAITED))


def _is_awaited(result: object) -> bool:
    return type(result) is _GENERATOR and bool(result.gi_code.co_flags & _AWAITED)  # type: ignore[attr-defined]


def _takes_context(function: "Callable[..., object]", convention: str) -> bool:
    """Whether it is called with a context: by what it takes, where that can be told.

    The convention is what the deploy read in the handler's own file: of a function that is only
    imported there it knows the name alone, and of a decorated one not what the decorator made.
    """
    code = getattr(function, "__code__", None)
    takes_any = 0x04  # CO_VARARGS, Include/cpython/code.h
    if type(function) is type(enter) and not code.co_flags & takes_any:  # type: ignore[union-attr]
        return code.co_argcount > 1  # type: ignore[union-attr]
    most = arity.positional(function)
    return convention != "open-lambda" if most is None else most > 1


def enter(
    load: dict, places: "Places", usual: "dict | None" = None, reserved: "dict | None" = None
) -> None:
    """Makes this process the handler's: environment, directories, `sys`. `usual` are variables that
    the handler's own replace, `reserved` those that replace its own."""
    own = load["environment"]
    named = [entry for entry in own.get("PYTHONPATH", "").split(":") if entry]
    if load.get("lambda"):
        named += places.layered()
    path = [places.task, *named, places.packages]
    variables = places.variables()
    if usual:
        variables |= usual
    variables |= own
    variables |= {
        "PYTHONPATH": ":".join(path),
        "LAMBDA_TASK_ROOT": places.task,
        "AWS_LAMBDA_FUNCTION_NAME": load["name"],
        "AWS_LAMBDA_FUNCTION_VERSION": load["version"],
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(load["memory_mb"]),
        "_HANDLER": f"{load['module']}.{load['function']}",
    }
    if reserved:
        variables |= reserved
    for name, value in variables.items():
        set_variable(name, value)
    if threads := load.get("threads"):
        pools.restore(threads, own)
    if "TZ" in variables:
        tzset()
    chdir(places.task)
    sys.path[:] = places.path(named)
    sys.argv[:] = [f"{places.task}/{load['module'].replace('.', '/')}.py"]


def set_variable(name: str, value: str) -> None:
    try:
        # `os.environ` is a view of this very dictionary, and takes nine calls to do the same.
        key, text = name.encode(), value.encode()
        putenv(key, text)
        environ[key] = text
    except (OSError, ValueError) as error:
        raise Refused("Runtime.InvalidEnvironment", f"variable {name!r}: {error}") from None


def _imported(load: dict, places: "Places") -> object:
    name, held = load["module"], entries(load, places)
    try:
        if module.load(name, places.task, held) is None:
            __import__(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise Refused(
                "Runtime.ImportModuleError",
                f"no module {name!r} in the code: it holds {_listed(held)}",
            ) from None
        raise
    imported = sys.modules[name]
    path = getattr(imported, "__file__", None)
    if isinstance(path, str) and not places.owns(path):
        raise Refused(
            "Runtime.ImportModuleError",
            f"the module name {name!r} is taken by {path}: rename the handler's file",
        )
    return imported


def entries(load: dict, places: "Places") -> list[str]:
    """What the code's directory holds. Modules of such names are set aside."""
    found = load.get("entries")
    if found is None:  # they are many
        found = listdir(places.task)
    _set_aside(found, places)
    return found


def _set_aside(entries: list[str], places: "Places") -> None:
    """Forgets modules of Python's, or of a package, that the handler has files of its own for. What
    every interpreter has from its start is found by no `import`, and stays."""
    for entry in entries:
        own, _, suffix = entry.partition(".")
        loaded = sys.modules.get(own)
        if loaded is None or own.startswith("__") or _stays(loaded, places):
            continue
        if suffix.endswith(("py", "so")) or (not suffix and _is_package(f"{places.task}/{own}")):
            below = f"{own}."
            for name in [name for name in sys.modules if name == own or name.startswith(below)]:
                del sys.modules[name]


def _stays(loaded: object, places: "Places") -> bool:
    origin = getattr(getattr(loaded, "__spec__", None), "origin", None)
    mine = places.owns(getattr(loaded, "__file__", None) or "")
    return mine or origin in ("built-in", "frozen") or loaded is sys.modules["encodings"]


def _is_package(directory: str) -> bool:
    """Whether a directory hides packages of its name: one without this file gives way to them."""
    try:
        stat(f"{directory}/__init__.py")
    except OSError:
        return False
    return True


def _find(owner: object, name: str) -> "Callable[..., object]":
    function = getattr(owner, name, None)
    if callable(function):
        _refuse_generator(function, name)
        return function
    where = getattr(owner, "__name__", type(owner).__name__)
    if function is not None:
        raise Refused(
            "Runtime.HandlerNotFound",
            f"`{name}` in module {where} is no function but {type(function).__name__}",
        )
    defined = [
        key
        for key, value in getattr(owner, "__dict__", {}).items()
        if not key.startswith("_") and callable(value) and getattr(value, "__module__", "") == where
    ]
    raise Refused(
        "Runtime.HandlerNotFound",
        f"no function `{name}` in module {where}; it defines: {_listed(defined)}",
    )


def _refuse_generator(function: object, name: str) -> None:
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if type(flags) is not int or flags & _AWAITED:
        return
    for flag, kind in _YIELDS.items():
        if flags & flag:
            raise Refused(
                "Runtime.HandlerNotFound",
                f"`{name}` has a `yield`, so it is {kind}, and a reply is one value: "
                "return it, a list of all parts, say, with `return`",
            )


def _listed(names: list[str]) -> str:
    shown = sorted(name for name in names if name != "__pycache__")
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    return (", ".join(shown[:20]) or "nothing") + more


def event(body: bytes) -> object:
    """What a body says."""
    if not body:
        return {}
    try:
        return codec.loads(body)
    except (ValueError, RecursionError) as error:
        if not _is_codecs(error):
            raise
        text = f"Unable to unmarshal input: {error}"
        raise Refused("Runtime.UnmarshalError", text) from None


def as_json(result: object) -> bytes:
    try:
        return codec.dumps(result)
    except (TypeError, ValueError, RecursionError) as error:
        if not _is_codecs(error):
            raise
        text = f"Unable to marshal response: {error}{unfit.hint(error)}"
        raise Refused("Runtime.MarshalError", text) from None


def _is_codecs(error: Exception) -> bool:
    """Whether the codec raised it, or `json` in its place. A signal handler of the function's may
    raise there, too, and so may a method of what it returned: those are told as they are."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    path = "" if at is None else at.tb_frame.f_code.co_filename
    return path.startswith(_OURS) or stdlib.is_place(path)
