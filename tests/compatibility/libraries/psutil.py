# /// script
# dependencies = ["psutil==7.2.2"]
# ///
# What the system tells of its processors, its memory and this process.
import os
import time

import psutil


def work() -> None:
    assert 1 <= psutil.cpu_count() <= 4096 and psutil.cpu_count() == os.cpu_count()
    memory = psutil.virtual_memory()
    assert 0 < memory.available <= memory.total and 0 <= memory.percent <= 100
    assert 0 < psutil.boot_time() <= time.time() and len(psutil.getloadavg()) == 3
    assert psutil.disk_usage("/tmp").total > 0
    own = psutil.Process()
    before = own.memory_info().rss
    held = bytearray(os.urandom(1)) * (32 << 20)
    assert own.memory_info().rss - before > 24 << 20, (before, own.memory_info().rss)
    assert own.pid == os.getpid() and own.is_running() and own.status() == psutil.STATUS_RUNNING
    begun = own.cpu_times()
    while sum(own.cpu_times()[:2]) - sum(begun[:2]) < 0.03:
        sum(range(100_000))
    assert own.num_threads() >= 1 and own.create_time() <= time.time() + 1
    times = psutil.cpu_times()
    assert times.user >= 0 and times.idle >= 0 and len(psutil.cpu_percent(0.05, percpu=True)) >= 1
    assert len(held) == 32 << 20 and psutil.swap_memory().total >= 0
    assert psutil.pid_exists(os.getpid()) and psutil.cpu_stats().ctx_switches >= 0
