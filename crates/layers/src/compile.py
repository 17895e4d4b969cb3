"""compile.py ROOT PREFIX: writes the bytecode of all sources below ROOT, on all CPUs.

Not `compileall -j`: its workers may be started anew by sys.executable, which is not how this
interpreter was started. Sources that do not compile are left alone: wheels carry templates and
other versions' files; the manifest tells the handler's own syntax errors. Prints how many
sources there were as JSON.
"""

import os
import py_compile
import sys

root, prefix = sys.argv[1:3]
sources = []
for directory, below, names in os.walk(root):
    # The tests that wheels carry are a third of all sources, and no function imports them.
    below[:] = [name for name in below if name not in ("__pycache__", "tests")]
    for name in names:
        path = os.path.join(directory, name)
        if name.endswith(".py") and os.path.isfile(path):
            sources.append((os.path.getsize(path), path))
sources.sort(reverse=True)


def compile_every(step, start):
    for _, path in sources[start::step]:
        # What tracebacks show is the path inside the sandbox.
        shown = os.path.join(prefix, os.path.relpath(path, root))
        try:
            py_compile.compile(
                path,
                dfile=shown,
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        except (py_compile.PyCompileError, ValueError, UnicodeError, RecursionError, MemoryError):
            pass


workers = max(1, min(len(os.sched_getaffinity(0)), len(sources) // 16))
children = []
for number in range(1, workers):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            compile_every(workers, number)
            status = 0
        finally:
            os._exit(status)
    children.append(child)
compile_every(workers, 0)
for child in children:
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("a compiling process failed; is the disk full?")
print(len(sources))
