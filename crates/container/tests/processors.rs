//! Processors: the quota of a zygote holds while it imports, and each fork has its own.

mod support;

use container::ContainerOptions;
use sandbox::{Cpu, CpuBounds, InstanceSpec, Limits, Processors, Provider, ZygoteSpec};
use support::{Conversation, NONE, World, can_run, host};

/// Reports which part of a processor its import had.
const SPINS: &str = "\
import time
begin, before = time.monotonic(), time.process_time()
while time.monotonic() < begin + 0.5:
    pass
PART = (time.process_time() - before) / (time.monotonic() - begin)
";

const TELLS: &str = "import spins\ndef handler(event, context):\n    return spins.PART\n";

fn processors(number: f64) -> Option<Processors> {
    Some(number.try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_imports_within_its_quota_and_each_fork_has_its_own() {
    if !can_run() {
        return;
    }
    for staged in [false, true] {
        let cpu = CpuBounds { default: None, most: processors(0.2) };
        let world = World::new(staged, ContainerOptions { cpu, ..NONE }).await;
        let packages = Some(world.package("spins", SPINS));
        let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let spec = ZygoteSpec { packages: packages.clone(), ..world.zygote(&["spins"]) };
        // A zygote from nothing, and one derived from a zygote that is unlimited by now.
        let made = world.containers.create_zygote(spec.clone()).await.unwrap();
        let derived = root.derive(spec).await.unwrap();
        let limited = || {
            let all = world.processes();
            all.iter().filter(|process| host::quota(process.pid) == Some(200)).count()
        };
        // The root has forked one already.
        assert_eq!(limited(), 2);
        for (left, zygote) in [(1, made), (0, derived)] {
            let before = world.processes();
            let cpu = Cpu { quota: processors(0.1), weight: None };
            let limits = Limits { cpu, ..Limits::default() };
            let spec = InstanceSpec { packages: packages.clone(), limits, ..world.instance(TELLS) };
            let mut fork = zygote.fork(spec).await.unwrap();
            assert_eq!(host::quota(world.newcomer(&before).pid), Some(100));
            // One period of the quota more than there are in half a second. A busy machine gives
            // less.
            let part = Conversation::load(fork.as_mut()).await.ask("{}").await.as_f64().unwrap();
            assert!(part < 0.3, "it had {part} of a processor while it was imported");
            // A zygote that has forked has no quota any more: the next fork begins without one.
            assert_eq!(limited(), left);
        }
        drop(root);
        world.end().await;
    }
}
