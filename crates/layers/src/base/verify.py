"""Prints where this interpreter looks, and which modules of its library do not work, as JSON."""

import json
import sys

missing = []
for name in sys.argv[1:]:
    try:
        __import__(name)
    except BaseException as error:
        missing.append([name, f"{type(error).__name__}: {error}"])
print(json.dumps({"path": sys.path, "missing": missing}))
