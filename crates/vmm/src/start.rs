//! The program, on a processor with a monitor.

use std::fs::File;
use std::io::{Read, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use sys::process::without_capabilities;
use vmm::monitor::{examine, jail, serve, unikernel};

/// Bytes of a unikernel's file: an endless one, such as a device, would be read until memory is
/// short.
const MAX_PROGRAM: u64 = 256 << 20;

pub(super) fn start() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Paths are opened before the jail, where there are none.
    let host = Hypervisor::open();
    // Opened without capabilities: otherwise the page map tells the physical address of each page.
    let scanner = without_capabilities(Scanner::open).context("put rights aside")?;
    let scanner = scanner.context("open /proc/self/pagemap")?;
    match arguments.first().map(String::as_str) {
        None => {
            // Its own executable, which snapshots name.
            let program = File::open("/proc/self/exe").context("open /proc/self/exe")?;
            let host = host.and_then(|host| host.try_out().map(|()| host));
            let control = jail::enter().context("go to jail")?;
            serve(control, host, scanner, program).context("serve the worker")?;
            Ok(ExitCode::SUCCESS)
        }
        Some("unikernel") => {
            let file = program(std::io::stdin()).context("read the program")?;
            jail::confine().context("go to jail")?;
            let (argument, requests) = match &arguments[1..] {
                [argument, requests @ ..] => (argument.as_str(), requests),
                [] => ("", &[][..]),
            };
            Ok(ExitCode::from(unikernel::run(&host?, &file, argument, requests)?))
        }
        Some("examine") => {
            jail::confine().context("go to jail")?;
            let found = examine(&host?, &scanner)?;
            let text = serde_json::to_vec(&found).context("write what was found")?;
            std::io::stdout().write_all(&text).context("write what was found")?;
            Ok(ExitCode::SUCCESS)
        }
        Some(_) => bail!("wool-vmm is started by `wool`: see `wool unikernel run`"),
    }
}

/// All bytes of a file, if it can be a program.
fn program(from: impl Read) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    from.take(MAX_PROGRAM + 1).read_to_end(&mut file)?;
    ensure!(file.len() as u64 <= MAX_PROGRAM, "it has more than {} MiB", MAX_PROGRAM >> 20);
    Ok(file)
}
