# /// script
# dependencies = ["psutil==7.2.2"]
# ///
# What the system tells of this process's files, arguments and variables.
# forks: has no attribute 'memory_maps'
# machines: AssertionError: []
import os
import tempfile

import psutil


def work() -> None:
    own = psutil.Process()
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        file.write(b"x")
        assert file.name in [each.path for each in own.open_files()], own.open_files()
        assert own.num_fds() >= 4
    assert own.cwd() == os.getcwd() and isinstance(own.cmdline(), list)
    assert own.uids().real == os.getuid() and own.username()
    assert own.nice() == os.nice(0) and own.num_ctx_switches().voluntary >= 0
    assert any("libc" in each.path for each in own.memory_maps())
    assert len(own.threads()) == own.num_threads()
    assert "PATH" in own.environ()
    assert own.cpu_affinity() and set(own.cpu_affinity()) <= set(range(4096))
