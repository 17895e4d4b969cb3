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
    """Each name with the least and most arguments (null: any number), line, required keywords.

    Least is null where only the name is known.
    """
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, *takes(node)
        elif isinstance(node, ast.ClassDef):
            continue
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield (alias.asname or alias.name.split(".")[0]), None, None, node.lineno, 0
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and isinstance(node.value, ast.Lambda):
                    yield target.id, *takes(node.value)
                elif isinstance(target, ast.Name):
                    yield target.id, None, None, node.lineno, 0
        elif isinstance(node, ast.If | ast.With):
            yield from functions(node.body)
            yield from functions(getattr(node, "orelse", []))
        elif isinstance(node, ast.Try):
            for part in (node.body, node.orelse, node.finalbody, *(h.body for h in node.handlers)):
                yield from functions(part)


def takes(function):
    """Least and most arguments, line, required keywords."""
    given = function.args
    most = len(given.posonlyargs) + len(given.args)
    least = most - len(given.defaults)
    # Keyword-only arguments without a default can never be given.
    required = sum(default is None for default in given.kw_defaults)
    return least, None if given.vararg else most, function.lineno, required


def variables(tree):
    """Names that are set in `os.environ`, wherever in the source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Subscript) and is_environ(target.value):
                    yield from texts([target.slice])
                elif is_environ(target):
                    yield from keys(node.value)
        elif isinstance(node, ast.Call):
            called = node.func
            name = getattr(called, "attr", getattr(called, "id", ""))
            if name == "putenv":
                yield from texts(node.args[:1])
            elif name in ("setdefault", "update") and is_environ(getattr(called, "value", None)):
                yield from texts(node.args[:1])
                yield from (keyword.arg for keyword in node.keywords if keyword.arg)
                yield from (key for argument in node.args[:1] for key in keys(argument))


def is_environ(node):
    return "environ" in (getattr(node, "attr", None), getattr(node, "id", None))


def keys(node):
    return texts(node.keys) if isinstance(node, ast.Dict) else []


def texts(nodes):
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


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
    names = ("name", "least", "most", "line", "required")
    told = [dict(zip(names, found, strict=True)) for found in (*wanted.values(), *others.values())]
    names = {name: None for name in variables(tree) if len(name) <= NAME}
    standard = sorted(sys.stdlib_module_names)
    sets = list(names)[:VARIABLES]
    return {"functions": told, "more": more, "sets": sets, "standard": standard}


try:
    answer = main()
except (MemoryError, RecursionError):
    answer = {"too_much": True}
print(json.dumps(answer))
