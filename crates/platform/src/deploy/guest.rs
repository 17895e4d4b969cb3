//! Which guest a function gets: this release's own, whenever it was deployed.
//!
//! Worker and guest talk to each other in ways that change from release to release. A version remembers the guest that it
//! was deployed with, so after an upgrade that one is exchanged for ours, before anything starts from it.

use std::collections::HashMap;
use std::sync::Arc;

use engine::Handler;
use layers::base::Base;
use layers::guest::install;
use sandbox::{Layer, chain};

use crate::functions::Registry;

/// Gives every function of the registry this release's guest, which has these files, compiled for its base. A function whose
/// base is gone or cannot be read is to be made again, and the log says so. Blocks: half a second for each base, once
/// after an upgrade.
pub fn renew(store: &layers::Store, registry: &Registry, files: &[(&str, &[u8])]) {
    let mut current: HashMap<Layer, Option<Layer>> = HashMap::new();
    for function in registry.all() {
        let Some(handler) = &function.handler else { continue };
        let base = &handler.python.base;
        let guest = current.entry(base.clone()).or_insert_with(|| of_base(store, base, files));
        match guest {
            Some(guest) if *guest == handler.python.guest => {}
            Some(guest) => {
                let mut handler = Handler::clone(handler);
                handler.python.guest = guest.clone();
                registry.made(Arc::new(handler));
            }
            // It is made again, on a base that can be told.
            None => registry.unmake(handler),
        }
    }
}

fn of_base(store: &layers::Store, base: &Layer, files: &[(&str, &[u8])]) -> Option<Layer> {
    let Some(of_layer) = Base::of_layer(store, base) else {
        tracing::warn!(%base, "functions on this base are made again: it is gone, or cannot be read");
        return None;
    };
    install(store, &of_layer, files)
        .inspect_err(|error| tracing::warn!(%base, error = chain(error), "cannot make its guest"))
        .ok()
}
