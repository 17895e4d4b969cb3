//! Secrets: told to an instance when it is loaded, and never those of before.

mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use engine::{CallError, Handler, SecretEnvironment, SecretStore, SecretsUnreadable};
use world::{World, eventually, handler};
use zeroize::Zeroizing;

/// One secret for all functions; none: it cannot be read. And how often it was read.
#[derive(Debug, Default)]
struct One(Mutex<Option<String>>, AtomicUsize);

impl One {
    fn set(&self, value: &str) {
        *self.0.lock().unwrap() = Some(value.to_owned());
    }
}

impl SecretStore for One {
    fn read(&self, _: &Handler) -> Result<SecretEnvironment, SecretsUnreadable> {
        let value = self.0.lock().unwrap().clone();
        self.1.fetch_add(1, Ordering::SeqCst);
        let value = value.ok_or_else(|| SecretsUnreadable("it does not open".to_owned()))?;
        Ok([("KEY".to_owned(), Zeroizing::new(value))].into())
    }

    fn names(&self, _: &Handler) -> Vec<String> {
        vec!["KEY".to_owned()]
    }
}

async fn told(world: &World, handler: &Arc<Handler>) -> String {
    let body = world.call(handler).await.result.unwrap().body;
    let variables: serde_json::Value = serde_json::from_slice(&body).unwrap();
    variables["KEY"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_instance_that_was_loaded_with_the_secrets_of_before_is_never_kept() {
    let secrets = Arc::new(One::default());
    secrets.set("one");
    let world = World::with_secrets(Arc::clone(&secrets) as Arc<dyn SecretStore>);
    let mut of = handler("f", "environment:300");
    of.environment.insert("KEY".to_owned(), "said by the function".to_owned());
    let handler = Arc::new(of);
    assert_eq!(told(&world, &handler).await, "one", "a secret wins");
    world.until("it is kept", |census| census.paused == 1).await;
    // One that is idle while the secret changes, and one that serves a call meanwhile.
    let busy = world.spawn(&handler);
    let other = world.spawn(&handler);
    eventually("the second is loaded", || secrets.1.load(Ordering::SeqCst) == 2).await;
    secrets.set("two");
    world.engine.renew(&handler.id);
    for call in [busy, other] {
        let body = call.await.unwrap().result.unwrap().body;
        assert!(String::from_utf8_lossy(&body).contains("one"));
    }
    for _ in 0..3 {
        assert_eq!(told(&world, &handler).await, "two");
    }
    world.until("it is kept again", |census| census.paused == 1).await;
    secrets.set("three");
    world.engine.renew(&handler.id);
    world.until("the idle one is ended", |census| census.instances == 0).await;
    assert_eq!(told(&world, &handler).await, "three");
}

#[tokio::test]
async fn nothing_is_loaded_without_the_secrets_that_it_should_have() {
    let world = World::with_secrets(Arc::new(One::default()));
    let handler = Arc::new(handler("f", "echo"));
    let refused = world.call(&handler).await.result.unwrap_err();
    assert!(matches!(refused, CallError::NoSecrets(_)), "{refused}");
    world.until("and nothing is left", |census| census.instances == 0).await;
}
