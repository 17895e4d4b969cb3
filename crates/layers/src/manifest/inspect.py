"""inspect.py FILE NAME...: prints as JSON the functions that a source defines, or its syntax error;
and the environment variables that it sets, as far as their names stand there. Beside them the
modules that Python itself has.

Of functions only those at its top level count: the last one of each NAME, and a few others for an
error to tell, however many there are. Nothing of it is run. What takes more memory, or calls, than
there are says so.
"""

import ast
import json
import sys
import warnings

warnings.simplefilter("ignore")

# Of the other functions, how many are told, and how much of their names.
TOLD, NAME = 20, 100

# Of the variables, how many are told. More than an import cache tells apart.
VARIABLES = 100


def functions(body):
    """Each name with the least and most arguments (null: any number), line, required keywords,
    and the line of its first `yield`.

    Least is null where only the name is known.
    """
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, *takes(node)
        elif isinstance(node, ast.ClassDef):
            continue
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield (alias.asname or alias.name.split(".")[0]), None, None, node.lineno, 0, 0
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and isinstance(node.value, ast.Lambda):
                    yield target.id, *takes(node.value)
                elif isinstance(target, ast.Name):
                    yield target.id, None, None, node.lineno, 0, 0
        elif isinstance(node, ast.If | ast.With):
            yield from functions(node.body)
            yield from functions(getattr(node, "orelse", []))
        elif isinstance(node, ast.Try):
            for part in (node.body, node.orelse, node.finalbody, *(h.body for h in node.handlers)):
                yield from functions(part)


def takes(function):
    """Least and most arguments, line, required keywords, and where it first yields (0: nowhere)."""
    given = function.args
    most = len(given.posonlyargs) + len(given.args)
    least = most - len(given.defaults)
    # Keyword-only arguments without a default can never be given.
    required = sum(default is None for default in given.kw_defaults)
    most = None if given.vararg else most
    # What a decorator makes of a generator is known only when it runs.
    yields = 0 if getattr(function, "decorator_list", ()) else first_yield(function)
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


def main():
    with open(sys.argv[1], "rb") as file:
        source = file.read()
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        text = (error.text or "").strip("\n")[:200]
        message = f"{type(error).__name__}: {error.msg}"[:500]
        return {"error": {"line": error.lineno or 0, "message": message, "text": text}}
    except ValueError as error:
        message = f"{type(error).__name__}: {error}"[:500]
        return {"error": {"line": 0, "message": message, "text": ""}}
    wanted, others, more = {}, {}, 0
    for name, *rest in functions(tree.body):
        if name in sys.argv[2:]:
            wanted[name] = (name, *rest)
        elif rest[0] is None or name[:NAME] in others:
            continue
        elif len(others) < TOLD:
            others[name[:NAME]] = (name[:NAME], *rest)
        else:
            more += 1
    names = ("name", "least", "most", "line", "required", "yields")
    told = [dict(zip(names, found, strict=True)) for found in (*wanted.values(), *others.values())]
    standard = sorted(sys.stdlib_module_names)
    # `variables.py` stands before this in what is run. Without these words it would find nothing.
    sets_some = any(word in source for word in (b"environ", b"putenv", b"setenv"))
    names = Variables(tree).names if sets_some else ()  # noqa: F821
    sets = [name for name in names if 0 < len(name) <= NAME][:VARIABLES]
    return {"functions": told, "more": more, "sets": sets, "standard": standard}


try:
    answer = main()
except (MemoryError, RecursionError):
    answer = {"too_much": True}
print(json.dumps(answer))
