//! Limits, shares of the processors and network classes: the words that the protocol, the recipes
//! and everything that enforces them have in common.

use serde::{Deserialize, Serialize};

/// Limits of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes, scratch included.
    pub memory_bytes: u64,
    /// Memory in bytes that the sandbox sees: without scratch that it has asked for separately.
    pub shown_bytes: u64,
    /// Number of processes and threads.
    pub pids: u32,
    /// Size of `/tmp` and of `/dev/shm`, in bytes each.
    pub scratch_bytes: u64,
    /// Number of files of `/tmp` and of `/dev/shm`, each.
    pub scratch_inodes: u32,
    /// Its share of the processors.
    #[serde(default)]
    pub cpu: Cpu,
}

/// A share of the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The limit, in thousandths of one processor.
    pub quota: Option<u32>,
    /// The weight among others: 100 is that of a thread without a weight.
    pub weight: Option<u16>,
}

impl Cpu {
    /// Neither a limit nor a weight.
    pub const UNLIMITED: Self = Self { quota: None, weight: None };
}

/// The network of a sandbox. A zygote's forks are in the same class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// The shared network namespace, which is empty.
    #[default]
    None,
    /// An instance's own network, filled by `Command::Reach`. For a zygote: the shared one.
    Egress,
    /// The host's network.
    Host,
}
