# /// script
# dependencies = ["scipy==1.17.1"]
# ///
import numpy as np
from scipy import linalg


def work() -> None:
    solved = linalg.solve(np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([3.0, 5.0]))
    assert np.allclose(solved, [0.8, 1.4])
