//! The life of zygotes and instances, on the real kernel.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use container::ContainerOptions;
use sandbox::wire::Lambda;
use sandbox::{CpuBounds, Instance, Provider};
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
async fn a_function_that_expects_awss_runtime_finds_it_from_a_zygote_and_from_none() {
    if !can_run() {
        return;
    }
    let source = "
import logging, os, sys, time
def handler(event, context):
    if event:
        sys.exit(event)
    logging.warning('said')
    return [os.environ['AWS_EXECUTION_ENV'], time.tzname[0], os.environ['_HANDLER'],
            context.invoked_function_arn, context.log_stream_name == os.environ['AWS_LAMBDA_LOG_STREAM_NAME']]
";
    let world = World::new(false, NONE).await;
    let zygote = world.containers.create_zygote(world.zygote(&["logging"])).await.unwrap();
    let forked = zygote.fork(world.instance(source)).await.unwrap();
    let fresh = world.containers.create_instance(world.instance(source)).await.unwrap();
    for mut instance in [forked, fresh] {
        let said = as_aws(instance.as_mut()).await;
        let expected = [
            "AWS_Lambda_python3.12",
            "UTC",
            "handler.handler",
            "arn:aws:lambda:us-east-1:000000000000:function:test",
        ];
        assert_eq!(said.as_array().unwrap()[..4], expected, "{said}");
        assert_eq!(said[4], true, "{said}");
    }
}

/// What a function says that is called as AWS's runtime calls it, twice: the second time it ends.
async fn as_aws(instance: &mut dyn Instance) -> serde_json::Value {
    let lambda = Lambda {
        handler: "handler.handler".to_owned(),
        runtime: "python3.12".to_owned(),
        json_level: None,
    };
    let mut talk = Conversation::load_as(instance, Some(lambda)).await;
    let said = talk.ask("0").await;
    assert!(talk.output.starts_with("[WARNING]\t"), "{}", talk.output);
    let ended = talk.call("3").await.unwrap().unwrap_err();
    assert_eq!(ended, "Runtime.ExitError: Runtime exited with error: exit status 3");
    said
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
