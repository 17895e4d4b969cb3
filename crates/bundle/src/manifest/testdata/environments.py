"""Sources that may set variables, each below what it sets."""

# ---- sets and any
import os
os.environ.update(dict.fromkeys(("OMP_X","MPLBACKEND"),"1"))
# ---- sets MPLBACKEND
import os
def setup(env): env["MPLBACKEND"]="svg"
setup(os.environ)
# ---- sets MPLBACKEND
import os
class C: env=os.environ
C.env["MPLBACKEND"]="svg"
# ---- sets and any
import os
class C:
  def __init__(s): s.env=os.environ; s.env["MPLBACKEND"]="svg"
# ---- sets and any
import os
n,env=1,os.environ
env["MPLBACKEND"]="svg"
# ---- sets and any
import os
os.environ["{}BACKEND".format("MPL")]="svg"
# ---- sets and any
import os
os.environ["%sBACKEND"%"MPL"]="svg"
# ---- sets and any
import os
os.environ["".join(["MPL","BACKEND"])]="svg"
# ---- sets and any
import os
os.environ["MPL_BACKEND".replace("_","")]="svg"
# ---- sets and any
import os,enum
class K(enum.Enum): B="MPLBACKEND"
os.environ[K.B.value]="svg"
# ---- sets and any
import os
n=["MPLBACKEND"]
while n: os.environ[n.pop()]="svg"
# ---- sets and any
import os
os.environ[next(iter(["MPLBACKEND"]))]="svg"
# ---- sets and any
import os
(lambda k: os.environ.__setitem__(k,"svg"))("MPLBACKEND")
# ---- sets and any
import os
s=lambda k,v: os.environ.update({k:v})
s("MPLBACKEND","svg")
# ---- sets and any
import os,itertools
list(itertools.starmap(os.environ.setdefault,[("MPLBACKEND","svg")]))
# ---- sets and any
import os
list(map(os.environ.__setitem__,["MPLBACKEND"],["svg"]))
# ---- sets and any
import os,functools
functools.partial(os.environ.update,MPLBACKEND="svg")()
# ---- sets and any
import os,functools
functools.partial(os.putenv,"MPLBACKEND")("svg")
# ---- sets and any
import os
def env(**k): os.environ.update(k)
env(MPLBACKEND="svg")
# ---- sets and any
import os
def env(**k):
  for n,v in k.items(): os.environ[n.upper()]=v
env(mplbackend="svg")
# ---- sets and any
import os
class S:
  def put(self,k): os.environ[k]="svg"
S().put("MPLBACKEND")
# ---- sets and any
import os
match "MPLBACKEND":
  case k: os.environ[k]="svg"
# ---- sets and any
import os,contextlib
with contextlib.nullcontext("MPLBACKEND") as k: os.environ[k]="svg"
# ---- sets and any
import os
n=[]
n.append("MPLBACKEND")
for k in n: os.environ[k]="svg"
# ---- sets and any
import os
d={}
d["MPLBACKEND"]="svg"
os.environ.update(d)
# ---- sets and any
import os
d=dict()
d.update(MPLBACKEND="svg")
os.environ.update(**d)
# ---- sets MPLBACKEND
import os
os.environ|=dict(MPLBACKEND="svg")
# ---- sets MPLBACKEND and any
import os
os.environ.clear(); os.environ.update(MPLBACKEND="svg")
# ---- sets and any
import os,collections
os.environ.update(collections.ChainMap({"MPLBACKEND":"svg"}))
# ---- sets and any
import os,collections
os.environ.update(collections.OrderedDict(MPLBACKEND="svg"))
# ---- sets and any
import os,types
os.environ.update(vars(types.SimpleNamespace(MPLBACKEND="svg")))
# ---- sets and any
import os
class E: MPLBACKEND="svg"
os.environ.update({k:v for k,v in vars(E).items() if k.isupper()})
# ---- sets MPLBACKEND
import os
MPLBACKEND="svg"
os.environ["MPLBACKEND"]=MPLBACKEND
# ---- sets and any
import os
for l in """MPLBACKEND=svg
X=1""".splitlines():
  k,v=l.split("=")
  os.environ[k]=v
# ---- sets and any
import os
for l in """MPLBACKEND=svg
X=1""".splitlines():
  k,_,v=l.partition("=")
  os.environ[k.strip()]=v
# ---- sets and any
import os,json
os.environ.update(json.loads('{"MPLBACKEND":"svg"}'))
# ---- sets MPLBACKEND
import os
from unittest import mock
mock.patch.dict("os.environ",MPLBACKEND="svg").start()
# ---- sets MPLBACKEND
import os
os.environb[b"MPLBACKEND"]=b"svg"
# ---- sets and any
import os
getattr(os,"environ")["MPLBACKEND"]="svg"
# ---- sets MPLBACKEND
__import__("os").environ["MPLBACKEND"]="svg"
# ---- sets MPLBACKEND
import sys
sys.modules["os"].environ["MPLBACKEND"]="svg"
# ---- sets MPLBACKEND
import os
def f():
  k="MPLBACKEND"
  def g(): os.environ[k]="svg"
  g()
f()
# ---- sets and any
import os
def names(): yield "MPLBACKEND"
for k in names(): os.environ[k]="svg"
# ---- sets and any
import os
def name(): return "MPLBACKEND"
os.environ[name()]="svg"
# ---- sets and any
import os
def conf(): return {"MPLBACKEND":"svg"}
os.environ.update(conf())
# ---- sets and any
import os
os.environ.setdefault(*("MPLBACKEND","svg"))
# ---- sets and any
import os
os.environ["XMPLBACKEND"[1:]]="svg"
# ---- sets and any
import os
k="MPL"
k+="BACKEND"
os.environ[k]="svg"
# ---- sets and any
import os
def env(**kw):
  def d(f):
    os.environ.update(kw); return f
  return d
@env(MPLBACKEND="svg")
def handler(e,c): pass
# ---- sets and any
import os,dataclasses
@dataclasses.dataclass
class S:
  MPLBACKEND: str="svg"
os.environ.update(dataclasses.asdict(S()))
# ---- sets and any
import os
class Env:
  def __init__(self,e): self.e=e
  def set(self,k,v): self.e[k]=v
Env(os.environ).set("X","1")
# ---- sets and any
import os
C={"a":{}}
C["a"]["X"]="1"
os.environ.update(C["a"])
# ---- sets and any
import os
a={}
b=a
b["X"]="1"
os.environ.update(a)
# ---- sets and any
import os
def fill(d): d["X"]="1"
a={}
fill(a)
os.environ.update(a)
# ---- sets and any
import os,lib
a={}
lib.fill(a)
os.environ.update(a)
# ---- sets and any
import os
n=["A","B"]
n.insert(0,"X")
os.environ[n[0]]="1"
os.environ[n[1]]=""
# ---- sets and any
import os
k="X"
k+="A"
k+="B"
os.environ[k]="1"
# ---- sets and any
import os,lib
lib.configure(os.environ)
# ---- sets and any
import os,lib
lib.configure(env=os.environ)
# ---- sets and any
import os
class C: pass
c=C(); c.e=os.environ
c.e.setdefault("X","1")
# ---- sets and any
import os
L=[os.environ]
for e in L: e["X"]="1"
# ---- sets and any
import os
D={"e":os.environ}
D["e"]["X"]="1"
# ---- sets and any
import os
def env(): return os.environ
env()["X"]="1"
# ---- sets and any
import os
env=lambda: os.environ
env()["X"]="1"
# ---- sets and any
import os
class S:
  @property
  def env(self): return os.environ
S().env["X"]="1"
# ---- sets and any
import os
def f(k,env=os.environ): env[k]="1"
f("X")
# ---- sets and any
import os
def f(*,env): env["X"]="1"
f(env=os.environ)
# ---- sets and any
import os
def f(*a): a[0]["X"]="1"
f(os.environ)
# ---- sets and any
import os,contextlib
@contextlib.contextmanager
def env(**k):
  os.environ.update(k); yield
with env(X="1"): import numpy
# ---- sets and any
import os
def now(f): f()
@now
def setup(): os.environ[input()]="1"
# ---- sets and any
import os
def with_env(k):
  os.environ[k]="1"
  return lambda f: f
@with_env("X")
def handler(e,c): pass
# ---- sets and any
import os
class B:
  def __init_subclass__(cls,key): os.environ[key]="1"
class C(B,key="X"): pass
# ---- sets and any
import os
class M(type):
  def __new__(m,n,b,d):
    for k in d: os.environ[k]="1"
    return type.__new__(m,n,b,d)
class C(metaclass=M): X="1"
# ---- sets and any
import os,threading
def setup(): os.environ[read()]="1"
t=threading.Thread(target=setup); t.start(); t.join()
# ---- sets and any
import os
for k in sorted({"X"}|{"Y"}): os.environ[k]="1"
# ---- sets and any
from dotenv import load_dotenv
load_dotenv()
# ---- sets and any
import dotenv
dotenv.load_dotenv(".env")
# ---- sets and any
import dotenv as d
load=d.load_dotenv
load()
# ---- sets and any
exec(open("env.py").read())
# ---- sets and any
exec("import os; os.environ['X']='1'")
# ---- sets X Y
from os import *
environ["X"]="1"
putenv("Y","1")
# ---- sets and any
import os
setattr(os,"environ",{"X":"1"})
# ---- sets and any
import os,tomllib
os.environ.update(tomllib.load(open("e.toml","rb"))["env"])
# ---- sets and any
import os
for l in open(".env"):
  k,v=l.split("=",1)
  os.environ[k]=v
# ---- sets and any
import os,sys
os.environ[sys.argv[0]]="1"
# ---- sets and any
import os
for k,v in list(os.environ.items()):
  if k.startswith("APP_"): os.environ[k[4:]]=v
# ---- sets and any
import os
f=os.environ.__setitem__
f("X","1")
# ---- sets and any
import os
def each(f): f("X","1")
each(os.environ.setdefault)
# ---- sets and any
import os,functools
put=functools.partial(os.environ.setdefault)
put("X","1")
# ---- sets and any
import os
k=[None]
k[0]="X"
os.environ[k[0]]="1"
# ---- sets and any
import os
d={}
d.setdefault("X","1")
os.environ.update(d)
# ---- sets and any
import os,collections
d=collections.defaultdict(str)
d["X"]="1"
os.environ.update(d)
# ---- sets and any
import os
class K: X="X"
for k in vars(K): os.environ[k]="1"
# ---- sets and any
import os
K="A"
def s():
  global K
  K="X"
s()
os.environ[K]="1"
# ---- sets and any
import os
def f():
  k="A"
  def g():
    nonlocal k
    k="X"
  g(); os.environ[k]="1"
f()
# ---- sets and any
import os
(a,b),c=("X","Y"),"Z"
for k in (a,b,c): os.environ[k]="1"
# ---- sets and any
import os
try: k=compute()
except E: k="A"
os.environ[k]="1"
# ---- sets and any
import os
def s(k):
  if len(k)<3: return s(k+"X")
  os.environ[k]="1"
s("A")
# ---- sets and any
import os
def g():
  yield from ("X",)
  yield "Y"
for k in g(): os.environ[k]="1"
# ---- sets and any
import os
ks=["X"]; vs=["1"]
os.environ.update(dict(zip(ks,vs)))
# ---- sets and any
import os
for k in map(str.upper,["x"]): os.environ[k]="1"
# ---- sets X Y
import os
[os.environ.__setitem__(k,"1") for k in ("X","Y")]
# ---- sets X Y
import os
os.environ.pop("X"); del os.environ["Y"]
# ---- sets X
import os
env=os.environ if 1 else {}
env["X"]="1"
# ---- sets X
import os
env=None or os.environ
env["X"]="1"
# ---- sets X
import os
if (e:=os.environ): e["X"]="1"
# ---- sets and any
import os,contextlib
with contextlib.nullcontext(os.environ) as e: e["X"]="1"
# ---- sets and any
import os
match os.environ:
  case e: e["X"]="1"
# ---- sets and any
import os,copy
copy.copy(os.environ)["X"]="1"
# ---- sets and any
import os,operator
operator.ior(os.environ,{"X":"1"})
# ---- sets X
import os
os.environ.__ior__({"X":"1"})
# ---- sets and any
import os,collections
collections.ChainMap(os.environ)["X"]="1"
# ---- sets X
import ctypes
ctypes.CDLL(None).putenv(b"X=1")
# ---- sets and any
from lib import setenv
setenv(read(),"1")
# ---- sets and any
import os
def a(n): os.environ[n]="1"
def b(n): a(n)
b("X")
# ---- sets and any
import os
def a(n): os.environ[n]="1"
for f in [a]: f("X")
# ---- sets and any
import os
class S:
  @classmethod
  def put(cls,k): os.environ[k]="1"
S.put("X")
# ---- sets and any
import os
class S:
  @staticmethod
  def put(k): os.environ[k]="1"
S.put("X")
# ---- sets and any
import os
class S:
  def __init__(self): self.put("X")
  def put(self,k): os.environ[k]="1"
S()
# ---- sets and any
import os,collections
P=collections.namedtuple("P","k v")
p=P("X","1")
os.environ[p.k]=p.v
# ---- sets and any
import os
for n in (1,2): os.environ[f"X{n}"]="1"
# ---- sets and any
import os
for n in range(3): os.environ[f"X{n}"]="1"
# ---- sets and any
import os,json
os.environ |= json.load(open("x"))
# ---- sets and any
import os
def handler(e,c):
  os.environ[e["k"]]="1"
  import numpy
# ---- sets and any
import os
def handler(e,c):
  os.environ.update(e)
  from impl import x
# ---- sets and any
import os
(lambda: os.environ.update(read()))()
# ---- sets and any
import os
class C:
  for k in read(): os.environ[k]="1"
# ---- sets X
import os
e: dict = os.environ
e["X"]="1"
# ---- sets and any
import os
*rest, e = 1, os.environ
e["X"]="1"
# ---- sets and any
import os,enum
class K(enum.Enum): X=1
for k in K: os.environ[k.name]="1"
# ---- sets and any
import os
os.environ.popitem()
# ---- sets and any
import os
os.environ._data[b"X"]=b"1"
# ---- sets X
import os
def f(m): m.environ["X"]="1"
f(os)
# ---- sets and any
import os
p=os.putenv
p("X","1")
# ---- sets and any
import os,asyncio
async def s(): os.environ[await q()]="1"
asyncio.run(s())
# ---- sets and any
import os
def setup(): os.environ.update(read())
import sys
getattr(sys.modules[__name__],"setup")()
# ---- sets and any
import os
def setup(): os.environ.update(read())
globals()["setup"]()
# ---- sets and any
import os
k,_,v="X=1".partition("=")
os.environ[k]=v
# ---- sets and any
import os
os.environ[os.path.basename("a/X")]="1"
# ---- sets and any
import os
os.environ["APP_X".removeprefix("APP_")]="1"
# ---- sets and any
import os
os.environ["x".translate(str.maketrans("x","X"))]="1"
# ---- sets and any
import os
i=0
while i<2:
  i+=1
  os.environ["X"+str(i)]="1"
# ---- sets and any
import os
ks=("A","X","Y")
for k in ks[1:]: os.environ[k]="1"
# ---- sets and any
import os
for k in [k for k in ("X",) if k]: os.environ[k]="1"
# ---- sets and any
import os
d=[("X","1")]
for i in range(len(d)): os.environ[d[i][0]]=d[i][1]
# ---- sets and any
import os
class C(dict): pass
os.environ.update(C(X="1"))
# ---- sets and any
import os,functools
functools.reduce(lambda a,k: os.environ.setdefault(k,"1"),["X"],0)
# ---- sets and any
import os
for k in filter(None,["X"]): os.environ[k]="1"
# ---- sets and any
import os
it=iter(["X","1"])
for k in it: os.environ[k]=next(it)
# ---- sets and any
import os
d={"X":"1"}
while d:
  k,v=d.popitem()
  os.environ[k]=v
# ---- sets and any
import os
M={"a":"X"}
for v in M.values(): os.environ[v]="1"
# ---- sets and any
import os
M={"a":"X"}
os.environ[M.get(read(),"Z")]="1"
# ---- sets and any
import os
M={"a":"X"}
os.environ.update({v:k for k,v in M.items()})
# ---- sets nothing
import os
A=os.environ["A"]; B=os.environ.get("B","x"); C="C" in os.environ; D=dict(os.environ); E=os.environ.copy(); E["X"]="1"; D.update(a=1)
# ---- sets nothing
import os,subprocess
subprocess.run(["x"],env=os.environ)
subprocess.run(["x"],env={**os.environ,"A":"1"})
subprocess.Popen("x",env=dict(os.environ,A="1"))
# ---- sets nothing
import os,subprocess
env=os.environ.copy()
env[read()]="1"
env.update(read())
subprocess.run(["x"],env=env)
# ---- sets nothing
import os
env=dict(os.environ)
env[read()]="1"
# ---- sets nothing
import os
env={k:v for k,v in os.environ.items() if k}
env[read()]="1"
# ---- sets and any
import os,logging,json
logging.info("%s",os.environ)
print(os.environ)
json.dumps(dict(os.environ))
print(f"{os.environ}")
print(**os.environ)
# ---- sets and any
import os
def handler(e,c):
  os.environ[e["k"]]="1"
  os.environ.update(e)
  f(os.environ)
  return json.dumps(e)
# ---- sets and any
import os
if __name__=="__main__":
  os.environ.update(read())
# ---- sets and any
import os
def set_all(d): os.environ.update(d)
def handler(e,c): set_all(e)
# ---- sets and any
import os
class S:
  def use(self,d): os.environ.update(d)
s=S()
def handler(e,c): s.use(e)
# ---- sets and any
import os,functools
def logged(f):
  @functools.wraps(f)
  def w(*a): return f(*a)
  return w
@logged
def handler(e,c): os.environ.update(e)
# ---- sets nothing
def app(environ,start):
  environ["x"]=environ.get(environ["y"]); start()
def handler(e,c): return app(e,c)
# ---- sets nothing
import os
for k,v in sorted(os.environ.items()): print(k,v)
# ---- sets nothing
import os,string
string.Template("x").substitute(os.environ)
"{A}".format(**os.environ)
"%(A)s" % os.environ
# ---- sets nothing
import os
X=os.getenv(read(),"1")
g=os.environ.get
y=g("A")
# ---- sets nothing
d={}
d.pop("x",None); d.update(read()); d[read()]=1
class A:
  def update(self,x): self.d.update(x)
# ---- sets DJANGO_SETTINGS_MODULE
import os
os.environ.setdefault("DJANGO_SETTINGS_MODULE","x.y")
import django
django.setup()
# ---- sets and any
import os
for v in ("OMP_NUM_THREADS","MKL_NUM_THREADS"): os.environ[v]="1"
import numpy
for v in numpy.arange(3): print(v)
# ---- sets A B
import os
for v in ("A","B"):
  os.environ.setdefault(v, str(os.cpu_count()))
# ---- sets nothing
import os
CONFIG={k:os.environ.get(k) for k in ("A","B")}
region=os.environ["R"] if "R" in os.environ else None
if not os.environ.get("X"): print()
# ---- sets nothing
import re
p=re.compile(r"a+")
q=re.compile(read())
import pandas as pd
df=pd.DataFrame(); df.eval("a+b"); model.eval()
# ---- sets A
import os
os.environ["A"]=os.environ.get("B","x")+read()
# ---- sets PATH
import os
os.environ["PATH"]+=":"+os.getcwd()
# ---- sets A B C
import os
os.environ.update({"A":read(),"B":str(n)}, C=read())
# ---- sets and any
import os
X={"A":read()}
print(X)
os.environ.update(X)
def handler(e,c): return X
# ---- sets B
import os
if os.environ.get("A"):
  os.environ["B"]="x"
# ---- sets HOME MPLCONFIGDIR
import os,tempfile
os.environ["HOME"]=os.environ["MPLCONFIGDIR"]=tempfile.mkdtemp()
# ---- sets A
import os
KEY="A"
os.environ[KEY]=read()
def handler(e,c):
  KEY2=e["x"]
  return KEY2
# ---- sets X
import os, boto3, json
from aws_lambda_powertools import Logger
logger = Logger()
TABLE = os.environ["TABLE"]
s3 = boto3.client("s3", region_name=os.environ.get("AWS_REGION"))
@logger.inject_lambda_context
def handler(event, context):
    os.environ["X"] = event["x"]
    return json.dumps(event)
# ---- sets and any
import os, boto3
def load():
    for p in boto3.client("ssm").get_parameters_by_path(Path="/x")["Parameters"]:
        os.environ[p["Name"]] = p["Value"]
load()
import pandas
# ---- sets nothing
import os
from dataclasses import dataclass, field
@dataclass
class Settings:
    env: dict = field(default_factory=lambda: dict(os.environ))
    def get(self, k): return self.env[k]
    def set(self, k, v): self.env[k] = v
S = Settings()
def handler(e, c): S.set(e["a"], 1)
# ---- sets nothing
import os, subprocess
def run(cmd, **extra):
    env = os.environ.copy()
    env.update(extra)
    return subprocess.run(cmd, env=env, check=True)
run(["true"], A="1")
# ---- sets nothing
import os
ENV = {**os.environ, "A": "1"}
ENV["B"] = read()
def handler(e, c): return ENV
# ---- sets and any
import os
from contextlib import contextmanager
@contextmanager
def env(**values):
    old = {k: os.environ.get(k) for k in values}
    os.environ.update(values)
    try: yield
    finally:
        for k, v in old.items():
            if v is None: os.environ.pop(k, None)
            else: os.environ[k] = v
with env(MPLBACKEND="svg"):
    import matplotlib
# ---- sets and any
import os
N = str(os.cpu_count() or 1)
THREADS = ["OMP_NUM_THREADS", "MKL_NUM_THREADS"]
for name in THREADS:
    os.environ.setdefault(name, N)
for name in sorted(os.listdir(".")): print(name)
# ---- sets and any
import os
DEFAULTS = {"A": "1", "B": "2"}
for key, value in DEFAULTS.items():
    if key not in os.environ:
        os.environ[key] = value
def handler(event, context):
    for key, value in event.items():
        print(key, value)
# ---- sets and any
import os
class Config:
    DEFAULTS = {"A": "1"}
    def __init__(self, env=None):
        self.env = env or os.environ
        for k, v in self.DEFAULTS.items():
            self.env.setdefault(k, v)
    def get(self, k): return self.env[k]
CONFIG = Config()
# ---- sets HOME NUMBA_CACHE_DIR PATH XDG_CACHE_HOME
import os, tempfile, pathlib
tmp = pathlib.Path(tempfile.mkdtemp())
os.environ["NUMBA_CACHE_DIR"] = str(tmp / "numba")
os.environ["PATH"] = os.pathsep.join([str(tmp), os.environ["PATH"]])
os.environ.update(HOME=str(tmp), XDG_CACHE_HOME=str(tmp))
# ---- sets DJANGO_SETTINGS_MODULE
import os, sys
def main():
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "app.settings")
    from django.core.management import execute_from_command_line
    execute_from_command_line(sys.argv)
if __name__ == "__main__": main()
# ---- sets x
from flask import Flask, request
app = Flask(__name__)
@app.before_request
def b(): request.environ["x"] = request.args["y"]
@app.route("/")
def index(): return request.environ[request.args["z"]]
def handler(e, c):
    environ = {}
    environ["A"] = e["a"]; environ.update(e)
    return app(environ, None)
# ---- sets nothing
class Mid:
    def __init__(self, app): self.app = app
    def __call__(self, environ, start_response):
        environ[start_response] = 1
        return self.app(environ, start_response)
app = Mid(object())
def handler(e, c): return app(e, c)
# ---- sets and any
import os
with open(".env") as f:
    for line in f:
        key, _, value = line.strip().partition("=")
        os.environ[key] = value
# ---- sets and any
import os
for k in list(os.environ):
    if k.startswith("AWS_"): del os.environ[k]
# ---- sets and any
import os
DEBUG = eval(os.environ.get("DEBUG", "False"))
# ---- sets A and any
import os
from unittest import mock
with mock.patch.dict(os.environ, {"A": "1"}, clear=True):
    import x
# ---- sets and any
import os
from unittest import mock
with mock.patch("os.environ", {"A": "1"}):
    import x
# ---- sets and any
import os
from unittest import mock
with mock.patch.object(os, "environ", {"A": "1"}):
    import x
# ---- sets and any
import os
def f():
    def g(k): os.environ[k] = "1"
    return g
f()("A")
# ---- sets and any
import os
def f(): return os.environ.setdefault
f()("A", "1")
# ---- sets and any
import os
OPS = {"set": os.environ.__setitem__}
OPS["set"]("A", "1")
# ---- sets and any
import os
class E:
    set = os.environ.__setitem__
E.set("A", "1")
# ---- sets and any
import os
class B:
    def put(self, k): os.environ[k] = "1"
class C(B):
    def put(self, k): super().put(k + "X")
C().put("A")
# ---- sets and any
import os
class Env:
    def __setattr__(self, k, v): os.environ[k] = v
env = Env(); env.A = "1"
# ---- sets and any
import os
class Env:
    def __setitem__(self, k, v): os.environ[k.upper()] = v
env = Env(); env["a"] = "1"
# ---- sets and any
import os
class N:
    def __getattr__(self, k): return k
os.environ[N().A] = "1"
# ---- sets and any
import os
def f(acc=[]):
    acc.append("A"); return acc
for k in f(): os.environ[k] = "1"
# ---- sets and any
import os
while (k := next(it, None)): os.environ[k] = "1"
# ---- sets and any
import os
a = b = {}
b["A"] = "1"
os.environ.update(a)
# ---- sets and any
import os
ks = ["A"] * 2
os.environ[ks[0]] = "1"
# ---- sets and any
import os
first, *rest = "A", "B", "C"
for k in rest: os.environ[k] = "1"
# ---- sets and any
import os
os.environ |= {k: v for k, v in zip("AB", "12")}
# ---- sets and any
import os
for (k, v), w in [(("A", 1), 2)]: os.environ[k] = "1"
# ---- sets and any
import os
ks = ["Z"]
ks[:] = ["A"]
for k in ks: os.environ[k] = "1"
# ---- sets and any
import os
k = "Z"
def f(): return k
k = "A"
os.environ[f()] = "1"
# ---- sets and any
import os
try: raise KeyError("A")
except KeyError as e: os.environ[e.args[0]] = "1"
# ---- sets and any
import os
try: from names import KEY
except ImportError: KEY = "Z"
os.environ[KEY] = "1"
# ---- sets and any
import os
class Defaults:
    A = "1"
for k, v in Defaults.__dict__.items():
    if k.isupper(): os.environ[k] = v
# ---- sets and any
import os
from typing import NamedTuple
class P(NamedTuple):
    key: str = "Z"
os.environ[P("A").key] = "1"
# ---- sets and any
import os, enum
class K(str, enum.Enum):
    A = "A"
for k in K: os.environ[k] = "1"
# ---- sets and any
import os
os.environ["A" if 1 else os.environ["B"]] = "1"
# ---- sets and any
import os
class E(os.environ.__class__): pass
os.environ.__class__.__setitem__(os.environ, "A", "1")
# ---- sets and any
import os
type(os.environ).update(os.environ, {"A": "1"})
# ---- sets and any
import os
from collections.abc import MutableMapping
MutableMapping.update(os.environ, A="1")
# ---- sets A
import posix
posix.putenv(b"A", b"1")
# ---- sets and any
import ctypes
libc = ctypes.CDLL(None)
put = libc.setenv
put(b"A", b"1", 1)
# ---- sets and any
import os, enum
name = "report"
class K(enum.Enum): MPLBACKEND = "svg"
for k in K: os.environ[k.name] = k.value
# ---- sets and any
import os, pathlib, tempfile
name = "report"
d = pathlib.Path(tempfile.mkdtemp()); (d/"MPLBACKEND").write_text("svg")
for p in d.iterdir(): os.environ[p.name] = p.read_text()
# ---- sets and any
import os, pathlib, tempfile
class Job: stem = "x"
d = pathlib.Path(tempfile.mkdtemp()); (d/"MPLBACKEND.txt").write_text("svg")
for p in d.iterdir(): os.environ[p.stem] = "svg"
# ---- sets and any
import os, lib
class Mine: key = "A"
c = lib.Config()
os.environ[c.key] = "svg"
# ---- sets and any
import os, lib
class Mine: key = "A"
os.environ[lib.cfg.key] = "svg"
# ---- sets and any
import os, argparse
class Job: name = "job"
p = argparse.ArgumentParser(); p.add_argument("--name", default="MPLBACKEND")
a = p.parse_args([])
os.environ[a.name] = "svg"
# ---- sets and any
import os, collections
P = collections.namedtuple("P", "key value")
class Mine: key = "A"
for p in [P("MPLBACKEND", "svg")]: os.environ[p.key] = p.value
# ---- sets and any
import os, types
key = "A"
c = types.SimpleNamespace(key="MPLBACKEND")
os.environ[c.key] = "svg"
# ---- sets and any
import os, re
def group(x): return "A"
m = re.match(r"(\w+)=(\w+)", "MPLBACKEND=svg")
os.environ[m.group(1)] = m.group(2)
# ---- sets and any
import os, lib
def key_of(): return "A"
c = lib.Config()
os.environ[c.key_of()] = "svg"
# ---- sets A and any
import os, lib
def configure(env): env.setdefault("A", "1")
configure(os.environ)
client = lib.Client()
client.configure(os.environ)
# ---- sets and any
import os
class A:
    def __init__(self, k): os.environ[k] = "svg"
    def again(self): return self.__class__("MPLBACKEND")
A("X").again()
# ---- sets and any
import os
class A:
    def __init__(self, k): os.environ[k] = "svg"
    def again(self): return type(self)("MPLBACKEND")
A("X").again()
# ---- sets and any
import os
class Env:
    def __init__(self): super().__setattr__("_seen", [])
    def __setattr__(self, k, v): os.environ[k] = v
env = Env(); env.MPLBACKEND = "svg"
# ---- sets and any
import os
class S:
    def put(self, k): os.environ[k] = "svg"
s = S(); s.put("A"); getattr(s, "put")("MPLBACKEND")
# ---- sets and any
import os
def put(k): os.environ[k] = "svg"
put("A"); globals()["put"]("MPLBACKEND")
# ---- sets and any
import os, operator
class S:
    def put(self, k): os.environ[k] = "svg"
s = S(); s.put("A"); operator.methodcaller("put", "MPLBACKEND")(s)
# ---- sets and any
import os
KEY = "A"
globals()["KEY"] = "MPLBACKEND"
os.environ[KEY] = "svg"
# ---- sets and any
import os
KEY = "A"
globals().update(KEY="MPLBACKEND")
os.environ[KEY] = "svg"
# ---- sets and any
import os
class C: key = "A"
setattr(C, "key", "MPLBACKEND")
os.environ[C.key] = "svg"
# ---- sets and any
import os
class Config:
    backend_var = "A"
    def __init__(self, **kw): self.__dict__.update(kw)
c = Config(backend_var="MPLBACKEND")
os.environ[c.backend_var] = "svg"
# ---- sets and any
import os
class Config:
    var = "A"
    def __init__(self, **kw):
        for k, v in kw.items(): setattr(self, k, v)
os.environ[Config(var="MPLBACKEND").var] = "svg"
# ---- sets and any
import os
CONFIG = {"env": {"A": "1"}}
env = CONFIG["env"]
env["MPLBACKEND"] = "svg"
os.environ.update(CONFIG["env"])
# ---- sets and any
import os
CONFIG = {"env": {"A": "1"}}
def fill(d): d["MPLBACKEND"] = "svg"
fill(CONFIG["env"])
os.environ.update(CONFIG["env"])
# ---- sets and any
import os, lib
CONFIG = {"env": {"A": "1"}}
lib.fill(CONFIG["env"])
os.environ.update(CONFIG["env"])
# ---- sets and any
import os
CONFIG = {"env": {"A": "1"}}
CONFIG.setdefault("env", {})["MPLBACKEND"] = "svg"
os.environ.update(CONFIG["env"])
# ---- sets and any
import os
CONFIG = {"env": {"A": "1"}}
CONFIG.get("env")["MPLBACKEND"] = "svg"
os.environ.update(CONFIG["env"])
# ---- sets and any
import os
CONFIG = {"env": {"A": "1"}}
for part in CONFIG.values(): part["MPLBACKEND"] = "svg"
os.environ.update(CONFIG["env"])
# ---- sets and any
import os
def update(d): d["MPLBACKEND"] = "svg"
env = {"A": "1"}
update(env)
os.environ.update(env)
# ---- sets and any
import os
from lib import update
env = {"A": "1"}
update(env)
os.environ.update(env)
# ---- sets and any
import os, functools
@functools.cache
def conf():
    d = {"A": "1"}
    return d
conf()["MPLBACKEND"] = "svg"
os.environ.update(conf())
# ---- sets and any
import os, functools
@functools.lru_cache(maxsize=None)
def conf():
    d = {"A": "1"}
    return d
c = conf(); c["MPLBACKEND"] = "svg"
os.environ.update(conf())
# ---- sets and any
import os
getattr(os.environ, "update")(MPLBACKEND="svg")
# ---- sets and any
import os
getattr(os.environ, "__setitem__")("MPLBACKEND", "svg")
# ---- sets and any
import os
from dataclasses import dataclass
@dataclass
class Setup:
    env: dict
    def apply(self): self.env["MPLBACKEND"] = "svg"
Setup(os.environ).apply()
# ---- sets and any
import os
from dataclasses import dataclass, field
from typing import MutableMapping
@dataclass
class Setup:
    env: MutableMapping = field(default_factory=lambda: os.environ)
    def apply(self): self.env["MPLBACKEND"] = "svg"
Setup().apply()
# ---- sets and any
import os
from typing import NamedTuple
class Setup(NamedTuple):
    env: dict
    def apply(self): self.env["MPLBACKEND"] = "svg"
Setup(os.environ).apply()
# ---- sets and any
import os
def configure(env=None, backend="svg"): env["MPLBACKEND"] = backend
def setup(**options): configure(**options)
setup(env=os.environ)
# ---- sets and any
import os, contextlib
@contextlib.contextmanager
def environment():
    before = dict(os.environ)
    try: yield os.environ
    finally: os.environ.update(before)
with environment() as env: env["MPLBACKEND"] = "svg"
# ---- sets and any
import os
class patched:
    def __enter__(self): return os.environ
    def __exit__(self, *a): pass
with patched() as env: env["MPLBACKEND"] = "svg"
# ---- sets and any
import os
from unittest import mock
mock.patch.dict(os.environ).start()["MPLBACKEND"] = "svg"
# ---- sets and any
import os
from unittest import mock
with mock.patch.dict(os.environ) as env: env["MPLBACKEND"] = "svg"
# ---- sets and any
import os, lib
@lib.cached
def env(): return os.environ
env()["MPLBACKEND"] = "svg"
# ---- sets and any
import os
class classproperty:
    def __init__(self, f): self.f = f
    def __get__(self, o, t): return self.f(t)
class C:
    @classproperty
    def env(cls): return os.environ
C.env["MPLBACKEND"] = "svg"
# ---- sets and any
import os, lib
def read(): return {"MPLBACKEND": "svg"}.copy().__iter__()
@lib.run_now
def setup():
    for k in read(): os.environ[k] = "svg"
# ---- sets and any
import os, lib
class Env(lib.Base): pass
Env(os.environ)
# ---- sets and any
import os, collections
class Env(collections.ChainMap): pass
Env(os.environ)["MPLBACKEND"] = "svg"
# ---- sets and any
import os
def read(): return [*{"MPLBACKEND": 1}.__iter__()]
class S:
    def load_x(self):
        for k in read(): os.environ[k] = "svg"
    def load(self):
        for n in dir(self):
            if n.startswith("load_"): getattr(self, n)()
S().load()
# ---- sets and any
import os
class N: n = "A"
class D:
    def __set_name__(self, o, name): setattr(self, "n", name)
    def __set__(self, o, v): os.environ[self.n] = v
class E: MPLBACKEND = D()
E().MPLBACKEND = "svg"
# ---- sets and any
import os
class Reg:
    def __init__(self): self.d = {}
    def get(self): return "A"
class Other(dict): pass
o = Other(x="MPLBACKEND")
os.environ[o.get("x")] = "svg"
# ---- sets and any
import os
class X: __name__ = "A"
def MPLBACKEND(): return "svg"
os.environ[MPLBACKEND.__name__] = MPLBACKEND()
# ---- sets and any
import os, configparser
class Mine:
    def items(self): return [("A", "1")]
c = configparser.ConfigParser(); c.optionxform = str
c.read_string("[env]\nMPLBACKEND=svg")
for k, v in c["env"].items(): os.environ[k] = v
# ---- sets and any
import os, types
class Mine:
    def items(self): return [("A", "1")]
m = types.MappingProxyType({"MPLBACKEND": "svg"})
for k, v in m.items(): os.environ[k] = v
# ---- sets and any
import os
class Line:
    def split(self, s): return ["A", "1"]
text = open(__file__).read() if 0 else str(object)[:0] + "MPLBACKEND=svg"
k, v = text.split("=")
os.environ[k] = v
# ---- sets and any
import os
def change():
    global k
    k = "MPLBACKEND"
for k in ("A",):
    change(); os.environ[k] = "svg"
# ---- sets and any
import os
for k in ("A",):
    from lib import __name__ as k
    os.environ[k] = "svg"
# ---- sets and any
import os
for k in ("A",):
    match "MPLBACKEND":
        case k: os.environ[k] = "svg"
# ---- sets and any
import os
KEY = "A"
del KEY
import builtins
builtins.KEY = "MPLBACKEND"
os.environ[KEY] = "svg"
# ---- sets and any
import os
k = "MPLBACKEND"
class C:
    k = "A"
    x = [os.environ.__setitem__(k, "svg") for _ in range(1)]
# ---- sets and any
import os
a = [["A"]]
for x in [*a]: x.append("MPLBACKEND")
for k in a[0]: os.environ[k] = "svg"
# ---- sets and any
import os
a = [["A"]]
for x in a: x.append("MPLBACKEND")
for k in a[0]: os.environ[k] = "svg"
# ---- sets and any
import os
a = [["A"]]
b = a.copy()
b[0].append("MPLBACKEND")
for k in a[0]: os.environ[k] = "svg"
# ---- sets and any
import os
D = {"x": {"A": "1"}}
for n, d in D.items(): d["MPLBACKEND"] = "svg"
for d in D.values(): os.environ.update(d)
# ---- sets and any
import os
def chain(x): x.append("MPLBACKEND"); return x
a = ["A"]
chain(a)
for k in a: os.environ[k] = "svg"
# ---- sets and any
import os
def copy(x): x.append("MPLBACKEND"); return x
a = ["A"]
copy(a)
for k in a: os.environ[k] = "svg"
# ---- sets and any
import os
def upper(s): return "A"
k = ("mplbackend" + "")
os.environ[k.upper()] = "svg"
# ---- sets and any
import os
def upper(): return "A"
k = open(os.devnull).read() + "mplbackend"
os.environ[k.upper()] = "svg"
# ---- sets and any
import os
class Cleaner:
    def strip(self): return "A"
for line in ["MPLBACKEND=svg\n"].__iter__():
    k, v = line.strip().split("=")
    os.environ[k] = v
# ---- sets and any
import os, enum
class K(enum.Enum):
    B = "MPLBACKEND"
value = "A"
os.environ[K.B.value] = "svg"
# ---- sets and any
import os, enum
class K(enum.Enum):
    B = "MPLBACKEND"
class Row:
    value = "A"
os.environ[K.B.value] = "svg"
# ---- sets and any
import os
class Mine: key = "A"
from lib import *
os.environ[cfg.key] = "svg"
# ---- sets and any
import os
def basename(x): return "A"
os.environ[os.path.basename("a/MPLBACKEND")] = "svg"
# ---- sets and any
import os, types
def get(k): return "A"
c = types.MappingProxyType({"k": "MPLBACKEND"})
os.environ[c.get("k")] = "svg"
