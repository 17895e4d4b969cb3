"""Which environment variables a source sets, as far as their names stand in it.

Nothing of it is run. A name stands there as a text, or as a variable (a loop's, a parameter) that
is given texts: all that it is ever given count, wherever that is. What is deleted counts as set.
"""

import ast

# How far a name is followed, and how many texts it may be.
DEPTH, MANY = 12, 200

SETTERS = {"putenv", "setenv", "unsetenv"}
METHODS = {"setdefault", "pop", "__setitem__", "__delitem__"}
WHOLE = {"update", "__ior__"}
ENVIRONS = ("environ", "environb")


class Variables:
    """`names`: those that a tree sets, in the order in which they stand there."""

    def __init__(self, tree):
        self.environs = set(ENVIRONS)
        self.setters = set(SETTERS)
        # What each variable of the source is given: expressions, or what a loop goes through, with
        # the places in each of its elements.
        self.given = {}
        # By the name of a parameter, the functions that take one, and all calls by the name of what
        # they call: a parameter is given what stands in the calls.
        self.takers, self.calls = {}, {}
        self.names = {}
        self.left = 100_000
        for node in ast.walk(tree):
            self.learn(node)
        for node in ast.walk(tree):
            self.look(node)

    # ---- what is called how ----

    def learn(self, node):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "posix"):
            for alias in node.names:
                if alias.name in ENVIRONS:
                    self.environs.add(alias.asname or alias.name)
                elif alias.name in SETTERS:
                    self.setters.add(alias.asname or alias.name)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self.give(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
            self.give(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self.give(node.target, node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self.give(node.target, node.iter, loops=True)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.parameters(node.name, node.args)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            self.calls.setdefault(node.func.id, []).append(node)

    def parameters(self, function, takes):
        named = [*takes.posonlyargs, *takes.args]
        for argument in (*named, *takes.kwonlyargs, *filter(None, [takes.vararg, takes.kwarg])):
            self.takers.setdefault(argument.arg, []).append((function, takes))
        last = named[len(named) - len(takes.defaults) :]
        for argument, value in [
            *zip(last, takes.defaults, strict=True),
            *zip(takes.kwonlyargs, takes.kw_defaults, strict=True),
        ]:
            if value:
                self.add(argument.arg, value, (), False)

    def give(self, target, value, path=(), loops=False):
        if isinstance(target, ast.Name):
            if is_named(value, self.environs) and not path and not loops:
                self.environs.add(target.id)
            self.add(target.id, value, path, loops)
        elif isinstance(target, ast.Attribute):
            self.add(target.attr, value, path, loops)
        elif isinstance(target, ast.Starred):
            self.give(target.value, value, path, loops)
        elif isinstance(target, ast.Tuple | ast.List):
            for place, inner in enumerate(target.elts):
                self.give(inner, value, (*path, place), loops)

    def add(self, name, value, path, loops):
        self.given.setdefault(name, []).append((value, path, loops))

    # ---- what sets something ----

    def look(self, node):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            if self.is_environ(node.value):
                self.found(self.texts(node.slice))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if self.is_environ(target) and isinstance(target, ast.Attribute):
                    self.found(self.keys(node.value))
        elif isinstance(node, ast.AugAssign):
            if self.is_environ(node.target):
                self.found(self.keys(node.value))
        elif isinstance(node, ast.Call):
            self.look_at_call(node)

    def look_at_call(self, node):
        self.look_at_called(node, node.func)
        if isinstance(node.func, ast.Name):
            # Of `put = os.environ.setdefault`.
            for value, path, _ in self.given.get(node.func.id, ())[:MANY]:
                if isinstance(value, ast.Attribute) and not path:
                    self.look_at_called(node, value)

    def look_at_called(self, node, called):
        name, first = getattr(called, "attr", getattr(called, "id", "")), node.args[:1]
        if name == "map" and isinstance(called, ast.Name):
            for keys in node.args[1:2]:
                each = list(self.elements(keys, 0))[:MANY]
                for key in each:
                    self.look_at_called(
                        ast.Call(func=node.args[0], args=[key], keywords=[]), node.args[0]
                    )
            return
        if (
            name == "dict"
            and first
            and (self.is_environ(first[0]) or is_text(first[0], ("os.environ",)))
        ):
            # `unittest.mock.patch.dict`.
            self.found(text for argument in node.args[1:2] for text in self.keys(argument))
            self.found(self.keywords(node))
            return
        if name in (SETTERS if isinstance(called, ast.Attribute) else self.setters):
            self.found(text for argument in first for text in self.texts(argument))
        elif name in ("setitem", "delitem") and first and self.is_environ(first[0]):
            self.found(text for argument in node.args[1:2] for text in self.texts(argument))
        elif self.is_environ(getattr(called, "value", None)):
            if name in METHODS:
                self.found(text for argument in first for text in self.texts(argument))
                self.found(self.keyword(node, "key"))
            elif name in WHOLE:
                self.found(text for argument in first for text in self.keys(argument))
                self.found(self.keywords(node))

    def found(self, texts):
        for text in texts:
            self.names.setdefault(text)

    def keyword(self, node, name):
        for keyword in node.keywords:
            if keyword.arg == name:
                yield from self.texts(keyword.value)

    def keywords(self, node, depth=0):
        for keyword in node.keywords:
            if keyword.arg:
                yield keyword.arg
            else:
                yield from self.keys(keyword.value, depth + 1)

    def is_environ(self, node):
        if isinstance(node, ast.NamedExpr):
            node = node.value
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            return any(is_text(argument, ENVIRONS) for argument in node.args[1:2])
        if isinstance(node, ast.Subscript):
            return is_text(node.slice, ENVIRONS)
        if isinstance(node, ast.Attribute):
            return node.attr in ENVIRONS
        return isinstance(node, ast.Name) and node.id in self.environs

    # ---- which texts an expression may be ----

    def texts(self, node, depth=0):
        """Texts that an expression may be, as far as they stand in the source."""
        if depth > DEPTH or not self.spend():
            return
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node.value
            elif isinstance(node.value, bytes):
                yield node.value.decode("utf-8", "surrogateescape")
        elif name := called_so(node):
            for value in self.values(name, depth):
                yield from self.texts(value, depth + 1)
        elif isinstance(node, ast.NamedExpr):
            yield from self.texts(node.value, depth + 1)
        elif isinstance(node, ast.IfExp):
            yield from self.texts(node.body, depth + 1)
            yield from self.texts(node.orelse, depth + 1)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.texts(value, depth + 1)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from self.joined([node.left, node.right], depth)
        elif isinstance(node, ast.JoinedStr):
            yield from self.joined(node.values, depth)
        elif isinstance(node, ast.FormattedValue) and node.format_spec is None:
            yield from self.texts(node.value, depth + 1)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            for value in self.parts(node.value, node.slice.value, depth + 1):
                yield from self.texts(value, depth + 1)
        elif isinstance(node, ast.Call):
            yield from self.changed(node, depth)

    def joined(self, parts, depth):
        texts = [""]
        for part in parts:
            more = list(self.texts(part, depth + 1))
            texts = [text + end for text in texts for end in more][:MANY]
        yield from texts

    def changed(self, node, depth):
        """Of `"a".upper()`, `str("a")`, `os.fsencode("a")`, `"a".encode()` and their kin."""
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in ("upper", "lower", "strip", "encode", "decode", "capitalize"):
            for text in self.texts(getattr(node.func, "value", None), depth + 1):
                yield getattr(text, name)() if name not in ("encode", "decode") else text
        elif name in ("str", "fsencode", "fsdecode", "intern"):
            for argument in node.args[:1]:
                yield from self.texts(argument, depth + 1)

    def values(self, name, depth):
        """Expressions that a variable is given somewhere."""
        for value, path, loops in self.given.get(name, ())[:MANY]:
            found = self.elements(value, depth + 1) if loops else [value]
            for place in path:
                found = [part for each in found for part in self.parts(each, place, depth + 1)]
            yield from found
        for function, takes in self.takers.get(name, ())[:MANY]:
            yield from self.arguments(function, takes, name)

    def arguments(self, function, takes, name):
        """What a function's parameter of this name is given where it is called."""
        named = [argument.arg for argument in (*takes.posonlyargs, *takes.args)]
        if name in named or name in [argument.arg for argument in takes.kwonlyargs]:
            for call in self.calls.get(function, ())[:MANY]:
                place = named.index(name) if name in named else len(call.args)
                yield from call.args[place : place + 1]
                yield from (k.value for k in call.keywords if k.arg == name)
        elif takes.vararg and takes.vararg.arg == name:
            for call in self.calls.get(function, ())[:MANY]:
                yield ast.Tuple(elts=call.args[len(named) :])
        elif takes.kwarg and takes.kwarg.arg == name:
            for call in self.calls.get(function, ())[:MANY]:
                keys = [ast.Constant(keyword.arg) for keyword in call.keywords if keyword.arg]
                yield ast.Dict(keys=keys, values=keys)

    def parts(self, node, place, depth):
        """What stands at a place of a list, or under a key."""
        if depth > DEPTH or not self.spend():
            return
        if isinstance(node, ast.Tuple | ast.List):
            if isinstance(place, int) and -len(node.elts) <= place < len(node.elts):
                yield node.elts[place]
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == place:
                    yield value
        elif name := called_so(node):
            for value in self.values(name, depth + 1):
                yield from self.parts(value, place, depth + 1)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
            "split",
            "partition",
        ):
            for text in self.texts(node.func.value, depth + 1):
                pieces = divided(text, node)
                if isinstance(place, int) and place < len(pieces):
                    yield ast.Constant(pieces[place])
        elif isinstance(node, ast.Call):
            yield from list(self.elements(node, depth + 1))[:MANY]

    def elements(self, node, depth):
        """What a loop over an expression goes through."""
        if depth > DEPTH or not self.spend():
            return
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            for element in node.elts:
                if isinstance(element, ast.Starred):
                    yield from self.elements(element.value, depth + 1)
                else:
                    yield element
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                yield from [key] if key else self.elements(value, depth + 1)
        elif name := called_so(node):
            for value in self.values(name, depth + 1):
                yield from self.elements(value, depth + 1)
        elif is_text(node):
            yield from map(ast.Constant, node.value[:MANY])
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            yield node.elt
        elif isinstance(node, ast.DictComp):
            yield node.key
        elif isinstance(node, ast.BinOp):
            yield from self.elements(node.left, depth + 1)
            yield from self.elements(node.right, depth + 1)
        elif isinstance(node, ast.Call):
            yield from self.called(node, depth)

    def called(self, node, depth):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        of = getattr(node.func, "value", None)
        if name == "items":
            for pair in self.pairs(of, depth + 1):
                yield ast.Tuple(elts=list(pair))
        elif name in ("keys", "copy"):
            yield from self.elements(of, depth + 1)
        elif name in ("split", "splitlines"):
            for text in self.texts(of, depth + 1):
                yield from map(ast.Constant, divided(text, node)[:MANY])
        elif name == "dict":
            yield from map(ast.Constant, self.keys(node, depth + 1))
        elif name == "zip":
            columns = [list(self.elements(argument, depth + 1))[:MANY] for argument in node.args]
            for row in zip(*columns, strict=False):
                yield ast.Tuple(elts=list(row))
        elif name == "enumerate" and node.args:
            for element in self.elements(node.args[0], depth + 1):
                yield ast.Tuple(elts=[ast.Constant(None), element])
        elif name in ("sorted", "list", "tuple", "set", "frozenset", "reversed", "iter", "chain"):
            for argument in node.args:
                yield from self.elements(argument, depth + 1)

    def pairs(self, node, depth):
        """What `items` of a mapping goes through."""
        if isinstance(node, ast.Dict):
            both = zip(node.keys, node.values, strict=True)
            yield from ((key, value) for key, value in both if key)
        elif (name := called_so(node)) and depth <= DEPTH and self.spend():
            for value in self.values(name, depth + 1):
                yield from self.pairs(value, depth + 1)
        nothing = ast.Constant(None)
        yield from ((ast.Constant(key), nothing) for key in self.keys(node, depth + 1))

    def keys(self, node, depth=0):
        """The keys of what `update` or `|=` is given: a mapping, or pairs."""
        if depth > DEPTH or not self.spend():
            return
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                yield from self.texts(key, depth + 1) if key else self.keys(value, depth + 1)
        elif isinstance(node, ast.DictComp):
            yield from self.texts(node.key, depth + 1)
        elif name := called_so(node):
            for value in self.values(name, depth + 1):
                yield from self.keys(value, depth + 1)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            for value in self.parts(node.value, node.slice.value, depth + 1):
                yield from self.keys(value, depth + 1)
        elif is_get(node):
            for value in self.parts(node.func.value, node.args[0].value, depth + 1):
                yield from self.keys(value, depth + 1)
        elif isinstance(node, ast.NamedExpr):
            yield from self.keys(node.value, depth + 1)
        elif isinstance(node, ast.IfExp):
            yield from self.keys(node.body, depth + 1)
            yield from self.keys(node.orelse, depth + 1)
        elif isinstance(node, ast.BinOp):
            yield from self.keys(node.left, depth + 1)
            yield from self.keys(node.right, depth + 1)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict":
            yield from (key for argument in node.args for key in self.keys(argument, depth + 1))
            yield from self.keywords(node, depth + 1)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "copy":
            yield from self.keys(node.func.value, depth + 1)
        else:
            for pair in self.elements(node, depth + 1):
                for key in self.parts(pair, 0, depth + 1):
                    yield from self.texts(key, depth + 1)

    def spend(self):
        """Whether there is patience left: a source may be made to have none."""
        self.left -= 1
        return self.left > 0


def called_so(node):
    """The name of a variable or an attribute; empty for what is neither."""
    if isinstance(node, ast.Name | ast.Attribute):
        return getattr(node, "attr", getattr(node, "id", ""))
    return ""


def divided(text, call):
    """What `split`, `partition` or `splitlines` makes of a text, as far as that is known."""
    separators = [argument.value for argument in call.args[:1] if is_text(argument)]
    if call.args and not any(separators):
        return []
    return list(getattr(text, call.func.attr)(*separators))


def is_get(node):
    """Whether it is `mapping.get("key")`."""
    named = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get"
    return named and bool(node.args) and isinstance(node.args[0], ast.Constant)


def is_named(node, names):
    return getattr(node, "attr", getattr(node, "id", None)) in names


def is_text(node, texts=None):
    value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and (texts is None or value in texts)
