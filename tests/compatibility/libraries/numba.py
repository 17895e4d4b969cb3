# /// script
# dependencies = ["numba==0.68.1"]
# ///
# Compiles functions to machine code for this processor, and runs them on threads.
import numba
import numpy as np


def work() -> None:
    @numba.njit
    def count(limit):
        total = 0
        for number in range(limit):
            total += number * number % 7
        return total

    assert count(100_000) == sum(n * n % 7 for n in range(100_000))

    @numba.njit(parallel=True)
    def double(numbers):
        out = np.empty_like(numbers)
        for place in numba.prange(len(numbers)):
            out[place] = numbers[place] * 2
        return out

    assert double(np.arange(10_000.0)).sum() == 99990000.0

    @numba.vectorize(["float64(float64, float64)"])
    def larger(a, b):
        return a if a > b else b

    assert larger(np.array([1.0, 5.0]), 3.0).tolist() == [3.0, 5.0]
