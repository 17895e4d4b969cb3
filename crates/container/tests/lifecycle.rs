//! The life of zygotes and instances, on the real kernel.

mod support;

use std::time::Instant;

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
