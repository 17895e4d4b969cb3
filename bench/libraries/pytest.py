# /// script
# dependencies = ["pytest==9.2.0"]
# ///
import pytest


def work() -> None:
    assert 0.1 + 0.2 == pytest.approx(0.3)
    with pytest.raises(ZeroDivisionError, match="division"):
        _ = 1 / 0
