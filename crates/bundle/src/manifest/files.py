"""A function's own files: which its entry file imports, what it imports from nowhere, and which
may set variables.

Files are found as Python finds them in what the `PYTHONPATH` names and in the function's folder. A
source that changes where Python looks may import any file whose path ends so.
"""

import ast
import os
import re

from bindings import decided

# Most files that are parsed, with the bytes of all of them, and folders that are gone through.
FILES, BYTES, ENTRIES = 300, 2 << 20, 20_000

# Most bytes of a function's own compiled modules that are searched.
COMPILED = 64 << 20

# What changes where modules are found, or brings them.
ELSEWHERE = re.compile(
    rb"sys\s*\.\s*(path|modules|meta_path)|from\s+sys\s+import|sys\s+as\b|path_hooks|addsitedir"
    rb"|PYTHONPATH|__path__|\bimp\b|find_spec|spec_from|runpy"
)

# Words without which a source sets no variable.
SETTING = (b"environ", b"putenv", b"setenv", b"env(", b"exec", b"eval", b"run_path", b"dotenv")
SETTING += (b"runsource", b"run_module", b"runcode")

# Without which a compiled module sets none.
SETTING_IN_C = (b"environ", b"putenv", b"setenv")

# Archives that Python imports from, and what brings it to.
ARCHIVES = (".zip", ".egg", ".whl", ".pyz")
OF_ARCHIVES = re.compile(rb"\bpath\b|zipimport|pkgutil|importlib|__import__|__path__|runpy")

# What loads a source from a file of any name.
OF_ANY_NAME = re.compile(rb"SourceFileLoader|SourcelessFileLoader|load_source|spec_from_loader")

GUARDS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class Files:
    """`trees` and `sources`: by its path, each file that is reached; the entry file first.

    `elsewhere`: whether modules may be found where this does not look.
    """

    def __init__(self, root, entry, path, source, tree, alone):
        self.root, self.entry = root, entry
        self.path = [os.path.normpath(part) for part in path.split(":") if part] + ["."]
        self.trees, self.sources = {entry: tree}, {entry: source}
        self.imports, self.elsewhere = [], bool(alone)
        self.left, self.all, self.many = BYTES, None, False
        waiting = [] if alone else [entry]
        while waiting:
            file = waiting.pop()
            self.elsewhere |= ELSEWHERE.search(self.sources[file]) is not None
            waiting += self.follow(file)

    def follow(self, file):
        """Reads what a file imports."""
        new = []
        for node, names, guarded in imported(self.trees[file].body, False):
            whole = self.named(file, node, names)
            found = [path for name in whole for path in self.found(name)]
            if isinstance(node, ast.Call) and not names:
                found = self.every()
            new += [path for path in dict.fromkeys(found) if self.read(path)]
            if not guarded and not getattr(node, "level", 0) and not isinstance(node, ast.Call):
                self.imports.append((file, node.lineno, [name.split(".")[0] for name in whole]))
        return new

    def named(self, file, node, names):
        level = getattr(node, "level", 0)
        if not level:
            return names
        folder = os.path.dirname(file).split("/")
        base = folder[: len(folder) - level + 1]
        return [".".join([*base, name]).strip(".") for name in names]

    def found(self, name):
        """The files that an import of a dotted name runs."""
        parts = name.split(".")
        found = []
        for count in range(1, len(parts) + 1):
            below = "/".join(parts[:count])
            places = [os.path.normpath(os.path.join(place, below)) for place in self.path]
            ends = [end for place in places for end in (f"{place}.py", f"{place}/__init__.py")]
            some = [end for end in ends if self.is_file(end)]
            if self.elsewhere and not some:
                likely = (f"/{below}.py", f"/{below}/__init__.py")
                some = [path for path in self.every() if f"/{path}".endswith(likely)]
            found += some
        return found

    def is_file(self, path):
        whole = os.path.join(self.root, path)
        return not path.startswith("..") and os.path.isfile(whole) and not os.path.islink(whole)

    def every(self):
        """All sources of the function's."""
        return [path for path in self.everything() if path.endswith(".py")]

    def everything(self):
        """All of its files. `many`: there are more."""
        if self.all is None:
            self.all, entries = [], 0
            for folder, folders, files in os.walk(self.root):
                entries += len(folders) + len(files)
                paths = (os.path.relpath(os.path.join(folder, file), self.root) for file in files)
                self.all += [path for path in paths if self.is_file(path)]
                if entries > ENTRIES:
                    self.many = True
                    break
        return self.all

    def read(self, path):
        """Whether it is a file that was not read before, and can be."""
        if path in self.trees:
            return False
        size = os.path.getsize(os.path.join(self.root, path))
        if len(self.trees) >= FILES or size > self.left:
            return False
        self.left -= size
        try:
            self.sources[path] = self.bytes_of(path)
            self.trees[path] = ast.parse(self.sources[path])
        except (SyntaxError, ValueError, OSError, MemoryError, RecursionError):
            # It fails where it is imported.
            self.sources.pop(path, None)
            return False
        return True

    def bytes_of(self, path):
        with open(os.path.join(self.root, path), "rb") as file:
            return file.read()

    def setting(self):
        """The trees of all sources that may set variables, whatever imports them; and the place of
        a file that may set any, because it cannot be read."""
        trees, left, compiled = {}, BYTES, COMPILED
        unknown, archive, of_archives = None, None, False
        for path in [self.entry, *(it for it in self.everything() if it != self.entry)]:
            if path.endswith(ARCHIVES):
                archive = archive or path
            elif path.endswith((".so", ".pyc")) and "__pycache__" not in path.split("/"):
                compiled -= os.path.getsize(os.path.join(self.root, path))
                if compiled < 0 or any(word in self.bytes_of(path) for word in SETTING_IN_C):
                    unknown = unknown or (path, 1)
            elif path.endswith(".py"):
                source = self.sources.get(path) or self.bytes_of(path)
                of_archives = of_archives or OF_ARCHIVES.search(source) is not None
                if OF_ANY_NAME.search(source):
                    unknown = unknown or (path, 1)
                if not any(word in source for word in SETTING):
                    continue
                left -= len(source)
                if left < 0 or len(trees) >= FILES:
                    return trees, unknown or (path, 1)
                try:
                    trees[path] = self.trees.get(path) or ast.parse(source)
                except (SyntaxError, ValueError):
                    # It fails where it is imported.
                    continue
        if archive and (of_archives or any(part.endswith(ARCHIVES) for part in self.path)):
            unknown = unknown or (archive, 1)
        return trees, unknown or ((self.entry, 1) if self.many else None)

    def speaking(self, names, trees):
        """Sources beside these in which one of such names stands."""
        words = b"|".join(re.escape(name).encode() for name in sorted(names))
        said = re.compile(rb"\b(" + words + rb")\b")
        found = []
        for path in self.every():
            if path not in trees and said.search(self.bytes_of(path)):
                try:
                    ast.parse(self.bytes_of(path))
                except (SyntaxError, ValueError):
                    continue
                found.append(path)
        return found

    def missing(self):
        """Modules that nothing in the function's folder brings: file, line, name."""
        if self.elsewhere:
            return []
        told = {}
        for file, line, names in self.imports:
            for name in names:
                if name and not any(self.brings(place, name) for place in self.path):
                    told.setdefault(name, (file, line, name))
        return list(told.values())

    def brings(self, place, name):
        """Whether a folder has a module or a package of that name, whatever it is made of."""
        folder = os.path.join(self.root, place)
        try:
            names = os.listdir(folder)
        except OSError:
            return False
        return any(entry == name or entry.startswith(f"{name}.") for entry in names)


def imported(body, guarded):
    """Each import in a block or a function: its node, names, and whether it may be in vain."""
    for node in body:
        if isinstance(node, ast.Import):
            yield node, [alias.name for alias in node.names], guarded
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}".strip(".") for alias in node.names]
            yield node, [module, *names] if module else names, guarded
        elif isinstance(node, ast.If):
            yield from calls(node.test)
            said = decided(node.test)
            yield from imported(node.body if said is not False else (), guarded)
            yield from imported(node.orelse if said is not True else (), guarded)
        elif isinstance(node, ast.Try | getattr(ast, "TryStar", ast.Try)):
            caught = guarded or any(is_guard(handler.type) for handler in node.handlers)
            yield from imported(node.body, caught)
            # What is tried when another import was in vain may be in vain itself, or not run.
            for handler in node.handlers:
                yield from imported(handler.body, True)
            yield from imported([*node.orelse, *node.finalbody], guarded)
        elif isinstance(node, ast.With | ast.AsyncWith):
            suppressed = any("suppress" in ast.unparse(item.context_expr) for item in node.items)
            yield from (part for item in node.items for part in calls(item.context_expr))
            yield from imported(node.body, guarded or suppressed)
        else:
            blocks = [value for _, value in ast.iter_fields(node) if isinstance(value, list)]
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.match_case):
                    yield from imported(part.body, guarded)
                elif not isinstance(part, ast.stmt):
                    yield from calls(part)
            for block in blocks:
                yield from imported([part for part in block if isinstance(part, ast.stmt)], guarded)


def calls(node):
    """Imports by `import_module` and `__import__`: what is named; nothing where it is not known."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        name = getattr(part.func, "attr", getattr(part.func, "id", ""))
        if name in ("import_module", "__import__", "run_module", "walk_packages", "iter_modules"):
            given = part.args[0] if part.args else None
            known = isinstance(given, ast.Constant) and isinstance(given.value, str)
            yield part, [given.value.lstrip(".")] if known else [], True


def is_guard(caught):
    """Whether an `except` catches that a module is not there."""
    names = {
        getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(caught or ast.Pass())
    }
    return caught is None or not names.isdisjoint(GUARDS)
