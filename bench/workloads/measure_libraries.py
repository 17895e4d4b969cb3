"""Measures what importing the libraries of bench/libraries costs; writes library_costs.json.

    python3.11 measure_libraries.py SITE > library_costs.json

SITE is a directory with all of bench/libraries/requirements.txt installed and byte-compiled. Each
library is imported REPEATS times, each time by a fresh interpreter. A module's own time (of a
processor, so that what else runs counts little) and its own private memory go to the package whose
file it is; those of the standard library's modules go to the package that imported them first. A
package costs the median over the repeats, and what it costs in the library where that is most.
"""

import ast
import json
import os
import re
import statistics
import subprocess
import sys
import time
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

REPEATS = 3
LIBRARIES = Path(__file__).parent.parent / "libraries"
PAGE = os.sysconf("SC_PAGE_SIZE")


def plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def owners(site: str) -> dict[str, str]:
    """For each file of a package its name."""
    found = {}
    for one in metadata.distributions(path=[site]):
        for file in one.files or []:
            found[os.path.normpath(os.path.join(site, str(file)))] = plain(one.metadata["Name"])
    return found


def required(site: str) -> dict[str, set[str]]:
    """For each package what it says it requires: what else it finds here, no lock need have."""
    found = {}
    for one in metadata.distributions(path=[site]):
        lines = [line for line in one.requires or [] if "extra ==" not in line]
        names = {plain(re.match(r"[\w.-]+", line).group()) for line in lines}
        found[plain(one.metadata["Name"])] = names
    return found


class Watch:
    """Times modules as they are executed; the standard library's count for who imports them."""

    def __init__(self, owners: dict[str, str]) -> None:
        self.owners = owners
        self.private = os.open("/proc/self/statm", os.O_RDONLY)
        self.stack: list[list] = []
        self.costs: dict[str, list[float]] = {}
        self.needs: dict[str, set[str]] = {}

    def bytes(self) -> int:
        _, resident, shared = os.pread(self.private, 200, 0).split()[:3]
        return (int(resident) - int(shared)) * PAGE

    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        above = self.stack[-1][0] if self.stack else ""
        owner = self.owners.get(spec.origin or "", above)
        if above and owner != above:
            self.needs.setdefault(above, set()).add(owner)
        for step in ("create_module", "exec_module"):
            setattr(spec.loader, step, self.watched(owner, getattr(spec.loader, step)))
        return spec

    def watched(self, owner: str, step):
        def run(argument):
            self.stack.append([owner, 0.0, 0])
            began, had = time.thread_time(), self.bytes()
            try:
                return step(argument)
            finally:
                took, grew = time.thread_time() - began, self.bytes() - had
                _, below, grew_below = self.stack.pop()
                cost = self.costs.setdefault(owner, [0.0, 0])
                cost[0] += took - below
                cost[1] += grew - grew_below
                if self.stack:
                    self.stack[-1][1] += took
                    self.stack[-1][2] += grew

        return run


def imports(library: Path) -> list[str]:
    """The lines that import, as one program each."""
    body = ast.parse(library.read_text()).body
    return [ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]


def measured(site: str, library: str) -> None:
    """Runs in an interpreter of its own: what one library's imports cost, as JSON."""
    watch = Watch(json.load(sys.stdin))
    sys.path.insert(0, site)
    sys.meta_path.insert(2, watch)
    for line in imports(Path(library)):
        exec(line, {})
    needs = {name: sorted(needs) for name, needs in watch.needs.items() if name}
    watch.costs.pop("", None)
    print(json.dumps({"costs": watch.costs, "needs": needs}))


def main(site: str) -> None:
    site = os.path.realpath(site)
    files = json.dumps(owners(site))
    packages: dict[str, dict] = {}
    libraries = []
    for library in sorted(LIBRARIES.glob("*.py")):
        line = next(line for line in library.read_text().splitlines() if "dependencies" in line)
        libraries.append(plain(line.split('"')[1].split("==")[0]))
        command = [sys.executable, "-I", "-S", "-B", __file__, site, str(library)]
        print(library.stem, file=sys.stderr)
        runs = []
        for _ in range(REPEATS):
            run = subprocess.check_output(command, input=files, text=True)
            runs.append(json.loads(run))
        for name in runs[0]["costs"]:
            times = [run["costs"][name][0] * 1e3 for run in runs]
            sizes = [run["costs"][name][1] for run in runs]
            package = packages.setdefault(name, {"milliseconds": 0.0, "bytes": 0, "needs": []})
            package["milliseconds"] = max(
                package["milliseconds"], round(statistics.median(times), 2)
            )
            package["bytes"] = max(package["bytes"], int(statistics.median(sizes)))
            package["needs"] = sorted({*package["needs"], *runs[0]["needs"].get(name, [])})
    python = ".".join(map(str, sys.version_info[:3]))
    found = {"python": python, "libraries": libraries, "packages": dict(sorted(packages.items()))}
    says = required(site)
    for name, package in packages.items():
        package["needs"] = [need for need in package["needs"] if need in says[name]]
    json.dump(found, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measured(sys.argv[1], sys.argv[2])
    else:
        main(sys.argv[1])
