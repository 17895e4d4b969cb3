//! What every store of bundles does.

use std::io::{self, Read as _};

use function::BundleDigest;

use super::Backend;

fn digest(text: &str) -> BundleDigest {
    blake3::hash(text.as_bytes()).into()
}

fn put(backend: &impl Backend, text: &str) {
    let pack = &mut |archive: &mut dyn io::Write| archive.write_all(text.as_bytes());
    backend.bundles().put(&digest(text), pack).unwrap();
}

fn get(backend: &impl Backend, text: &str) -> Option<String> {
    let mut archive = backend.bundles().get(&digest(text)).unwrap()?;
    let mut read = String::new();
    archive.read_to_string(&mut read).unwrap();
    Some(read)
}

/// An archive comes back whole, however often it is asked for.
pub fn a_bundle_comes_back_as_it_was_packed<B: Backend>() {
    let backend = B::default();
    assert_eq!(get(&backend, "a"), None);
    let long = "🐑".repeat(1 << 18);
    for text in ["a", "", &long] {
        put(&backend, text);
        assert_eq!(get(&backend, text).as_deref(), Some(text));
    }
    assert_eq!(get(&backend, "a").as_deref(), Some("a"));
}

/// A bundle that is there is not packed again.
pub fn a_bundle_that_is_there_is_not_packed_again<B: Backend>() {
    let backend = B::default();
    put(&backend, "a");
    let mut packed = false;
    let pack = &mut |_: &mut dyn io::Write| {
        packed = true;
        Ok(())
    };
    backend.bundles().put(&digest("a"), pack).unwrap();
    assert!(!packed);
    assert_eq!(get(&backend, "a").as_deref(), Some("a"));
}

/// A bundle whose packing failed is not there, and can be put.
pub fn a_bundle_that_could_not_be_packed_is_not_there<B: Backend>() {
    let backend = B::default();
    let pack = &mut |archive: &mut dyn io::Write| {
        archive.write_all(b"half")?;
        Err(io::ErrorKind::StorageFull.into())
    };
    assert!(backend.bundles().put(&digest("a"), pack).is_err());
    assert_eq!(get(&backend, "a"), None);
    put(&backend, "a");
    assert_eq!(get(&backend, "a").as_deref(), Some("a"));
}

/// All others go when some are retained.
pub fn only_retained_bundles_stay<B: Backend>() {
    let backend = B::default();
    ["a", "b", "c"].iter().for_each(|text| put(&backend, text));
    backend.bundles().retain(&[digest("b"), digest("never put")].into()).unwrap();
    let there = ["a", "b", "c", "never put"].map(|text| get(&backend, text).is_some());
    assert_eq!(there, [false, true, false, false]);
    backend.bundles().retain(&[].into()).unwrap();
    assert_eq!(get(&backend, "b"), None);
}

/// A removed bundle can be put again; the others stay.
pub fn a_removed_bundle_is_packed_anew<B: Backend>() {
    let backend = B::default();
    let pack = &mut |archive: &mut dyn io::Write| archive.write_all(b"damaged");
    backend.bundles().put(&digest("a"), pack).unwrap();
    put(&backend, "b");
    backend.bundles().remove(&digest("a")).unwrap();
    backend.bundles().remove(&digest("never put")).unwrap();
    assert_eq!(get(&backend, "a"), None);
    put(&backend, "a");
    assert_eq!(
        ["a", "b"].map(|text| get(&backend, text)),
        ["a", "b"].map(|text| Some(text.into()))
    );
}
