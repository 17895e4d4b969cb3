//! `wool-vmm`: started by the warden, never by hand.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use microvm::hypervisor::Hypervisor;
use microvm::scan::Scanner;
use vmm::monitor::{jail, serve};

fn main() -> Result<()> {
    // What has a path is opened before there are none any more.
    let host = Hypervisor::open()?;
    let scanner = Scanner::open().context("open /proc/self/pagemap")?;
    let control: OwnedFd = jail::enter().context("go to jail")?;
    serve(control, host, scanner).context("serve the worker")
}
