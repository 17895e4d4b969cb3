def handler(e, c): yield 1
if __name__ == "__main__":
    def handler(e, c): return 1
# ----
if 1:
    def handler(e, c): yield 1
else:
    async def handler(e, c): yield 1
# ----
import sys
if sys.version_info < (3,):
    def handler(e, c): return 1
else:
    def handler(e, c): yield 1
# ----
def handler(): return 1
# ----
try:
    def handler(a, b, c): return 1
finally:
    pass
# ----
handler: object
# ----
with open("x") as f:
    pass
# ----
class Script:
    def handler(self): self.handler = 1
# ----
def main():
    handler = vars(1)
# ----
def handlers(e): ...
