"""inspect.py ROOT FILE PATH ALONE NAME...: prints as JSON what FILE defines, or its syntax error;
the environment variables that it sets, or files of ROOT that it imports; what these import that is
neither in ROOT nor in what the `PYTHONPATH` PATH names; and the modules that Python itself has.
With ALONE, which is empty or not, only FILE is read.

Of functions those at its top level count: all that each NAME may come to be, and a few others for
an error to tell, however many there are. `dynamic` is a name where the source may bind names that
do not show in it; `unknown` is the place of what may set any variable. Nothing of it is run. What
takes more memory, or calls, than there are says so.
"""

import ast
import json
import os
import re
import sys
import warnings

from bindings import Bindings
from files import FILES, Files

warnings.simplefilter("ignore")

# A long chain of `elif` is as deep as it is long.
sys.setrecursionlimit(3000)

# Of the other functions, how many are told, and how much of their names.
TOLD, NAME = 20, 100

# Of the variables, how many are told. More than an import cache tells apart.
VARIABLES = 100


def likely(wanted, source):
    """Of the names that a handler may have, the first that stands in the source anyhow."""
    words = set(re.findall(r"\w+", source.decode("utf-8", "replace")))
    return next((name for name in wanted if name in words), wanted[0] if wanted else "")


def variables(files):
    """Names of variables that the sources set, and the file and line of what may set any other."""
    trees, beyond = files.setting()
    if not trees:
        return [], beyond
    # Most sources set nothing.
    from variables import Variables

    found = Variables(trees)
    # A file that only another one's names lead to, as of `from config import env`, is read with it.
    while more := files.speaking(found.spoken(), trees):
        if len(trees) + len(more) > FILES:
            beyond = beyond or (more[0], 1)
            break
        trees |= {path: ast.parse(files.bytes_of(path)) for path in more}
        found = Variables(trees)
    names = [name for name in found.names if len(name) <= NAME][:VARIABLES]
    more = len(names) < len(found.names)
    return names, found.unknown or beyond or ((files.entry, 1) if more else None)


def main():
    root, entry, path, alone, *wanted_names = sys.argv[1:]
    with open(os.path.join(root, entry), "rb") as file:
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
    bindings = Bindings(tree)
    wanted = [(name, *it) for name in wanted_names for it in bindings.found.get(name, ())]
    others, more = {}, 0
    for name, found in bindings.found.items():
        functions = [it for it in found if it[0] is not None]
        if name in wanted_names or not functions or name[:NAME] in others:
            continue
        elif len(others) < TOLD:
            others[name[:NAME]] = (name[:NAME], *functions[-1])
        else:
            more += 1
    names = ("name", "least", "most", "line", "required", "yields", "by_the_way")
    told = [dict(zip(names, found, strict=True)) for found in (*wanted, *others.values())]
    dynamic = likely(wanted_names, source) if bindings.open else None
    standard = sorted(sys.stdlib_module_names)
    sets, unknown, missing = [], (entry, 1), []
    try:
        files = Files(root, entry, path, source, tree, alone)
        missing = files.missing()
        if not alone:
            sets, unknown = variables(files)
    except Exception:
        # The function's own file was read: the others are only of use. What fails here is no
        # reason to refuse a function: any variable counts as set.
        pass
    found = {"functions": told, "more": more, "dynamic": dynamic}
    found |= {"sets": sets, "unknown": unknown, "missing": missing}
    return {**found, "standard": standard}


try:
    answer = main()
except (MemoryError, RecursionError):
    answer = {"too_much": True}
print(json.dumps(answer))
