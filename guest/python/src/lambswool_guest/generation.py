"""A number that no two instances share, nor one instance before and after its machine was reset.

What draws random numbers by itself, with a state that nobody here knows of, can see by it that it
is in another copy than before, as a virtual machine can by its VMGENID.
"""

from posix import urandom

_id = ""


def identity() -> str:
    """128 random bits in hexadecimal."""
    global _id
    if not _id:
        _id = urandom(16).hex()
    return _id


def renew() -> None:
    """In every fork and clone, before anything else runs."""
    global _id
    _id = ""
