"""compile.py ROOT PREFIX FILE SECONDS ALL: writes the bytecode of all sources below ROOT.

On all CPUs, each with SECONDS of CPU time for one source and ALL for its share of them, and with
what this process has been given of memory and of bytes for one file's bytecode (FILE): a few
kilobytes of source can ask for gigabytes and hours. What takes more is left without bytecode. So
are sources that do not compile: wheels carry templates and other versions' files; the manifest
tells the handler's own syntax errors. Prints as JSON how many sources there were, and which of them
took too much.

Not `compileall -j`: its workers may be started anew by sys.executable, which is not how this
interpreter was started.
"""

import errno
import glob
import importlib.util
import json
import mmap
import os
import py_compile
import resource
import sys

root, prefix = sys.argv[1:3]
file_bytes, seconds, all_seconds = map(int, sys.argv[3:6])
sources = []
for directory, below, names in os.walk(root):
    # The tests that wheels carry are a third of all sources, and no function imports them.
    below[:] = [name for name in below if name not in ("__pycache__", "tests")]
    for name in names:
        path = os.path.join(directory, name)
        if name.endswith(".py") and os.path.isfile(path):
            sources.append((os.path.getsize(path), path))
sources.sort(reverse=True)

# What became of each, told by the processes that compile.
NOT_YET, BEGUN, DONE, TOO_MUCH = range(4)
told = mmap.mmap(-1, max(1, len(sources)))


def limit_time(most):
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def compile_one(path):
    # What tracebacks show is the path inside the sandbox.
    shown = os.path.join(prefix, os.path.relpath(path, root))
    try:
        written = py_compile.compile(
            path,
            dfile=shown,
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except py_compile.PyCompileError as error:
        # Whatever the compiler raises, `MemoryError` too.
        return TOO_MUCH if error.exc_type_name == "MemoryError" else DONE
    except MemoryError:
        return TOO_MUCH
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return TOO_MUCH
    except (ValueError, UnicodeError, RecursionError):
        return DONE
    if os.path.getsize(written) >= file_bytes:
        # Cut off at the limit: older versions do not look whether all was written.
        os.remove(written)
        return TOO_MUCH
    return DONE


def compile_share(places):
    """In a process of its own, which a limit may end."""
    for place in places:
        spent = resource.getrusage(resource.RUSAGE_SELF)
        limit_time(int(spent.ru_utime + spent.ru_stime) + 1 + seconds)
        told[place] = BEGUN
        told[place] = compile_one(sources[place][1])


def start(places):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            compile_share(places)
            status = 0
        finally:
            os._exit(status)
    return child


step = max(1, min(len(os.sched_getaffinity(0)), len(sources) // 16))
shares = {}
for at in range(step):
    share = range(at, len(sources), step)
    shares[start(share)] = (share, 0)
while shares:
    child, status, usage = os.wait4(-1, 0)
    share, spent = shares.pop(child)
    if status == 0:
        continue
    if os.WIFEXITED(status):
        sys.exit("a compiling process failed; is the disk full?")
    spent += usage.ru_utime + usage.ru_stime
    for place in share:
        if told[place] == BEGUN:
            told[place] = TOO_MUCH
            cached = importlib.util.cache_from_source(sources[place][1])
            for unfinished in glob.glob(glob.escape(cached) + ".*"):
                os.remove(unfinished)
    rest = [place for place in share if told[place] == NOT_YET]
    if rest and spent < all_seconds:
        shares[start(rest)] = (rest, spent)

left = [path for place, (_, path) in enumerate(sources) if told[place] != DONE]
left = [os.path.relpath(path, root) for path in left]
print(json.dumps({"sources": len(sources), "left": left[:10], "more": len(left[10:])}))
