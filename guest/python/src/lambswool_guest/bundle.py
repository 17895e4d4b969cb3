"""bundle.py ROOT PREFIX: writes ROOT/instance.pyc, which is `fresh.py` with its modules inside.

Run once, when the guest is installed, by the interpreter that will run it. ROOT will be seen as
PREFIX. Prints the file's size.
"""

import ast
import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER

PACKAGE = "lambswool_guest"
LATER = ("answers", "arity", "completion", "failure", "loop", "reseed", "shadowing", "unfit")
LATER += ("aws", "aws_context", "aws_logging", "http_requests", "program", "runtime_api", "stream")
"""Modules that few instances need. Others name what is in them when they use it, and not before:
`failure.describe`."""


def main(root: str, prefix: str) -> None:
    sys.path.insert(0, root)
    import lambswool_guest.fresh
    import lambswool_guest.instance
    import lambswool_guest.places

    # A module stands behind those that it imported: it is put there when its import ends.
    names = [name for name in sys.modules if f"{name}.".startswith(f"{PACKAGE}.")]
    names.remove(f"{PACKAGE}.fresh")
    packed = marshal.dumps(tuple(packed_one(name, root, prefix) for name in names))
    _, fresh = compiled(lambswool_guest.fresh.__file__, root, prefix)
    place = lambswool_guest.fresh.MODULES
    constants = tuple(packed if constant == place else constant for constant in fresh.co_consts)
    whole = fresh.replace(co_consts=constants)
    # With an unchecked hash (PEP 552) of nothing: there is no one source.
    data = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(whole)
    with open(os.path.join(root, "instance.pyc"), "wb") as file:
        file.write(data)
    print(len(data))


def packed_one(name: str, root: str, prefix: str) -> tuple:
    """A module's name, the path that tracebacks show, and its code."""
    shown, code = compiled(sys.modules[name].__file__, root, prefix)
    return name, shown, marshal.dumps(code) if name.rpartition(".")[2] in LATER else code


def compiled(path: str, root: str, prefix: str) -> tuple:
    """The path inside the sandbox, which tracebacks show, and the code, without documentation."""
    shown = os.path.join(prefix, os.path.relpath(path, root))
    with open(path, "rb") as file:
        tree = WithoutTypes().visit(ast.parse(file.read(), shown))
    return shown, compile(tree, shown, "exec", dont_inherit=True, optimize=2)


class WithoutTypes(ast.NodeTransformer):
    """Takes out what only a type checker reads: each annotation is evaluated, and kept, by every
    fresh interpreter."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        value = self.generic_visit(node).value
        without = ast.Pass() if value is None else ast.Assign([node.target], value)
        return ast.copy_location(without, node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)


main(*sys.argv[1:])
