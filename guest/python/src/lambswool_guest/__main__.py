"""Entry: `python3 -I -S -B …/__main__.py ROLE [--task DIR] [--packages DIR]`, the channel as fd 3.

ROLE is `zygote` or `reference` (the same for micro-VMs). A fresh interpreter for one handler runs
`instance.pyc` instead: see `fresh.py`.
"""

import builtins
import sys
from _frozen_importlib_external import PathFinder, SourceFileLoader  # type: ignore

CHANNEL = 3


OWN = dict(vars(builtins))


class Loader(SourceFileLoader):
    """A function, or a package, may put its own in the place of `open` or `isinstance`: the guest's
    are those that the interpreter has now."""

    def exec_module(self, module: object) -> None:
        module.__builtins__ = OWN  # type: ignore[attr-defined]
        super().exec_module(module)


class Finder:
    """Finds the guest's modules."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name.partition(".")[0] != "lambswool_guest":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def main(arguments: list[str]) -> None:
    """Never returns, unless the arguments are wrong."""
    # The package is found through its root once; later it finds its own modules through its
    # `__path__`, and the handler's `sys.path` shows nothing of ours.
    root = __file__.rpartition("/")[0].rpartition("/")[0]
    stdlib = list(sys.path)
    sys.path.append(root)
    sys.meta_path.insert(0, Finder)
    from lambswool_guest.places import Places

    role = arguments[0] if arguments else ""
    places = Places.told(arguments[1:], stdlib)
    if role == "zygote":
        from lambswool_guest import zygote

        sys.path.remove(root)
        sys.meta_path.remove(Finder)
        zygote.serve(CHANNEL, places)
    if role == "reference":
        from lambswool_guest import reference

        sys.path.remove(root)
        sys.meta_path.remove(Finder)
        reference.serve(CHANNEL, places)
    sys.exit("usage: __main__.py zygote|reference [--task DIR] [--packages DIR]")


# `multiprocessing` runs this file again, under another name, in what it spawns.
if __name__ == "__main__":
    main(sys.argv[1:])
