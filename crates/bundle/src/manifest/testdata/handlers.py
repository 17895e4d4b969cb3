import sys
if sys.version_info >= (3,):
    def handler(e, c): return 1
else:
    def handler(e, c): yield 1
# ----
import os
if os.name == "posix":
    def handler(e, c): return 1
else:
    def handler(e, c): yield 1
# ----
try:
    import none
except ImportError:
    def handler(e, c): return 1
else:
    def handler(e, c): yield 1
# ----
def handler(e, c): return 1
try:
    import none
except ImportError:
    pass
else:
    def handler(e, c): yield 1
# ----
def handler(e, c): return 1
if __name__ == "__main__":
    def handler(): yield 1
# ----
def handler(e, c): return 1
if "__main__" == __name__:
    handler = lambda: 1
# ----
from lib import *
# ----
handler, x = (lambda e, c: 12), 1
# ----
[x, *handler] = print, str
# ----
if (handler := (lambda e, c: 9)): pass
# ----
print([handler := one for one in (len, repr)])
# ----
for handler in [lambda e, c: 10]: pass
# ----
for i, (handler, x) in enumerate([(len, 1)]): pass
# ----
import contextlib
with contextlib.nullcontext(lambda e, c: 11) as handler: pass
# ----
match (lambda e, c: 14):
    case handler: pass
# ----
match [1, len]:
    case [int(), *handler] | {"a": 1, **handler}: pass
# ----
match 1:
    case 1:
        def handler(e, c): return 1
    case _:
        def handler(e, c): yield 1
# ----
while True:
    def handler(e, c): return 1
    break
# ----
class handler:
    def __new__(cls, e, c): return 15
# ----
class Handler:
    def __call__(self, e, c): yield
handler = Handler()
# ----
def __getattr__(name):
    return lambda e, c: 6
# ----
from lazy import attach
__getattr__, __dir__ = attach(__name__)
# ----
globals()["handler"] = lambda e, c: 7
# ----
globals().update(handler=len)
# ----
vars()["handler"] = len
# ----
exec("def handler(e, c): return 8")
# ----
import builtins
builtins.exec("def handler(e, c): return 8")
# ----
import sys
sys.modules[__name__].handler = len
# ----
from sys import modules as all
setattr(all[__name__], "handler", len)
# ----
def make():
    global handler
    handler = len
make()
# ----
def handler(e, c): yield 1
def mend():
    global handler
    handler = len
mend()
# ----
def handler(e, c): yield 1
handler = list
# ----
def handler(e, c): yield 1
globals()["handler"] = lambda e, c, wrapped=handler: list(wrapped(e, c))
# ----
import functools
def inject(function):
    return functools.partial(function, database=1)
@inject
def handler(event, context, other=1, *, database): return database
# ----
def inject(function): return lambda e, c: function(e, c, 1, 2)
@inject
def handler(event, context, database, queue): return 1
# ----
def handler(): return 1
if len("x"):
    def handler(event): return 1
# ----
from typing import Callable
handler: Callable = lambda e, c: 13
# ----
def handler(e, c): return 1
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    def handler(e): yield
