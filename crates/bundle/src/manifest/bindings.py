"""What a module's names may be bound to when it has run, as far as its source tells.

Nothing of it is run. All bindings of a name that a run may reach count: one that each run passes
takes the place of those before it.
"""

import ast
import sys

# Ways to bind a name that no source shows: code that is made up, and the module as an object.
DYNAMIC = {"globals", "locals", "exec", "eval", "f_globals", "runctx", "runcode", "runsource"}
DYNAMIC |= {"modules", "import_module", "__import__"}

# Of one name, how many bindings are told.
MANY = 20

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


class Bindings:
    """`found`: by the name, what it may be bound to: least and most arguments (null: any number),
    line, required keywords, the line of its first `yield`, and whether it is bound by the way, as
    a loop's variable is. Least is null where only the name is known.

    `open`: whether names may be bound that do not show, or to what does not.
    """

    def __init__(self, tree):
        self.found = {}
        self.open = False
        self.block(tree.body, True)
        for node in ast.walk(tree):
            self.elsewhere(node)
        # It answers for names that are not bound.
        self.open |= "__getattr__" in self.found

    def bind(self, name, what, always):
        if always:
            self.found[name] = []
        known = self.found.setdefault(name, [])
        if what not in known and len(known) < MANY:
            known.append(what)

    def block(self, body, always):
        for node in body:
            self.statement(node, always)

    def statement(self, node, always):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.bind(node.name, (*takes(node), False), always)
        elif isinstance(node, ast.ClassDef):
            self.bind(node.name, named(line), always)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                self.open |= alias.name == "*"
                name = alias.asname or alias.name.split(".")[0]
                self.bind(name, named(line), always)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            if not node.value:
                return
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    it = takes(node.value) if isinstance(node.value, ast.Lambda) else None
                    self.bind(target.id, (*it, False) if it else named(line), always)
                else:
                    self.by_the_way(target, always)
            self.by_the_way(node.value, False)
        elif isinstance(node, ast.If):
            self.by_the_way(node.test, False)
            said = decided(node.test)
            if said is not False:
                self.block(node.body, always and said is True)
            if said is not True:
                self.block(node.orelse, always and said is False)
        else:
            for name, value in ast.iter_fields(node):
                for part in value if isinstance(value, list) else [value]:
                    if name not in BLOCKS:
                        self.by_the_way(part, False)
                    elif isinstance(part, ast.stmt):
                        self.statement(part, False)
                    elif isinstance(part, ast.AST):
                        # A branch of `except` or `case`.
                        self.by_the_way(getattr(part, "pattern", None), False)
                        self.block(part.body, False)

    def by_the_way(self, node, always):
        """The names that a part of a statement binds: a loop's, a walrus', a pattern's."""
        for part in ast.walk(node) if isinstance(node, ast.AST) else ():
            name = None
            if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                name = part.id
            elif isinstance(part, ast.MatchAs | ast.MatchStar):
                name = part.name
            elif isinstance(part, ast.MatchMapping):
                name = part.rest
            if name:
                self.bind(name, named(getattr(part, "lineno", 0), True), always)

    def elsewhere(self, node):
        """What binds a module's names from a function, or from anywhere."""
        if isinstance(node, ast.Global):
            for name in node.names:
                self.bind(name, named(node.lineno), False)
        elif isinstance(node, ast.Name | ast.Attribute | ast.alias):
            names = [getattr(node, part, "") for part in ("id", "attr", "name")]
            self.open |= not DYNAMIC.isdisjoint(names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "vars":
            self.open |= not node.args


def named(line, by_the_way=False):
    return None, None, line, 0, 0, by_the_way


def takes(function):
    """Least and most arguments, line, required keywords, and where it first yields (0: nowhere)."""
    given = function.args
    most = len(given.posonlyargs) + len(given.args)
    least = most - len(given.defaults)
    # Keyword-only arguments without a default can never be given.
    required = sum(default is None for default in given.kw_defaults)
    most = None if given.vararg else most
    yields = first_yield(function)
    if getattr(function, "decorator_list", ()):
        # What a decorator makes of a function that could not be called is known only when it runs.
        fits = least <= 2 and (most is None or most >= 1) and not required
        if yields or not fits:
            return None, None, function.lineno, 0, 0
    return least, most, function.lineno, required, yields


def first_yield(function):
    """The line of its own first `yield`, not of a function within it; 0: it is no generator."""
    body = function.body if isinstance(function.body, list) else [function.body]
    inside = list(body)
    lines = []
    while inside:
        node = inside.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            lines.append(node.lineno)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            inside.extend(ast.iter_child_nodes(node))
    return min(lines, default=0)


def decided(test):
    """What a condition comes to when a worker imports the module; None: only a run tells."""
    if isinstance(test, ast.Name | ast.Attribute):
        named = getattr(test, "id", getattr(test, "attr", ""))
        return False if named == "TYPE_CHECKING" else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        sides = [test.left, *test.comparators]
        names = [side.id for side in sides if isinstance(side, ast.Name)]
        texts = [side.value for side in sides if isinstance(side, ast.Constant)]
        if names == ["__name__"] and texts == ["__main__"]:
            return {ast.Eq: False, ast.NotEq: True}.get(type(test.ops[0]))
    return of_python(test)


# Of what a condition may be made that this interpreter decides as the function's own will.
PLAIN = (ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.Constant)
PLAIN += (ast.Tuple, ast.Subscript, ast.Slice, ast.expr_context)


def of_python(test):
    """Of `sys.version_info >= (3, 12)` and `sys.platform == "linux"`."""
    for node in ast.walk(test):
        of_sys = isinstance(node, ast.Attribute) and node.attr in ("version_info", "platform")
        part = isinstance(node, ast.Attribute) and node.attr in ("major", "minor")
        if not (isinstance(node, PLAIN) or of_sys or part):
            if not (isinstance(node, ast.Name) and node.id == "sys"):
                return None
    try:
        return bool(eval(compile(ast.Expression(test), "", "eval"), {"sys": sys}))
    except Exception:
        return None
