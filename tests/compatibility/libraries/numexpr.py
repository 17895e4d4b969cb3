# /// script
# dependencies = ["numexpr==2.14.2", "h5py==3.16.0"]
# ///
# Evaluates with threads of its own, one for each processor, and keeps arrays in files.
import os
import tempfile

import h5py
import numexpr
import numpy as np


def work() -> None:
    assert 1 <= numexpr.detect_number_of_cores() <= 4096
    a, b = np.arange(300_000.0), np.ones(300_000)
    assert len(b) == 300_000
    assert np.array_equal(numexpr.evaluate("2*a + b*3"), 2 * a + 3)
    assert numexpr.evaluate("sum(a)") == a.sum()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "flock.h5")
        with h5py.File(path, "w") as file:
            made = file.create_dataset("farm/a", data=a, compression="gzip", chunks=(30_000,))
            made.attrs["namé"] = "hügel"
        with h5py.File(path, "r") as file:
            assert file["farm/a"][1000:1003].tolist() == [1000.0, 1001.0, 1002.0]
            assert file["farm/a"].attrs["namé"] == "hügel"
