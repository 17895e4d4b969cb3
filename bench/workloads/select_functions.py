"""Chooses the functions of `policies` before anything is measured, and writes functions.json.

    python3.11 select_functions.py trial0_train_test.json.gz uv > functions.json

Candidates are the test functions whose set of pins no training function has, each set once, in a
seeded random order. Each is installed from wheels and its modules are imported, apart from all
others; the first hundred that can be are kept, and those that cannot are listed with the reason.
"""

import gzip
import json
import os
import random
import subprocess
import sys
import tempfile

WANTED = 100
SEED = 0


def last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no words"


def fault(function: dict, uv: str) -> str | None:
    """Why the function cannot run here; None when it can."""
    with tempfile.TemporaryDirectory() as target:
        install = [uv, "pip", "install", "--quiet", "--only-binary", ":all:", "--no-deps"]
        install += ["--python", sys.executable, "--target", target, *function["pins"]]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            return "no wheels: " + last(done.stderr)
        code = f"import sys; sys.path.insert(0, {target!r})\nimport "
        code += ", ".join(function["import_mods"])
        run = [sys.executable, "-I", "-S", "-c", code]
        try:
            done = subprocess.run(run, capture_output=True, text=True, timeout=600, cwd=target)
        except subprocess.TimeoutExpired:
            return "import takes longer than ten minutes"
        return f"import fails: {last(done.stderr)}" if done.returncode else None


def main() -> None:
    with gzip.open(sys.argv[1]) as file:
        halves = json.load(file)
    trained = {frozenset(function["pins"]) for function in halves["w1"]["funcs"]}
    unseen = {}
    for function in halves["w2"]["funcs"]:
        pins = frozenset(function["pins"])
        if pins not in trained and function["import_mods"]:
            unseen.setdefault(pins, function)
    candidates = list(unseen.values())
    random.Random(SEED).shuffle(candidates)
    functions, excluded = [], []
    for function in candidates:
        if len(functions) == WANTED:
            break
        why = fault(function, sys.argv[2])
        kept = {key: function[key] for key in ("name", "pins", "direct", "import_mods")}
        if why is None:
            functions.append(kept)
        else:
            excluded.append({"name": function["name"], "why": why})
        print(len(functions), len(excluded), why or "", file=sys.stderr)
    source = "open-lambda/forklift at 1dc723d, Apache-2.0: trial 0, test half"
    python = ".".join(map(str, sys.version_info[:2]))
    found = {"source": source, "seed": SEED, "python": python, "candidates": len(candidates)}
    json.dump({**found, "functions": functions, "excluded": excluded}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
