//! What every store of layers does.

use function::WholeLayerName;

use super::{Backend, ODD, at};
use crate::{LayerRow, LayerVersion};

fn named(tenant: &str, name: &str) -> WholeLayerName {
    WholeLayerName::stored(tenant.to_owned(), name.to_owned())
}

fn version(content: &str, time: u64) -> LayerVersion {
    LayerVersion {
        published: at(time),
        bundle: blake3::hash(content.as_bytes()).into(),
        bytes: 1 << 40,
        modules: vec!["b".to_owned(), "gr\u{fc}n".to_owned()],
        uses_runtime_set: time.is_multiple_of(2),
        text: format!("{content} gr\u{fc}\u{df} \0"),
    }
}

fn row(tenant: &str, name: &str, number: u32, content: &str, time: u64) -> LayerRow {
    let (layer, version) = (named(tenant, name), version(content, time));
    LayerRow { layer, number, version, policy: None }
}

/// Versions of each layer are numbered from 1, and come back as they were published, in order.
pub fn each_version_of_a_layer_has_the_next_number<B: Backend>() {
    let backend = B::default();
    let mut store = backend.functions();
    let mut publish = |tenant: &str, name: &str, content: &str, time| {
        store.publish_layer(&named(tenant, name), &version(content, time)).unwrap()
    };
    assert_eq!(publish("b", "l", "1", 1), 1);
    assert_eq!(publish("acme", "l", "2", 2), 1);
    assert_eq!(publish("acme", "l", "2", 3), 2);
    assert_eq!(publish("acme", "L", "4", 4), 1);
    drop(store);
    let all = [
        row("acme", "L", 1, "4", 4),
        row("acme", "l", 1, "2", 2),
        row("acme", "l", 2, "2", 3),
        row("b", "l", 1, "1", 1),
    ];
    assert_eq!(backend.functions().layers().unwrap(), all);
}

/// The number of a removed version names no other.
pub fn a_number_of_a_layer_is_not_given_twice<B: Backend>() {
    let backend = B::default();
    let layer = named("acme", "l");
    let publish = || backend.functions().publish_layer(&layer, &version("x", 1)).unwrap();
    assert_eq!((publish(), publish()), (1, 2));
    assert!(backend.functions().remove_layer(&layer, 2).unwrap());
    assert!(!backend.functions().remove_layer(&layer, 2).unwrap());
    assert!(!backend.functions().remove_layer(&named("b", "l"), 1).unwrap());
    assert!(backend.functions().remove_layer(&layer, 1).unwrap());
    assert_eq!(backend.functions().layers().unwrap(), []);
    assert_eq!(publish(), 3);
}

/// A policy is set, replaced and taken away, and goes with its version.
pub fn a_policy_goes_with_its_version_of_a_layer<B: Backend>() {
    let backend = B::default();
    let layer = named("acme", ODD[0]);
    let mut store = backend.functions();
    store.publish_layer(&layer, &version("x", 1)).unwrap();
    store.publish_layer(&layer, &version("x", 1)).unwrap();
    for policy in ODD {
        assert!(store.set_layer_policy(&layer, 2, Some(policy)).unwrap());
    }
    assert!(!store.set_layer_policy(&layer, 3, Some("x")).unwrap());
    assert!(!store.set_layer_policy(&named("b", ODD[0]), 1, Some("x")).unwrap());
    drop(store);
    let policies = || -> Vec<_> {
        let rows = backend.functions().layers().unwrap().into_iter();
        rows.map(|row| row.policy).collect()
    };
    assert_eq!(policies(), [None, Some(ODD[ODD.len() - 1].to_owned())]);
    assert!(backend.functions().set_layer_policy(&layer, 2, None).unwrap());
    assert_eq!(policies(), [None, None]);
}

/// The bundles of layers are told beside those of functions.
pub fn the_bundles_of_layers_are_told<B: Backend>() {
    let backend = B::default();
    let layer = named("acme", "l");
    backend.functions().publish_layer(&layer, &version("x", 1)).unwrap();
    assert_eq!(backend.functions().bundles().unwrap(), [blake3::hash(b"x").into()].into());
    backend.functions().remove_layer(&layer, 1).unwrap();
    assert_eq!(backend.functions().bundles().unwrap(), [].into());
}
