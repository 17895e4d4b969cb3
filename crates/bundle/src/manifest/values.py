"""What expressions of sources may come to, as far as it may be worked out from what stands there.

Nothing of them is run. All that a name is ever given counts, wherever that is. What cannot be
worked out is `UNKNOWN`, also in a container; the environment is `ENVIRON`.
"""

import ast
import json

from bindings import decided

# How far a value is followed, how many it may be, and how many steps there are for all of them.
DEPTH, MANY, STEPS = 40, 200, 100_000
ENVIRONS = ("environ", "environb")
SETTERS = {"putenv", "setenv", "unsetenv"}
# Of packages that read files of variables.
LOADERS = {"load_dotenv", "read_env", "read_dotenv", "load_env", "load_environ"}
ONE = {"setdefault", "pop", "__setitem__", "__delitem__"}
WHOLE = {"update", "__ior__"}
# What is given a mapping and only reads it.
READING = {"execve", "execvpe", "spawnve", "spawnvpe", "posix_spawn", "posix_spawnp"}
READING |= {"render", "model_validate", "parse_obj", "validate_python"}
READING |= {"dict", "list", "tuple", "set", "frozenset", "sorted", "len", "iter", "enumerate"}
READING |= {"zip", "any", "all", "bool", "str", "repr", "id", "type", "isinstance", "print"}
READING |= {"pprint", "pformat", "dumps", "dump", "format_map", "substitute", "safe_substitute"}
READING |= {"debug", "info", "warning", "error", "exception", "critical", "log", "hasattr"}
READING |= {"filter", "max", "min", "next", "getattr", "copy", "deepcopy", "get_exec_path"}
# What leaves a container as it is that it is given, beside these.
PURE = READING | {"OrderedDict", "join", "chain", "fromkeys", "sum", "reversed", "update", "map"}
TEXTUAL = {"upper", "lower", "strip", "lstrip", "rstrip", "title", "capitalize", "replace", "join"}
TEXTUAL |= {"split", "rsplit", "splitlines", "partition", "rpartition", "removeprefix", "encode"}
TEXTUAL |= {"removesuffix", "decode", "format", "swapcase", "casefold", "translate", "format_map"}
GROWING = {"append", "add", "insert", "appendleft", "extend", "update", "setdefault"}
HARMLESS = {"items", "keys", "values", "get", "copy", "index", "count", "pop", "sort", "reverse"}
HARMLESS |= {"remove", "discard", "clear", "popleft", "popitem", *GROWING}
# Decorators after which a function is called as it stands.
AS_IT_STANDS = {"staticmethod", "classmethod", "cache", "lru_cache", "property", "cached_property"}
AS_IT_STANDS |= {"contextmanager", "wraps"}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPE = (*FUNCTION, ast.Lambda, ast.ClassDef, ast.Module)
CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.Call, ast.ListComp, ast.SetComp, ast.DictComp)
COMPREHENSION = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


class Mark:
    """A value that is no text and no container."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


UNKNOWN, ENVIRON = Mark("?"), Mark("environ")


class Method(Mark):
    """What sets variables, not called yet."""


class Seq:
    """A list of values that each place may have; `mixed` where the places are not known."""

    def __init__(self, items, mixed=False, fixed=False):
        self.items, self.mixed, self.fixed = items, mixed, fixed


class Map:
    """Pairs: what a key may be, and what its value may be."""

    def __init__(self, items):
        self.items = items


class Values:
    """`trees`: by its path, each source; the entry file first."""

    def __init__(self, trees):
        self.left, self.later = STEPS, False
        # Of a scope and a name, or an attribute anywhere: what binds it.
        self.given, self.kept, self.busy = {}, {}, set()
        # By the name of what is called: calls; and names of functions that are not only called.
        self.calls, self.loose = {}, set()
        # What grows a container, and where one goes, by the key of its name.
        self.grows, self.uses = {}, {}
        self.functions, self.stars, self.nodes = {}, set(), []
        for path, tree in trees.items():
            tree.path, tree.parent, tree.scope = path, None, None
            self.place(tree)
        for node in self.nodes:
            self.learn(node)
        for node in self.nodes:
            self.note(node)

    def is_before(self, node):
        """Whether something may be imported after it has run."""
        return node.at_load or self.later

    # ---- where each node stands ----

    def place(self, tree):
        """Notes the parent and scope of each node that a run may come to."""
        stack = [(tree, tree)]
        while stack:
            node, scope = stack.pop()
            node.scope, node.at_load = scope, False
            self.nodes.append(node)
            inside = node if isinstance(node, SCOPE) else scope
            dead = ()
            if isinstance(node, ast.If):
                said = decided(node.test)
                dead = node.body if said is False else node.orelse if said else ()
            for name, value in ast.iter_fields(node):
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, ast.AST) and part not in dead:
                        part.parent = node
                        # What a function's head holds runs where the function stands.
                        outer = name in ("decorator_list", "bases", "keywords", "returns")
                        stack.append((part, scope if outer else inside))

    def home(self, scope, name):
        """The scope that has a name, outwards from one: as Python finds it."""
        start = scope
        while scope is not None:
            if (scope is start or not isinstance(scope, ast.ClassDef)) and (
                (id(scope), name) in self.given
            ):
                return scope
            scope = None if isinstance(scope, ast.Module) else scope.scope
        return None

    # ---- what binds a name ----

    def learn(self, node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.give(target, node.value)
                if len(node.targets) > 1 and isinstance(node.value, CONTAINERS):
                    # One container of several names.
                    self.give(target, None)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
            self.give(node.target, node.value)
            if isinstance(node.scope, ast.ClassDef):
                # Of a field, which each instance may be given another value of.
                self.given["", called_so(node.target)].append((None, (), False))
        elif isinstance(node, ast.AugAssign):
            self.give(node.target, node)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self.give(node.target, node.iter, loops=True)
        elif isinstance(node, ast.withitem) and node.optional_vars:
            self.give(node.optional_vars, None)
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            self.bind(node, node.name, None)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self.bind(node, node.rest, None)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.bind(node, node.name, None)
        elif isinstance(node, (*FUNCTION, ast.ClassDef)):
            self.functions.setdefault(node.name, []).append(node)
            self.bind(node, node.name, node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    self.stars.add(self.module_of(node))
                else:
                    self.bind(node, alias.asname or alias.name.split(".")[0], node, alias.name)
        elif isinstance(node, ast.arg):
            function = node.parent.parent
            self.given.setdefault((id(function), node.arg), []).append((node, (), False))

    def give(self, target, value, path=(), loops=False):
        if isinstance(target, ast.Name):
            self.bind(target, target.id, value, path, loops)
        elif isinstance(target, ast.Attribute):
            self.given.setdefault(("", target.attr), []).append((value, path, loops))
        elif isinstance(target, ast.Starred):
            self.give(target.value, None)
        elif isinstance(target, ast.Tuple | ast.List):
            for place, inner in enumerate(target.elts):
                self.give(inner, value, (*path, place), loops)

    def bind(self, node, name, value, path=(), loops=False):
        scope, what = node.scope, (value, path, loops)
        scopes = [scope]
        if isinstance(scope, FUNCTION):
            outer = [
                part
                for part in ast.walk(scope)
                if isinstance(part, ast.Global | ast.Nonlocal) and name in part.names
            ]
            if outer:
                scopes = []
                while not isinstance(scope, ast.Module):
                    scope = scope.scope
                    scopes.append(scope)
        for scope in scopes:
            self.given.setdefault((id(scope), name), []).append(what)
            if isinstance(scope, ast.ClassDef | ast.Module):
                self.given.setdefault(("", name), []).append(what)

    def module_of(self, node):
        while not isinstance(node, ast.Module):
            node = node.scope
        return node

    def note(self, node):
        """Notes calls and what becomes of containers."""
        if isinstance(node, ast.Call):
            self.calls.setdefault(called_so(node.func), []).append(node)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            key, parent = self.key(node), node.parent
            if not (isinstance(parent, ast.Call) and parent.func is node):
                self.loose.add(key[1])
            self.uses.setdefault(key, []).append(node)
            call = getattr(parent, "parent", None)
            if isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load):
                if parent.value is node:
                    self.grows.setdefault(key, []).append(parent)
            elif isinstance(parent, ast.Attribute) and parent.attr in GROWING:
                if isinstance(call, ast.Call) and call.func is parent:
                    self.grows.setdefault(key, []).append(call)
        if isinstance(node, ast.ImportFrom):
            self.loose.update(alias.name for alias in node.names if alias.asname)

    def key(self, node):
        if isinstance(node, ast.Attribute):
            return "", node.attr
        home = self.home(node.scope, node.id)
        return (id(home) if home else "", node.id)

    # ---- what an expression may be ----

    def values(self, node, depth=0):
        if node in self.kept:
            return self.kept[node]
        if depth > DEPTH or self.left <= 0 or node is None:
            return [UNKNOWN]
        self.left -= 1
        work_out = getattr(self, "of_" + type(node).__name__, None)
        values = work_out(node, depth + 1) if work_out else [UNKNOWN]
        # Where it comes back to itself it is unknown there, which is kept with it.
        self.kept[node] = values if len(values) <= MANY else [UNKNOWN]
        return self.kept[node]

    def of_Constant(self, node, depth):
        return [node.value]

    def of_NamedExpr(self, node, depth):
        return self.values(node.value, depth)

    def of_Await(self, node, depth):
        return self.values(node.value, depth)

    def of_IfExp(self, node, depth):
        return self.values(node.body, depth) + self.values(node.orelse, depth)

    def of_BoolOp(self, node, depth):
        return [value for part in node.values for value in self.values(part, depth)]

    def of_Name(self, node, depth):
        if loop := own_loop(node):
            return self.one_given(
                ("", node.id), loop.iter, place_in(loop.target, node.id), True, depth
            )
        home = self.home(node.scope, node.id)
        if home is not None:
            return self.held((id(home), node.id), depth)
        if self.module_of(node) in self.stars:
            if node.id in ENVIRONS:
                return [ENVIRON]
            if node.id in SETTERS | LOADERS:
                return [Method(node.id)]
            if ("", node.id) in self.given:
                return self.held(("", node.id), depth)
        return [UNKNOWN]

    def of_Attribute(self, node, depth):
        name = node.attr
        if name in ENVIRONS:
            return [ENVIRON]
        if name in SETTERS | LOADERS:
            return [Method(name)]
        if name in ONE | WHOLE and ENVIRON in self.values(node.value, depth):
            return [Method(name)]
        if ("", name) in self.given and not self.is_foreign(node.value):
            held = self.held(("", name), depth)
            got = [self.returned(one, depth) if is_property(one) else [one] for one in held]
            return [one for some in got for one in some]
        if name in ("value", "_value_"):
            return self.values(node.value, depth)
        return [UNKNOWN]

    def is_foreign(self, node):
        """Whether it is a module that is imported, as far as that shows."""
        if not isinstance(node, ast.Name):
            return False
        home = self.home(node.scope, node.id)
        bound = self.bound(home, node.id) if home is not None else ()
        imported = [value for value, *_ in bound if isinstance(value, ast.Import | ast.ImportFrom)]
        return any(not own_module(value) for value in imported)

    def held(self, key, depth):
        """What a name is given anywhere, and what its containers grow by."""
        if key in self.kept:
            return self.kept[key]
        given = self.given[key]
        if key in self.busy or depth > DEPTH or len(given) > MANY:
            return [UNKNOWN]
        self.busy.add(key)
        values = []
        for value, path, loops in given:
            values += self.one_given(key, value, path, loops, depth)
        values += self.grown(key, values, depth)
        self.busy.discard(key)
        self.kept[key] = values if len(values) <= MANY else [UNKNOWN]
        return self.kept[key]

    def one_given(self, key, value, path, loops, depth):
        if isinstance(value, ast.Import):
            return [UNKNOWN]
        if isinstance(value, ast.ImportFrom):
            return self.imported(value, path, depth)
        if isinstance(value, ast.arg):
            return self.parameter(value, depth)
        if isinstance(value, (*FUNCTION, ast.ClassDef)):
            return [value]
        if isinstance(value, ast.AugAssign):
            return self.added(key, value, depth)
        found = self.values(value, depth)
        if loops:
            found = self.elements(found)
        for place in path:
            found = self.at(found, place)
        return found

    def imported(self, node, name, depth):
        if own_module(node) and ("", name) in self.given:
            # Where that leads back here, what the others are given counts.
            return self.held(("", name), depth) if ("", name) not in self.busy else []
        if name in SETTERS | LOADERS:
            return [Method(name)]
        if name in ENVIRONS and node.module == "os":
            return [ENVIRON]
        return [UNKNOWN]

    def added(self, key, node, depth):
        """Of `name += more` and `name |= more`; of texts, what one of them makes that runs once."""
        more = self.values(node.value, depth)
        if all(isinstance(value, Seq | Map) for value in more):
            return self.mixed(more)
        plain = [it for it in self.given[key] if not isinstance(it[0], ast.AugAssign)]
        once = len(self.given[key]) == len(plain) + 1 and isinstance(node.scope, ast.Module)
        if not once or not isinstance(node.parent, ast.Module):
            return [UNKNOWN]
        before = [value for one in plain for value in self.one_given(key, *one, depth)]
        return joined([before, more], lambda left, right: left + right)

    def grown(self, key, values, depth):
        """What else is in a container: what its name adds; anything, if it goes elsewhere."""
        if not any(
            isinstance(value, Map) or (isinstance(value, Seq) and not value.fixed)
            for value in values
        ):
            return []
        uses = self.uses.get(key, ()) or ()
        grows = list(self.grows.get(key, ()))
        if isinstance(key[0], int):
            # Another module may reach it as an attribute of this one.
            other = ("", key[1])
            if other in self.given:
                uses = [*uses, *self.uses.get(other, ())]
                grows += self.grows.get(other, ())
        lists = any(isinstance(value, Seq) for value in values)
        more = []
        for node in grows:
            more += self.one_grown(node, lists, depth)
        if more:
            for value in values:
                if isinstance(value, Seq):
                    value.mixed = True
        if any(self.is_before(use) and not self.stays(use) for use in uses):
            more.append(UNKNOWN)
        return more

    def one_grown(self, node, lists, depth):
        if isinstance(node, ast.Subscript):
            value = getattr(node.parent, "value", None)
            value = self.values(value, depth) if isinstance(node.parent, ast.Assign) else [UNKNOWN]
            if lists:
                return [Seq([value], mixed=True)]
            return [Map([(self.values(node.slice, depth), value)])]
        name, arguments = node.func.attr, node.args
        if name == "update" and not lists:
            return [self.mapping(node, depth)]
        if name == "setdefault":
            value = self.values(arguments[1], depth) if len(arguments) > 1 else [None]
            return [Map([(self.values(arguments[0], depth), value)])] if arguments else [UNKNOWN]
        if not arguments:
            return [UNKNOWN]
        value = self.values(arguments[-1], depth)
        if name in ("extend", "update"):
            value = self.elements(value)
        return [Seq([value], mixed=True)]

    def stays(self, use):
        """Whether a container is only looked into, where its name stands."""
        at, parent = use, use.parent
        while isinstance(parent, ast.BoolOp | ast.UnaryOp) and isinstance(
            parent.parent, ast.BoolOp | ast.UnaryOp | ast.If | ast.While | ast.IfExp
        ):
            at, parent = parent, parent.parent
        if isinstance(parent, ast.Subscript):
            # What is in it may be changed by what is done to `name[key]`.
            above = parent.parent
            return (
                parent.value is not at
                or not isinstance(above, ast.Subscript | ast.Attribute)
                or (
                    isinstance(getattr(above, "ctx", None), ast.Load)
                    and called_so(above) not in GROWING
                )
            )
        if isinstance(parent, ast.Attribute):
            return parent.attr in HARMLESS
        if isinstance(parent, ast.keyword):
            return parent.arg is None or called_so(parent.parent.func) in PURE
        if isinstance(parent, ast.Call):
            if parent.func is at or called_so(parent.func) in PURE:
                return True
            return any(isinstance(value, Method) for value in self.values(parent.func))
        if isinstance(parent, ast.Return):
            return isinstance(at, ast.Name) and self.home(at.scope, at.id) is at.scope
        if isinstance(parent, ast.Dict):
            return at in parent.values and parent.keys[parent.values.index(at)] is None
        if isinstance(parent, ast.If | ast.While | ast.For | ast.AsyncFor | ast.comprehension):
            return True
        if isinstance(parent, ast.AugAssign):
            return parent.value is at
        return isinstance(
            parent, ast.Starred | ast.Compare | ast.FormattedValue | ast.BinOp | ast.Expr
        )

    # ---- containers ----

    def of_Tuple(self, node, depth):
        items, mixed = [], False
        for element in node.elts:
            if isinstance(element, ast.Starred):
                items.append(self.elements(self.values(element.value, depth)))
                mixed = True
            else:
                items.append(self.values(element, depth))
        return [Seq(items, mixed, fixed=isinstance(node, ast.Tuple))]

    of_List = of_Set = of_Tuple

    def of_Dict(self, node, depth):
        items = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                items.append((self.values(key, depth), self.values(value, depth)))
                continue
            items += self.pairs(self.values(value, depth))
        return [Map(items)]

    def of_ListComp(self, node, depth):
        return [Seq([self.values(node.elt, depth)], mixed=True)]

    of_SetComp = of_GeneratorExp = of_ListComp

    def of_DictComp(self, node, depth):
        return [Map([(self.values(node.key, depth), self.values(node.value, depth))])]

    def of_Subscript(self, node, depth):
        if is_text(node.slice, ENVIRONS):
            return [ENVIRON]
        found = []
        whole = self.values(node.value, depth)
        if isinstance(node.slice, ast.Slice):
            parts = (node.slice.lower, node.slice.upper, node.slice.step)
            ends = [self.values(part, depth) if part else [None] for part in parts]
            return joined([whole, *ends], lambda text, *ends: text[slice(*ends)])
        for place in self.values(node.slice, depth):
            found += self.at(whole, place)
        return found

    def elements(self, values):
        """What a loop over one of the values goes through."""
        found = []
        for value in values:
            if isinstance(value, Seq):
                found += [one for item in value.items for one in item]
            elif isinstance(value, Map):
                found += [one for keys, _ in value.items for one in keys]
            elif isinstance(value, str):
                found += value[: MANY + 1]
            else:
                found.append(UNKNOWN)
        return found if len(found) <= MANY else [UNKNOWN]

    def at(self, values, place):
        """What stands at a place of one of the values, or under a key."""
        found = []
        for value in values:
            if isinstance(value, Seq):
                if value.mixed or not isinstance(place, int):
                    found += self.elements([value]) or [UNKNOWN]
                elif -len(value.items) <= place < len(value.items):
                    found += value.items[place]
                else:
                    found.append(UNKNOWN)
            elif isinstance(value, Map):
                known = isinstance(place, str | bytes | int)
                under = [
                    one
                    for keys, ones in value.items
                    if not known or place in keys or UNKNOWN in keys
                    for one in ones
                ]
                found += under or [UNKNOWN]
            elif isinstance(value, str) and isinstance(place, int):
                found.append(value[place] if -len(value) <= place < len(value) else UNKNOWN)
            else:
                found.append(UNKNOWN)
        return found

    def keys(self, values):
        """The keys of what `update` or `|=` is given: a mapping, or pairs."""
        return [key for keys, _ in self.pairs(values) for key in keys]

    def pairs(self, values):
        pairs = []
        for value in values:
            if isinstance(value, Map):
                pairs += value.items
            elif isinstance(value, Seq):
                for pair in self.elements([value]):
                    pairs.append((self.at([pair], 0), self.at([pair], 1)))
            elif value is UNKNOWN or isinstance(value, ast.AST | Method | str):
                pairs.append(([UNKNOWN], [UNKNOWN]))
        return pairs

    def mixed(self, values):
        return [
            Seq([self.elements([value])], mixed=True) if isinstance(value, Seq) else value
            for value in values
        ]

    def mapping(self, node, depth):
        """Of `dict(...)` and `update(...)`."""
        items = []
        for argument in node.args:
            starred = isinstance(argument, ast.Starred)
            items += (
                [([UNKNOWN], [UNKNOWN])] if starred else self.pairs(self.values(argument, depth))
            )
        for keyword in node.keywords:
            value = self.values(keyword.value, depth)
            items += [([keyword.arg], value)] if keyword.arg else self.pairs(value)
        return Map(items)

    # ---- texts ----

    def of_BinOp(self, node, depth):
        left, right = self.values(node.left, depth), self.values(node.right, depth)
        if isinstance(node.op, ast.BitOr) or any(isinstance(one, Seq | Map) for one in left):
            if isinstance(node.op, ast.BitOr | ast.Add):
                # An environment is copied here.
                return [UNKNOWN if one is ENVIRON else one for one in self.mixed(left + right)]
        if isinstance(node.op, ast.Add):
            return joined([left, right], lambda left, right: left + right)
        if isinstance(node.op, ast.Mod):
            found = []
            for value in right:
                fields = value.items if isinstance(value, Seq) and not value.mixed else [[value]]
                found += joined([left, *fields], lambda text, *fields: modest(text) % fields)
            return found
        return [UNKNOWN]

    def of_JoinedStr(self, node, depth):
        parts = [self.values(part, depth) for part in node.values]
        return joined(parts, lambda *parts: "".join(map(str, parts)))

    def of_FormattedValue(self, node, depth):
        plain = node.format_spec is None and node.conversion in (-1, ord("s"))
        return self.values(node.value, depth) if plain else [UNKNOWN]

    # ---- calls ----

    def of_Call(self, node, depth):
        name, first = called_so(node.func), node.args[:1]
        if isinstance(node.func, ast.Lambda):
            return self.values(node.func.body, depth)
        if own := self.own(node.func, depth):
            return [value for function in own for value in self.returned(function, depth)]
        if name == "getattr" and len(node.args) > 1:
            if is_text(node.args[1], ENVIRONS):
                return [ENVIRON]
            if is_text(node.args[1], SETTERS | LOADERS):
                return [Method(node.args[1].value)]
            return [UNKNOWN]
        if name == "fromkeys" and first:
            return [Map([(self.elements(self.values(first[0], depth)), [None])])]
        if isinstance(node.func, ast.Attribute):
            base = self.values(node.func.value, depth)
            if any(isinstance(value, str | bytes) for value in base):
                return self.changed(base, node, depth)
            if any(isinstance(value, Seq | Map) for value in base):
                return self.of_container(base, node, depth)
        if name in ("dict", "OrderedDict", "ChainMap"):
            # The environment in a copy is no more the environment.
            return [self.mapping(node, depth)]
        arguments = [self.values(argument, depth) for argument in node.args]
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return [UNKNOWN]
        return self.of_builtin(name, arguments)

    def of_builtin(self, name, arguments):
        first = arguments[0] if arguments else []
        if name in ("sorted", "list", "tuple", "set", "frozenset", "reversed", "iter", "chain"):
            return [Seq([self.elements(argument) for argument in arguments], mixed=True)]
        if name in ("next", "min", "max") and len(arguments) == 1:
            return self.elements(first)
        if name == "enumerate" and arguments:
            return [Seq([[Seq([[UNKNOWN], self.elements(first)])]], mixed=True)]
        if name == "zip":
            columns = [self.elements(argument) for argument in arguments]
            return [Seq([[Seq(columns)]], mixed=True)]
        if name in ("str", "fsencode", "fsdecode", "intern") and len(arguments) == 1:
            return [value if isinstance(value, str | bytes) else UNKNOWN for value in first]
        if name in ("copy", "deepcopy") and arguments:
            return first
        if name == "loads" and arguments:
            return joined([first], lambda text: json.loads(text))
        return [UNKNOWN]

    def changed(self, base, node, depth):
        """What a method of a text makes."""
        name = node.func.attr
        if name not in TEXTUAL or any(keyword.arg is None for keyword in node.keywords):
            return [UNKNOWN]
        if name == "join":
            parts = self.values(node.args[0], depth) if node.args else []
            found = []
            for value in parts:
                if not isinstance(value, Seq) or value.mixed:
                    return [UNKNOWN]
                found += joined([base, *value.items], lambda text, *parts: text.join(parts))
            return found
        arguments = [self.values(argument, depth) for argument in node.args]
        named = [self.values(keyword.value, depth) for keyword in node.keywords]
        keywords = [keyword.arg for keyword in node.keywords]

        def change(text, *given):
            if name in ("format", "format_map"):
                modest(text)
            plain, rest = given[: len(arguments)], given[len(arguments) :]
            return getattr(text, name)(*plain, **dict(zip(keywords, rest, strict=True)))

        return joined([base, *arguments, *named], change)

    def of_container(self, base, node, depth):
        name = node.func.attr
        if name == "items":
            return [Seq([[Seq([keys, values])] for keys, values in self.pairs(base)], mixed=True)]
        if name == "keys":
            return [Seq([self.keys(base)], mixed=True)]
        if name == "values":
            return [Seq([values for _, values in self.pairs(base)], mixed=True)]
        if name == "copy":
            return base
        if name in ("get", "pop", "setdefault") and node.args:
            more = self.values(node.args[1], depth) if len(node.args) > 1 else []
            found = [self.at(base, place) for place in self.values(node.args[0], depth)]
            return [one for some in found for one in some] + more
        if name in ("pop", "popleft"):
            return self.elements(base)
        return [UNKNOWN]

    def own(self, called, depth=0):
        """The functions of the sources that are called, if it is only these."""
        if not isinstance(called, ast.Name | ast.Attribute):
            return []
        if isinstance(called, ast.Attribute) and (
            called.attr not in self.functions and ("", called.attr) not in self.given
        ):
            return []
        values = self.values(called, depth + 1)
        own = (*FUNCTION, ast.ClassDef, ast.Lambda)
        return values if values and all(isinstance(value, own) for value in values) else []

    def of_Lambda(self, node, depth):
        return [node]

    def returned(self, function, depth):
        if isinstance(function, ast.Lambda):
            return self.values(function.body, depth)
        if not isinstance(function, FUNCTION) or not stands(function):
            return [UNKNOWN]
        found, yielded = [], []
        for node in self.nodes_of(function):
            if isinstance(node, ast.Return):
                found += self.values(node.value, depth) if node.value else [None]
            elif isinstance(node, ast.Yield):
                yielded += self.values(node.value, depth) if node.value else [None]
            elif isinstance(node, ast.YieldFrom):
                yielded += self.elements(self.values(node.value, depth))
        return [Seq([yielded], mixed=True)] if yielded else found or [None]

    def nodes_of(self, function):
        stack = list(function.body)
        while stack:
            node = stack.pop()
            # What has no parent is in a branch that is never taken.
            if hasattr(node, "parent"):
                yield node
                if not isinstance(node, SCOPE):
                    stack.extend(ast.iter_child_nodes(node))

    def parameter(self, node, depth):
        """What a parameter is given where its function is called."""
        takes, function = node.parent, node.parent.parent
        name, plain = self.called_as(function)
        if not plain:
            return [UNKNOWN]
        named = [*takes.posonlyargs, *takes.args]
        method = isinstance(function, FUNCTION) and isinstance(function.parent, ast.ClassDef)
        bound = method and not any(
            called_so(one) == "staticmethod" for one in function.decorator_list
        )
        if bound and named and named[0] is node:
            return [UNKNOWN]
        calls = name if isinstance(name, list) else self.calls.get(name, ())
        if not calls or len(calls) > MANY:
            return [UNKNOWN]
        found = self.default(takes, named, node, depth)
        for call in calls:
            shift = (
                1 if bound and (isinstance(call.func, ast.Attribute) or is_init(function)) else 0
            )
            given = self.argument(call, takes, named[shift:], node, depth)
            found += [one for one in given if one is not UNKNOWN or self.is_before(call)]
        return found

    def called_as(self, function):
        """By which name a function is called, or by which calls; and whether it is only called."""
        if isinstance(function, ast.Lambda):
            parent = function.parent
            if isinstance(parent, ast.Call) and parent.func is function:
                return [parent], True
            targets = parent.targets if isinstance(parent, ast.Assign) else []
            if len(targets) == 1 and isinstance(targets[0], ast.Name):
                return targets[0].id, targets[0].id not in self.loose
            return "", False
        if is_init(function):
            return function.parent.name, function.parent.name not in self.loose
        return function.name, stands(function) and function.name not in self.loose

    def default(self, takes, named, node, depth):
        last = named[len(named) - len(takes.defaults) :]
        pairs = [
            *zip(last, takes.defaults, strict=True),
            *zip(takes.kwonlyargs, takes.kw_defaults, strict=True),
        ]
        return [
            one
            for argument, value in pairs
            if argument is node and value
            for one in self.values(value, depth)
        ]

    def argument(self, call, takes, named, node, depth):
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        doubled = any(keyword.arg is None for keyword in call.keywords)
        if takes.vararg is node:
            rest = call.args[len(named) :] if not starred else []
            items = [self.values(argument, depth) for argument in rest]
            return [Seq(items or [[UNKNOWN]] if starred else items, fixed=True)]
        known = {argument.arg for argument in (*named, *takes.kwonlyargs)}
        if takes.kwarg is node:
            items = []
            for keyword in call.keywords:
                value = self.values(keyword.value, depth)
                if keyword.arg is None:
                    items += self.pairs(value)
                elif keyword.arg not in known:
                    items.append(([keyword.arg], value))
            return [Map(items)]
        for keyword in call.keywords:
            if keyword.arg == node.arg:
                return self.values(keyword.value, depth)
        found = []
        if node in named:
            place = named.index(node)
            before = call.args[: place + 1]
            at = next((n for n, one in enumerate(before) if isinstance(one, ast.Starred)), None)
            if at is not None:
                found = self.at(self.values(before[at].value, depth), place - at)
            elif place < len(call.args):
                found = self.values(call.args[place], depth)
        if doubled and not found:
            found = [UNKNOWN]
        return found


def own_module(node):
    """Whether what is imported may be a source of the function's own: `files.py` says so."""
    return getattr(node, "own", False)


def stands(function):
    """Whether a function is called as it stands, and not as a decorator makes it."""
    names = [called_so(getattr(one, "func", one)) for one in function.decorator_list]
    return all(name in AS_IT_STANDS for name in names)


def is_init(function):
    return getattr(function, "name", "") in ("__init__", "__new__") and isinstance(
        function.parent, ast.ClassDef
    )


def own_loop(node):
    """The loop or comprehension around a name that alone gives it what it is there."""
    at = node
    while not isinstance(at.parent, SCOPE):
        at, above = at.parent, at
        loops = [at] if isinstance(at, ast.For) and above in at.body else ()
        if isinstance(at, COMPREHENSION) and not isinstance(above, ast.comprehension):
            loops = at.generators
        for loop in loops:
            if place_in(loop.target, node.id) is not None:
                return loop if stores(at).count(node.id) == 1 else None
    return None


def stores(node):
    """The names that a loop binds, each as often as it does."""
    if not hasattr(node, "stores"):
        names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
        node.stores = [part.id for part in names if isinstance(part.ctx, ast.Store)]
    return node.stores


def place_in(target, name):
    """The places in each element of a loop that give a name; none: it does not."""
    if isinstance(target, ast.Name) and target.id == name:
        return ()
    if isinstance(target, ast.Tuple | ast.List):
        if any(isinstance(element, ast.Starred) for element in target.elts):
            return None
        for place, element in enumerate(target.elts):
            inner = place_in(element, name)
            if inner is not None:
                return (place, *inner)
    return None


def is_property(value):
    named = [called_so(one) for one in getattr(value, "decorator_list", ())]
    return any(name in ("property", "cached_property") for name in named)


def words(node):
    """The names and short texts in an expression."""
    if hasattr(node, "words"):
        return node.words
    found = node.words = set()
    for part in ast.walk(node):
        for name in ("id", "attr", "name", "value"):
            word = getattr(part, name, None)
            if isinstance(word, str) and len(word) <= MANY:
                found.add(word)
    return found


def joined(parts, change):
    """What may come of known texts; any other part leaves it open."""
    rows = [[]]
    for part in parts:
        rows = [[*row, one] for row in rows for one in part]
        if len(rows) > MANY:
            return [UNKNOWN]
    found = []
    for row in rows:
        if any(isinstance(one, Mark | Seq | Map | ast.AST) for one in row):
            found.append(UNKNOWN)
            continue
        try:
            found.append(known(change(*row)))
        except OverflowError:
            found.append(UNKNOWN)
        except Exception:
            # So it is when it runs: nothing is set then.
            continue
    return found


def known(value):
    """A value of Python as one of these."""
    if isinstance(value, dict | list | tuple) and len(value) > MANY:
        return UNKNOWN
    if isinstance(value, dict):
        return Map([([known(key)], [known(one)]) for key, one in value.items()])
    if isinstance(value, list | tuple):
        return Seq([[known(one)] for one in value], fixed=True)
    return value


def modest(text):
    """A format that makes no text much longer."""
    if any(len(word) > 2 for word in "".join(c if c.isdigit() else " " for c in text).split()):
        raise OverflowError(text)
    return text


def called_so(node):
    """The name of a variable or an attribute; empty for what is neither."""
    if isinstance(node, ast.Name | ast.Attribute):
        return getattr(node, "attr", getattr(node, "id", ""))
    return ""


def is_text(node, texts):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in texts
