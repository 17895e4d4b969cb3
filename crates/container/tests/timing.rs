//! Where the time of a fork goes. Prints, asserts nothing: `cargo test -p container --release --test timing -- --ignored --nocapture`.

mod support;

use std::time::{Duration, Instant};

use container::ContainerOptions;
use sandbox::Provider;
use support::{Conversation, World};

fn say(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |q: usize| times[times.len() * q / 100];
    eprintln!(
        "{what:40} p50 {:?} p90 {:?} p99 {:?} max {:?}",
        at(50),
        at(90),
        at(99),
        times.last().unwrap()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints timings"]
async fn forks() {
    for (slots, spares) in [(0, 0), (4, 0), (4, 3)] {
        let world = World::new(false, ContainerOptions { slots, spares }).await;
        let zygote = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let spec = world.instance("def handler(event, context):\n    return None\n");
        let (mut fork, mut load, mut call, mut drops) = (vec![], vec![], vec![], vec![]);
        let begin = Instant::now();
        for i in 0..500 {
            let t0 = Instant::now();
            let mut instance = zygote.fork(spec.clone()).await.unwrap();
            let t1 = Instant::now();
            let mut talk = Conversation::load(instance.as_mut()).await;
            let t2 = Instant::now();
            talk.call("{}").await.unwrap().unwrap();
            let t3 = Instant::now();
            drop(instance);
            let t4 = Instant::now();
            if i > 10 {
                fork.push(t1 - t0);
                load.push(t2 - t1);
                call.push(t3 - t2);
                drops.push(t4 - t3);
            }
        }
        eprintln!("slots {slots} spares {spares}: {:.0}/s", 500.0 / begin.elapsed().as_secs_f64());
        say("fork", fork);
        say("load", load);
        say("call", call);
        say("drop", drops);
    }
}
