#!/usr/bin/env python3
"""Measures the house: how much code there is, in what words, and which files depend on each other.

`make house` prints the table; `tests/house.py --circles` lists the files that stand in a circle.
"""

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Circles that stay, and docs/developer/architecture.md says why: a trait and its double, or the
# core of system calls around a process. A circle counts as explained when all of its files match
# one row.
EXPLAINED: list[tuple[str, str]] = []

COMMENT = re.compile(r"//[^\n]*")
STRING = re.compile(r'b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"', re.S)


DOUBLE = re.compile(r'#\[cfg\((?:any\(test, )?feature = "fake"\)+\]\n(?:pub )?mod (\w+);')


def product_files() -> list[Path]:
    """The Rust files of the crates that are shipped, without files of tests and doubles alone."""
    files = sorted(ROOT.glob("crates/*/src/**/*.rs"))
    doubles = {file.parent / name for file in files for name in DOUBLE.findall(file.read_text())}
    return [
        file
        for file in files
        if file.stem != "tests"
        and "tests" not in file.parts[-2:]
        and not any(file.with_suffix("") == one or one in file.parents for one in doubles)
    ]


def blank(text: str, pattern: re.Pattern[str]) -> str:
    """The text with each match made blanks, line ends kept."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def code_of(text: str) -> str:
    """The text without strings, comments and characters: of the same length."""
    out, place = [], 0
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\\\'])\'', re.S
    )
    for found in token.finditer(text):
        out.append(text[place : found.start()])
        out.append(re.sub(r"[^\n]", " ", found.group()))
        place = found.end()
    out.append(text[place:])
    return "".join(out)


def end_of_block(code: str, opening: int) -> int:
    """Where the block ends whose brace opens there."""
    depth = 0
    for place in range(opening, len(code)):
        depth += {"{": 1, "}": -1}.get(code[place], 0)
        if depth == 0:
            return place + 1
    return len(code)


def without_tests(text: str) -> str:
    """The text without what is compiled for tests alone."""
    code = code_of(text)
    cut = []
    for found in re.finditer(r"#\[cfg\(test\)\]", code):
        brace, stop = code.find("{", found.end()), code.find(";", found.end())
        if brace < 0 or 0 <= stop < brace:
            cut.append((found.start(), stop + 1))
        else:
            cut.append((found.start(), end_of_block(code, brace)))
    for start, end in reversed(cut):
        if start < len(text):
            text = text[:start] + text[end:]
            code = code[:start] + code[end:]
    return text


# --- who uses whom -------------------------------------------------------------------------------


class Crate:
    """The modules of one crate, and what each names of the others."""

    def __init__(self, src: Path) -> None:
        self.files: dict[tuple[str, ...], Path] = {}
        self.uses: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {}
        self.code: dict[tuple[str, ...], str] = {}
        root = "lib.rs" if (src / "lib.rs").exists() else "main.rs"
        for file in sorted(src.rglob("*.rs")):
            relative = file.relative_to(src)
            if relative.name == "tests.rs" or (relative.name == "main.rs" and root == "lib.rs"):
                continue
            parts = relative.with_suffix("").parts
            if str(relative) == root:
                parts = ()
            elif parts[-1] == "mod":
                parts = parts[:-1]
            self.files[parts] = file
            self.code[parts] = code_of(without_tests(file.read_text()))
        for module, code in self.code.items():
            self.uses[module] = dict(self.imports(module, code))

    def imports(self, module: tuple[str, ...], code: str):
        """The names that a module's `use` lines bring, each with its whole path."""
        for found in re.finditer(r"\buse\s+([^;]+);", code):
            for path, name in expand(found.group(1)):
                whole = self.absolute(module, path)
                if whole is not None:
                    yield name, whole

    def absolute(self, module, path):
        """A path from the crate's root; none for another crate's."""
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return (*module, *path[1:])
        if path[0] == "super":
            while path and path[0] == "super":
                path, module = path[1:], module[:-1]
            return (*module, *path)
        return (*module, *path) if (*module, path[0]) in self.files else None

    def file_of(self, path, seen=frozenset()):
        """The module that defines what a path names: re-exports are followed."""
        module, rest = path, ()
        while module not in self.files:
            if not module:
                return None
            module, rest = module[:-1], (module[-1], *rest)
        if rest and (module, rest[0]) not in seen:
            onward = self.uses[module].get(rest[0])
            if onward is not None and onward != path:
                found = self.file_of((*onward, *rest[1:]), seen | {(module, rest[0])})
                return found if found is not None else module
        return module

    def arrows(self):
        """Each module with those that it uses: parents and children left out."""
        for module, code in self.code.items():
            paths = set(self.uses[module].values())
            for found in re.finditer(r"\b((?:crate|super|self)(?:::\w+)+)", code):
                whole = self.absolute(module, tuple(found.group(1).split("::")))
                if whole is not None:
                    paths.add(whole)
            for found in re.finditer(r"\b(\w+)((?:::\w+)+)", code):
                head = self.uses[module].get(found.group(1))
                if head is not None:
                    paths.add((*head, *found.group(2).split("::")[1:]))
                elif (*module, found.group(1)) in self.files:
                    paths.add((*module, *found.group(0).split("::")))
            for path in paths:
                target = self.file_of(path)
                if target is None or target == module:
                    continue
                shorter, longer = sorted((module, target), key=len)
                if longer[: len(shorter)] != shorter:
                    yield module, target


def expand(tree: str):
    """The paths that a `use` tree names, each with the name it brings."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, name = (part.strip() for part in tree.partition(" as "))
        parts = tuple(part.strip() for part in path.split("::"))
        if parts[-1] == "self":
            parts = parts[:-1]
        if parts and parts[-1] != "*":
            yield parts, name or parts[-1]
        elif parts[:-1]:
            yield parts[:-1], "*"
        return
    before = tree[:brace]
    inside, depth, start = tree[brace + 1 : tree.rfind("}")], 0, 0
    for place, letter in enumerate(inside + ","):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            part = inside[start:place].strip()
            start = place + 1
            if part:
                yield from expand(before + part)


def circles(arrows) -> list[set]:
    """Strongly connected components of more than one module (Tarjan, 1972)."""
    graph = defaultdict(set)
    for start, end in arrows:
        graph[start].add(end)
        graph.setdefault(end, set())
    number, low, stack, on, found = {}, {}, [], set(), []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        on.add(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            component = set()
            while node not in component:
                last = stack.pop()
                on.discard(last)
                component.add(last)
            if len(component) > 1:
                found.append(component)

    sys.setrecursionlimit(10_000)
    for node in list(graph):
        if node not in number:
            visit(node)
    return found


def all_circles() -> list[tuple[str, list[str], bool]]:
    """Each crate's circles: its name, the files, whether it is explained."""
    result = []
    for src in sorted(ROOT.glob("crates/*/src")):
        crate = Crate(src)
        for component in circles(set(crate.arrows())):
            files = sorted(str(crate.files[module].relative_to(ROOT)) for module in component)
            known = any(all(re.search(row, file) for file in files) for row, _ in EXPLAINED)
            result.append((src.parent.name, files, known))
    return result


# --- the table ------------------------------------------------------------------------------------


def words(name: str) -> int:
    """The words of a document."""
    return len((ROOT / name).read_text().split())


def functions(text: str):
    """The lines of each function."""
    code = code_of(text)
    for found in re.finditer(r"\bfn\s+(\w+)", code):
        # A semicolon between brackets is an array's: `[u64; 6]`.
        plain = re.sub(r"\[[^\[\]{}]*\]", lambda it: "_" * len(it.group()), code[found.end() :])
        brace, stop = plain.find("{"), plain.find(";")
        if brace >= 0 and not 0 <= stop < brace:
            brace += found.end()
            yield found.group(1), code.count("\n", found.start(), end_of_block(code, brace)) + 1


def settings() -> int:
    """The keys that a worker's configuration may hold, internals apart."""
    for file in ROOT.glob("crates/*/src/config/settings.rs"):
        found = re.search(r"pub struct Config \{(.*?)\n\}", file.read_text(), re.S)
        if found:
            return len(re.findall(r"^        \w+: [^=\n]+ = ", found.group(1), re.M))
    return 0


def program_files() -> int:
    """The files at the top of the crate that is the program `wool`."""
    for manifest in ROOT.glob("crates/*/Cargo.toml"):
        if re.search(r'\[\[bin\]\]\s*name = "wool"\n', manifest.read_text()) or (
            manifest.parent.name == "wool"
        ):
            return len(list((manifest.parent / "src").glob("*.rs")))
    return 0


def table() -> list[tuple[str, str, str]]:
    """What is measured, what it is, and what it shall be."""
    texts = {file: file.read_text() for file in product_files()}
    product = {file: without_tests(text) for file, text in texts.items()}
    lines = sum(text.count("\n") for text in product.values())
    longest_file = max(product.items(), key=lambda one: one[1].count("\n"))
    longest = max(
        (count, name, file) for file, text in product.items() for name, count in functions(text)
    )
    persons = sum(
        len(re.findall(r"(?i)\b(?:whoever|nobody|somebody)\b", file.read_text()))
        for file in ROOT.glob("crates/**/*.rs")
    )
    short = 0
    for text in texts.values():
        for block in re.finditer(r"(?:^[ \t]*///[^\n]*\n)+", text, re.M):
            comment = " ".join(line.strip()[3:].strip() for line in block.group().splitlines())
            short += len(comment.strip()) <= 14
    found = [files for _, files, known in all_circles() if not known]
    pages = len(list(ROOT.glob("docs/user/*.md")))
    return [
        ("lines of product code", f"{lines}", "≤ 63000"),
        (
            "words of README / CHANGELOG",
            f"{words('README.md')} / {words('CHANGELOG.md')}",
            "≤ 1100 / ≤ 900",
        ),
        ("pages for users", f"{pages}", "12"),
        ("files in a circle without a reason", f"{sum(map(len, found))} in {len(found)}", "0"),
        ("top-level files of the crate that is the program", f"{program_files()}", "≤ 12"),
        ("`whoever`, `nobody`, `somebody` in crates", f"{persons}", "persons only"),
        ("doc comments of ≤ 14 characters", f"{short}", "0"),
        ("settings of the worker", f"{settings()}", "≤ 40"),
        (
            "longest file",
            f"{longest_file[1].count(chr(10))} ({longest_file[0].relative_to(ROOT)})",
            "≤ 600",
        ),
        (
            "longest function",
            f"{longest[0]} ({longest[1]} in {longest[2].relative_to(ROOT)})",
            "≤ 100",
        ),
    ]


def main() -> None:
    """Prints the table, or the circles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--circles", action="store_true", help="list the files of each circle")
    if parser.parse_args().circles:
        for crate, files, known in all_circles():
            print(f"{crate}: {len(files)} files{' (explained)' if known else ''}")
            for file in files:
                print(f"  {file}")
        return
    rows = [("measured", "today", "target"), *table()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


if __name__ == "__main__":
    main()
