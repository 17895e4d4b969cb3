"""Runs inside the sandbox: unpacks a source and asks its backend for a wheel (PEP 517).

A call's body is JSON: `archive`, the file beside this one, and, from the second call on, `backend`,
`backend_path` and `requires`, what is installed. The answer is a line of JSON, and behind it the
wheel's bytes: `pyproject`, the text of the source's `pyproject.toml` or null; `requires`, what the
backend needs beside what is there; `wheel`, its file name; or `failed`, why there is none.

All that is called here is foreign, so nothing is kept from it: the worker believes no answer.
"""

import json
import os
import subprocess
import sys
import tarfile
import zipfile

SOURCE = "/tmp/source"
WHEELS = "/tmp/wheels"
ANSWER = "/tmp/answer.json"
LAST_LINES = 30
# Calls go first: of a processor that both want, a build has a tenth (sched(7)).
NICE = 10

HOOK = """
import importlib, json, sys
backend, path, hook, arguments, answer = json.loads(sys.argv[1])
sys.path[:0] = path
sys.argv[1:] = []
module, _, attributes = backend.partition(":")
called = importlib.import_module(module)
for name in filter(None, attributes.split(".")):
    called = getattr(called, name)
called = getattr(called, hook, None)
result = [] if called is None and hook.startswith("get_") else called(*arguments)
with open(answer, "w") as file:
    json.dump(result, file)
"""


class Failed(Exception):
    """There is no wheel, for a reason to be told."""


def build(body, context):
    """One step of a build."""
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
    task = json.loads(body)
    try:
        said, wheel = step(task)
    except Failed as failure:
        said, wheel = {"failed": str(failure)}, b""
    return json.dumps(said).encode() + b"\n" + wheel


def step(task):
    root = unpack(os.path.join(os.path.dirname(__file__), task["archive"]))
    if "backend" not in task:
        return {"pyproject": pyproject(root)}, b""
    asked = hook(root, task, "get_requires_for_build_wheel", None)
    missing = [one for one in asked if one not in task["requires"]]
    if missing:
        return {"requires": missing}, b""
    os.makedirs(WHEELS, exist_ok=True)
    name = hook(root, task, "build_wheel", WHEELS, None, None)
    path = os.path.join(WHEELS, os.path.basename(name))
    if not os.path.isfile(path):
        raise Failed(f"the backend says that it made {name!r}, and there is no such file")
    with open(path, "rb") as file:
        return {"wheel": name}, file.read()


def unpack(archive):
    os.makedirs(SOURCE)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                file.extractall(SOURCE)
        else:
            with tarfile.open(archive) as file:
                # As `tar` does for who is not root; older patch releases know no filters.
                safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                file.extractall(SOURCE, **safe)
    except (OSError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise Failed(f"the archive cannot be unpacked: {error}") from None
    found = [entry.path for entry in os.scandir(SOURCE) if entry.is_dir()]
    if len(found) != 1:
        raise Failed(f"the archive holds {len(found)} directories and should hold one")
    return found[0]


def pyproject(root):
    try:
        with open(os.path.join(root, "pyproject.toml"), encoding="utf-8") as file:
            return file.read(200_000)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Failed(f"pyproject.toml cannot be read: {error}") from None


def hook(root, task, name, *arguments):
    """Calls the backend in a process of its own, with its output passed on as it comes."""
    path = [os.path.normpath(os.path.join(root, one)) for one in task["backend_path"]]
    words = json.dumps([task["backend"], path, name, arguments, ANSWER])
    environment = {
        "PATH": "/opt/python/bin:/usr/bin",
        "PYTHONPATH": "/opt/python",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        # Archives cannot say a time before 1980; equal times make equal wheels.
        "SOURCE_DATE_EPOCH": "315532800",
    }
    # -P and not PYTHONSAFEPATH, which the scripts that a build runs would inherit: they may import
    # what lies beside them.
    process = subprocess.Popen(
        [sys.executable or "/usr/bin/python3", "-P", "-c", HOOK, words],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    last = []
    for line in process.stdout:
        text = line.decode("utf-8", "replace").rstrip()[:2000]
        print(text, flush=True)
        last = [*last[1 - LAST_LINES :], text]
    status = process.wait()
    if status == 0:
        try:
            with open(ANSWER, encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            raise Failed(f"{name} gave no answer") from None
    how = f"signal {-status}" if status < 0 else f"status {status}"
    words = "\n".join(last) or "it said nothing"
    raise Failed(f"{name} ended with {how}; its last words:\n{words}")
