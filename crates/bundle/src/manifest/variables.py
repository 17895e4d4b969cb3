"""Which environment variables sources set, for what they import to find.

Nothing of them is run. A value is what may be worked out from texts that stand in the sources: all
that a name is ever given counts, wherever that is. Where a variable is set whose name cannot be
worked out, or the environment is given away to code that is not seen, any variable may be set:

    os.environ["A"] = ...           names: A
    os.environ[input()] = ...       any
    setup(os.environ)               any, unless `setup` stands in the sources and is followed

That counts for what runs while the sources are loaded, and for what runs later if that imports
something later. What is deleted counts as set.
"""

import ast
import sys

from files import sets_some
from values import (
    ENVIRON,
    ENVIRONS,
    FUNCTION,
    LOADERS,
    ONE,
    READING,
    SETTERS,
    UNKNOWN,
    WHOLE,
    Map,
    Mark,
    Method,
    Seq,
    Values,
    called_so,
    is_text,
    words,
)

READERS = {"get", "items", "keys", "values", "copy", "__getitem__", "__contains__", "__iter__"}
READERS |= {"__len__", "__or__", "__repr__", "__eq__", "__class__", "encodekey", "decodevalue"}
# What starts programs and takes their environment as `env`.
STARTING = {"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec"}
STARTING |= {"create_subprocess_shell"}
# Where an environment is looked into, or goes on to where it is followed.
LOOKS = (ast.Compare, ast.For, ast.AsyncFor, ast.comprehension, ast.FormattedValue, ast.Expr)
LOOKS += (ast.BinOp, ast.If, ast.While, ast.Assert, ast.UnaryOp, ast.Starred, ast.arguments)
LOOKS += (ast.Return, ast.Lambda, ast.Yield)


class Variables(Values):
    """`names`: those that the sources set. `unknown`: file and line of what may set any others."""

    def __init__(self, trees):
        super().__init__(trees)
        self.names, self.unknown = {}, None
        self.suspects, self.counts = set(), True
        self.suspect()
        self.reach()
        self.later = self.imports_later()
        for node in self.nodes:
            self.counts = self.is_before(node)
            self.look(node)
        if self.left <= 0:
            self.counts = True
            self.any(self.nodes[0])

    # ---- what may be the environment ----

    def suspect(self):
        """Collects names that may hold it, or what sets it, so that others need no look."""
        self.suspects = {*ENVIRONS, *SETTERS, *LOADERS}
        waiting = []
        for (_, name), values in self.given.items():
            for value, *_ in values:
                if isinstance(value, ast.arg):
                    function = value.parent.parent
                    called, _ = self.called_as(function)
                    calls = called if isinstance(called, list) else self.calls.get(called, ())
                    waiting += [(name, call) for call in calls]
                    waiting += [(name, it) for it in value.parent.defaults]
                    waiting += [(name, it) for it in value.parent.kw_defaults if it]
                elif isinstance(value, ast.ImportFrom):
                    waiting += [(name, alias) for alias in value.names]
                elif isinstance(value, ast.expr | ast.AugAssign):
                    waiting.append((name, value))
        for function in self.all_functions():
            given = (it for it in self.nodes_of(function) if isinstance(it, ast.Return | ast.Yield))
            waiting += [(function.name, it) for it in given]
        waiting = [(name, words(node)) for name, node in waiting]
        grows = True
        while grows:
            size = len(self.suspects)
            self.suspects |= {name for name, said in waiting if said & self.suspects}
            grows = len(self.suspects) > size

    # ---- what runs while the sources are loaded ----

    def reach(self):
        """Marks what runs then: the modules, and each function that is named in what runs."""
        inside = {}
        for node in self.nodes:
            scope = node.scope
            while isinstance(scope, ast.Lambda | ast.ClassDef):
                scope = scope.scope
            inside.setdefault(scope, []).append(node)
        waiting = [scope for scope in inside if isinstance(scope, ast.Module)]
        reached = set(waiting)
        while waiting:
            unit = waiting.pop()
            for node in inside.get(unit, ()):
                node.at_load = True
                for function in self.leads_to(node, unit):
                    if function not in reached:
                        reached.add(function)
                        waiting.append(function)

    def leads_to(self, node, unit):
        names = []
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            names = [called_so(node)]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names if alias.asname]
        elif isinstance(node, ast.Call) and called_so(node.func) == "getattr":
            names = [one.value for one in node.args[1:2] if isinstance(one, ast.Constant)]
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            # Of `globals()["setup"]()`.
            names = [node.slice.value]
        elif isinstance(node, FUNCTION) and isinstance(node.parent, ast.ClassDef):
            # Python calls these by itself.
            if node.name.startswith("__"):
                yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            home = self.home(node.scope, node.func.id)
            if home is not None and home is node.scope and not isinstance(home, ast.Module):
                if any(isinstance(value, ast.arg) for value, *_ in self.bound(home, node.func.id)):
                    # A decorator that calls what it decorates.
                    yield from (f for f in self.all_functions() if f.decorator_list)
        for name in names:
            yield from (f for f in self.functions.get(name, ()) if isinstance(f, FUNCTION))

    def bound(self, scope, name):
        return self.given.get((id(scope), name), ())

    def all_functions(self):
        for named in self.functions.values():
            yield from (function for function in named if isinstance(function, FUNCTION))

    def imports_later(self):
        """Whether what runs after the load may import something that is not Python's own."""
        for node in self.nodes:
            if node.at_load:
                continue
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = ["" if node.level else node.module]
            elif isinstance(node, ast.Call):
                names = [""] if called_so(node.func) in ("import_module", "__import__") else []
            if any(name.split(".")[0] not in sys.stdlib_module_names for name in names):
                return True
        return False

    # ---- what sets something ----

    def any(self, node):
        """Any variable may be set."""
        if self.counts and self.unknown is None:
            self.unknown = (self.module_of(node).path, getattr(node, "lineno", 1))

    def found(self, values, node):
        for value in values:
            if isinstance(value, bytes):
                value = value.decode("utf-8", "surrogateescape")
            if isinstance(value, str):
                # C's `putenv` takes both in one.
                self.names.setdefault(value.split("=")[0])
            elif isinstance(value, Mark | Seq | Map | ast.AST):
                self.any(node)

    def look(self, node):
        if isinstance(node, ast.Call):
            self.look_at_call(node)
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            return
        if not self.may_be(node):
            return
        for value in self.values(node):
            if value is ENVIRON:
                self.goes(node)
            elif isinstance(value, Method):
                self.sets(node, value)

    def may_be(self, node):
        """Whether it is worth a look: most expressions never hold the environment."""
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, ast.Attribute) and node.attr in ONE | WHOLE:
            node = node.value
        return bool(words(node) & self.suspects)

    def look_at_call(self, node):
        name, first = called_so(node.func), node.args[:1]
        if name == "dict" and first and is_text(first[0], ("os.environ",)):
            self.patched(node)
        elif name in ("run_path", "run_module", "runcode", "runsource"):
            self.any(node)
        elif name in ("exec", "eval") and (
            isinstance(node.func, ast.Name) or called_so(node.func.value) == "builtins"
        ):
            for text in self.values(first[0]) if first else ():
                if not isinstance(text, str | bytes) or sets_some(text):
                    self.any(node)
        elif name != "getattr" and any(
            is_text(one, (*ENVIRONS, "os.environ", "os.environb")) for one in node.args
        ):
            # Of `setattr`, `attrgetter`, `patch`.
            self.any(node)

    def patched(self, node):
        """Of `unittest.mock.patch.dict`."""
        for argument in node.args[1:2]:
            self.found(self.keys(self.values(argument)), node)
        for keyword in node.keywords:
            if keyword.arg == "values":
                self.found(self.keys(self.values(keyword.value)), node)
            else:
                # `clear` deletes all others.
                plain = keyword.arg not in (None, "clear")
                self.found([keyword.arg if plain else UNKNOWN], node)

    def goes(self, node):
        """Looks at what is done with the environment."""
        at, parent = node, node.parent
        while isinstance(parent, ast.BoolOp | ast.IfExp | ast.NamedExpr | ast.Tuple | ast.List):
            if isinstance(parent, ast.IfExp) and parent.test is at:
                return
            at, parent = parent, parent.parent
        target = not isinstance(getattr(at, "ctx", ast.Load()), ast.Load)
        if isinstance(parent, ast.Subscript):
            if not isinstance(parent.ctx, ast.Load):
                self.found(self.values(parent.slice), parent)
        elif isinstance(parent, ast.Attribute):
            reads = parent.attr in READERS | ONE | WHOLE and isinstance(parent.ctx, ast.Load)
            if not reads:
                self.any(parent)
        elif isinstance(parent, ast.Assign | ast.AnnAssign | ast.AugAssign):
            if target and (isinstance(at, ast.Attribute) or isinstance(parent, ast.AugAssign)):
                self.found(self.keys(self.values(parent.value)), parent)
        elif isinstance(parent, ast.keyword | ast.Call):
            self.is_given(parent if isinstance(parent, ast.Call) else parent.parent, at)
        elif isinstance(parent, ast.Dict):
            # It is followed as far as its pairs are taken over here.
            if at in parent.values and parent.keys[parent.values.index(at)] is not None:
                self.any(parent)
        elif not isinstance(parent, LOOKS):
            self.any(node)

    def is_given(self, call, at):
        """Looks at a call that is given the environment."""
        name, keyword = called_so(call.func), at.parent
        holds = isinstance(at, ast.Tuple | ast.List)
        if at is call.func:
            return
        if name == "dict" and isinstance(call.func, ast.Attribute) and call.args[:1] == [at]:
            self.patched(call)
        elif name in ("setitem", "delitem") and call.args[:1] == [at]:
            for argument in call.args[1:2]:
                self.found(self.values(argument), call)
        elif isinstance(keyword, ast.keyword) and keyword.arg is None:
            return
        elif isinstance(keyword, ast.keyword) and keyword.arg == "env" and name in STARTING:
            return
        elif (name in READING and not holds) or (name == "ChainMap" and call.args[:1] != [at]):
            return
        elif not self.own(call.func):
            # `os.environ.update(os.environ)` sets what is there.
            if holds or not any(isinstance(one, Method) for one in self.values(call.func)):
                self.any(call)

    def sets(self, node, method):
        """Looks at what is done with a function that sets variables."""
        parent = node.parent
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            return
        if not isinstance(parent, ast.Call):
            self.any(node)
        elif parent.func is node:
            self.set_by(method, [*parent.args], parent)
        elif called_so(parent.func) == "map" and parent.args[0] is node:
            for keys in parent.args[1:2]:
                values = self.elements(self.values(keys))
                self.found(values if method.name in ONE | SETTERS else [UNKNOWN], node)
        elif called_so(parent.func) == "partial" and parent.args[0] is node:
            self.set_by(method, parent.args[1:], parent)
        else:
            self.any(node)

    def set_by(self, method, arguments, call):
        keywords = call.keywords
        if method.name in LOADERS:
            self.any(call)
        elif method.name in WHOLE:
            for argument in arguments:
                starred = isinstance(argument, ast.Starred)
                self.found([UNKNOWN] if starred else self.keys(self.values(argument)), call)
            for keyword in keywords:
                given = [keyword.arg] if keyword.arg else self.keys(self.values(keyword.value))
                self.found(given, call)
        elif arguments and isinstance(arguments[0], ast.Starred):
            self.found(self.at(self.values(arguments[0].value), 0), call)
        elif arguments:
            self.found(self.values(arguments[0]), call)
        elif named := [k.value for k in keywords if k.arg in ("key", "name")]:
            self.found(self.values(named[0]), call)
        else:
            self.any(call)
