"""The directories of a sandbox that the guest must know."""

import sys


class Places:
    """Where code, packages and the standard library are."""

    __slots__ = ("packages", "scratch", "stdlib", "task")

    def __init__(
        self, *, stdlib: list[str], task: str, packages: str, scratch: str = "/tmp"
    ) -> None:
        self.stdlib = stdlib
        self.task = task
        self.packages = packages
        self.scratch = scratch

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

    def variables(self) -> dict[str, str]:
        """What the environment says of them, for every handler: so that a package that looks there
        while a zygote imports it sees the same."""
        return {
            "PATH": f"{self.packages}/bin:/usr/bin",
            "PYTHONPATH": f"{self.task}:{self.packages}",
            "LAMBDA_TASK_ROOT": self.task,
        }

    def owns(self, path: str) -> bool:
        """Whether `path` is one of the handler's own files."""
        return path.startswith(self.task + "/")

    def in_stdlib(self, path: str) -> bool:
        """Whether `path` belongs to the interpreter."""
        if "/site-packages/" in path or "/dist-packages/" in path:
            return False
        return any(path.startswith(f"{directory}/") for directory in self.stdlib)
