//! What is not done on the threads that serve calls.

mod world;

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use engine::{Engine, EngineConfig, LogSink, ZygotePolicy};
use sandbox::fake::FakeProvider;
use sandbox::{
    Imports, Instance, InstanceSpec, Pending, Provider, Sandbox, SandboxId, Zygote, ZygoteSpec,
};
use world::{Lines, eventually, packaged};

/// The threads that have weighed zygotes, once for each time.
type Weighed = Arc<Mutex<Vec<ThreadId>>>;

#[derive(Debug)]
struct Host(FakeProvider, Weighed);

#[derive(Debug)]
struct Scales(Box<dyn Zygote>, Weighed);

impl Provider for Host {
    fn create_zygote(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        on(self.0.create_zygote(spec), &self.1)
    }

    fn create_instance(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        self.0.create_instance(spec)
    }

    fn reaping(&self) -> usize {
        self.0.reaping()
    }
}

impl Sandbox for Scales {
    fn id(&self) -> SandboxId {
        self.0.id()
    }

    fn memory(&self) -> io::Result<u64> {
        self.1.lock().unwrap().push(thread::current().id());
        self.0.memory()
    }

    fn alive(&self) -> bool {
        self.0.alive()
    }
}

impl Zygote for Scales {
    fn spec(&self) -> &ZygoteSpec {
        self.0.spec()
    }

    fn imports(&self) -> &Imports {
        self.0.imports()
    }

    fn derive(&self, spec: ZygoteSpec) -> Pending<'_, Box<dyn Zygote>> {
        on(self.0.derive(spec), &self.1)
    }

    fn fork(&self, spec: InstanceSpec) -> Pending<'_, Box<dyn Instance>> {
        self.0.fork(spec)
    }
}

fn on<'a>(making: Pending<'a, Box<dyn Zygote>>, weighed: &Weighed) -> Pending<'a, Box<dyn Zygote>> {
    let weighed = Arc::clone(weighed);
    Box::pin(async move { Ok(Box::new(Scales(making.await?, weighed)) as Box<dyn Zygote>) })
}

// The runtime has this one thread.
#[tokio::test]
async fn zygotes_are_weighed_again_and_given_up_beside_the_threads_that_serve_calls() {
    let weighed = Weighed::default();
    let host = Host(FakeProvider::default(), Arc::clone(&weighed));
    let config = EngineConfig {
        zygotes: ZygotePolicy::PerLock,
        idle: Duration::from_millis(40),
        ..EngineConfig::default()
    };
    let sink = Arc::new(Lines::default()) as Arc<dyn LogSink>;
    let engine = Engine::new(Arc::new(host), config, sink);
    engine.prepare(&packaged("h", "echo", "numpy", &["numpy"])).await;
    let here = thread::current().id();
    let count = |at: &dyn Fn(ThreadId) -> bool| {
        weighed.lock().unwrap().iter().filter(|thread| at(**thread)).count()
    };
    eventually("they are weighed now and then", || count(&|thread| thread != here) > 20).await;
    assert_eq!(count(&|thread| thread == here), 2, "each once, when it was made");
}
