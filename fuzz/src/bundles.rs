//! Uploads: an archive is refused, or lies unpacked in its one place as it was counted, without links.

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::OnceLock;

use bundle::code::{Bundle, CodeError, MAX_BYTES, MAX_FILES};
use layers::Store;
use tempfile::TempDir;

use crate::scratch::scratch;

pub(crate) fn zip(bytes: &[u8]) {
    check(|store| Bundle::from_zip(store, Cursor::new(bytes)));
}

pub(crate) fn tar(bytes: &[u8]) {
    check(|store| Bundle::from_tar(store, bytes));
}

fn check(take: impl FnOnce(&Store) -> Result<Bundle, CodeError>) {
    static PLACE: OnceLock<(TempDir, Store)> = OnceLock::new();
    let (place, store) = PLACE.get_or_init(|| {
        let place = scratch();
        let store = Store::open(&place.path().join("state")).expect("a store can be made");
        (place, store)
    });
    match take(store) {
        Ok(bundle) => {
            let (mut files, mut bytes) = (0, 0);
            count(bundle.path(), &mut files, &mut bytes);
            assert_eq!((files, bytes), (bundle.files, bundle.bytes));
            assert!((1..=MAX_FILES).contains(&files) && bytes <= MAX_BYTES);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let beside: Vec<_> = fs::read_dir(place.path()).expect("it is there").flatten().collect();
    assert_eq!(beside.len(), 1, "something was written outside: {beside:?}");
}

fn count(directory: &Path, files: &mut usize, bytes: &mut u64) {
    for entry in fs::read_dir(directory).expect("a directory can be listed").flatten() {
        let metadata = fs::symlink_metadata(entry.path()).expect("what is listed is there");
        if metadata.is_dir() {
            count(&entry.path(), files, bytes);
        } else {
            assert!(metadata.is_file(), "{entry:?} is neither file nor folder");
            *files += 1;
            *bytes += metadata.len();
        }
    }
}
