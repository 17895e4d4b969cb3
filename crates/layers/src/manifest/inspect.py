"""inspect.py FILE NAME...: prints as JSON the functions that a source defines, or its syntax error;
and the environment variables that it sets, as far as their names stand there. Beside them the
modules that Python itself has.

Of functions only those at its top level count: all that each NAME may come to be, and a few others
for an error to tell, however many there are. `dynamic` is a name where the source may bind names
that do not show in it. Nothing of it is run. What takes more memory, or calls, than there are says
so.
"""

import ast
import json
import re
import sys
import warnings

warnings.simplefilter("ignore")

# Of the other functions, how many are told, and how much of their names.
TOLD, NAME = 20, 100

# Of the variables, how many are told. More than an import cache tells apart.
VARIABLES = 100


def likely(wanted, source):
    """Of the names that a handler may have, the first that stands in the source anyhow."""
    words = set(re.findall(r"\w+", source.decode("utf-8", "replace")))
    return next((name for name in wanted if name in words), wanted[0] if wanted else "")


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
    # `bindings.py` and `variables.py` stand before this in what is run.
    bindings = Bindings(tree)  # noqa: F821
    wanted = [(name, *it) for name in sys.argv[2:] for it in bindings.found.get(name, ())]
    others, more = {}, 0
    for name, found in bindings.found.items():
        functions = [it for it in found if it[0] is not None]
        if name in sys.argv[2:] or not functions or name[:NAME] in others:
            continue
        elif len(others) < TOLD:
            others[name[:NAME]] = (name[:NAME], *functions[-1])
        else:
            more += 1
    names = ("name", "least", "most", "line", "required", "yields", "by_the_way")
    told = [dict(zip(names, found, strict=True)) for found in (*wanted, *others.values())]
    dynamic = likely(sys.argv[2:], source) if bindings.open else None
    standard = sorted(sys.stdlib_module_names)
    # Without these words it would find nothing.
    sets_some = any(word in source for word in (b"environ", b"putenv", b"setenv"))
    names = Variables(tree).names if sets_some else ()  # noqa: F821
    sets = [name for name in names if 0 < len(name) <= NAME][:VARIABLES]
    found = {"functions": told, "more": more, "dynamic": dynamic}
    return {**found, "sets": sets, "standard": standard}


try:
    answer = main()
except (MemoryError, RecursionError):
    answer = {"too_much": True}
print(json.dumps(answer))
