# What a program sees of processors and memory is its own limits, at each place where libraries look.
# /// script
# [tool.lambswool]
# memory = "256MB"
# cpu = 0.5
# ///
import glob
import os


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        return error.strerror


def field(path, name):
    return next((line.split()[1] for line in read(path).splitlines() if line.startswith(name)), None)


def handler(event, context):
    cpuinfo = read("/proc/cpuinfo")
    groups = [line.split(":") for line in read("/proc/self/cgroup").splitlines()]
    return {
        "processors": cpuinfo.count("processor\t:"),
        "flags": "flags" in cpuinfo or "Features" in cpuinfo,
        "count": os.cpu_count(),
        "online": [read(f"/sys/devices/system/cpu/{name}") for name in ("online", "possible", "present")],
        "directories": [os.path.basename(path) for path in glob.glob("/sys/devices/system/cpu/cpu[0-9]*")],
        "core": read("/sys/devices/system/cpu/cpu0/topology/core_id").strip().isdigit(),
        "memory": [int(field("/proc/meminfo", name)) << 10 for name in ("MemTotal:", "MemAvailable:", "SwapTotal:")],
        "stat": [line.split()[0] for line in read("/proc/stat").splitlines() if line.startswith("cpu")],
        "booted": int(field("/proc/stat", "btime")) > 1_500_000_000,
        "load": read("/proc/loadavg"),
        "uptime": float(read("/proc/uptime").split()[0]) > 0,
        "memory.max": read("/sys/fs/cgroup/memory.max"),
        "limit_in_bytes": read("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        "cpu.max": read("/sys/fs/cgroup/cpu.max"),
        "quota": read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
        # The limit of processors has a group of its own where there is one hierarchy for each controller.
        "groups": sorted({path for _, controllers, path in groups if "cpu" not in controllers.split(",")}),
        "others": [read(f"/proc/{name}") for name in ("version", "interrupts", "sys/kernel/hostname", "cgroups")],
        "self": os.readlink("/proc/self"),
        "written": [write(f"/proc/self/{name}") for name in ("autogroup", "oom_score_adj", "comm")],
    }


def write(path):
    try:
        with open(path, "w") as file:
            file.write("19")
    except OSError as error:
        return error.strerror
