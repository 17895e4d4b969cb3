//! Wheels that somebody else's code made: read through before they are unpacked, and read again once they are.

use std::cell::OnceCell;
use std::fs;

use packages::fuzzed;
use tempfile::TempDir;

use crate::scratch::scratch;

/// Between the metadata and the list of files of an unpacked wheel: in no UTF-8 text.
const NEXT: u8 = 0xff;

pub(crate) fn fuzz(bytes: &[u8]) {
    if let Err(error) = fuzzed::wheel("pack", "1.0", "pack-1.0-py3-none-any.whl", bytes) {
        assert!(!error.to_string().is_empty());
    }
    // Its name comes from a directory that its build wrote to.
    let name = String::from_utf8_lossy(bytes);
    assert!(fuzzed::wheel("pack", "1.0", &name, b"").is_err(), "nothing is no archive");
    unpacked(bytes);
    if let Some(command) = fuzzed::command(bytes) {
        assert!(command.starts_with(b"#!/usr/bin/python3\n"));
    }
}

fn unpacked(bytes: &[u8]) {
    thread_local!(static PLACE: OnceCell<TempDir> = const { OnceCell::new() });
    PLACE.with(|place| {
        let root = place.get_or_init(scratch).path();
        let info = root.join("pack-1.0.dist-info");
        fs::create_dir_all(&info).expect("there is room for a directory");
        let mut parts = bytes.splitn(2, |byte| *byte == NEXT);
        for name in ["METADATA", "RECORD"] {
            fs::write(info.join(name), parts.next().unwrap_or_default()).expect("there is room");
        }
        fs::write(info.join("WHEEL"), "").expect("there is room");
        let brought = packages::bundled::recognise(root, "app").expect("its files are there");
        for path in brought.leaving() {
            assert!(path.starts_with("pack-1.0.dist-info/"), "{path:?} is no file of it");
        }
        if let Ok(found) = fuzzed::distribution(root) {
            let (name, version) = found.expect("there is a directory of metadata");
            let plain =
                |text: &str| !text.is_empty() && !text.starts_with('.') && !text.contains('/');
            assert!(plain(&name) && plain(&version), "{name:?} {version:?} would be a path");
        }
    });
}
