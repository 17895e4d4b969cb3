//! Facts that must be equal where a snapshot is restored.

use serde::{Deserialize, Serialize};

use super::{Build, RestoreError};
use crate::machine::Hypervisor;
use crate::vfs::Tree;

/// Facts about the monitor, the host and the layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Facts {
    build: Build,
    /// A hash of CPUID as guests see it, with XCR0 and the layout of extended states.
    processor: [u8; 32],
    boot: String,
    /// The counter's speed in kHz, and whether it had to be unshifted; none where guests do not
    /// tell the time by it.
    ticks: Option<(u32, bool)>,
    layers: [u8; 32],
}

impl Facts {
    /// The facts of this host; none where it does not tell its start.
    pub(crate) fn of(host: &Hypervisor, build: Build, tree: &Tree) -> Option<Self> {
        let ticks = host.ticks().ok().map(|ticks| (ticks.kilohertz, ticks.unshifted));
        let (processor, boot, layers) = (host.features(), host.boot.clone()?, tree.digest());
        Some(Self { build, processor, boot, ticks, layers })
    }

    /// Checks that a snapshot's facts equal those of `here`.
    pub(crate) fn are(&self, here: &Self) -> Result<(), RestoreError> {
        let Self { build, processor, boot, ticks, layers } = self;
        if *build != here.build {
            return Err(RestoreError::Build);
        }
        if *processor != here.processor {
            return Err(RestoreError::Processor);
        }
        if *boot != here.boot {
            return Err(RestoreError::Boot);
        }
        if *ticks != here.ticks {
            return Err(RestoreError::Ticks);
        }
        if *layers != here.layers {
            return Err(RestoreError::Layers);
        }
        Ok(())
    }
}
