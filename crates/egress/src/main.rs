//! `wool-egress`: started by the warden, never by hand. Standard input is empty; descriptor 3 is
//! the worker's socket.

#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, bail};
use egress::{jail, proxy};

fn main() -> Result<()> {
    if std::env::args_os().len() > 1 {
        bail!("wool-egress is started by wool-warden when a function may reach something");
    }
    let control = jail::enter().context("go to jail")?;
    proxy::serve(control).context("serve the worker")
}
