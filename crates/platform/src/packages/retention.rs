//! Which layers are in use: what may not be removed.
//!
//! ```text
//!   its current and published versions   ─┐
//!   superseded or removed: until the last ├─► layers in use
//!   call that holds it has ended, and a   │
//!   moment longer                         │
//!   zygotes, those being made included   ─┘
//! ```

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use engine::{Engine, Handler};
use sandbox::Layer;

use crate::functions::{Registry, layers_of};

/// A sandbox that is being destroyed may still open a file.
const LAST_MOMENTS: Duration = Duration::from_secs(5);

/// Knows what is deployed, what runs, and what was deployed until lately.
#[derive(Debug)]
pub struct Usage {
    registry: Arc<Registry>,
    engine: Arc<Engine>,
    leaving: Mutex<Vec<Leaving>>,
}

/// A version that is no longer deployed.
#[derive(Debug)]
struct Leaving {
    /// Calls hold the version that they were resolved to.
    handler: Weak<Handler>,
    layers: BTreeSet<Layer>,
    /// Since when no call holds it.
    unheld: Option<Instant>,
}

impl Usage {
    /// Of one registry and engine.
    #[must_use]
    pub fn new(registry: Arc<Registry>, engine: Arc<Engine>) -> Self {
        Self { registry, engine, leaving: Mutex::default() }
    }

    /// Notes that a version is, or is about to be, no longer deployed. Before a deploy's turn ends. Where it stays after all, the
    /// next time notes nothing more.
    pub fn leave(&self, handler: &Arc<Handler>) {
        note(&mut self.leaving.lock().unwrap_or_else(PoisonError::into_inner), handler);
    }

    /// All layers that are in use now.
    #[must_use]
    pub fn layers(&self) -> BTreeSet<Layer> {
        let mut layers = deployed(&self.registry);
        layers.extend(self.engine.layers());
        let now = Instant::now();
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain_mut(|version| version.is_used(now));
        layers.extend(leaving.iter().flat_map(|version| version.layers.iter().cloned()));
        layers
    }
}

impl Leaving {
    fn is_used(&mut self, now: Instant) -> bool {
        if self.handler.strong_count() > 0 {
            return true;
        }
        now.duration_since(*self.unheld.get_or_insert(now)) < LAST_MOMENTS
    }
}

fn note(all: &mut Vec<Leaving>, handler: &Arc<Handler>) {
    let leaving = Arc::downgrade(handler);
    if !all.iter().any(|known| known.handler.ptr_eq(&leaving)) {
        all.push(Leaving {
            handler: leaving,
            layers: layers_of(handler).cloned().collect(),
            unheld: None,
        });
    }
}

/// Layers of the current and the published versions.
#[must_use]
pub fn deployed(registry: &Registry) -> BTreeSet<Layer> {
    let functions = registry.all();
    let handlers = functions.iter().filter_map(|function| function.handler.as_ref());
    handlers.flat_map(|handler| layers_of(handler).cloned().collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_stays_after_all_is_noted_once_however_often_it_was_to_go() {
        let handler =
            Arc::new(crate::network_policy::tests::handler("t", "f", sandbox::Network::None, &[]));
        let mut leaving = Vec::new();
        for _ in 0..100 {
            note(&mut leaving, &handler);
        }
        let other = Arc::new((*handler).clone());
        note(&mut leaving, &other);
        assert_eq!(leaving.len(), 2);
    }

    #[test]
    fn a_version_that_nobody_holds_is_used_a_moment_longer() {
        let unheld = Weak::new();
        let mut leaving = Leaving { handler: unheld, layers: BTreeSet::new(), unheld: None };
        let now = Instant::now();
        assert!(leaving.is_used(now));
        assert!(leaving.is_used(now + LAST_MOMENTS / 2));
        assert!(!leaving.is_used(now + LAST_MOMENTS));
    }
}
