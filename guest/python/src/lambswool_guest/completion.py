"""What modules of the standard library are given when they are imported: see `interpreter`."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")


def name_packages(sysconfig: "ModuleType", packages: str) -> None:
    scheme = sysconfig._INSTALL_SCHEMES[sysconfig.get_default_scheme()]
    scheme |= {"purelib": packages, "platlib": packages, "scripts": f"{packages}/bin"}


def name_packages_in_site(site: "ModuleType", packages: str) -> None:
    usual = site.getsitepackages

    def getsitepackages(prefixes: "list[str] | None" = None) -> list[str]:
        return [packages] if prefixes is None else usual(prefixes)

    getsitepackages.__doc__ = usual.__doc__
    site.getsitepackages = getsitepackages  # type: ignore[attr-defined]


_root_handlers: list = []
"""The one that is given to a root logger, once that is there."""


def forget_root_handler(logging: "ModuleType") -> None:
    """Takes back what `have_root_handler` has done."""
    for ours in _root_handlers:
        logging.getLogger().removeHandler(ours)
        logging.basicConfig = getattr(logging.basicConfig, "__wrapped__", logging.basicConfig)  # type: ignore
    _root_handlers.clear()


def have_root_handler(logging: "ModuleType") -> None:
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
    _root_handlers.append(ours)
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


class Loader:
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
