//! `wool tls`: works on files; no worker is needed.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::terminal::say;
use super::{state_root, write_json, write_out};
use crate::cli::{Global, Tls};
use crate::state_directory::State;
use doors::door::tls::self_signed;

pub(super) fn tls(global: &Global, tls: &Tls) -> Result<()> {
    let Tls::SelfSigned { names, dir, force } = tls;
    let dir = match dir {
        Some(dir) => std::path::absolute(dir)?,
        None => State::open(&state_root(global)?)?.root().join("tls"),
    };
    let (certificate, key) = self_signed(names)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot make {}", dir.display()))?;
    let (at, beside) = (dir.join("cert.pem"), dir.join("key.pem"));
    // The key first: where one is there already, nothing has changed.
    write(&beside, &key, 0o600, *force)?;
    write(&at, &certificate, 0o644, *force)?;
    if global.json {
        return write_json(&serde_json::json!({ "tls_certificate": at, "tls_key": beside }));
    }
    write_out(format!("tls_certificate = {at:?}\ntls_key = {beside:?}\n").as_bytes())?;
    say("put these lines into the worker's configuration; callers name the certificate with --ca");
    Ok(())
}

/// Writes a file whole, for a worker that may read it at any moment.
fn write(path: &Path, text: &str, mode: u32, force: bool) -> Result<()> {
    let unwritable = || format!("cannot write {}", path.display());
    if !force && path.exists() {
        anyhow::bail!("{} is there already: replace it with --force", path.display());
    }
    let new = path.with_extension("new");
    sys::files::write_whole(path, &new, text.as_bytes(), mode).with_context(unwritable)
}
