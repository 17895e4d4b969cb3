# /// script
# dependencies = ["matplotlib==3.10.3", "numpy==2.2.6"]
# ///
# The entry file sets, by name, variables that packages look up while they are imported, in ways beside the plainest.
# Right is, with a zygote as without: ["svg", "shop", "1"].
import os
from os import environ as variables

os.environ["APP"], os.environ["MPLBACKEND"] = "shop", "svg"
for name, value in {"OPENBLAS_NUM_THREADS": "1"}.items():
    variables[name] = value
import matplotlib
import numpy


def handler(event, context):
    return [matplotlib.get_backend(), os.environ["APP"], str(pool())]


def pool():
    import ctypes

    return ctypes.CDLL(numpy._core._multiarray_umath.__file__).scipy_openblas_get_num_threads64_()
