"""What programs expect of an interpreter beside the language, and what here only a part of is so.

- `site` is not imported: what it defines in `builtins` is defined here.
- Packages lie in a directory of their own: `sysconfig` and `site` name it when they are asked.
- The root logger has a handler, as on AWS Lambda: functions take `root.handlers[0]`, give it a
  format and set a level. Python's own root logger has none, and `basicConfig` makes one only then:
  so it takes the place of ours. Ours shows no line that another handler writes to the log anyway.

The modules concerned are completed when they are imported, by whatever module does that.
"""

import builtins
import sys

from lambswool_guest import stdlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import NoReturn

    from lambswool_guest.places import Places

_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")


def prepare(places: "Places") -> None:
    """Before any module that is not the interpreter's."""
    for name in ("exit", "quit"):
        setattr(builtins, name, Quitter(name))
    for name in ("copyright", "credits", "license"):
        setattr(builtins, name, Text(name))
    builtins.help = Helper()  # type: ignore[attr-defined]
    sys.meta_path.insert(0, Completion(places.packages))  # type: ignore[arg-type]


class Quitter:
    """`exit` and `quit`. Python's own closes the standard input as well, which calls share."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Use {self.name}() or Ctrl-D (i.e. EOF) to exit"

    def __call__(self, code: object = None) -> "NoReturn":
        raise SystemExit(code)


class Text:
    """`copyright`, `credits` or `license`: `site` makes it when it is looked at."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _made(self) -> object:
        stdlib.module("site").setcopyright()
        return getattr(builtins, self._name)

    def __repr__(self) -> str:
        return repr(self._made())

    def __call__(self) -> None:
        self._made()()  # type: ignore[operator]


class Helper:
    """`help`: `site` makes it when it is called."""

    def __repr__(self) -> str:
        return "Type help() for interactive help, or help(object) for help about object."

    def __call__(self, *what: object, **named: object) -> object:
        stdlib.module("site").sethelper()
        return builtins.help(*what, **named)  # type: ignore[attr-defined]


class Completion:
    """A finder of modules that completes some of the standard library's. It finds none itself."""

    def __init__(self, packages: str) -> None:
        self._steps: dict[str, Callable[[ModuleType], None]] = {
            "logging": _have_root_handler,
            "site": lambda site: _name_packages_in_site(site, packages),
            "sysconfig": lambda sysconfig: _name_packages(sysconfig, packages),
        }

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> "ModuleSpec | None":
        """What the other finders find, so that it is completed when it has been executed."""
        if name == "genericpath":
            # It and `os`, which every other interpreter has from its start, import each other.
            __import__("os")
        step = self._steps.get(name)
        if step is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if spec.loader is not None and stdlib.is_place(spec.origin):
                    spec.loader = _Loader(spec.loader, step)
                return spec
        return None


class _Loader:
    """Another loader, and one step more. The module is told of the other alone."""

    def __init__(self, real: object, step: "Callable[[ModuleType], None]") -> None:
        self._real = real
        self._step = step

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        return self._real.create_module(spec)  # type: ignore[attr-defined]

    def exec_module(self, module: "ModuleType") -> None:
        module.__loader__ = module.__spec__.loader = self._real  # type: ignore
        self._real.exec_module(module)  # type: ignore[attr-defined]
        try:
            self._step(module)
        except Exception:  # a Python that is made otherwise: the module is as it is there
            return


def _name_packages(sysconfig: "ModuleType", packages: str) -> None:
    scheme = sysconfig._INSTALL_SCHEMES[sysconfig.get_default_scheme()]
    scheme |= {"purelib": packages, "platlib": packages, "scripts": f"{packages}/bin"}


def _name_packages_in_site(site: "ModuleType", packages: str) -> None:
    usual = site.getsitepackages

    def getsitepackages(prefixes: "list[str] | None" = None) -> list[str]:
        return [packages] if prefixes is None else usual(prefixes)

    getsitepackages.__doc__ = usual.__doc__
    site.getsitepackages = getsitepackages  # type: ignore[attr-defined]


def _have_root_handler(logging: "ModuleType") -> None:
    root = logging.getLogger()
    format_of_ours = logging.Formatter("[%(levelname)s] %(message)s")

    # What is used where a logger has no handler: it writes to what `sys.stderr` is then.
    class LogHandler(type(logging.lastResort)):  # type: ignore[misc]
        def handle(self, record: object) -> object:
            said = self.formatter is format_of_ours and _is_said(logging, self, record)
            return None if said else super().handle(record)

    ours = LogHandler()
    ours.setFormatter(format_of_ours)
    root.addHandler(ours)
    usual = logging.basicConfig

    def basicConfig(**settings: object) -> None:
        is_untouched = root.handlers == [ours] and ours.formatter is format_of_ours
        if is_untouched:
            root.removeHandler(ours)
        try:
            usual(**settings)
        finally:
            if is_untouched and not root.handlers:
                root.addHandler(ours)

    basicConfig.__doc__ = usual.__doc__
    basicConfig.__wrapped__ = usual  # type: ignore[attr-defined]
    logging.basicConfig = basicConfig  # type: ignore[attr-defined]


def _is_said(logging: "ModuleType", ours: object, record) -> bool:
    """Whether another handler that the record comes to writes to the log."""
    streams = [getattr(sys, name, None) for name in _STREAMS]
    try:
        logger = logging.Logger.manager.loggerDict.get(record.name)
        if not isinstance(logger, logging.Logger):
            logger = logging.getLogger()
        while logger is not None:
            for handler in logger.handlers:
                is_other = handler is not ours and record.levelno >= handler.level
                if is_other and isinstance(handler, logging.StreamHandler):
                    if any(handler.stream is stream for stream in streams):
                        return True
            logger = logger.parent if logger.propagate else None
    except Exception:  # the function has handlers and loggers of its own kinds
        return False
    return False
