//! What measurements and tests set. A worker that serves people leaves the whole table out.

use std::path::PathBuf;
use std::time::Duration;

use container::Isolation;
use function::{Bytes, Span};

use super::declared::settings;

settings! {
    /// The table `[internals]`: it may change in any release.
    pub struct Internals {
        "Internals":
        /// How containers are walled off: `lean`, `sock` or `general`, then changes, as in `lean,own=net`. All but `lean` are
        /// baselines to measure against.
        container_recipe: Isolation = Isolation::LEAN, "\"lean\"";
        /// A file with a tree of zygotes to make at the start, as `wool zygotes --json` prints it. Default: what the worker's
        /// zygotes were when it last stopped.
        zygote_seed: Option<PathBuf> = None, "\"tree.json\"";
        /// Package sets of which zygotes are made at the start, those of the last deployed functions first.
        prepared: usize = 8, "8";
        /// How long a zygote stays from which nothing is made. The root zygote stays for good.
        zygote_idle: Span = Span(Duration::from_secs(3600)), "\"1h\"";
        /// The most of `cache_memory` that kept instances may have. Default: no cap of their own.
        handler_cache_bytes: Option<Bytes> = None, "\"2GiB\"";
        /// The most of `cache_memory` that zygotes may have. Default: no cap of their own.
        zygote_bytes: Option<Bytes> = None, "\"2GiB\"";
        /// Slots that each zygote keeps prepared.
        slots: usize = 4, "4";
        /// Forks that a busy zygote keeps landed and waiting for code. A zygote that is not busy keeps two; a micro-VM's
        /// reference machine keeps as many rehearsed clones, two at most.
        spares: usize = 8, "8";
        /// Sandboxes that are made at the same time. Default: twice the processors, at least 4.
        creations: Option<usize> = None, "4";
        /// The directory whose `meminfo` and `pressure/memory` tell how much memory the host has left.
        proc: PathBuf = PathBuf::from("/proc"), "\"/proc\"";
        /// Bytes of all calls' bodies over TCP that are in memory, and of replies over 64 KiB until they are read. A tenant has
        /// at most what is free, and half of all when it is alone; beyond, a call gets 429. The Unix socket has an eighth of
        /// that besides. Default: an eighth of the machine's memory, at most 1 GiB.
        run_bodies: Option<Bytes> = None, "\"1GiB\"";
        /// Bytes of all bundles over TCP that lie on the disk until they are deployed, shared out likewise. Default: four times
        /// `deploy_body`.
        deploy_bodies: Option<Bytes> = None, "\"1GiB\"";
        /// The most connections over TCP. Beyond, the one that is idle longest is closed; where none is idle, a new one gets
        /// 503. Default, and most: what the limit of open files leaves.
        connections: Option<usize> = None, "4000";
        /// The most files of a package.
        package_files: u64 = 50_000, "50000";
        /// Log files that are kept for each function, the current one included.
        log_files: usize = 3, "3";
    }
}
