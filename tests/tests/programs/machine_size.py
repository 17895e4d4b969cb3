# What a program finds out about its processor and its memory. Right: it can read all of it, the numbers agree with one
# another, and memory is that of the setting below.
# /// script
# [tool.lambswool]
# memory = "300MB"
# ///
import os


def text(path):
    with open(path) as file:
        return file.read()


def handler(event, context):
    cpuinfo = text("/proc/cpuinfo")
    flags = next(line for line in cpuinfo.splitlines() if line.startswith("flags")).split(":")[1].split()
    meminfo = {line.split(":")[0]: int(line.split()[1]) << 10 for line in text("/proc/meminfo").splitlines() if line.endswith("kB")}
    total, page = 300 << 20, os.sysconf("SC_PAGE_SIZE")
    before = meminfo["MemAvailable"]
    block = bytearray(event["bytes"])
    for at in range(0, len(block), page):
        block[at] = 1
    after = int(next(line for line in text("/proc/meminfo").splitlines() if line.startswith("MemAvailable")).split()[1]) << 10
    return {
        "processors": cpuinfo.count("processor\t:"),
        "counted": [os.cpu_count(), len(os.sched_getaffinity(0)), os.sysconf("SC_NPROCESSORS_ONLN"), os.sysconf("SC_NPROCESSORS_CONF")],
        "lists": [text(f"/sys/devices/system/cpu/{name}").strip() for name in ("online", "possible", "present")],
        "topology": text("/sys/devices/system/cpu/cpu0/topology/core_id").strip(),
        "model": "model name\t: " in cpuinfo,
        "usual": [name for name in ("fpu", "sse2", "cx16") if name not in flags],
        "memory": abs(meminfo["MemTotal"] - total) < 2 * page,
        "pages": abs(os.sysconf("SC_PHYS_PAGES") * page - total) < 2 * page,
        "free": 0 < before <= meminfo["MemTotal"] and 0 < os.sysconf("SC_AVPHYS_PAGES") * page <= total,
        "less": before - after >= len(block) // 2,
        "cgroup": [int(text(f"/sys/fs/cgroup/{name}")) // page == total // page for name in ("memory.max", "memory/memory.limit_in_bytes")],
        "share": text("/sys/fs/cgroup/cpu.max").split(),
        "place": text("/proc/self/cgroup"),
        "mounted": " /sys/fs/cgroup " in text("/proc/self/mountinfo"),
        "times": text("/proc/stat").startswith("cpu  ") and float(text("/proc/uptime").split()[0]) > 0,
        "load": len(text("/proc/loadavg").split()),
        "limits": "Max open files            1024" in text("/proc/self/limits"),
    }
