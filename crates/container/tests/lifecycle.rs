//! The life of zygotes and instances, on the real kernel.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use container::ContainerOptions;
use sandbox::{CpuBounds, Provider};
use support::{Conversation, World, can_run};

const NONE: ContainerOptions = ContainerOptions { slots: 0, spares: 0, cpu: CpuBounds::NONE };

const WHERE: &str = "
import os
def handler(event, context):
    return {'uid': os.getuid(), 'pid': os.getpid(), 'root': sorted(os.listdir('/')), 'event': event}
";

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_forked_from_a_zygote_derived_twice() {
    if !can_run() {
        return;
    }
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        eprintln!("{:?}", world.containers.host());
        let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let first = root.derive(world.zygote(&["decimal"])).await.unwrap();
        let second = first.derive(world.zygote(&["zoneinfo"])).await.unwrap();
        for zygote in [&root, &first, &second] {
            let started = Instant::now();
            let mut instance = zygote.fork(world.instance(WHERE)).await.unwrap();
            eprintln!("forked in {:?}", started.elapsed());
            let mut talk = Conversation::load(instance.as_mut()).await;
            let said = talk.call(r#"{"a": 1}"#).await.unwrap().unwrap();
            eprintln!("{said}");
            assert!(said.contains(r#""uid": 1000"#), "{said}");
            assert!(said.contains(r#""pid": 1"#), "{said}");
            instance.pause().unwrap();
            instance.resume().unwrap();
            assert!(instance.memory().unwrap() > 0);
            assert!(instance.alive());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_follow_at_once_have_a_user_namespace_each() {
    if !can_run() {
        return;
    }
    let source = "
import os
def handler(event, context):
    capabilities = [line for line in open('/proc/self/status') if line.startswith('CapEff')]
    return {'uid': os.getuid(), 'capabilities': capabilities, 'namespace': os.readlink('/proc/self/ns/user')}
";
    let world = World::new(false, NONE).await;
    let mut kept = Vec::new();
    let mut namespaces = BTreeSet::new();
    // The first six leave the warden no time to make one ahead; it has it before the others.
    for round in 0..8 {
        if round >= 6 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut instance = world.containers.create_instance(world.instance(source)).await.unwrap();
        let said = Conversation::load(instance.as_mut()).await.ask("{}").await;
        assert_eq!(said["uid"], 1000, "{said}");
        assert_eq!(said["capabilities"][0], "CapEff:\t0000000000000000\n", "{said}");
        namespaces.insert(said["namespace"].to_string());
        kept.push(instance);
    }
    assert_eq!(namespaces.len(), 8, "{namespaces:?}");
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    assert!(!namespaces.iter().any(|one| one.contains(own.to_str().unwrap())), "{namespaces:?}");
}
