"""The directories of a sandbox that the guest must know."""

import sys
from posix import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_TRACE = f"Root=1-{0:08x}-{0:024x};Parent={0:016x};Sampled=0"
"""As AWS says of a call that is not traced: X-Ray's SDK, which takes each process that has
LAMBDA_TASK_ROOT for one on AWS, would warn of each segment without it."""


class Places:
    """Where code, packages and the standard library are, and where else packages have modules."""

    __slots__ = ("added", "packages", "scratch", "stdlib", "task")

    def __init__(
        self, *, stdlib: list[str], task: str, packages: str, scratch: str = "/tmp"
    ) -> None:
        self.stdlib = stdlib
        self.task = task
        self.packages = packages
        self.scratch = scratch
        # What imports have added to `sys.path`: in front of the standard library, and behind it.
        self.added: tuple[list[str], list[str]] = ([], [])

    @classmethod
    def told(cls, arguments: list[str], stdlib: list[str]) -> "Places":
        """The sandbox's own, but for `--task`, `--packages`, `--scratch DIR`, which tests say."""
        options = dict(zip(arguments[::2], arguments[1::2], strict=True))
        task = options.pop("--task", "/var/task")
        packages = options.pop("--packages", "/opt/python")
        scratch = options.pop("--scratch", "/tmp")
        if options:
            sys.exit(f"not known: {' '.join(options)}")
        return cls(stdlib=stdlib, task=task, packages=packages, scratch=scratch)

    def layered(self) -> list[str]:
        """The second place where layers have packages, if they have any there."""
        major, minor = sys.version_info[:2]
        place = f"{self.packages}/lib/python{major}.{minor}/site-packages"
        try:
            stat(place)
        except OSError:
            return []
        return [place]

    def path(self, named: "Iterable[str]") -> list[str]:
        """A handler's `sys.path`. Its own files stand first whatever a package has done, since it
        need not have imported that yet."""
        ahead, behind = self.added
        return [self.task, *named, *ahead, self.packages, *self.stdlib, *behind]

    def variables(self) -> dict[str, str]:
        """What the environment says of them, for every handler: so that a package that looks there
        while a zygote imports it sees the same."""
        return {
            "PATH": f"{self.packages}/bin:/usr/bin:/opt/bin",
            "PYTHONPATH": f"{self.task}:{self.packages}",
            "LAMBDA_TASK_ROOT": self.task,
            "_X_AMZN_TRACE_ID": _NO_TRACE,
        }

    def owns(self, path: str) -> bool:
        """Whether `path` is one of the handler's own files."""
        return path.startswith(self.task + "/")
