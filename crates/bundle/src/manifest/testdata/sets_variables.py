"""Sets variables in the ways in which people do. What a line sets stands behind it."""

import ctypes
import os
import os as system
import subprocess
from os import environ, environb
from os import environ as e
from os import putenv as put
from unittest import mock

os.environ["A1"] = "1"  # sets A1
os.environ["A2"] += ":/x"  # sets A2
os.environ["A3"]: str = "x"  # sets A3
system.environ["A4"] = environ["A5"] = e["A6"] = "x"  # sets A4 A5 A6
os.environ["B1"], os.environ["B2"] = "shop", "svg"  # sets B1 B2
[os.environ["B3"], (x, *os.environ["B4"])] = 1, (2, 3)  # sets B3 B4
environb[b"C1"] = b"x"  # sets C1
os.environb.update({b"C2": b"x"})  # sets C2
environ.setdefault("D1", "2")  # sets D1
environ.setdefault(key="D2", value="2")  # sets D2
os.environ.update({"E1": "3", **{"E2": "x"}}, E3="4", **{"E4": "x"})  # sets E1 E2 E3 E4
os.environ.update([("E5", "1"), ["E6", "2"]])  # sets E5 E6
os.environ.update(dict(E7="x"), **dict(E8="y"))  # sets E7 E8
os.environ |= {"G1": "5"}  # sets G1
environ |= [("G3", "x")]  # sets G3
os.putenv("H1", "6")  # sets H1
put("H2", "6")  # sets H2
os.environ.__setitem__("H3", "x")  # sets H3
(env := os.environ)["I1"] = "x"  # sets I1
for key, value in {"J1": "x", "J2": "y"}.items():  # sets J1 J2
    os.environ[key] = value
for j in ("J3", "J4"):  # sets J3 J4
    os.environ.setdefault(j, "1")
OWN = {"J5": "x", **{"J6": "y"}}  # sets J5 J6
for k in sorted(OWN):
    env[k] = OWN[k]
os.environ.update(OWN)
for os.environ["J8"] in "ab":  # sets J8
    pass
NAME = "K1"  # sets K1
os.environ[NAME] = "x"
os.environ["L1" if NAME else "L2"] = "x"  # sets L1 L2
del os.environ["M1"]  # sets M1
os.environ.pop("M2", None)  # sets M2
os.unsetenv("M3")  # sets M3
os.environ = {**os.environ, "N2": "x"}  # sets N2
if NAME:
    try:
        os.environ["O1"] = "x"  # sets O1
    except KeyError:
        with open(NAME) as os.environ["O2"]:  # sets O2
            pass


def setup(variables, also=os.environ):
    variables["P1"] = also["P2"] = "x"  # sets P1 P2


setup(os.environ)
mock.patch.dict(os.environ, {"R8": "1"}).start()  # sets R8
mock.patch.dict("os.environ", R9="1").start()  # sets R9
ctypes.CDLL(None).setenv(b"S5", b"1", 1)  # sets S5
read = os.environ["READ"] + os.environ.get("GOT", "")  # not READ GOT
other = os.environ.copy()
other["OTHER"] = other.update({"UPDATED": 1})  # not OTHER UPDATED
other |= {"JOINED": 1}  # not JOINED
subprocess.run(["true"], env={**os.environ, "STARTED": "1"})  # not STARTED
subprocess.run(["true"], env=os.environ)
os.getenv("LOOKED", "DEFAULT")  # not LOOKED DEFAULT
print(len(os.environ), sorted(os.environ), dict(os.environ), "READ" in environ)


def handler(event, context):
    os.putenv("Q1", "6")  # sets Q1
    return {name: value for name, value in os.environ.items() if name.startswith("READ")}
