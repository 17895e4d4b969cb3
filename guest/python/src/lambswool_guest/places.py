"""The directories of a sandbox that the guest must know."""


class Places:
    """Where code, packages and the standard library are."""

    __slots__ = ("packages", "stdlib", "task")

    def __init__(self, *, stdlib: list[str], task: str, packages: str) -> None:
        self.stdlib = stdlib
        self.task = task
        self.packages = packages

    def owns(self, path: str) -> bool:
        """Whether `path` is one of the handler's own files."""
        return path.startswith(self.task + "/")

    def in_stdlib(self, path: str) -> bool:
        """Whether `path` belongs to the interpreter."""
        if "/site-packages/" in path or "/dist-packages/" in path:
            return False
        return any(path.startswith(f"{directory}/") for directory in self.stdlib)
