# /// script
# dependencies = ["py-cpuinfo==9.0.0"]
# ///
# What the system tells of the processor's kind, as benchmarks and compilers ask.
# machines: Function not implemented
import cpuinfo


def work() -> None:
    told = cpuinfo.get_cpu_info()
    assert told["arch"] == "X86_64" and told["bits"] == 64 and told["count"] >= 1, told
    assert told["brand_raw"].strip(), told
    assert {"sse2", "fpu"} <= set(told["flags"]), told
