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

from lambswool_guest import completion, stdlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import NoReturn

    from lambswool_guest.places import Places


steps: "dict[str, Callable[[ModuleType], None]]" = {}
"""What completes a module, by its name."""


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
        steps.update(
            logging=lambda logging: completion.have_root_handler(logging),
            site=lambda site: completion.name_packages_in_site(site, packages),
            sysconfig=lambda sysconfig: completion.name_packages(sysconfig, packages),
        )

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> "ModuleSpec | None":
        """What the other finders find, so that it is completed when it has been executed."""
        if name == "genericpath":
            # It and `os`, which every other interpreter has from its start, import each other.
            __import__("os")
        step = steps.get(name)
        if step is None:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if spec.loader is not None and stdlib.is_place(spec.origin):
                    spec.loader = completion.Loader(spec.loader, step)
                return spec
        return None
