"""Has the modules of `TEXTS`, which stands before this in what is run, imported as others are.

What is not imported is not compiled.
"""

import sys
from importlib.machinery import ModuleSpec


class Texts:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name in TEXTS else None  # noqa: F821

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        exec(compile(TEXTS[name], f"{name}.py", "exec"), module.__dict__)  # noqa: F821


sys.meta_path.insert(0, Texts())
