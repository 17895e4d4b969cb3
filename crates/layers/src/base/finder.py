

# Added by Lambswool, as distributions without ldconfig do: a sandbox has neither ldconfig nor a
# linker that could be asked, and a micro-VM starts no program. The libraries are in the directory
# of the C library.
import os


def _findSoname_ldconfig(name):
    """The newest `libNAME.so…` of this system, which `ldconfig -p` would tell first."""
    start = f"lib{name}."
    try:
        with os.scandir("LIBRARIES") as entries:
            # A text named .so, and a library named .a, are for linkers.
            found = [e.name for e in entries if e.name.startswith(start) and ".so." in e.name]
    except OSError:
        return None

    def version(file):
        numbers = file.partition(".so.")[2].split(".")
        return [int(number) if number.isdecimal() else -1 for number in numbers], file

    return max(found, key=version, default=None)
