"""Entry: `python3 -I -S -B …/__main__.py ROLE [--task DIR] [--packages DIR]`, the channel as fd 3.

ROLE is `instance` (a fresh interpreter for one handler), `zygote` or `reference` (the same for
micro-VMs). The directories default to the
sandbox's own and are said only by tests.
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
    options = dict(zip(arguments[1::2], arguments[2::2], strict=False))
    places = Places(
        stdlib=stdlib,
        task=options.pop("--task", "/var/task"),
        packages=options.pop("--packages", "/opt/python"),
    )
    if role not in ("instance", "zygote", "reference") or options:
        sys.exit("usage: __main__.py instance|zygote|reference [--task DIR] [--packages DIR]")
    if role == "zygote":
        from lambswool_guest import zygote

        sys.path.remove(root)
        zygote.serve(CHANNEL, places)
    if role == "reference":
        from lambswool_guest import reference

        sys.path.remove(root)
        reference.serve(CHANNEL, places)
    from lambswool_guest import instance

    sys.path.remove(root)
    instance.serve(CHANNEL, places)


# `multiprocessing` runs this file again, under another name, in what it spawns.
if __name__ == "__main__":
    main(sys.argv[1:])
