# /// script
# dependencies = ["numpy==2.4.6"]
# ///
import numpy as np


def work() -> None:
    matrix = np.array([[2.0, 0.0], [0.0, 3.0]])
    assert np.linalg.det(matrix @ matrix).round() == 36.0
