"""Prints what a base needs to know of the interpreter that runs this."""

import json
import os
import sys
import sysconfig

stdlib = sysconfig.get_path("stdlib")
if not os.path.isfile(os.path.join(stdlib, "os.py")):
    # A relocated build may still say where it was built.
    stdlib = os.path.dirname(os.path.realpath(os.__file__))
dynload = os.path.join(stdlib, "lib-dynload")
if not os.path.isdir(dynload):
    elsewhere = (p for p in sys.path if os.path.basename(p) == "lib-dynload")
    dynload = next(filter(os.path.isdir, elsewhere), None)
# Of a virtual environment, the interpreter behind it.
executable = getattr(sys, "_base_executable", None) or sys.executable
try:
    import ssl

    cafile = ssl.get_default_verify_paths().openssl_cafile
except ImportError:
    cafile = None
print(
    json.dumps(
        {
            "implementation": sys.implementation.name,
            "version": ".".join(map(str, sys.version_info[:3])),
            "executable": os.path.realpath(executable),
            "stdlib": os.path.realpath(stdlib),
            "dynload": dynload and os.path.realpath(dynload),
            "libdir": getattr(sys, "platlibdir", "lib"),
            "libname": os.path.basename(stdlib),
            "cafile": cafile,
            "threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        }
    )
)
