"""Entry: `python3 -I -S -B …/__main__.py ROLE [--task DIR] [--packages DIR]`, the channel as fd 3.

ROLE is `zygote` or `reference` (the same for micro-VMs). A fresh interpreter for one handler runs
`instance.pyc` instead: see `fresh.py`.
"""

import sys

CHANNEL = 3


def main(arguments: list[str]) -> None:
    """Never returns, unless the arguments are wrong."""
    # The package is found through its root once; later it finds its own modules through its
    # `__path__`, and the handler's `sys.path` shows nothing of ours.
    root = __file__.rpartition("/")[0].rpartition("/")[0]
    stdlib = list(sys.path)
    sys.path.append(root)
    from lambswool_guest.places import Places

    role = arguments[0] if arguments else ""
    places = Places.told(arguments[1:], stdlib)
    if role == "zygote":
        from lambswool_guest import zygote

        sys.path.remove(root)
        zygote.serve(CHANNEL, places)
    if role == "reference":
        from lambswool_guest import reference

        sys.path.remove(root)
        reference.serve(CHANNEL, places)
    sys.exit("usage: __main__.py zygote|reference [--task DIR] [--packages DIR]")


# `multiprocessing` runs this file again, under another name, in what it spawns.
if __name__ == "__main__":
    main(sys.argv[1:])
