//! A failed step of the warden leaves nothing behind. Each step is made to fail once.

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;

use container::{CgroupSource, Isolation};
use support::{NONE, World, can_run, host};
use warden::protocol::{Command, Cpu, Limits, Network, Python};

const HANDLER: &str = "def handler(event, context):\n    return 1\n";

const LIMITS: Limits = Limits {
    memory_bytes: 160 << 20,
    shown_bytes: 160 << 20,
    pids: 24,
    scratch_bytes: 8 << 20,
    scratch_inodes: 500,
    cpu: Cpu::UNLIMITED,
};

/// A world without cgroups kept from former sandboxes.
async fn world() -> World {
    World::isolated(Isolation { cgroups: CgroupSource::Fresh, ..Isolation::LEAN }, NONE).await
}

fn start(world: &World, sandbox: u64, code: Option<String>, limits: Limits) -> Command {
    let python = Python {
        base: world.python.base.to_string(),
        guest: world.python.guest.to_string(),
        interpreter: world.python.interpreter.clone(),
    };
    Command::Start {
        sandbox,
        python,
        packages: None,
        code,
        opt: None,
        network: Network::None,
        limits,
    }
}

/// The warden's cgroups, and the processes that it has to wait for.
fn held(world: &World) -> (BTreeSet<PathBuf>, BTreeSet<i32>) {
    let children = host::children(world.warden());
    (host::cgroups(&world.cgroup_name()), children.iter().map(|process| process.pid).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_waits_for_its_process_and_removes_its_cgroup() {
    if !can_run() {
        return;
    }
    let world = world().await;
    if !world.containers.host().cpu {
        skips::skip("cgroup", "no limit of processors can be refused here");
        return;
    }
    let code = Some(world.code(HANDLER).to_string());
    let name = || world.containers.new_name().0;
    let before = held(&world);
    // A thousandth of a processor is less than the kernel's minimum, and is set after the process
    // exists.
    let limits = Limits { cpu: Cpu { quota: Some(1), weight: None }, ..LIMITS };
    for (command, step) in [
        (start(&world, name(), code, limits), "limit processors"),
        (start(&world, name(), None, limits), "limit processors"),
        // Or there is no such program beside the warden: then nothing has been started.
        (Command::Monitor { sandbox: name(), limits }, ""),
    ] {
        let refused = world.containers.client().call(command, &[]).await.unwrap_err();
        assert!(refused.to_string().contains(step), "{refused}");
        world.settle().await;
        assert_eq!(held(&world), before);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warden_out_of_descriptors_at_any_step_leaves_nothing_behind() {
    if !can_run() {
        return;
    }
    let world = world().await;
    let client = world.containers.client();
    let code = world.code(HANDLER).to_string();
    let name = || world.containers.new_name().0;
    let zygote = name();
    let _zygote = client.call(start(&world, zygote, None, LIMITS), &[]).await.unwrap();
    let prepare = |sandbox, derive| Command::Prepare {
        sandbox,
        zygote,
        derive,
        packages: None,
        limits: LIMITS,
    };
    let commands: [&dyn Fn(u64) -> Command; 4] = [
        &|sandbox| start(&world, sandbox, None, LIMITS),
        &|sandbox| start(&world, sandbox, Some(code.clone()), LIMITS),
        &|sandbox| prepare(sandbox, false),
        &|sandbox| prepare(sandbox, true),
    ];
    for command in commands {
        let before = held(&world);
        let open = std::fs::read_dir(format!("/proc/{}/fd", world.warden())).unwrap().count();
        let mut failures = 0;
        for more in 0.. {
            assert!(more < 100, "it never has enough");
            let sandbox = name();
            let usual = world.allow_descriptors(Some((open + more) as u64));
            let made = client.call(command(sandbox), &[]).await;
            world.allow_descriptors(usual);
            client.tell(Command::Release { sandbox });
            world.settle().await;
            assert_eq!(held(&world), before, "{more} descriptors: {made:?}");
            if made.is_ok() {
                break;
            }
            failures += 1;
        }
        assert!(failures > 3, "{failures}");
    }
    client.tell(Command::Release { sandbox: zygote });
    world.settle().await;
    drop(client);
    world.end().await;
}
