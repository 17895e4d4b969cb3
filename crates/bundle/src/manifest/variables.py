"""Which environment variables sources set, for what they import to find.

Nothing of them is run. The environment has a few names (`os.environ`, what is imported or assigned
from it); each place where one of them stands is looked at:

    os.environ["A"] = …, .setdefault("A", …), .update(A=…), for k in ("A", "B"): os.environ[k] = …
                                 sets the names that stand there
    os.environ.get("A"), dict(os.environ), run(…, env=os.environ)
                                 sets nothing
    all else                     may set any variable

So a new way to set a variable costs zygotes, and never a wrong value. Where in a file something
stands, and whether it runs, does not matter. What is deleted counts as set.
"""

import ast

ENVIRONS = {"environ", "environb"}
SETTERS = {"putenv", "setenv", "unsetenv"}
# Of packages that read files of variables.
LOADERS = {"load_dotenv", "read_env", "read_dotenv", "load_env", "load_environ"}
WORDS = ENVIRONS | SETTERS | LOADERS
DOTTED = {f"{module}.{word}" for module in ("os", "posix") for word in WORDS}

# The environment's methods: what reads, what sets one variable, what sets many.
READERS = {"get", "items", "keys", "values", "__getitem__", "__contains__", "__iter__", "__len__"}
READERS |= {"copy", "__repr__", "__eq__", "__or__", "__ror__"}
ONE = {"setdefault", "pop", "__setitem__", "__delitem__"}
WHOLE = {"update", "__ior__"}

# Functions that only read what they are given.
READING = {"dict", "list", "tuple", "set", "frozenset", "sorted", "len", "iter", "enumerate", "zip"}
READING |= {"any", "all", "bool", "str", "repr", "id", "type", "isinstance", "print", "max", "min"}
# Methods that do, of whatever they are.
READING_METHODS = {"format_map", "substitute", "safe_substitute"}
# Functions that start a program, and take its environment.
STARTING = {"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec"}
STARTING |= {"create_subprocess_shell"}
EXECUTING = {"execve", "execvpe", "spawnve", "spawnvpe", "posix_spawn", "posix_spawnp"}
# Code that stands in no source, or elsewhere.
CODE = {"exec", "eval", "run_path", "run_module", "runcode", "runsource"}

# What hands the environment on as it is, to where it is looked at.
THROUGH = (ast.BoolOp, ast.IfExp, ast.NamedExpr)
# Where it is only looked into.
LOOKS = (ast.Compare, ast.For, ast.AsyncFor, ast.comprehension, ast.FormattedValue, ast.Expr)
LOOKS += (ast.BinOp, ast.If, ast.While, ast.Assert, ast.UnaryOp, ast.IfExp, ast.Starred)

# What may bind a module's names where no assignment shows.
REBINDING = {"globals", "locals", "vars", "setattr", "__setattr__", "__dict__", "builtins", "exec"}
REBINDING |= {"eval", "f_globals", "f_locals", "modules", "__globals__"}

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class Variables:
    """`names`: those that the sources set. `unknown`: file and line of what may set any others."""

    def __init__(self, trees):
        self.names, self.unknown = {}, None
        # Whatever one file calls something, another may import, or assign to.
        self.functions, self.aliases, self.shared, self.assigned = set(), set(), set(), set()
        self.setters = {word: word for word in SETTERS | LOADERS}
        # Names whose one assignment was believed.
        self.believed = set()
        self.rebinds = False
        files = [File(path, tree) for path, tree in trees.items()]
        for file in files:
            self.functions |= file.functions.keys()
            self.shared |= file.shared
            self.assigned |= file.assigned
            self.rebinds |= file.rebinds
        size = -1
        while size < len(self.spoken()):
            size = len(self.spoken())
            for file in files:
                self.collect(file)
        for file in files:
            self.file = file
            for node in file.nodes:
                self.look(node)

    def spoken(self):
        """What the sources call the environment, what sets it, and whose text was believed."""
        return self.aliases | self.setters.keys() | self.believed

    def collect(self, file):
        """Adds what else it is called: by an import, an assignment, a parameter."""
        for node in file.nodes:
            if isinstance(node, ast.ImportFrom):
                known = ENVIRONS | self.aliases
                self.aliases |= {it.asname or it.name for it in node.names if it.name in known}
                for it in node.names:
                    if it.name in self.setters:
                        self.setters[it.asname or it.name] = self.setters[it.name]
                if any(it.name == "*" for it in node.names):
                    self.aliases |= ENVIRONS
            elif self.is_environment(node) and isinstance(node.ctx, ast.Load):
                name = self.named_by(node, file)
                self.aliases |= walrus_of(node) | ({name} if name is not None else set())

    def is_environment(self, node):
        if isinstance(node, ast.Attribute):
            return node.attr in ENVIRONS or node.attr in self.aliases
        return isinstance(node, ast.Name) and node.id in self.aliases

    def named_by(self, node, file):
        """The name that this place gives the environment, if it gives it one."""
        at, parent = passed_through(node)
        if isinstance(parent, ast.Assign) and at is parent.value:
            [target, *more] = parent.targets
            return target.id if isinstance(target, ast.Name) and not more else None
        if isinstance(parent, ast.AnnAssign) and at is parent.value:
            return parent.target.id if isinstance(parent.target, ast.Name) else None
        if isinstance(parent, ast.arguments):
            return parameter_of(parent, at)
        if isinstance(parent, ast.Call | ast.keyword):
            call = parent if isinstance(parent, ast.Call) else parent.parent
            function = self.own(call.func, file)
            names = [it.arg for it in function.args.args] if function is not None else []
            if isinstance(parent, ast.keyword):
                return parent.arg if parent.arg in names else None
            place = parent.args.index(at) if at in parent.args else len(names)
            starred = any(isinstance(it, ast.Starred) for it in parent.args)
            return names[place] if place < len(names) and not starred else None
        return None

    def own(self, called, file):
        """The one plain function of this file that a name can only mean."""
        if not isinstance(called, ast.Name) or self.rebinds or called.id in self.assigned:
            return None
        function = file.functions.get(called.id)
        if function is None or file.once(called.id) is not function or function.decorator_list:
            return None
        return None if function.args.posonlyargs else function

    # ---- what sets something ----

    def any(self, node):
        """Any variable may be set."""
        if self.unknown is None:
            self.unknown = (self.file.path, getattr(node, "lineno", 1))

    def found(self, names, node):
        """Notes names; none: they do not show."""
        if names is None:
            return self.any(node)
        for name in names:
            if isinstance(name, bytes):
                name = name.decode("utf-8", "surrogateescape")
            # C's `putenv` takes both in one.
            name = name.split("=")[0]
            if not name.isprintable():
                self.any(node)
            elif name:
                self.names.setdefault(name)

    def look(self, node):
        if isinstance(node, ast.Call):
            self.look_at_call(node)
        if isinstance(node, ast.Constant):
            self.look_at_text(node)
        elif self.is_environment(node):
            if isinstance(node.ctx, ast.Load):
                self.goes(node)
            else:
                self.is_replaced(node)
        elif isinstance(node, ast.Attribute) and node.attr in self.setters:
            self.is_setter(node, self.setters[node.attr])
        elif isinstance(node, ast.Name) and node.id in self.setters:
            if node.id not in self.functions:
                self.is_setter(node, self.setters[node.id])
        elif isinstance(node, ast.Name) and node.id in ("exec", "eval"):
            if called(getattr(node.parent, "func", None)) != node.id:
                self.any(node)

    def look_at_text(self, node):
        """The environment by its name: `getattr(os, "environ")`, `patch("os.environ")`."""
        if node.value in WORDS or node.value in DOTTED:
            patches = isinstance(node.parent, ast.Call) and called(node.parent.func) == "dict"
            if not patches and not isinstance(node.parent, ast.Expr | ast.Compare):
                self.any(node)

    def look_at_call(self, node):
        name = called(node.func)
        if name in CODE:
            plain = isinstance(node.func, ast.Name) or called(node.func.value) == "builtins"
            given = node.args[:1]
            text = given[0].value if given and isinstance(given[0], ast.Constant) else None
            harmless = isinstance(text, str | bytes) and not has_word(text)
            if (plain or name.startswith("run")) and not harmless:
                self.any(node)
        elif name == "dict" and isinstance(node.func, ast.Attribute) and node.args:
            # Of `unittest.mock.patch`.
            first = node.args[0]
            if isinstance(first, ast.Constant) and first.value in DOTTED:
                self.patched(node)

    def is_setter(self, node, name):
        call = node.parent
        if not isinstance(node.ctx, ast.Load) or not isinstance(call, ast.Call):
            self.any(node)
        elif call.func is not node or name in LOADERS:
            self.any(node)
        else:
            self.one(call, call.args)

    def one(self, call, arguments):
        """A call that sets the variable which its first argument names."""
        first = arguments[:1]
        first = first or [it.value for it in call.keywords if it.arg in ("key", "name")]
        self.found(self.texts(first[0]) if first else None, call)

    def many(self, call, arguments, keywords):
        """A call that sets those of mappings, or of pairs, and of its keywords."""
        for argument in arguments:
            self.found(self.keys(argument), call)
        for keyword in keywords:
            self.found([keyword.arg] if keyword.arg else self.keys(keyword.value), call)

    def patched(self, call):
        """Of `unittest.mock.patch.dict`: a decorator, a context, or started. Its result is the
        environment."""
        at, parent = call, call.parent
        if isinstance(parent, ast.Attribute) and parent.attr == "start":
            at, parent = parent.parent, parent.parent.parent
        unseen = isinstance(parent, ast.withitem) and parent.optional_vars is None
        unseen |= isinstance(parent, ast.Expr) or at in getattr(parent, "decorator_list", ())
        values = [it for it in call.keywords if it.arg == "values"]
        others = [it for it in call.keywords if it.arg not in ("values", "clear")]
        if not unseen or len(values) + len(others) < len(call.keywords):
            self.any(call)
        self.many(call, [*call.args[1:2], *(it.value for it in values)], others)

    def is_replaced(self, node):
        """`os.environ = …`, `os.environ |= …`, `del environ`."""
        parent = node.parent
        grows = isinstance(parent, ast.AugAssign)
        if not grows and (isinstance(node, ast.Name) or called(node.value) in ("self", "cls")):
            # Another thing gets the name: what is done with that is looked at, too.
            return
        value = parent.value if grows or isinstance(parent, ast.Assign) else None
        keeps = isinstance(value, ast.Dict) and any(
            key is None and self.is_environment(it)
            for key, it in zip(value.keys, value.values, strict=True)
        )
        self.found(self.keys(value) if grows or keeps else None, node)

    def goes(self, node):
        """Looks at what is done with the environment."""
        at, parent = passed_through(node)
        if isinstance(parent, ast.Subscript) and parent.value is at:
            if not isinstance(parent.ctx, ast.Load):
                self.found(self.texts(parent.slice), parent)
        elif isinstance(parent, ast.Attribute):
            self.is_method(parent)
        elif isinstance(parent, ast.AugAssign | ast.Subscript):
            # It is read, or its own text is a key.
            return
        elif isinstance(parent, ast.keyword | ast.Call):
            self.is_given(parent if isinstance(parent, ast.Call) else parent.parent, at)
        elif isinstance(parent, ast.Dict):
            # `{**os.environ}` is another dictionary.
            if at in parent.values and parent.keys[parent.values.index(at)] is not None:
                self.any(parent)
        elif self.named_by(node, self.file) is None and not isinstance(parent, LOOKS):
            self.any(node)

    def is_method(self, method):
        call = method.parent
        is_called = isinstance(call, ast.Call) and call.func is method
        if method.attr in READERS and isinstance(method.ctx, ast.Load):
            return
        if is_called and method.attr in ONE:
            self.one(call, call.args)
        elif is_called and method.attr in WHOLE:
            self.many(call, call.args, call.keywords)
        else:
            self.any(method)

    def is_given(self, call, at):
        """Looks at a call that is given the environment."""
        name, keyword = called(call.func), at.parent
        foreign = name not in self.functions and self.file.bound.get(name, 0) <= 1
        if isinstance(keyword, ast.keyword):
            started = keyword.arg == "env" and name in STARTING and foreign
            # `**os.environ` hands on its pairs.
            if keyword.arg is not None and not started and self.named_by(at, self.file) is None:
                self.any(call)
        elif isinstance(call.func, ast.Name) and name in READING:
            if name in self.functions or self.file.bound.get(name, 0):
                self.any(call)
        elif name in READING_METHODS | EXECUTING and foreign:
            return
        elif name == "dict" and isinstance(call.func, ast.Attribute) and call.args[:1] == [at]:
            self.patched(call)
        elif self.named_by(at, self.file) is None:
            self.any(call)

    # ---- what names come to ----

    def texts(self, node):
        """The texts that an expression comes to; none: they do not show."""
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str | bytes) else None
        if isinstance(node, ast.IfExp):
            return both(self.texts(node.body), self.texts(node.orelse))
        if isinstance(node, ast.Name) and not self.rebinds and node.id not in self.assigned:
            binding = self.file.once(node.id)
            if isinstance(binding, ast.Assign | ast.AnnAssign):
                self.believed.add(node.id)
                constant = isinstance(binding.value, ast.Constant)
                return self.texts(binding.value) if constant else None
            if isinstance(binding, ast.For | ast.comprehension):
                return self.elements(binding, node.id)
        return None

    def elements(self, loop, name):
        """What a loop's variable comes to."""
        target, over = loop.target, loop.iter
        if isinstance(target, ast.Name):
            return self.keys(over, single=True)
        first = target.elts[0] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else None
        if not isinstance(first, ast.Name) or first.id != name:
            return None
        if isinstance(over, ast.Call) and called(over.func) == "items" and not over.args:
            return self.keys(over.func.value)
        return self.keys(over)

    def keys(self, node, single=False):
        """The keys of a mapping or of pairs; of `single`, the elements of what is looped over."""
        if isinstance(node, ast.Dict):
            given = [
                self.texts(key) if key else [] if self.is_environment(value) else self.keys(value)
                for key, value in zip(node.keys, node.values, strict=True)
            ]
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            given = [self.texts(it) if single else self.pair(it) for it in node.elts]
        elif isinstance(node, ast.Call):
            return self.keys_of_call(node, single)
        elif isinstance(node, ast.Name) and self.is_constant(node.id):
            self.believed.add(node.id)
            value = self.file.once(node.id).value
            return None if isinstance(value, ast.Name) else self.keys(value, single)
        else:
            return None
        return None if any(it is None for it in given) else [one for it in given for one in it]

    def keys_of_call(self, node, single):
        name, given = called(node.func), node.args
        if isinstance(node.func, ast.Attribute):
            return self.keys(node.func.value, single) if name == "keys" and not given else None
        if self.file.bound.get(name, 0) or name in self.functions:
            return None
        if single and name in ("list", "tuple", "set", "sorted", "reversed") and len(given) == 1:
            return self.keys(given[0], single)
        if name != "dict" or single:
            return None
        given = [self.keys(it) for it in given]
        given += [[it.arg] if it.arg else self.keys(it.value) for it in node.keywords]
        return None if any(it is None for it in given) else [one for it in given for one in it]

    def is_constant(self, name):
        """Whether it is what it was assigned, for good: only looked into, and set from."""
        if not isinstance(self.file.once(name), ast.Assign | ast.AnnAssign):
            return False
        if self.rebinds or name in self.assigned or name in self.shared:
            return False
        return all(self.only_reads(use) for use in self.file.uses.get(name, ()))

    def only_reads(self, use):
        """Whether a use of a container leaves it as it is."""
        parent = use.parent
        if isinstance(parent, ast.Attribute):
            call = parent.parent
            return parent.attr in ("keys", "items", "values", "get", "index", "count") and (
                isinstance(call, ast.Call) and call.func is parent
            )
        if isinstance(parent, ast.Call):
            if isinstance(parent.func, ast.Attribute):
                return parent.func.attr in WHOLE and self.is_environment(parent.func.value)
            name = parent.func.id if isinstance(parent.func, ast.Name) else ""
            known = name in READING and not self.file.bound.get(name, 0)
            return known and name not in self.functions
        if isinstance(parent, ast.keyword):
            return parent.arg is None
        if isinstance(parent, ast.Subscript):
            return isinstance(parent.ctx, ast.Load) and parent.value is use
        if isinstance(parent, ast.Dict):
            return use in parent.values and parent.keys[parent.values.index(use)] is None
        return isinstance(parent, ast.For | ast.comprehension | ast.Compare | ast.AugAssign)

    def pair(self, node):
        is_pair = isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2
        return self.texts(node.elts[0]) if is_pair else None


class File:
    """A source: its nodes, each with its `parent`, and how often each name is bound."""

    def __init__(self, path, tree):
        self.path, self.nodes = path, list(ast.walk(tree))
        self.functions, self.bound, self.bindings, self.uses = {}, {}, {}, {}
        # Names that are imported, or looked up in an object; those that are assigned there.
        self.shared, self.assigned, self.rebinds = set(), set(), False
        for node in self.nodes:
            for child in ast.iter_child_nodes(node):
                child.parent = node
        for node in self.nodes:
            self.note(node)

    def note(self, node):
        if isinstance(node, ast.Name):
            self.rebinds |= node.id in REBINDING
            if isinstance(node.ctx, ast.Load):
                self.uses.setdefault(node.id, []).append(node)
            else:
                self.bind(node.id, binding_of(node))
        elif isinstance(node, ast.Attribute):
            self.rebinds |= node.attr in REBINDING
            names = self.shared if isinstance(node.ctx, ast.Load) else self.assigned
            names.add(node.attr)
        elif isinstance(node, FUNCTION):
            self.functions[node.name] = node
            self.bind(node.name, node)
        elif isinstance(node, ast.ClassDef):
            self.bind(node.name, node)
        elif isinstance(node, ast.arg):
            self.bind(node.arg, node)
        elif isinstance(node, ast.alias):
            name = node.asname or node.name.split(".")[0]
            self.bind(name, node)
            self.shared.add(node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            # Bound in more than one place.
            for name in node.names * 2:
                self.bind(name, node)
        else:
            for part in ("name", "rest"):
                name = getattr(node, part, None)
                if isinstance(name, str):
                    self.bind(name, node)

    def bind(self, name, node):
        self.bound[name] = self.bound.get(name, 0) + 1
        self.bindings[name] = node

    def once(self, name):
        """The one place that binds a name; none: there is another, or none."""
        return self.bindings[name] if self.bound.get(name, 0) == 1 else None


def binding_of(name):
    """The assignment of one name, or the loop, that binds it; else where it stands."""
    parent = name.parent
    if isinstance(parent, ast.Assign):
        return parent if parent.targets == [name] else name
    if isinstance(parent, ast.AnnAssign):
        return parent if parent.value is not None else name
    if isinstance(parent, ast.Tuple) and len(parent.elts) == 2:
        name, parent = parent, parent.parent
    loops = ast.For | ast.AsyncFor | ast.comprehension
    return parent if isinstance(parent, loops) and parent.target is name else name


def both(one, other):
    return None if one is None or other is None else [*one, *other]


def passed_through(node):
    """What has the value of a node as it is, and what that stands in."""
    at, parent = node, node.parent
    while isinstance(parent, THROUGH) and getattr(parent, "test", None) is not at:
        at, parent = parent, parent.parent
    return at, parent


def walrus_of(node):
    """The names that are given a node's value on the way: `(env := os.environ)`."""
    names, at = set(), node
    while isinstance(at.parent, THROUGH) and getattr(at.parent, "test", None) is not at:
        at = at.parent
        if isinstance(at, ast.NamedExpr):
            names.add(at.target.id)
    return names


def parameter_of(arguments, default):
    """The parameter that has this default."""
    if default in arguments.defaults:
        last = [*arguments.posonlyargs, *arguments.args][-len(arguments.defaults) :]
        return last[arguments.defaults.index(default)].arg
    if default in arguments.kw_defaults:
        return arguments.kwonlyargs[arguments.kw_defaults.index(default)].arg
    return None


def called(node):
    """The last part of what a function is called by."""
    return getattr(node, "attr", getattr(node, "id", ""))


def has_word(text):
    """Whether a text has a word without which code sets nothing."""
    words = (b"environ", b"putenv", b"setenv", b"env(", b"exec", b"eval", b"run_path", b"dotenv")
    text = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return any(word in text for word in words)
