"""Prints as JSON what each of the sources in a file sets, beside what it is expected to."""

import ast
import json
import sys

from variables import Variables

with open(sys.argv[1]) as file:
    sources = file.read().split("# ---- sets ")[1:]
told = []
for expected in sources:
    _, source = expected.split("\n", 1)
    found = Variables({"main.py": ast.parse(source)})
    names = sorted(found.names) + (["and any"] if found.unknown else [])
    told.append((expected, " ".join(names) or "nothing"))
print(json.dumps(told))
