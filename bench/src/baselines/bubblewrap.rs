//! bubblewrap: an unprivileged sandbox of all namespaces on a read-only root, no cgroup, no filter.

use super::rootfs::Rootfs;
use super::{NO_OP, first_byte};
use crate::load::{Pending, Shot, Target};

/// `bwrap` on the base layer.
#[derive(Debug)]
pub(crate) struct Bubblewrap {
    rootfs: Rootfs,
}

impl Bubblewrap {
    /// None when it is not installed.
    pub(crate) fn find(rootfs: &Rootfs) -> Option<Self> {
        super::version("bwrap").map(|_| Self { rootfs: rootfs.clone() })
    }
}

impl Target for Bubblewrap {
    fn name(&self) -> &'static str {
        "bubblewrap"
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(async {
            let mut command = tokio::process::Command::new("bwrap");
            command.args(["--unshare-all", "--die-with-parent", "--clearenv", "--ro-bind"]);
            command.arg(&self.rootfs.root).args(["/", "--proc", "/proc", "--dev", "/dev"]);
            command.args(["--tmpfs", "/tmp", "--"]).arg(&self.rootfs.interpreter).args(NO_OP);
            first_byte(command).await
        })
    }
}
