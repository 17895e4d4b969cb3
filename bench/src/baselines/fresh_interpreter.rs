//! A fresh interpreter: from exec to its first byte, with no isolation at all. What a sandbox without a zygote can at
//! best be.

use super::rootfs::Rootfs;
use super::{NO_OP, first_byte};
use crate::load::{Pending, Shot, Target};

/// The base's real binary, by the base's own loader and libraries, outside any container.
#[derive(Debug)]
pub(crate) struct FreshInterpreter {
    rootfs: Rootfs,
}

impl FreshInterpreter {
    pub(crate) fn new(rootfs: &Rootfs) -> Self {
        Self { rootfs: rootfs.clone() }
    }
}

impl Target for FreshInterpreter {
    fn name(&self) -> &'static str {
        "fresh interpreter"
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(async {
            let mut command = self.rootfs.python();
            command.args(NO_OP);
            first_byte(command).await
        })
    }
}
