//! `wool-vmm`: started by the warden, or by `wool`; never by hand.
//!
//! | arguments | standard input | is |
//! | --- | --- | --- |
//! | none | | a family's monitor, started by the warden |
//! | `unikernel ARGUMENT REQUEST…` | the program | `wool unikernel run` |
//! | `examine` | | `wool doctor --microvm`: JSON on standard output |
//!
//! On another processor than x86-64 it only says that there are no machines.

#![forbid(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod start;

#[cfg(target_arch = "x86_64")]
fn main() -> anyhow::Result<std::process::ExitCode> {
    start::start()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("{}", vmm::Absent::Processor)
}
