//! What a worker lays down once it needs it no more: whatever privilege it was started with.
//!
//! ```text
//!   main thread    binds a low port, gives the socket to its group, starts the warden ──► lays down ─┐
//!   every other    renounces as it begins                                                           ├─► nobody has any
//! ```
//! Capabilities and `no_new_privs` are a thread's own (capabilities(7)), and a new thread has its maker's: hence at both
//! ends. A worker that finds one of its threads privileged nevertheless does not serve.
//!
//! What root owns stays root's to write where root started the worker: only another account takes that away
//! ([`account`](crate::privilege::run_as)).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How long a thread that has just been made may take until it begins.
const PATIENCE: Duration = Duration::from_secs(10);

/// For the beginning of every thread that is made before [`lay_down`]. One that cannot renounce is found there.
pub(crate) fn renounce() {
    if let Err(error) = sys::process::renounce_privilege() {
        tracing::error!(%error, "a thread cannot give up its privilege");
    }
}

/// For the main thread, when all is bound and started that takes privilege.
///
/// # Errors
/// When a thread of this process keeps any: it must not serve then.
pub(crate) fn lay_down() -> Result<()> {
    sys::process::renounce_privilege().context("cannot give up privilege")?;
    let begun = Instant::now();
    while let Some(thread) = sys::process::privileged_thread().context("cannot list threads")? {
        if begun.elapsed() > PATIENCE {
            bail!("thread {thread} of the worker keeps its privilege");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
