"""Sets variables in the ways in which people do. What a line sets stands behind it."""

import ctypes
import operator
import os
import os as system
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
os.environ.update(zip(("F1", "F2"), "xy"))  # sets F1 F2
os.environ.update((name, "1") for name in ("F3", "F4"))  # sets F3 F4
os.environ.update({"F" + n: "1" for n in "5 6".split()})  # sets F5 F6
os.environ |= {"G1": "5"} | {"G2": "6"}  # sets G1 G2
environ |= [("G3", "x")]  # sets G3
os.putenv("H1", "6")  # sets H1
put("H2", "6")  # sets H2
os.environ.__setitem__("H3", "x")  # sets H3
operator.setitem(os.environ, "H4", "x")  # sets H4
(env := os.environ)["I1"] = "x"  # sets I1
os.environ[(key := "I2")] = "x"  # sets I2
for key, value in {"J1": "x", "J2": "y"}.items():  # sets J1 J2
    os.environ[key] = value
for j in ("J3", "J4"):  # sets J3 J4
    os.environ.setdefault(j, "1")
OWN = {"J5": "x", **{"J6": "y"}}  # sets J5 J6
for k in sorted(OWN):
    env[k] = OWN[k]
for _, k2 in enumerate(["J7"]):  # sets J7
    os.environ[k2] = "x"
for os.environ["J8"] in "ab":  # sets J8
    pass
PREFIX, NAME = "K", "K1"  # sets K1
os.environ[NAME] = os.environ[f"{PREFIX}2"] = "x"  # sets K2
os.environ[NAME + "_X"] = "x"  # sets K1_X
os.environ["k3".upper()] = "x"  # sets K3
os.environ["L1" if NAME else "L2"] = "x"  # sets L1 L2
del os.environ["M1"]  # sets M1
os.environ.pop("M2", None)  # sets M2
os.unsetenv("M3")  # sets M3
getattr(os, "environ")["N1"] = "x"  # sets N1
os.environ = {**os.environ, "N2": "x"}  # sets N2
if NAME:
    try:
        os.environ["O1"] = "x"  # sets O1
    except KeyError:
        with open(NAME) as os.environ["O2"]:  # sets O2
            pass


def default(name, value="1", *, also="P3"):  # sets P3
    os.environ.setdefault(name, value)
    os.environ[also] = value


def together(**named):
    os.environ.update(named)


default("P1")  # sets P1
default(name="P2")  # sets P2
together(P4="x")  # sets P4

def all_of(*names):
    for name in names:
        os.environ[name] = "1"


class Keys:
    MAIN = "R1"  # sets R1


all_of("R2", "R3")  # sets R2 R3
os.environ[Keys.MAIN] = "1"
keep = os.environ.setdefault
keep("R4", "1")  # sets R4
join = os.environ.update
join(R5="1")  # sets R5
vars(os)["environ"]["R6"] = "1"  # sets R6
list(map(os.environ.__setitem__, ["R7"], ["1"]))  # sets R7
mock.patch.dict(os.environ, {"R8": "1"}).start()  # sets R8
mock.patch.dict("os.environ", R9="1").start()  # sets R9
STAGES = {"prod": {"S1": "1"}, "dev": {"S2": "2"}}  # sets S1 S2
os.environ.update(STAGES["prod"])
os.environ.update(STAGES.get("dev"))
for line in "S3=1\nS4=2".splitlines():  # sets S3 S4
    left, right = line.split("=")
    os.environ[left] = right
ctypes.CDLL(None).setenv(b"S5", b"1", 1)  # sets S5
read = os.environ["READ"] + os.environ.get("GOT", "")  # not READ GOT
other = {}
other["OTHER"] = other.update({"UPDATED": 1})  # not OTHER UPDATED
other |= {"JOINED": 1}  # not JOINED
os.environ[input()] = "TEXT"  # not TEXT
os.getenv("LOOKED", "DEFAULT")  # not LOOKED DEFAULT


def handler(event, context):
    os.putenv("Q1", "6")  # sets Q1
    os.environ[event["name"]] = "7"  # not name
