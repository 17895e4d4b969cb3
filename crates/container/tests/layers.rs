//! A function's layers at `/opt`: from a zygote and from none, with mounts late and early.

mod support;

use container::ContainerOptions;
use sandbox::{CpuBounds, Instance, InstanceSpec, Layer, Provider};
use support::{Conversation, NONE, World, ask, can_run};

const LOOKS: &str = "
import os, sys
def handler(event, context):
    def tried(what, *how):
        try:
            return what(*how)
        except OSError as error:
            return type(error).__name__
    sys.path.insert(1, '/opt/python')
    try:
        import shared
        says = shared.SAYS
    except ImportError:
        says = None
    return {
        'says': says,
        'opt': sorted(os.listdir('/opt')),
        'guest': 'planted.py' in os.listdir('/opt/lambswool'),
        'late': tried(os.stat, '/opt/lambswool/lambswool_guest/handler.py') != 'FileNotFoundError',
        'write': [tried(open, path, 'w') for path in ('/opt/x', '/opt/lambswool/x', '/opt/python/x')],
    }
";

/// A directory of layers, of which one has put a file where the guest's are: nothing that is published has.
fn hostile_layers(world: &World) -> Layer {
    let opt: Layer = "opt/hostile".parse().unwrap();
    let root = world.store.layer_path(&opt);
    for (name, text) in [
        ("python/shared.py", "SAYS = 'shared'\n"),
        ("lambswool/planted.py", "raise SystemExit(1)\n"),
        ("lambswool/lambswool_guest/handler.py", "raise SystemExit(1)\n"),
        ("lambswool/instance.pyc", "no bytecode"),
    ] {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    opt
}

fn with_layers() -> serde_json::Value {
    serde_json::json!({
        "says": "shared",
        "opt": ["lambswool", "python"],
        "guest": false,
        "late": true,
        "write": ["OSError", "OSError", "OSError"],
    })
}

async fn looks(mut instance: Box<dyn Instance>) -> serde_json::Value {
    ask(instance.as_mut(), "{}").await
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_below_opt_and_take_the_place_of_no_file_of_the_guest() {
    if !can_run() {
        return;
    }
    for staged in [false, true] {
        // A spare has landed in its root before its function is known.
        let spares = ContainerOptions { slots: 1, spares: 1, cpu: CpuBounds::NONE };
        for options in [NONE, spares] {
            let world = World::new(staged, options).await;
            let opt = Some(hostile_layers(&world));
            let plain = || world.instance(LOOKS);
            let layered = || InstanceSpec { opt: opt.clone(), ..plain() };
            let zygote = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
            for _ in 0..3 {
                assert_eq!(looks(zygote.fork(layered()).await.unwrap()).await, with_layers());
                let fresh = world.containers.create_instance(layered()).await.unwrap();
                assert_eq!(looks(fresh).await, with_layers());
                // The next sandbox has none of it.
                let forked = looks(zygote.fork(plain()).await.unwrap()).await;
                assert_eq!(
                    (&forked["says"], &forked["guest"]),
                    (&None::<()>.into(), &false.into())
                );
                let fresh = world.containers.create_instance(plain()).await.unwrap();
                assert_eq!(looks(fresh).await["says"], serde_json::Value::Null);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_that_are_not_there_fail_the_start_and_leave_nothing() {
    if !can_run() {
        return;
    }
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let opt = Some("opt/not-there".parse().unwrap());
        let lacking = || InstanceSpec { opt: opt.clone(), ..world.instance(LOOKS) };
        let zygote = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let refused = zygote.fork(lacking()).await.err().unwrap().to_string();
        assert!(refused.contains("opt/not-there"), "{refused}");
        let refused = world.containers.create_instance(lacking()).await.err().unwrap().to_string();
        assert!(refused.contains("opt/not-there"), "{refused}");
        let mut instance = zygote.fork(world.instance(LOOKS)).await.unwrap();
        let mut talk = Conversation::load(instance.as_mut()).await;
        assert_eq!(talk.ask("{}").await["says"], serde_json::Value::Null);
        drop(zygote);
        drop(instance);
        world.settle().await;
    }
}
