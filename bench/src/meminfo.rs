//! What the kernel says of this machine's memory.

use std::fs;

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
}
