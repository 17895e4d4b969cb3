# /// script
# dependencies = ["mock==5.2.0"]
# ///
import os

from mock import patch  # noqa: UP026


def work() -> None:
    with patch("os.getcwd", return_value="/flock") as patched:
        assert os.getcwd() == "/flock"
    patched.assert_called_once_with()
