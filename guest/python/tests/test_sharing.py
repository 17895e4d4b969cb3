"""What forks share stays shared: objects that count no references, and no holes between them."""

import json
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from conftest import PATIENCE, PYTHON, skip


def later(version: str) -> str | None:
    """An interpreter of this machine's of that version."""
    own = Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
    for path in (shutil.which(f"python{version}"), *own):
        if (
            path
            and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return str(path)
    return None


@pytest.fixture(params=["the guest's", "3.12", "3.13"])
def run(request, layer: Path):
    """Runs code in an interpreter of its own, beside the guest; returns what it sets `said` to."""
    python = PYTHON if request.param == "the guest's" else later(request.param)
    if python is None:
        skip("pythons", f"no Python {request.param} on this machine")

    def run(code: str) -> object:
        begin = f"import json, sys; sys.path.insert(0, {str(layer)!r})\n"
        program = begin + textwrap.dedent(code) + "\nprint(json.dumps(said))"
        told = subprocess.run(
            [python, "-I", "-S", "-B", "-c", program],
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert told.returncode == 0, told.stderr.decode()
        return json.loads(told.stdout)

    return run


HOLES = """
    import lambswool_sharing
    kept = [bytes(67) for _ in range(2000)]
    pools = {id(one) >> 14 for one in kept}
    del kept[::2]
"""


def test_what_is_new_lies_beside_nothing_that_is_old_once_the_holes_are_filled(run):
    inside, taken, outside = run(
        HOLES
        + """
    before = [bytes(67) for _ in range(10)]
    inside = sum(id(one) >> 14 in pools for one in before)
    taken = lambswool_sharing.fill_pools(1 << 20)
    after = [bytes(67) for _ in range(100)]
    said = inside, taken, sum(id(one) >> 14 in pools for one in after)
        """
    )
    assert (inside, outside) == (10, 0)
    # Each second one of 2000, in blocks of 112 bytes, and what else was free.
    assert taken >= 900 * 112


def test_no_more_is_filled_than_is_allowed(run):
    assert run(HOLES + "    said = lambswool_sharing.fill_pools(5000)") <= 5000 + 512


LARGER_HOLES = """
    import lambswool_sharing
    kept = [bytes(1000 + 10 * (at % 200)) for at in range(2000)]
    between = range(min(map(id, kept)), max(map(id, kept)))
    del kept[::2]
"""


def test_what_is_new_and_large_lies_above_what_is_old_once_the_heap_is_filled(run):
    inside, taken, outside = run(
        LARGER_HOLES
        + """
    before = [bytes(1400) for _ in range(10)]
    inside = sum(id(one) in between for one in before)
    taken = lambswool_sharing.fill_heap(8 << 20)
    after = [bytes(600 + 10 * at) for at in range(300)]
    said = inside, taken, sum(id(one) in between for one in after)
        """
    )
    assert (inside, outside) == (10, 0)
    # Each second one of 2000, with 2 KB on average.
    assert taken >= 900 * 2000


def test_no_more_of_the_heap_is_filled_than_is_allowed(run):
    said = run(LARGER_HOLES + "    said = lambswool_sharing.fill_heap(100_000)")
    assert 100_000 <= said <= 100_000 + (64 << 10)


def test_what_is_settled_counts_no_references_where_python_can_do_without(run):
    version, known, plain, new, module = run(
        """
    import gc
    from lambswool_guest import sharing
    class Held:
        def method(self): return 3.75, "some text", (b"bytes", 12345678901)
    class Module: pass
    constants = Held.method.__code__.co_consts
    sharing.settle()
    def is_immortal(one): return sys.getrefcount(one) > 1 << 30
    said = (
        list(sys.version_info[:2]),
        [is_immortal(one) for one in (Held, Held.method, json, sys.modules, vars(json))],
        [is_immortal(one) for one in (Held.method.__code__, *constants[1:], constants[-1][-1])],
        is_immortal(object()),
        gc.get_freeze_count() > 1000,
    )
        """
    )
    can = version in ([3, 12], [3, 13])
    assert known == [can] * 5
    assert plain[:1] == [can] and all(plain) == can
    assert (new, module) == (False, True)


def test_what_is_immortal_works_as_before_and_so_does_what_is_settled_twice(run):
    assert run(
        """
    from lambswool_guest import sharing
    import collections, decimal
    table = {"a": [1, 2], "b": decimal.Decimal("1.5")}
    sharing.settle()
    import fractions
    more = {"c": fractions.Fraction(1, 3)}
    sharing.settle()
    table["a"].append(3)
    popped = table.pop("b")
    counts = collections.Counter("abca")
    for _ in range(100_000):
        table["a"], more["d"] = table["a"], popped
    said = [table["a"], str(popped * 2), counts["a"], str(more["c"] + 1), len(more)]
        """
    ) == [[1, 2, 3], "3.0", 2, "4/3", 2]
