//! runc: an OCI container of its own namespaces and cgroups on the read-only base layer, made, run and deleted.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::rootfs::Rootfs;
use super::{NO_OP, first_byte};
use crate::load::{Pending, Shot, Target};

/// `runc run` on one bundle.
#[derive(Debug)]
pub(crate) struct Runc {
    bundle: PathBuf,
    containers: PathBuf,
    next: Cell<u64>,
}

impl Runc {
    /// None when it is not installed. Keeps its files in `work`.
    pub(crate) fn find(rootfs: &Rootfs, work: &Path) -> Result<Option<Self>> {
        let arguments = std::iter::once(rootfs.interpreter.as_str()).chain(NO_OP);
        Self::of(&rootfs.root, arguments, work)
    }

    /// The same of any program that says one byte.
    pub(crate) fn of<'a>(
        root: &Path,
        arguments: impl Iterator<Item = &'a str>,
        work: &Path,
    ) -> Result<Option<Self>> {
        if super::version("runc").is_none() {
            return Ok(None);
        }
        let (bundle, containers) = (work.join("bundle"), work.join("containers"));
        fs::create_dir_all(&bundle).context("make the bundle")?;
        let config =
            serde_json::to_vec_pretty(&config(root, arguments)).context("write the bundle")?;
        fs::write(bundle.join("config.json"), config).context("write the bundle")?;
        Ok(Some(Self { bundle, containers, next: Cell::new(0) }))
    }
}

/// `runc spec`'s own, without a terminal and with fewer mounts; what Docker adds (a writable layer, a bridge) is not here.
fn config<'a>(root: &Path, arguments: impl Iterator<Item = &'a str>) -> serde_json::Value {
    let arguments: Vec<_> = arguments.collect();
    let namespaces = ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({ "type": kind }));
    let mount = |at: &str, kind: &str, options: &[&str]| json!({ "destination": at, "type": kind, "source": kind, "options": options });
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 65_534, "gid": 65_534 },
            "args": arguments,
            "env": ["PATH=/usr/bin", "LANG=C.UTF-8"],
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": true
        },
        "root": { "path": root, "readonly": true },
        "hostname": "bench",
        "mounts": [
            mount("/proc", "proc", &[]),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/tmp", "tmpfs", &["nosuid", "nodev", "size=65536k"]),
        ],
        "linux": {
            "resources": { "memory": { "limit": 536_870_912 }, "pids": { "limit": 64 } },
            "namespaces": namespaces
        }
    })
}

impl Target for Runc {
    fn name(&self) -> &'static str {
        "runc"
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(async {
            let number = self.next.get();
            self.next.set(number + 1);
            let mut command = tokio::process::Command::new("runc");
            command.arg("--root").arg(&self.containers).arg("run").arg("--bundle");
            command.arg(&self.bundle).arg(format!("bench-{}-{number}", std::process::id()));
            first_byte(command).await
        })
    }
}
